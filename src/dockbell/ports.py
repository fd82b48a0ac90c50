"""What the agents need of the world outside, as protocols: a source to read, a store to keep, a sink to publish to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.core.comparing.absence import SeenRows
from dockbell.core.comparing.judge import Judgement, Snapshots
from dockbell.core.model import Change, Delivery, Event, Feed, Outcome, Page, RunKind, Urgency
from dockbell.core.publishing.ledger import Blocked, Place, Settlement
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress


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

    def ring_at(self, moment: datetime) -> None:
        """Ring once at a time, now if it is past; a time set before is forgotten."""
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
            SchemaMismatch: The answer has no array of records, or several.
        """
        ...

    async def read_shipment(
        self, shipment_id: str, *, expand: tuple[str, ...] = (), urgency: Urgency = Urgency.DETAIL
    ) -> bytes | None:
        """Read one shipment's raw JSON; None when the API answers that there is none (404, 410)."""
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


@dataclass(frozen=True, slots=True)
class RunRecord:
    """How a run ended.

    Attributes:
        kind: Poll or pass.
        asked_at: S of its first request.
        since: Its ``updated_since``; None for a pass.
        ended_at: Our time of its end.
        problem: Why it is incomplete; empty when it is complete.
    """

    kind: RunKind
    asked_at: datetime
    since: datetime | None
    ended_at: datetime
    pages: int
    records: int
    events: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FeedState:
    """What is stored about a feed.

    Attributes:
        id: The feed's number in this store.
        shape: What identifies and dates its records; None before the first record was seen.
        first_asked_at: S0, the service's time of the first request; None before it.
        progress: What its polls have proven.
        passes: How many passes were complete.
        sequence: The number of its last event.
        held: Absent records that are not believed to be deleted, at the end of the last pass.
        confirm_at: When a pass is due that confirms the suspected absences; None when there are none.
        problem: What stops it now, for the operator; empty when nothing does.
        poll: The last complete poll.
        full: The last complete pass.
        failed: The last run, if it ended incomplete.
    """

    id: int
    feed: Feed
    shape: Shape | None = None
    first_asked_at: datetime | None = None
    progress: Progress = field(default_factory=Progress)
    passes: int = 0
    sequence: int = 0
    held: int = 0
    confirm_at: datetime | None = None
    problem: str = ""
    poll: RunRecord | None = None
    full: RunRecord | None = None
    failed: RunRecord | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """What one page came to in the store."""

    judgement: Judgement
    events: int


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

    async def save_shape(self, feed_id: int, shape: Shape) -> None:
        """Store what was learned from the first page with records."""
        ...

    async def save_problem(self, feed_id: int, problem: str) -> None:
        """Store what stops a feed, or the empty string when nothing does any more."""
        ...

    async def last_row(self, feed_id: int) -> int:
        """Return the highest row in use: rows above it are newer than now."""
        ...

    async def commit_page(
        self, feed_id: int, judge: Callable[[Snapshots], Judgement], compose: Callable[[Change, int], Event]
    ) -> Committed:
        """Judge one page and store its snapshots and events together; ``compose`` gives a change its number."""
        ...

    async def close_run(self, feed_id: int, run: RunRecord, progress: Progress | None = None) -> None:
        """Store how a run ended and, where it proves something about the watermark, what."""
        ...

    async def find_absent(self, feed_id: int, seen: SeenRows) -> Sequence[tuple[int, datetime | None]]:
        """Return the rows that ``seen`` does not hold, no tombstones, each with when it was first suspected."""
        ...

    async def count_deleted(self, feed_id: int, since: datetime) -> int:
        """Return how many of a feed's records were deleted since then."""
        ...

    async def close_pass(
        self, feed_id: int, run: RunRecord, *, suspected: Sequence[int], held: int, confirm_at: datetime | None
    ) -> None:
        """Store the end of a complete pass: rows that it newly suspects, how many it holds, when to confirm."""
        ...

    async def bury(
        self,
        feed_id: int,
        rows: Sequence[int],
        judge: Callable[[bytes, int, datetime | None], Change],
        compose: Callable[[Change, int], Event],
    ) -> int:
        """Turn rows into tombstones with an event each; return how many.

        ``judge`` takes body, revision, and S of the last complete pass before the first that did not show the record.
        """
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

    async def aclose(self) -> None:
        """Close it and let it go."""
        ...


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
