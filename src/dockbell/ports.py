"""What the agents need of the world outside, as protocols: a source to read, a store to keep, a sink to publish to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.core.comparing.absence import SeenRows
from dockbell.core.comparing.drift import Decision, Drift
from dockbell.core.comparing.judgement import Finding, Judgement, Pending, Snapshots
from dockbell.core.model import JSON, Change, Delivery, Event, Feed, Outcome, Page, RunKind, Statement, Urgency, Via
from dockbell.core.publishing.ledger import Blocked, DeadLetter, Place, Settlement
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress

Compose: TypeAlias = Callable[[Change | Statement, int], Sequence[Event]]
"""Returns the events of a change or a statement, the first of which has the given sequence."""


class Bell:
    """Wakes everybody who waits; rings that nobody waits for are remembered by their number."""

    def __init__(self) -> None:
        self.rings = 0
        self._event = anyio.Event()

    def ring(self) -> None:
        """Wake all who wait."""
        self.rings += 1
        self._event.set()
        self._event = anyio.Event()

    async def wait(self, rings: int) -> int:
        """Return when the bell has rung more often than ``rings``, and how often it has."""
        while self.rings <= rings:
            await self._event.wait()
        return self.rings


class Alarm(Protocol):
    """Tells an agent that it is time."""

    async def wait(self) -> None:
        """Return at the next ring, or at once when it rang since the last."""
        ...

    def ring_in(self, delay: timedelta) -> None:
        """Ring once after a while, now if it is negative; what was set before is forgotten."""
        ...


class Source(Protocol):
    """One API account: paced, retried, authenticated; every request of dockbell to the API goes through one."""

    name: str

    async def read_page(
        self,
        resource: str,
        *,
        cursor: str | None = None,
        updated_since: datetime | None = None,
        limit: int = 200,
        query: Mapping[str, str | int | bool] | None = None,
        expand: tuple[str, ...] = (),
        urgency: Urgency = Urgency.POLL,
    ) -> Page:
        """Read one page of a listing, waiting for the budget and retrying what may pass.

        Raises:
            CursorExpired: The API no longer knows the cursor (400, 404, 410 or 422 on a page after the first).
            SourceRefused: The key is not accepted (401, 403).
            SourceUnavailable: No usable answer after several tries.
            PageUnreadable: An answer came that is not whole and sound JSON; a smaller page may be.
            SchemaMismatch: The answer has no array of records, or several.
        """
        ...

    async def read_shipment(
        self,
        shipment_id: str,
        *,
        expand: tuple[str, ...] = (),
        urgency: Urgency = Urgency.DETAIL,
        patient: bool = True,
    ) -> bytes | None:
        """Read the object that answers for one shipment, as raw JSON; None when there is none (404, 410).

        Whether it is that shipment's record is for :meth:`~dockbell.core.comparing.judge.Judge.find_own` to say.

        Args:
            shipment_id: Its id.
            expand: Relations to embed.
            urgency: Whose turn it is when requests are scarce.
            patient: Ask again when no usable answer comes; otherwise once only, for callers that come back later.

        Raises:
            SourceError: As :meth:`read_page`.
        """
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


@dataclass(frozen=True, slots=True)
class Tally:
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
        repeated: Ones that the run showed more than once: its pages shifted.
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
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class RunRecord:
    """How a run ended.

    Attributes:
        kind: Poll, trailing poll or pass.
        asked_at: S of its first request.
        since: Its ``updated_since``; None for a pass.
        ended_at: Our time of its end.
        problem: Why it is incomplete; empty when it is complete.
        tally: What it found.
    """

    kind: RunKind
    asked_at: datetime
    since: datetime | None
    ended_at: datetime
    pages: int
    records: int
    events: int
    problem: str = ""
    tally: Tally = field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a pass has come that a crash may interrupt.

    Attributes:
        cursor: Of the page to read next.
        walk: Its bounds and counts, as JSON.
        seen: The rows that any request showed since the pass began.
        rows: Those that the pass itself showed.
        saved_at: Our time.
    """

    cursor: str
    walk: bytes
    seen: SeenRows
    rows: SeenRows
    saved_at: datetime


