"""The steady clock."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

# Unlike the event loop's clock, CLOCK_BOOTTIME goes on while the machine sleeps; not every system has it.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> timedelta:
    """Return the time since some origin; it only goes forward, also when the wall clock is set back."""
    return timedelta(seconds=time.clock_gettime(_STEADY))
