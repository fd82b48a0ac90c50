"""How far back an API lets polls ask, and from when a poll may start then without leaving out a change.

Some APIs refuse an ``updated_since`` that is older than a week, or a day. A poll asks for more than that after a long
outage, or on a feed where nothing changes for long: its window starts at the newest timestamp met. The *reach* is the
age of the start that such an API still accepts, found by asking once.

A window that is cut at the reach covers everything if what it leaves out was read before: by the polls that brought the
watermark to where it is, or by a complete pass, which reads all that was visible when it began. Records may be dated
behind the service's clock: a day is allowed for that, or less where the feed has shown how far its records' clock is
behind. Where the cut window does not cover everything, the poll still reports what it shows, but it proves nothing, and
a pass has to read what lies between.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

BEHIND_MOST: Final = timedelta(days=1)
"""The records' clock is assumed to be behind by no more than this: local time is at most 14 h off."""

_MARGIN: Final = 0.99
"""An API that accepts a week refuses a start that is a week old when the request arrives."""
_AGES: Final = tuple(
    each * _MARGIN
    for each in (
        *(timedelta(days=days) for days in (365, 180, 90, 60, 30, 14, 7, 3, 2, 1)),
        *(timedelta(hours=hours) for hours in (12, 6, 3, 1)),
        *(timedelta(minutes=minutes) for minutes in (30, 10, 2)),
    )
)


class BoundWindow(NamedTuple):
    """From when a poll asks.

    Attributes:
        since: Its ``updated_since``.
        is_covered: All that it leaves out was read before.
    """

    since: datetime
    is_covered: bool


def ages_to_try(refused: timedelta) -> Sequence[timedelta]:
    """Return the ages that an API may accept which refused a start of this age, the longest first."""
    return tuple(age for age in _AGES if age < refused * _MARGIN)


def bound_window(
    since: datetime,
    reach: timedelta | None,
    *,
    now: datetime,
    read_until: datetime,
    behind: timedelta,
    lookback: timedelta,
) -> BoundWindow:
    """Return from when a poll asks.

    Args:
        since: Where it would start if the API took any start.
        reach: The age of the oldest start that the API accepts; None where no bound is known.
        now: The service's time.
        read_until: Everything that was visible before this service time was read, by polls or by a complete pass.
        behind: How far the records' clock is behind the service's at the most.
        lookback: How far before ``read_until`` a record may be dated that became visible after it.
    """
    if reach is None or now - since <= reach:
        return BoundWindow(since, is_covered=True)
    oldest = now - reach
    # A bound shorter than the allowance would never be covered, and no pass would help.
    allowance = min(behind, BEHIND_MOST, reach / 2) + min(lookback, reach / 4)
    return BoundWindow(oldest, is_covered=oldest <= read_until - allowance)