@dataclass(frozen=True, slots=True)
class FeedState:
    """What is stored about a feed.

    Attributes:
        id: The feed's number in this store.
        shape: What identifies and dates its records; None before the first record was seen.
        signature: How its records are read: what makes readings comparable; None before the first start.
        proven: The key was unique over a whole complete pass, or is configured.
        rebaselining: It is read differently than what is stored was, until a pass is complete.
        first_asked_at: S0, the service's time of the first request; None before it.
        progress: What its polls have proven.
        lateness: How late its records become visible.
        habits: What was learned of its listing, as JSON; empty before it.
        passes: How many passes came to the end of the list.
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
        failed: The last incomplete run, of the kinds whose last run was incomplete.
    """

    id: int
    feed: Feed
    shape: Shape | None = None
    signature: Mapping[str, JSON] | None = None
    proven: bool = False
    rebaselining: bool = False
    first_asked_at: datetime | None = None
    progress: Progress = field(default_factory=Progress)
    lateness: Lateness = field(default_factory=Lateness)
    habits: str = ""
    passes: int = 0
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
    failed: RunRecord | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What one page came to in the store.

    Attributes:
        judgement: What was decided.
        events: How many events its changes gave.
        inserted: The rows that are new.
        statement: What was stated with it.
    """

    judgement: Judgement
    events: int
    inserted: range = range(0)
    statement: Statement | None = None


@dataclass(frozen=True, slots=True)
class Absentees:
    """What a complete pass did not show.

    Attributes:
        rows: Each with when it was first suspected, by our clock, and how many passes in a row had missed it before.
        digest: Of the keys and fingerprints of all records that are there, whatever their order, as hexadecimal.
        stored: How many records are stored, tombstones and those that nobody misses left out.
    """

    rows: Sequence[tuple[int, datetime | None, int]]
    digest: str
    stored: int


@dataclass(frozen=True, slots=True)
class Awaited:
    """A change whose event waits for its record's detail.

    Attributes:
        row: The record's.
        pending: The change.
        queued_at: Since when it waits, by our clock.
    """

    row: int
    pending: Pending
    queued_at: datetime


class Wish(StrEnum):
    """What an operator asks of a feed, or of its daemon."""

    RECONCILE = "reconcile"
    APPROVE = "approve deletions"
    REJECT = "reject deletions"
    ABSORB = "absorb drift"
    PUBLISH = "publish drift"


@dataclass(frozen=True, slots=True)
class Wished:
    """A wish that waits.

    Attributes:
        id: Its number.
        wish: What is asked.
        feed: Of which feed.
        outcome: What came of it; None while it waits.
    """

    id: int
    wish: Wish
    feed: Feed
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class SinkState:
    """How far a sink has come.

    Attributes:
        name: As in ``[sinks.NAME]``.
        owed: Events that it has not settled; those that its filters will hold back count until the position passes.
        blocked: Keys that wait for another attempt.
        dead: Dead letters.
        oldest: When the oldest event that it owes was recorded.
        error: Why a blocked key's last attempt did not succeed.
    """

    name: str
    owed: int
    blocked: int
    dead: int
    oldest: datetime | None
    error: str


class Store(Protocol):
    """Where snapshots, events and progress are kept; every method is one transaction."""

    epoch: str
    """Random mark of one life of this store; part of every event's id."""
    outbox: Bell
    """Rings when events were added."""

    async def open_feed(self, feed: Feed) -> FeedState:
        """Return a feed's state, making the feed if it is new."""
        ...

    async def begin_feed(self, feed_id: int, first_asked_at: datetime) -> None:
        """Store S0, the service's time of a feed's first request; the watermark begins there."""
        ...

    async def save_signature(
        self,
        feed_id: int,
        signature: Mapping[str, JSON],
        *,
        rebaseline: Statement | None = None,
        compose: Compose | None = None,
    ) -> None:
        """Store how a feed is read; with a statement, what is stored was read differently, and that is stated."""
        ...

    async def save_shape(self, feed_id: int, shape: Shape, *, proven: bool) -> None:
        """Store what was learned from the first page with records, and whether its key needs no proof."""
        ...

    async def save_habits(self, feed_id: int, habits: str) -> None:
        """Store what was learned of a feed's listing."""
        ...

    async def save_problem(self, feed_id: int, problem: str) -> None:
        """Store what stops a feed, or the empty string when nothing does any more."""
        ...

    async def last_row(self, feed_id: int) -> int:
        """Return the highest row in use: rows above it are newer than now."""
        ...

    async def commit_page(
        self,
        feed_id: int,
        judge: Callable[[Snapshots], Judgement],
        compose: Compose,
        *,
        via: Via,
        announce: Callable[[Judgement], Statement | None] | None = None,
    ) -> Committed:
        """Judge one page and store its snapshots and events together.

        Args:
            feed_id: The feed.
            judge: Judges the page; in the store's own thread, like the other two.
            compose: Gives a change or a statement its number.
            via: Which kind of reading showed the page.
            announce: Returns what is to be stated, after its changes, of a judgement that is not idle.
        """
        ...

    async def close_run(
        self,
        feed_id: int,
        run: RunRecord,
        progress: Progress | None = None,
        *,
        lateness: Lateness | None = None,
        statements: Sequence[Statement] = (),
        compose: Compose | None = None,
    ) -> None:
        """Store how a run ended, what it proves about the watermark and about lateness, and what is to be stated."""
        ...

    async def publish(self, feed_id: int, statements: Sequence[Statement], compose: Compose) -> None:
        """Publish statements; a gap that waited to be stated is so then."""
        ...

    async def save_checkpoint(self, feed_id: int, checkpoint: Checkpoint) -> None:
        """Store how far a pass has come."""
        ...

    async def load_checkpoint(self, feed_id: int) -> Checkpoint | None:
        """Return how far an interrupted pass had come."""
        ...

    async def drop_checkpoint(self, feed_id: int) -> None:
        """Forget how far a pass had come."""
        ...

    async def find_absent(self, feed_id: int, seen: SeenRows) -> Absentees:
        """Return the rows that ``seen`` does not hold, tombstones and those that nobody misses left out."""
        ...

    async def count_deleted(self, feed_id: int, since: datetime) -> int:
        """Return how many of a feed's records were deleted since then."""
        ...

    async def suspect(self, feed_id: int, rows: Sequence[int], at: datetime) -> None:
        """Note that a complete pass did not show rows, and when the first did not."""
        ...

    async def close_pass(
        self,
        feed_id: int,
        run: RunRecord,
        *,
        held: int,
        confirm_at: datetime | None,
        proven: bool,
        newest: datetime | None,
        lateness: Lateness | None,
        statements: Sequence[Statement],
        compose: Compose,
        drift_before: datetime | None = None,
    ) -> None:
        """Store the end of a complete pass.

        Args:
            feed_id: The feed.
            run: The pass.
            held: How many absent records it holds.
            confirm_at: When a pass is due that confirms suspected absences.
            proven: See :meth:`end_baseline`.
            newest: See :meth:`end_baseline`.
            lateness: How late records become visible, where that is to be stored.
            statements: What is stated at its end.
            compose: Gives them their number.
            drift_before: Our time when it began, None where that is not known: drift that was found since stays, even
                if the pass held nothing for it.
        """
        ...

    async def end_baseline(self, feed_id: int, *, proven: bool, newest: datetime | None) -> None:
        """Note that an incomplete pass has come to the end of the list all the same.

        Args:
            feed_id: The feed.
            proven: The pass proves that the key tells all records apart.
            newest: Where the records' clock stood when it began; kept where no poll has told it.
        """
        ...

    async def read_bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        """Return the raw JSON of rows."""
        ...

    async def spare(self, feed_id: int, rows: Sequence[int], finding: Finding, *, dormant: bool = False) -> None:
        """End the suspicion of rows; dormant ones are not missed until they are seen again."""
        ...

    async def find_suspected(self, feed_id: int) -> Sequence[int]:
        """Return the rows that are suspected to be gone."""
        ...

    async def bury(
        self,
        feed_id: int,
        rows: Sequence[int],
        judge: Callable[[bytes, int, datetime | None], Change],
        compose: Compose,
    ) -> int:
        """Turn suspected rows into tombstones with an event each; return how many.

        ``judge`` takes body, revision, and S of the last complete pass before the first that did not show the record.
        """
        ...

    async def load_awaited(self, feed_id: int, limit: int) -> Sequence[Awaited]:
        """Return changes that wait for the details of their records, the least often postponed and oldest first."""
        ...

    async def postpone(self, row: int) -> None:
        """Note that a detail was asked for in vain: its change lets all others go first that were less often."""
        ...

    async def complete(
        self,
        feed_id: int,
        row: int,
        judge: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        *,
        listed: bytes | None = None,
    ) -> int:
        """Publish a change that waited, and store the record with its detail; return how many events it gave.

        Args:
            feed_id: The feed.
            row: The record's.
            judge: Takes the change as it is now, the body that was published last, and the revision.
            compose: Makes the events.
            listed: What the list showed when the detail was asked for: the change goes on waiting where it has shown
                something else since. None: whatever it shows.
        """
        ...

    async def complete_overdue(
        self,
        feed_id: int,
        before: datetime,
        judge: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        limit: int,
    ) -> datetime | None:
        """Publish the oldest changes that wait since ``before`` or longer, as :meth:`complete` does, ``limit`` at most.

        Return since when the oldest waits that is left; None when none does.
        """
        ...

    async def begin_emitting(self, feed_id: int) -> None:
        """Note that a snapshot of each stored record is due."""
        ...

    async def emit_snapshots(
        self, feed_id: int, judge: Callable[[bytes, datetime | None], Change], compose: Compose, limit: int
    ) -> int:
        """Publish the next due snapshots of records that nothing was published of; 0 when all are."""
        ...

    async def decide_drift(self, feed_id: int, decision: Decision) -> None:
        """Store what becomes of the drift that is held."""
        ...

    async def take_wishes(self) -> Sequence[Wished]:
        """Return the wishes that wait; cheap to ask again and again."""
        ...

    async def fulfil(self, wish: Wished, outcome: str) -> None:
        """Store what came of a wish."""
        ...

    async def enroll(self, sink: str, start: Literal["now", "beginning"]) -> None:
        """Give a sink a position in every feed that it has none in: at ``start`` when the sink is new, else at 0."""
        ...

    async def load_ledger(self, sink: str) -> tuple[Mapping[Feed, int], Sequence[Blocked]]:
        """Return a sink's positions and blocked keys."""
        ...

    async def read_events(
        self, feed: Feed, after: int, limit: int, *, key: str | None = None, until: int | None = None
    ) -> Sequence[Event]:
        """Return events of a feed after a sequence, in order; of one key only, and up to a sequence, where given."""
        ...

    async def last_sequences(self) -> Mapping[Feed, int]:
        """Return the number of the last event of every feed."""
        ...

    async def read_states(self, places: Sequence[Place]) -> Mapping[Place, bytes]:
        """Return the latest committed raw JSON of these keys; those that are gone or unknown are left out."""
        ...

    async def settle(self, sink: str, settlement: Settlement) -> None:
        """Save what a sink has settled."""
        ...

    async def prune_events(self, before: datetime, sinks: Sequence[str], limit: int) -> int:
        """Delete up to ``limit`` events recorded before then that none of the sinks owes; return how many."""
        ...

    async def prune_history(self, before: datetime, limit: int) -> int:
        """Delete up to ``limit`` runs, notes, and bodies of tombstones from before then; return how many."""
        ...

    async def aclose(self) -> None:
        """Close it and let it go."""
        ...


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """What is stored of one record.

    Attributes:
        key: Its key string.
        modified: Its own timestamp.
        fingerprint: Hash of its canonical form.
        revision: Its change count.
        gone_at: Since when it is a tombstone, by our clock; None while it is there.
        suspected_at: When a complete pass did not show it for the first time, by our clock; None while it is shown.
        there_at: S of the last complete pass before that one.
        is_dormant: It is not missed until it is seen again.
        held_at: S of the first request that showed the reading that is held; None where none is.
        awaited_at: Since when an event of it waits for its detail, by our clock; None where none does.
    """

    key: str
    modified: datetime | None
    fingerprint: bytes
    revision: int
    gone_at: datetime | None = None
    suspected_at: datetime | None = None
    there_at: datetime | None = None
    is_dormant: bool = False
    held_at: datetime | None = None
    awaited_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """What one reading of a record came to that was not simply as stored.

    Attributes:
        at: By our clock.
        via: Which kind of reading it was.
        finding: What it came to.
        modified: The reading's own timestamp.
        fingerprint: What it showed; None where that could not be told.
        sequence: Of the event that it came to; None where it came to none.
    """

    at: datetime
    via: Via
    finding: Finding
    modified: datetime | None = None
    fingerprint: bytes | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record that cannot be told apart or read.

    Attributes:
        key: Its key string; empty where it has none.
        problem: What is wrong with it.
        first_at: When it was first met, by our clock.
        last_at: When it was last met, by our clock.
    """

    key: str
    problem: str
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a sink has come with the events of one key.

    Attributes:
        sink: As in ``[sinks.NAME]``.
        position: Behind this sequence of the feed all is settled but for blocked keys.
        blocked: From where on the key's events are owed, where it waits for another attempt.
        dead: Its dead letters.
    """

    sink: str
    position: int
    blocked: Blocked | None = None
    dead: tuple[DeadLetter, ...] = ()


