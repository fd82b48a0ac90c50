"""Short polls of a feed whose records are dated ahead of the service's clock (local time that says no zone, for one).

The window of a poll starts at the watermark, which is a time of the service's clock. Records dated eight hours ahead
stay in that window for eight hours, so each poll reads all that changed in that time: thousands of requests an hour on
a feed where next to nothing happens. The window cannot start later on the word of the records' dates alone: a second
writer may have the right clock, the wrong one may be mended, summer time may end. What is dated then lies before the
start.

So most polls are *short*: they start at the newest date met, less the lookback, show what is dated ahead within
seconds, and prove nothing. A *whole* poll, from the watermark, is made now and then, and it alone moves the watermark:
nothing is lost, whatever the clocks do. A record that is not dated ahead waits for the next whole poll, or trailing
poll. When one of these meets such a change, polls are whole again for a day.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

WHOLE_EVERY_MOST: Final = timedelta(minutes=10)
"""So long a change waits at the most that is not dated ahead, unless whole polls are very long."""
CONTRADICTED_FOR: Final = timedelta(days=1)
"""So long no poll is short after a change that a short one would not have shown."""

_PAGES_LEAST: Final = 2
_INSTANT: Final = timedelta(milliseconds=1)
_OTHERS_MOST: Final = 100
_INTERVALS_A_PAGE: Final = 4
_PACE: Final = timedelta(seconds=6)
"""So long a feed rests for each page of a whole poll, at the least."""


@dataclass(frozen=True, slots=True)
class ShortPolls:
    """Whether polls may be short now; times are those of the monotonic clock."""

    newest: datetime | None = None
    """The newest date met, which lies ahead of the service's clock; None: polls are whole."""
    is_read: bool = False  # a short poll of several pages met nothing new: the next ones start after the newest date
    whole_at: timedelta = timedelta(0)  # when the next poll is to be whole
    allowed_at: timedelta = timedelta(0)
    """Before this all polls are whole, because a change came that a short one would not have shown."""

    def start(self, lookback: timedelta, now: timedelta) -> datetime | None:
        """Return from when a short poll asks; None where the next one is to be whole."""
        if self.newest is None or now >= self.whole_at:
            return None
        return self.newest + _INSTANT if self.is_read else self.newest - lookback

    def after_short(self, newest: datetime | None, *, pages: int, is_quiet: bool) -> ShortPolls:
        """Return what follows from a complete short poll; ``newest`` is the newest date ahead of the service."""
        if self.newest is not None and newest is not None and newest > self.newest:
            return replace(self, newest=newest, is_read=False)
        return replace(self, is_read=True) if is_quiet and pages >= _PAGES_LEAST else self

    def is_contradicted(self, oldest_unseen: datetime | None, lookback: timedelta) -> bool:
        """Return whether another run met a change that short polls do not show."""
        return oldest_unseen is not None and self.newest is not None and oldest_unseen < self.newest - lookback

    def after_whole(
        self,
        *,
        pages: int,
        others: int,
        newest: datetime | None,
        oldest_unseen: datetime | None,
        lookback: timedelta,
        every: timedelta,
        now: timedelta,
    ) -> ShortPolls:
        """Return what follows from a complete whole poll, of which ``others`` records are not dated ahead.

        ``newest`` is the newest date that it met, a day ahead at the most; None where none is ahead. ``oldest_unseen``
        is the oldest date of what it, or another run meanwhile, met for the first time. A record may be dated
        ``lookback`` before the newest date and become visible after it. ``every`` is the interval of polls; ``now`` is
        of the monotonic clock.
        """
        if self.is_contradicted(oldest_unseen, lookback):
            return ShortPolls(allowed_at=now + CONTRADICTED_FOR)
        if newest is None or pages < _PAGES_LEAST or others > _OTHERS_MOST or now < self.allowed_at:
            return ShortPolls(allowed_at=self.allowed_at)
        rest = max(min(every * pages * _INTERVALS_A_PAGE, WHOLE_EVERY_MOST), pages * _PACE)
        is_read = self.is_read and newest == self.newest
        return ShortPolls(newest, is_read, now + rest, self.allowed_at)
