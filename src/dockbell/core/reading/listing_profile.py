"""The profile of a feed's listing: what its pages have in common, learned from them and checked on each.

How records are named, dated, written and ordered is nowhere promised, so it is learned: from a page of ten records at
least, and only where the records of the page agree. A later page that contradicts is a *drift*: it is reported once,
and the new value takes the place of the old. What keeps changing is reported a few times, and then called varying.
What is observed, and how each drift reads, is the table in :mod:`~dockbell.core.reading.observations`.

Nothing relies on the profile but the start of a poll's window, which is rounded down to the precision of the
timestamps.

A page says nothing new nearly always, and this runs for every page. So only the first and the last record are looked
into; of all others, the keys and dates that their comparison has found anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from dockbell.core.model import Page
from dockbell.core.reading.observations import OBSERVATIONS, Offset
from dockbell.core.reading.page_sample import UNITS, Sighting, view_page
from dockbell.core.reading.traits import Trait

STEADY_RUNS: Final = 10
"""So many complete runs of several pages without a repeated record make steady cursors."""


class CursorKind(StrEnum):
    """What runs of several pages have shown of the cursors."""

    UNKNOWN = "unknown"
    DRIFTING = "drifting"  # a run showed records twice: its pages shifted while it read them
    STEADY = "steady"  # many runs did not


class Beside(StrEnum):
    """What an API takes beside a cursor."""

    FILTERS = "filters"  # and the limit
    LIMIT = "limit"
    NOTHING = "nothing"


class ListingProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was learned of one feed's listing."""

    envelope: Trait = Trait()
    key: Trait = Trait()  # what the parts of the key are, ``text`` or ``integer``
    form: Trait = Trait()
    """How timestamps are written: ``Z``, ``offset``, ``naive``, or as a unit (``seconds`` …) since 1970."""
    dated: Trait = Trait()  # whether ``all`` records have a timestamp, or ``none``, or some (``mixed``)
    unit: Trait = Trait()
    """The coarsest unit in which all timestamps are whole; those of the last hour alone, once there were enough."""
    fresh: bool = False  # there were enough of the last hour
    order: Trait = Trait()
    """The orders that every page of the whole list has kept so far, the likeliest first, or ``none``."""
    poll_order: Trait = Trait()  # the same of the pages of polls
    clock: Trait = Trait()
    offset: Offset | None = None  # how far the service's clock is ahead of ours, where ``Date`` tells it
    skew: int | None = None
    """The records' clock is ahead of the service's by at least this many seconds; below zero, behind by that many at
    the most. Kept within a factor of two, so that it is not stored anew with every poll."""
    clean_runs: int = 0  # how many complete runs of several pages showed no record twice, at most ``STEADY_RUNS``
    repeated: int = 0  # how many records the first run showed twice that did
    page_most: int = 0  # the most records on a page that had a cursor; 0 while none was long enough to learn from
    reach: float | None = None
    """The API refuses an ``updated_since`` older than this, in seconds; None where no bound is known."""
    beside_cursor: Beside = Beside.FILTERS

    def to_json(self) -> str:
        return "" if self == _UNKNOWN else msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> ListingProfile:
        """Return what was stored; nothing known where another version stored it, for it is soon learned again."""
        try:
            return msgspec.json.decode(text or "{}", type=cls)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return cls()

    @property
    def precision(self) -> timedelta:
        """The unit to which the start of a poll is rounded down: a second, until the timestamps' own is known."""
        return UNITS.get(self.unit.value, UNITS["seconds"])

    @property
    def behind(self) -> timedelta | None:
        """How far the records' clock is behind the service's at the most; None where that is not known."""
        return None if self.skew is None else timedelta(seconds=max(-self.skew, 0))

    @property
    def cursors(self) -> CursorKind:
        if self.repeated:
            return CursorKind.DRIFTING
        return CursorKind.STEADY if self.clean_runs >= STEADY_RUNS else CursorKind.UNKNOWN

    def observe(self, page: Page, sighting: Sighting) -> tuple[ListingProfile, tuple[str, ...]]:
        """Return what is known after a page, the very same object for nothing new, and its drifts, a sentence each."""
        if not page.records:
            return self, ()
        view, changes, drifts = view_page(page, sighting), dict[str, Any](), []
        for field, _, learn, _ in OBSERVATIONS:
            value, drift = learn(self, view)
            if value != getattr(self, field):
                changes[field] = value
            if drift:
                drifts.append(drift)
        return (msgspec.structs.replace(self, **changes) if changes else self), tuple(drifts)

    def end_run(self, *, pages: int, repeated: int, complete: bool) -> tuple[ListingProfile, tuple[str, ...]]:
        """Return what is known after a run, and what it showed otherwise; the very same object for nothing new.

        ``repeated`` is how many records it showed a second time; ``complete``: it was read to its end.
        """
        if self.repeated or pages <= 1:
            return self, ()
        if repeated > 0:
            steady = self.cursors is CursorKind.STEADY
            drift = f"runs of several pages showed no record twice, and now one showed {repeated:,} twice"
            return msgspec.structs.replace(self, repeated=repeated), (drift,) if steady else ()
        if not complete or self.clean_runs >= STEADY_RUNS:
            return self, ()
        return msgspec.structs.replace(self, clean_runs=self.clean_runs + 1), ()

    def learn_reach(self, reach: timedelta) -> tuple[ListingProfile, tuple[str, ...]]:
        """Return what is known after the API refused an ``updated_since`` older than this, and the news."""
        drift = f"polls can request only records modified in the last {_in_words(reach)}"
        return msgspec.structs.replace(self, reach=reach.total_seconds()), (drift,)

    def turn_beside_cursor(self, beside: Beside) -> tuple[ListingProfile, tuple[str, ...]]:
        drift = {
            Beside.FILTERS: "for a cursor alone, the API returned a list without the filters",
            Beside.LIMIT: "the API refuses a cursor with filters, and returns the same pages for the cursor alone",
            Beside.NOTHING: "the API refuses a cursor with a limit, and returns the same pages for the cursor alone",
        }[beside]
        return msgspec.structs.replace(self, beside_cursor=beside), (drift,)

    def describe(self) -> Sequence[tuple[str, str]]:
        lines = [(each.name, each.describe(getattr(self, each.field))) for each in OBSERVATIONS if each.name]
        lines += [
            ("cursors", _describe_cursors(self)),
            ("updated_since", "" if self.reach is None else f"at most {_in_words(timedelta(seconds=self.reach))} back"),
            ("filters", _BESIDE.get(self.beside_cursor, "")),
        ]
        return [(name, words) for name, words in lines if words]


_UNKNOWN: Final = ListingProfile()
_BESIDE: Final = {
    Beside.LIMIT: "sent for the first page only: the API accepts a cursor alone",
    Beside.NOTHING: "sent for the first page only, like the limit: the API accepts a cursor alone",
}


def _describe_cursors(listing_profile: ListingProfile) -> str:
    if listing_profile.cursors is CursorKind.DRIFTING:
        return f"drifting: a run showed {listing_profile.repeated:,} records twice"
    if listing_profile.cursors is CursorKind.STEADY:
        return f"steady: {STEADY_RUNS} runs of several pages showed no record twice"
    return f"unknown: {listing_profile.clean_runs} runs of several pages so far" if listing_profile.clean_runs else ""


def _in_words(span: timedelta) -> str:
    """Return a span as ``6.9 days``, in its largest unit."""
    for name, unit in (("days", timedelta(days=1)), ("hours", timedelta(hours=1)), ("minutes", timedelta(minutes=1))):
        if span >= unit:
            return f"{span / unit:.1f} {name}"
    return f"{span.total_seconds():.0f} seconds"
