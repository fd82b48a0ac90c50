"""When each page of a pass is due: evenly, so that requests and the readings of each record are, too."""

from __future__ import annotations

from datetime import timedelta


def page_pace(pages: float, interval: timedelta, cursor_life: timedelta | None = None) -> timedelta:
    """Return the time from when one page of a pass is due until the next one is.

    Asked anew for each page, it lets a pass that is under way follow the plan. ``pages``: how many it has.
    ``cursor_life``: the shortest time after which the API refused a cursor; no pass is spread over more than half.
    """
    span = interval if cursor_life is None else min(interval, cursor_life / 2)
    return span / max(1.0, pages)
