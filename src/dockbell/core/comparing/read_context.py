"""How a page was read: what earlier runs of its feed have proven, and which comparison it is fit for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from dockbell.core.comparing.drift import Drift
from dockbell.core.comparing.page_diff import Stored
from dockbell.core.model import Via
from dockbell.core.moment import to_micros

_RIGHT: Final = timedelta(minutes=1)
"""A records' clock that is behind by less may be right: nothing was modified just before it was looked at."""
_PLAUSIBLE: Final = timedelta(days=7)
"""A change that was dated longer ago was not made then."""


class ReadContext(msgspec.Struct, frozen=True):
    """How a page was read, as far as its comparison depends on it."""

    via: Via
    first_asked_at: datetime
    """The service's time of the feed's first request, or of the first with its present read settings."""
    boundary: datetime | None = None
    """The same moment on the records' own clock: all records that were visible then and are dated later are stored.
    None while that is not known."""
    baseline: bool = False  # no complete pass has ended yet: unknown records dated before the boundary are no news
    settling: bool = False
    """Only one pass has ended, and its pages may have shifted: in the second, dated records from before the boundary
    are no news either."""
    emit: bool = False  # publish each baseline record as a ``snapshot``
    provisional: bool = False  # the key was learned and is not proven unique: nothing is published
    rebaselining: bool = False  # the stored records were read with other settings: a difference alone is no change
    last_poll: tuple[datetime, datetime] | None = None
    """What polls have proven: everything dated after the first time, and visible at the second, was shown."""
    last_pass: datetime | None = None  # the service's time of the first request of the last complete pass
    is_pass_whole: bool = True  # that pass showed no record twice, and its deletions were not suspended
    skew: timedelta | None = None
    """The records' clock is ahead of the service's by at least this much; None while that is not known."""
    precision: timedelta = timedelta(seconds=1)  # the unit of the records' dates
    covered_until: datetime | None = None
    """Complete runs have shown everything dated before, as far as it was visible then."""
    polled_from: datetime | None = None  # a change dated before it, and found by another run, is one that polls missed
    stale_window: timedelta = timedelta(0)  # how long a reading must last that looks like a lagging replica's
    drift: Drift | None = None
    may_ask_again: bool = False  # the page may be requested again, where it is odd
    run_asked_at: datetime | None = None  # the service's time of the run's first request; None: it is this page's

    @property
    def emits(self) -> bool:
        """Whether baseline records are published one by one as they are read."""
        return self.emit and not self.provisional

    @property
    def began_at(self) -> datetime:
        """Records dated before this existed when the feed was first requested, as far as their dates tell."""
        return self.boundary or self.first_asked_at

    @property
    def settles(self) -> bool:
        """Whether this is the second pass, which alone shows what the first one may have skipped."""
        return self.settling and self.via is Via.PASS

    def was_there(self, date: datetime, answered_at: datetime) -> bool:
        """Return whether a record of this date was there when the feed was first asked for.

        Where the boundary is not known, a date of the service's future says nothing in the first pass: in an API whose
        records are dated hours ahead, all that changed in these hours would else be news.
        """
        if date < self.began_at:
            return True
        return self.baseline and self.boundary is None and date > answered_at

    def unseen_since(self, modified: datetime | None, known: Stored | None = None) -> datetime | None:
        """Return the start of the last complete run that would have shown a record of this date.

        A pass shows what is stored, unless it noted its absence. Of what is not stored it says something only if no
        record came twice: else others may have slipped past a page edge.
        """
        is_stored = known is not None and known.gone_at is None
        shown = not known.missed if known is not None and is_stored else self.is_pass_whole
        last_pass = self.last_pass if shown else None
        if self.last_poll is not None:
            since, asked_at = self.last_poll
            if modified >= since if modified is not None else self.via is Via.POLL:
                return asked_at if last_pass is None else max(asked_at, last_pass)
        return last_pass

    def date(self, modified: datetime | None, until: datetime) -> datetime | None:
        """Return when a record was modified by the service's clock, as far as its date is plausible; else None."""
        if modified is None:
            return None
        dates = [modified]
        if self.skew is not None and (self.skew <= -_RIGHT or (self.skew > timedelta(0) and modified > until)):
            dates.insert(0, modified - self.skew)
        return next((date for date in dates if until - _PLAUSIBLE <= date <= until), None)

    def is_late(self, modified: datetime | None, since: datetime | None, until: datetime) -> bool:
        """Return whether the run begun at ``since`` covered a change and did not show it, as far as the clocks tell."""
        if modified is None or since is None or self.skew is None or self.skew <= -_RIGHT:
            return False
        behind = max(-self.skew, timedelta(0)) + self.precision
        return modified + behind < since and self.date(modified, until) == modified

    def lateness(self, modified: datetime | None, before: int | None) -> timedelta | None:
        """Return how long a change was dated but not visible, by proof of earlier runs that covered it; None: not.

        A record that they did show, with the same date (``before``, in µs) and other content, changed silently: that
        says nothing of when it became visible.
        """
        if modified is None or self.covered_until is None or to_micros(modified) == before:
            return None
        late = self.covered_until - modified
        return late if late > timedelta(0) else None
