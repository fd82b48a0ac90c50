"""What runs over a feed leave behind: counts, how far they came, what is known of the feed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

import msgspec

from dockbell.core.comparing.drift import Drift
from dockbell.core.comparing.page_diff import PageDiff, Pending
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import JSON, Change, Feed, RunKind, Statement
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress


class Tally(msgspec.Struct, frozen=True):
    """What a run found, counted in records.

    Attributes:
        created: New ones.
        updated: Changed ones.
        deleted: Gone ones.
        restored: Ones that were back.
        missed: Changes among these that polls should have shown before.
        silent: Changes among these whose timestamp did not move.
        held: Readings older than what is stored, newly held.
        drifted: Readings held because many differ by the same fields.
        bad: Ones that could not be told apart or read.
        keyless: Those of them that have no key: each may be any record.
        repeated: Ones that the run showed more than once: its pages shifted.
        skipped: Ones that the second pass met first, and that no date proves new: they were stored silently, because
            they are so many that the first pass cannot have been whole.
    """

    created: int = 0
    updated: int = 0
    deleted: int = 0
    restored: int = 0
    missed: int = 0
    silent: int = 0
    held: int = 0
    drifted: int = 0
    bad: int = 0
    keyless: int = 0
    repeated: int = 0
    skipped: int = 0


class RunRecord(msgspec.Struct, frozen=True):
    """How a run ended.

    Attributes:
        kind: Poll, trailing poll or pass.
        asked_at: S of its first request.
        since: Its ``updated_since``; None for a pass.
        ended_at: Our time of its end.
        problem: Why it is incomplete; empty when it is complete.
        tally: What it found.
        sent_at: Our time of its first request; None where that was not kept.
    """

    kind: RunKind
    asked_at: datetime
    since: datetime | None
    ended_at: datetime
    pages: int
    records: int
    events: int
    problem: str = ""
    tally: Tally = msgspec.field(default_factory=Tally)
    sent_at: datetime | None = None

    @property
    def known_at(self) -> datetime:
        """When what it showed was so, by our clock as far as that was kept: from then on its knowledge ages."""
        return self.sent_at or self.asked_at

    @property
    def read_until(self) -> datetime:
        """The service's time of its end, as far as our clock was not set while it went on."""
        return self.asked_at + max(self.ended_at - self.known_at, timedelta(0))


class Checkpoint(msgspec.Struct, frozen=True):
    """How far a pass has come that a crash may interrupt.

    Attributes:
        cursor: Of the page to read next.
        run: Its bounds and counts, as JSON.
        seen: The rows that any request showed since the pass began.
        rows: Those that the pass itself showed.
        saved_at: Our time.
    """

    cursor: str
    run: bytes
    seen: SeenRows
    rows: SeenRows
    saved_at: datetime


class Reached(msgspec.Struct, frozen=True):
    """How far a pass that goes on had come when it was last saved.

    Attributes:
        pages: How many it had read.
        records: How many there were on them.
        events: How many came of them.
        saved_at: When that was, by our clock.
    """

    pages: int
    records: int
    events: int
    saved_at: datetime


class Failing(msgspec.Struct, frozen=True):
    """Runs of one kind that ended incomplete, one after the other, since the last complete one.

    Attributes:
        count: How many.
        since: When the first of them ended, by our clock.
        until: When the last of them did.
        problem: Why the last of them is incomplete.
    """

    count: int
    since: datetime
    until: datetime
    problem: str


