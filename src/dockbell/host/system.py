"""The steady clock, and how many files and connections this process may have open: each takes a file descriptor."""

from __future__ import annotations

import resource
import time
from contextlib import suppress
from datetime import timedelta
from typing import Final

# Unlike the event loop's clock, CLOCK_BOOTTIME goes on while the machine sleeps; not every system has it.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_PLENTY: Final = 65_536
"""How many files are asked for where the system sets no limit of its own."""


def elapsed() -> timedelta:
    """Return the time since some origin; it only goes forward, also when the wall clock is set back."""
    return timedelta(seconds=time.clock_gettime(_STEADY))


def raise_limit() -> None:
    """Let this process open as many files as it may, unless that is refused; 1,024 is a default for old programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _PLENTY if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def find_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _PLENTY if soft == resource.RLIM_INFINITY else soft
