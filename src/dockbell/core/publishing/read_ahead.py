"""The events that a delivery queue holds in memory: in flight, read ahead of the sink, or read again."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Container, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile

import msgspec

from dockbell.core.model import Event, Feed, Outcome
from dockbell.core.publishing.settlement import (
    Attempt,
    Blocked,
    DeadLetter,
    RecordId,
    Replay,
    Settlement,
    StartOffset,
    Verdict,
)


class Flight(msgspec.Struct, frozen=True):
    """A delivery that the sink has now, since ``since``; of a ``replay``, or live."""

    event: Event
    attempt: int
    since: datetime
    replay: Replay | None = None

    @property
    def record_id(self) -> RecordId:
        return self.event.feed, self.event.key

    def block(
        self, due: datetime, error: str = "", *, held: bool = False, planned_at: datetime | None = None
    ) -> Blocked:
        return Blocked(*self.record_id, self.event.sequence, self.attempt, due, error, held, planned_at)

    def to_dead_letter(self, now: datetime, outcome: Outcome) -> DeadLetter:
        return DeadLetter(*self.record_id, self.event.sequence, self.attempt, now, outcome.reason, outcome.answer)

    def to_attempt(self, now: datetime, outcome: Outcome, verdict: Verdict, next_at: datetime | None) -> Attempt:
        return Attempt(
            *self.record_id,
            self.event.sequence,
            self.attempt,
            self.since,
            max(now - self.since, timedelta(0)),
            verdict,
            outcome.reason,
            outcome.status,
            outcome.answer,
            next_at,
            self.replay is not None,
        )


@dataclass(slots=True)
class Flights:
    """The deliveries in flight: at most a window of them, one for each key, spaced where a rate limit says so.

    Where a method takes ``probe_at``, the breaker is open until then, and one delivery goes at a time; None: it is
    closed.
    """

    window: int
    spacing: timedelta
    by_key: dict[RecordId, Flight] = field(default_factory=dict)
    _next_at: datetime | None = None
    """When the next delivery may be taken, where they are spaced."""

    def __len__(self) -> int:
        return len(self.by_key)

    @property
    def is_full(self) -> bool:
        return len(self.by_key) >= self.window

    def has_live(self, record_id: RecordId) -> bool:
        return record_id in self.by_key and self.by_key[record_id].replay is None

    def free(self, now: datetime, probe_at: datetime | None) -> int:
        if self._next_at is not None and now < self._next_at:
            return 0
        if probe_at is None:
            free = self.window - len(self.by_key)
            return min(free, 1) if self.spacing else free
        return 1 if now >= probe_at and not self.by_key else 0

    def next_at(self, earliest: datetime, probe_at: datetime | None) -> datetime | None:
        """Return when the next delivery may be taken, not before ``earliest``; None: when one is settled."""
        if self.is_full or (self.by_key and probe_at is not None):
            return None
        return max(moment for moment in (earliest, self._next_at, probe_at) if moment is not None)

    def space(self, now: datetime) -> None:
        """Space the next delivery from this one, not from when this could have gone: a burst would follow a pause."""
        if self.spacing:
            self._next_at = now + self.spacing

    def inherit_spacing(self, before: Flights, now: datetime) -> None:
        if self.spacing and before._next_at is not None:
            self._next_at = min(before._next_at, now + self.spacing)


@dataclass(slots=True)
class FeedCursor:
    """One feed as one sink sees it."""

    position: int
    frontier: int  # the last sequence that was read ahead
    furthest: int = 0  # the highest sequence that was settled
    overtaking: int = 0  # the same at the last checkpoint; :meth:`take_overtaken`
    origin: int | None = None  # the feed's last sequence when the sink began; None where it is not known
    backfill: Backfill | None = None  # the stored records that come first; None once all are settled
    unsettled: OrderedDict[int, Event] = field(default_factory=OrderedDict)
    """Events that were read, by sequence, but for those of blocked keys."""

    @classmethod
    def begin(cls, position: int, start: StartOffset | None) -> FeedCursor:
        if start is None:
            return cls(position, position)
        row = start.backfilled_to
        backfill = None if row is None else Backfill(start.origin, row, row)
        return cls(position, position, origin=start.origin, backfill=backfill)

    def forget(self, event: Event) -> None:
        if self.backfill is not None and event.sequence == self.backfill.origin:
            del self.backfill.unsettled[self.backfill.rows.pop(event.key)]
        else:
            del self.unsettled[event.sequence]

    def take_overtaken(self) -> list[RecordId]:
        """Return the keys of unsettled events before the furthest that was settled at the last call."""
        before = takewhile(lambda event: event.sequence <= self.overtaking, self.unsettled.values())
        record_ids = [(event.feed, event.key) for event in before]
        self.overtaking = self.furthest
        return record_ids

    def note_positions(self, feed: Feed, settlement: Settlement) -> None:
        """Note how far all is settled but for blocked keys, where that is further than before.

        The position stays during the backfill: after a crash, part of it is repeated, and then later events must be
        repeated too.
        """
        if (backfill := self.backfill) is not None:
            row = next(iter(backfill.unsettled)) - 1 if backfill.unsettled else backfill.frontier
            if backfill.is_read and not backfill.unsettled:
                settlement.backfilled_to[feed] = self.backfill = None
            elif row > backfill.backfilled_to:
                settlement.backfilled_to[feed] = backfill.backfilled_to = row
        settled = next(iter(self.unsettled)) - 1 if self.unsettled else self.frontier
        if self.backfill is None and settled > self.position:
            settlement.positions[feed] = self.position = settled


@dataclass(slots=True)
class Backfill:
    """The stored records that a sink gets before the events; row 0 is the gap event of the feed."""

    origin: int  # the sequence that all its events have
    backfilled_to: int  # the saved row: all up to it is settled but for blocked keys
    frontier: int  # the last row that was read
    is_read: bool = False
    unsettled: OrderedDict[int, str] = field(default_factory=OrderedDict)
    """The key strings of events that were read, by row."""
    rows: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class ReadAhead:
    """Events by feed and by key, and the line of those that may be sent: at most one for each key.

    The events of a key that is not blocked are *fresh*: the first is in the line or in flight, the others wait behind
    it. A blocked key has none in memory, but for the one that was read again because the key was due.
    """

    cursors: dict[Feed, FeedCursor] = field(default_factory=dict)  # how far each feed was read and settled
    fresh: dict[RecordId, deque[Event]] = field(default_factory=dict)  # the fresh events by key
    line: deque[tuple[Event, int]] = field(default_factory=deque)  # each event with the number of its attempt
    count: int = 0  # how many events are fresh, summed up as they come and go: a sink may have 10,000 feeds

    def add_feeds(self, positions: Mapping[Feed, int], starts: Mapping[Feed, StartOffset]) -> None:
        for feed, position in positions.items():
            if feed not in self.cursors:
                self.cursors[feed] = FeedCursor.begin(position, starts.get(feed))

    @property
    def origins(self) -> Mapping[Feed, int]:
        return {feed: cursor.origin for feed, cursor in self.cursors.items() if cursor.origin is not None}

    def admit(self, feed: Feed, events: Iterable[Event], frontier: int) -> None:
        cursor = self.cursors[feed]
        for event in events:
            cursor.unsettled[event.sequence] = event
            self._add(event)
        cursor.frontier = max(cursor.frontier, frontier)

    def admit_backfill(self, feed: Feed, events: Iterable[tuple[int, Event]], frontier: int, *, is_read: bool) -> None:
        backfill = self.cursors[feed].backfill
        assert backfill is not None
        for row, event in events:
            backfill.unsettled[row], backfill.rows[event.key] = event.key, row
            self._add(event)
        backfill.frontier = max(backfill.frontier, frontier)
        backfill.is_read = is_read

    def _add(self, event: Event) -> None:
        self.count += 1
        record_id = (event.feed, event.key)
        if record_id in self.fresh:
            self.fresh[record_id].append(event)
        else:
            self.fresh[record_id] = deque((event,))
            self.line.append((event, 1))

    def advance(self, event: Event) -> None:
        """Remove the first fresh event of a key, which is settled; the next joins the line."""
        cursor, record_id = self.cursors[event.feed], (event.feed, event.key)
        cursor.furthest = max(cursor.furthest, event.sequence)
        cursor.forget(event)
        self.count -= 1
        queue = self.fresh[record_id]
        queue.popleft()
        if queue:
            self.line.append((queue[0], 1))
        else:
            del self.fresh[record_id]

    def drop(self, record_id: RecordId) -> None:
        """Remove the fresh events of a key, but not from the line: the key is blocked."""
        cursor = self.cursors[record_id[0]]
        for event in self.fresh.pop(record_id, ()):
            cursor.forget(event)
            self.count -= 1

    def can_take(self, in_flight: Container[RecordId]) -> bool:
        return any((event.feed, event.key) not in in_flight for event, _ in self.line)

    def take(self, now: datetime, most: int, flights: MutableMapping[RecordId, Flight]) -> list[tuple[Event, int]]:
        """Move the first events of the line to the flights; skip keys in flight. Return each with its attempt."""
        taken: list[tuple[Event, int]] = []
        for _ in range(len(self.line)):
            if len(taken) >= most:
                break
            event, attempt = self.line.popleft()
            record_id = (event.feed, event.key)
            if record_id in flights:  # an earlier event of the key is being replayed
                self.line.append((event, attempt))
            else:
                flights[record_id] = Flight(event, attempt, now)
                taken.append((event, attempt))
        return taken

    def drop_from_line(self, record_ids: Collection[RecordId]) -> None:
        if record_ids:
            self.line = deque(each for each in self.line if (each[0].feed, each[0].key) not in record_ids)
