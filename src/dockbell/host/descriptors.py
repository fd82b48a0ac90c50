"""How many files and connections this process may have open at a time: each takes a file descriptor."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

_PLENTY: Final = 65_536
"""What is asked for where the system sets no limit of its own."""


def raise_limit() -> None:
    """Let this process have as many as it is allowed to take; 1,024 is a default for the sake of old programs.

    Where that is refused, all stays as it is.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _PLENTY if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def find_limit() -> int:
    """Return how many there may be."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _PLENTY if soft == resource.RLIM_INFINITY else soft