class FeedState(msgspec.Struct, frozen=True):
    """What is stored about a feed.

    Attributes:
        id: The feed's number in this store.
        shape: What identifies and dates its records; None before the first record was seen.
        read_settings: How its records are read: what makes readings comparable; None before the first start.
        proven: The key was unique over a whole complete pass, or is configured.
        rebaselining: It is read differently than what is stored was, until a pass is complete.
        first_asked_at: The first request, by the service's clock; None before it.
        boundary: The same moment on the records' own clock; None while that is not known.
        progress: What its polls have proven.
        lateness: How late its records become visible.
        listing_profile: What was learned of its listing, as JSON; empty before it.
        plan: What its runs found and cost, and the interval by that, as JSON; empty before it.
        signal: What is known of another feed's polls as a signal for this one, as JSON; empty where nothing is.
        passes: How many passes came to the end of the list.
        last_row: The last row that was given to a record.
        sequence: The number of its last event.
        held: Absent records that are not believed to be deleted, at the end of the last pass.
        holds: Readings that are held as older than what is stored.
        quarantined: Records that cannot be told apart or read.
        drift: Fields that came or went in many records at once; None where none did.
        drift_at: When that was found, by our clock.
        drifted: How many readings the last run held as drift.
        emitted: The last row whose snapshot was published; None when no snapshots are due.
        blind: Why a gap is to be stated; empty when none is.
        confirm_at: When a pass is due that confirms the suspected absences; None when there are none.
        problem: What stops it now, for the operator; empty when nothing does.
        poll: The last complete poll.
        full: The last complete pass.
        trailing: The last complete trailing poll.
        failing: The runs that have failed since the last complete one of their kind; of kinds whose last run failed.
        dropped: Pointers to members that are never stored, and of which nothing is stored any more.
        cleaning: Pointers to members that are never stored from now on, and are being removed from what is.
    """

    id: int
    feed: Feed
    shape: Shape | None = None
    read_settings: Mapping[str, JSON] | None = None
    proven: bool = False
    rebaselining: bool = False
    first_asked_at: datetime | None = None
    boundary: datetime | None = None
    progress: Progress = msgspec.field(default_factory=Progress)
    lateness: Lateness = msgspec.field(default_factory=Lateness)
    listing_profile: str = ""
    plan: str = ""
    signal: str = ""
    passes: int = 0
    last_row: int = 0
    sequence: int = 0
    held: int = 0
    holds: int = 0
    quarantined: int = 0
    drift: Drift | None = None
    drift_at: datetime | None = None
    drifted: int = 0
    emitted: int | None = None
    blind: str = ""
    confirm_at: datetime | None = None
    problem: str = ""
    poll: RunRecord | None = None
    full: RunRecord | None = None
    trailing: RunRecord | None = None
    failing: Mapping[RunKind, Failing] = msgspec.field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    cleaning: tuple[str, ...] = ()

    @property
    def last_failure(self) -> str:
        """Why the last run is incomplete, of the kinds whose last run is; empty where there are none."""
        return max(self.failing.values(), key=attrgetter("until")).problem if self.failing else ""


class Committed(msgspec.Struct, frozen=True):
    """What one page came to in the store.

    Attributes:
        page_diff: What was decided.
        events: How many events its changes gave.
        inserted: The rows that are new.
        statement: What was stated with it.
        end: The number of the last event that it gave; 0 where it gave none.
    """

    page_diff: PageDiff
    events: int
    inserted: range = range(0)
    statement: Statement | None = None
    end: int = 0


class Absentees(msgspec.Struct, frozen=True):
    """What a complete pass did not show.

    Attributes:
        rows: Each with when it was first suspected, by our clock, and how many passes in a row had missed it before.
        digest: Of the keys and fingerprints of all records that are there, whatever their order, as hexadecimal.
        stored: How many records are stored, but for tombstones and records that absence checks ignore.
        missing: Those of the rows that were not found when they were asked for, and when that was for the first time,
            by our clock.
        is_partial: The list shows only some of the records: others were found when they were asked for.
        is_contradiction: The store holds something else than this process has stored.
    """

    rows: Sequence[tuple[int, datetime | None, int]]
    digest: str
    stored: int
    missing: Mapping[int, datetime] = msgspec.field(default_factory=dict)
    is_partial: bool = False
    is_contradiction: bool = False


class Purged(msgspec.Struct, frozen=True):
    """What was erased of a record.

    Attributes:
        is_known: Anything was stored of it.
        events: How many kept events lost their content.
        change: What was published of that; None where nothing was published of it before, or its deletion already was.
    """

    is_known: bool = False
    events: int = 0
    change: Change | None = None


class Awaited(msgspec.Struct, frozen=True):
    """A change whose event waits for its record's detail.

    Attributes:
        row: The record's.
        pending: The change.
        queued_at: Since when it waits, by our clock.
    """

    row: int
    pending: Pending
    queued_at: datetime
