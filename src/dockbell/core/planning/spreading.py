"""When polls and the pages of a pass are due: evenly, so that requests and the readings of each record are, too."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

_MADE_UP_MOST: Final = timedelta(seconds=5)
_TOGETHER: Final = timedelta(seconds=1)
"""Pages that are due within this are asked for one right after the other, as far as the budget allows it: a process
that wakes up for each page takes up to 1.8 times the CPU (docs/benchmarks.md)."""


def page_pace(pages: float, interval: timedelta, cursor_life: timedelta | None = None) -> timedelta:
    """Return the time from when one page of a pass is due until the next one is.

    Asked anew for each page, it lets a pass that is under way follow the plan. ``pages``: how many it has.
    ``cursor_life``: the shortest time after which the API refused a cursor; no pass is spread over more than half.
    """
    span = interval if cursor_life is None else min(interval, cursor_life / 2)
    return span / max(1.0, pages)


def page_wait(due: timedelta, now: timedelta) -> timedelta:
    """Return how long to wait before a page of a pass is asked for that is due at a time by the steady clock."""
    return due - now if due - now > _TOGETHER else timedelta(0)


def count_from(due: timedelta, began: timedelta, interval: timedelta) -> timedelta:
    """Return from when the interval after a run counts: from when it was due, so that small delays do not add up.

    Args:
        due: When the run was due, by the steady clock.
        began: When it began; a delay of more than its interval, or of seconds, is not made up for.
        interval: From the start of a run to the start of the next one.
    """
    return max(due, began - min(interval, _MADE_UP_MOST))
