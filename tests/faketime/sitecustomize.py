"""Python under libfaketime, found by ``PYTHONPATH``: mends the one call that libfaketime 0.9.10 breaks.

With ``FAKETIME_DONT_FAKE_MONOTONIC``, its ``clock_nanosleep`` refuses every absolute time of the monotonic clock
(EINVAL), and :func:`time.sleep` asks for nothing else.
"""

from __future__ import annotations

import select
import time
from typing import Any


def _sleep(seconds: Any, /) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = _sleep
