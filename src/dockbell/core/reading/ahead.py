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

A run of several pages, short or whole, may have lost records at page edges (window.py). So its newest date is only a
*candidate*, less the time that it took: the run after the next one starts there, once the next one has read the same
dates again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

WHOLE_EVERY_MOST: Final = timedelta(minutes=10)
"""So long a change waits at the most that is not dated ahead, unless whole polls are very long."""
CONTRADICTED_FOR: Final = timedelta(days=1)
"""So long no poll is short after a change that a short one would not have shown."""
QUIET_RUNS: Final = 2
"""So many short polls in a row, of several pages, must have met nothing new before the next ones leave all that out."""

_PAGES_LEAST: Final = 2
_INSTANT: Final = timedelta(milliseconds=1)
_OTHERS_MOST: Final = 100
_INTERVALS_A_PAGE: Final = 4
_PACE: Final = timedelta(seconds=6)
"""So long a feed rests for each page of a whole poll, at the least."""


class AheadRun(msgspec.Struct, frozen=True):
    """What a complete poll showed, short or whole."""

    pages: int
    newest: datetime | None  # the newest date that it met ahead of the service's clock; None where none is ahead
    took: timedelta  # from its first request to its last answer
    oldest_unseen: datetime | None = None
    """The oldest date of what it, or another run meanwhile, met for the first time."""


class ShortPolls(msgspec.Struct, frozen=True):
    """Whether polls may be short now; times are those of the monotonic clock."""

    proven: datetime | None = None
    """What is dated before this was read, but for what became visible late; None: polls are whole."""
    candidate: datetime | None = None  # the same, once another run has read it again; None before the first run
    newest: datetime | None = None  # the newest date met, which lies ahead of the service's clock
    quiet: int = 0  # how many short polls in a row, of several pages, met nothing new, ``QUIET_RUNS`` at the most
    whole_at: timedelta = timedelta(0)  # when the next poll is to be whole
    allowed_at: timedelta = timedelta(0)
    """Before this all polls are whole, because a change came that a short one would not have shown."""

    def start(self, lookback: timedelta, now: timedelta) -> datetime | None:
        """Return from when a short poll asks; None where the next one is to be whole."""
        if self.proven is None or self.newest is None or now >= self.whole_at:
            return None
        return self.newest + _INSTANT if self.quiet >= QUIET_RUNS else self.proven - lookback

    def after_short(self, run: AheadRun) -> ShortPolls:
        """Return what follows from a complete short poll."""
        is_quiet = run.oldest_unseen is None and run.pages >= _PAGES_LEAST
        has_more = run.newest is not None and (self.newest is None or run.newest > self.newest)
        quiet = 0 if has_more else self.quiet + is_quiet
        return replace(self._follow(run), quiet=min(quiet, QUIET_RUNS))

    def is_contradicted(self, oldest_unseen: datetime | None, lookback: timedelta) -> bool:
        """Return whether another run met a change that short polls do not show."""
        return oldest_unseen is not None and self.proven is not None and oldest_unseen < self.proven - lookback

    def after_whole(
        self, run: AheadRun, *, others: int, lookback: timedelta, every: timedelta, now: timedelta
    ) -> ShortPolls:
        """Return what follows from a complete whole poll, of which ``others`` records are not dated ahead.

        A record may be dated ``lookback`` before the newest date and become visible after it. ``every`` is the interval
        of polls; ``now`` is of the monotonic clock.
        """
        if self.is_contradicted(run.oldest_unseen, lookback):
            return ShortPolls(allowed_at=now + CONTRADICTED_FOR)
        if run.newest is None or run.pages < _PAGES_LEAST or others > _OTHERS_MOST or now < self.allowed_at:
            return ShortPolls(allowed_at=self.allowed_at)
        rest = max(min(every * run.pages * _INTERVALS_A_PAGE, WHOLE_EVERY_MOST), run.pages * _PACE)
        quiet = self.quiet if run.newest == self.newest else 0
        return replace(self._follow(run), quiet=quiet, whole_at=now + rest)

    def _follow(self, run: AheadRun) -> ShortPolls:
        """Return up to where all is read after a complete run, and up to where it is once another one has agreed."""
        if run.newest is None:
            return self
        newest = run.newest if self.newest is None else max(run.newest, self.newest)
        if run.pages < _PAGES_LEAST:
            return replace(self, proven=newest, candidate=newest, newest=newest)
        return replace(self, proven=self.candidate, candidate=newest - run.took, newest=newest)