class View(Protocol):
    """A look at a store that another process may be working on."""

    epoch: str

    async def load_feeds(self) -> Sequence[FeedState]:
        """Return every feed's state."""
        ...

    async def load_sinks(self) -> Sequence[SinkState]:
        """Return how far every sink has come."""
        ...

    async def count_records(self) -> Mapping[Feed, int]:
        """Return how many records are stored per feed, tombstones left out."""
        ...

    async def read_latest(self, after: int, limit: int) -> Sequence[tuple[int, Event]]:
        """Return events of all feeds as they were recorded, each with its place; negative ``after`` is from the end."""
        ...

    async def find_record(self, feed_id: int, key: str) -> StoredRecord | None:
        """Return what is stored of a record; None where nothing is."""
        ...

    async def find_suspected(self, feed_id: int, limit: int) -> Sequence[StoredRecord]:
        """Return records that are suspected to be gone, those that were suspected first before the others."""
        ...

    async def find_quarantined(self, feed_id: int, limit: int, *, key: str | None = None) -> Sequence[Quarantined]:
        """Return records in quarantine, the last met before the others; those of one key where it is given."""
        ...

    async def read_notes(self, feed_id: int, key: str, limit: int) -> Sequence[Noted]:
        """Return the last findings about a record, oldest first."""
        ...

    async def read_covering_runs(
        self, feed_id: int, modified: datetime | None, after: datetime, limit: int
    ) -> Sequence[RunRecord]:
        """Return the last runs whose window held a date, oldest first: every pass, and polls asked after a time of S.

        Without a date there are passes only.
        """
        ...

    async def read_events_of(
        self, feed_id: int, key: str, limit: int, *, change: str | None = None
    ) -> Sequence[tuple[datetime, Event]]:
        """Return the last events of a key, oldest first, each with when it was recorded; the empty key is the feed."""
        ...

    async def load_standings(self, feed_id: int, key: str) -> Sequence[Standing]:
        """Return how far each sink has come with the events of a key, by name."""
        ...

    async def aclose(self) -> None:
        """Close it."""
        ...


class Desk(Protocol):
    """Where an operator leaves wishes for the daemon."""

    async def make_wish(self, feed: Feed, wish: Wish, now: datetime) -> int:
        """Leave a wish; return its number."""
        ...

    async def load_wish(self, number: int) -> Wished:
        """Return a wish, and what came of it."""
        ...

    async def aclose(self) -> None:
        """Close it."""
        ...


class Sink(Protocol):
    """Where events go; one instance serves one ``[sinks.NAME]``."""

    name: str
    window: int
    """The most deliveries that may be in flight; each has another key."""
    keeps_state: bool
    """Whether deliveries must carry the latest committed record."""

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        """Attempt each delivery once and settle it exactly once, in any order, until the stream ends.

        A sink with a connection goes on trying to connect while nobody answers, and keeps what it has taken. A failure
        of a delivery is an outcome, never an exception. At the end of the stream it settles what it has taken, says
        goodbye where the protocol has a word for it, and returns.
        """
        ...

    async def probe(self) -> str:
        """Connect without delivering; say in a few words what was found.

        Raises:
            SinkUnavailable: Nobody answers, or not in the protocol.
            SinkRejected: The other side refuses us: credentials, certificate, client id.
        """
        ...
