"""What one sink still owes, and in which order it may be delivered.

The outbox is the only queue. For each feed the sink has a *position*: behind it everything is settled, but for the
*blocked keys*. A blocked key has one entry: from which sequence on its events are owed, how many attempts the head of
them has had, and when the next is due. Its events are read again from the outbox, one at a time, up to the *frontier*,
the last sequence that was read ahead. So nothing that fails, hangs or waits is ever copied, and the position passes it.

Two rules give order per key and independence of keys:

- A key has at most one delivery in flight. Later events of the key wait behind it: in memory while it is fresh, in the
  outbox once the key is blocked. Waiting costs no attempt.
- A key becomes blocked when its delivery fails, and also when its delivery merely outlasts a checkpoint: then the
  position, which is saved at checkpoints, passes it, and a crash repeats no more than what was settled since the last.

The ledger is told and asked, and does nothing by itself: the relay reads events, hands deliveries to the sink, and
saves what :meth:`Ledger.checkpoint` returns, in one transaction.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

from dockbell.core.model import Event, Fate, Feed, Outcome
from dockbell.core.publishing.retry import Breaker, next_attempt

Place: TypeAlias = tuple[Feed, str]
"""A key in its feed: what order is kept for."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A key whose head delivery waits for its next attempt.

    Attributes:
        feed: Its feed.
        key: Its key string.
        sequence: Its events from here on are owed.
        attempts: How many attempts the first of them has had.
        due: When the next may be made.
        error: Why the last one failed.
    """

    feed: Feed
    key: str
    sequence: int
    attempts: int
    due: datetime
    error: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a sink will not be offered again unless an operator says so."""

    feed: Feed
    key: str
    sequence: int
    attempts: int
    died_at: datetime
    error: str


@dataclass(slots=True)
class Settlement:
    """What changed since the last checkpoint; to be saved in one transaction.

    Attributes:
        positions: Per feed, the sequence behind which all is settled but for the blocked keys.
        blocked: Keys that are blocked, or whose entry changed.
        freed: Keys that are not blocked any more.
        dead: New dead letters.
    """

    positions: dict[Feed, int] = field(default_factory=dict)
    blocked: dict[Place, Blocked] = field(default_factory=dict)
    freed: set[Place] = field(default_factory=set)
    dead: list[DeadLetter] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Return whether there is anything to save."""
        return bool(self.positions or self.blocked or self.freed or self.dead)


@dataclass(slots=True)
class _Line:
    """One feed as this sink sees it."""

    position: int
    frontier: int
    unsettled: OrderedDict[int, Event] = field(default_factory=OrderedDict)

    @property
    def settled(self) -> int:
        return next(iter(self.unsettled)) - 1 if self.unsettled else self.frontier


@dataclass(frozen=True, slots=True)
class _Flight:
    event: Event
    attempt: int
    since: datetime


@dataclass(slots=True)
class Ledger:
    """The deliveries of one sink; see the module's text.

    Args:
        window: The most deliveries in flight.
        read_ahead: The most events that are held in memory.
    """

    window: int
    read_ahead: int = 1000
    breaker: Breaker = field(default_factory=Breaker)
    _lines: dict[Feed, _Line] = field(default_factory=dict)
    _ready: deque[tuple[Event, int]] = field(default_factory=deque)
    _waiting: dict[Place, deque[Event]] = field(default_factory=dict)
    _flights: dict[Place, _Flight] = field(default_factory=dict)
    _blocked: dict[Place, Blocked] = field(default_factory=dict)
    _resuming: set[Place] = field(default_factory=set)
    _due: list[tuple[datetime, Feed, str]] = field(default_factory=list)
    _pending: Settlement = field(default_factory=Settlement)
    _checked_at: datetime | None = None

    def restore(self, positions: Mapping[Feed, int], blocked: Iterable[Blocked]) -> None:
        """Begin from what was saved; feeds that are known already are left alone."""
        for feed, position in positions.items():
            self._lines.setdefault(feed, _Line(position, position))
        for entry in blocked:
            self._block(entry)
        self._pending = Settlement()

    @property
    def feeds(self) -> Sequence[Feed]:
        """The feeds that the sink has a position in."""
        return tuple(self._lines)

    def frontier(self, feed: Feed) -> int:
        """Return the last sequence of a feed that was read ahead."""
        return self._lines[feed].frontier

    @property
    def room(self) -> int:
        """How many more events may be read ahead."""
        return self.read_ahead - sum(len(line.unsettled) for line in self._lines.values())

    @property
    def in_flight(self) -> int:
        """How many deliveries the sink has now."""
        return len(self._flights)

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight, nothing read waits for its first attempt, and nothing is being read again."""
        return not (self._flights or self._ready or self._resuming)

    @property
    def must_save(self) -> bool:
        """Whether a checkpoint must come before more is taken: a key goes on only when its dead letter is saved.

        Otherwise a crash would offer the dead event again, after its successors.
        """
        return bool(self._pending.dead)

    @property
    def owed(self) -> Mapping[Place, Blocked]:
        """The blocked keys."""
        return self._blocked

    def admit(self, feed: Feed, events: Iterable[Event], frontier: int) -> None:
        """Take the events after the frontier that the sink's filters let through, and move the frontier."""
        line = self._lines[feed]
        for event in events:
            place = (feed, event.key)
            if place in self._blocked:
                continue  # owed already: it is read again when the key's turn comes
            line.unsettled[event.sequence] = event
            if place in self._waiting:
                self._waiting[place].append(event)
            else:
                self._waiting[place] = deque()
                self._ready.append((event, 1))
        line.frontier = max(line.frontier, frontier)

    def take(self, now: datetime) -> list[tuple[Event, int]]:
        """Return the events to deliver now, each with the number of its attempt; they count as in flight."""
        if self.must_save:
            return []
        if self.breaker.probe_at is None:
            free = self.window - len(self._flights)
        else:
            free = 1 if now >= self.breaker.probe_at and not self._flights else 0
        taken: list[tuple[Event, int]] = []
        while self._ready and len(taken) < free:
            event, attempt = self._ready.popleft()
            self._flights[event.feed, event.key] = _Flight(event, attempt, now)
            taken.append((event, attempt))
        return taken

    def settle(self, event: Event, outcome: Outcome, now: datetime, jitter: float) -> None:
        """Note what came of a delivery that was taken."""
        place = (event.feed, event.key)
        flight = self._flights.pop(place)
        if outcome.fate is Fate.DELIVERED:
            self.breaker.succeed()
            self._go_on(event, now)
        elif outcome.fate is Fate.REFUSED:
            self.breaker.succeed()
            self._bury(event, flight.attempt, outcome, now)
        else:
            self._fail(flight, outcome, now, jitter)

    def _fail(self, flight: _Flight, outcome: Outcome, now: datetime, jitter: float) -> None:
        event, attempt = flight.event, flight.attempt
        place = (event.feed, event.key)
        opened = self.breaker.fail(place, outcome, now, flight.since)
        if self.breaker.is_open:
            # What fails while the sink takes nothing says nothing about the event: no attempt is used up.
            self._block(Blocked(event.feed, event.key, event.sequence, attempt - 1, now, outcome.reason), event)
        elif (due := next_attempt(attempt, now, jitter)) is not None:
            self._block(Blocked(event.feed, event.key, event.sequence, attempt, due, outcome.reason), event)
        else:
            self._bury(event, attempt, outcome, now)
        if opened:
            self._give_back(now, but=place)

    def _give_back(self, now: datetime, but: Place) -> None:
        """Return the attempts of the failures that opened the breaker: they were the sink's."""
        for place in self.breaker.streak:
            entry = self._blocked.get(place)
            if entry is not None and place != but and not self._is_moving(place):
                self._block(replace(entry, attempts=max(0, entry.attempts - 1), due=now))

    def _bury(self, event: Event, attempts: int, outcome: Outcome, now: datetime) -> None:
        self._pending.dead.append(DeadLetter(event.feed, event.key, event.sequence, attempts, now, outcome.reason))
        self._go_on(event, now)

    def _go_on(self, event: Event, now: datetime) -> None:
        """Let the next event of a key follow one that is settled."""
        place = (event.feed, event.key)
        if place in self._blocked:
            self._block(Blocked(event.feed, event.key, event.sequence + 1, 0, now))
            return
        del self._lines[event.feed].unsettled[event.sequence]
        waiting = self._waiting[place]
        if waiting:
            self._ready.append((waiting.popleft(), 1))
        else:
            del self._waiting[place]

    def _block(self, entry: Blocked, head: Event | None = None) -> None:
        """Set a key's entry; ``head`` is its first owed event where that is still held in memory."""
        place = (entry.feed, entry.key)
        self._blocked[place] = entry
        self._resuming.discard(place)
        self._pending.blocked[place] = entry
        self._pending.freed.discard(place)
        heapq.heappush(self._due, (entry.due, entry.feed, entry.key))
        if head is not None:
            self._leave_to_outbox(head)

    def _leave_to_outbox(self, event: Event) -> None:
        """Forget an event and those waiting behind it: as a blocked key's they are read again when their turn comes."""
        unsettled = self._lines[event.feed].unsettled
        unsettled.pop(event.sequence, None)
        for waiting in self._waiting.pop((event.feed, event.key), ()):
            unsettled.pop(waiting.sequence, None)

    def due(self, now: datetime, most: int) -> list[Blocked]:
        """Return blocked keys whose next event is to be read from the outbox now; answer each by :meth:`resume`."""
        free = min(most, self.window - len(self._resuming))
        if self.breaker.probe_at is not None:
            free = 1 if now >= self.breaker.probe_at and self.idle else 0
        entries: list[Blocked] = []
        while self._due and self._due[0][0] <= now and len(entries) < free:
            due, feed, key = heapq.heappop(self._due)
            entry = self._blocked.get((feed, key))
            if entry is not None and entry.due == due and not self._is_moving((feed, key)):
                self._resuming.add((feed, key))
                entries.append(entry)
        return entries

    def _is_moving(self, place: Place) -> bool:
        return place in self._flights or place in self._resuming

    def resume(self, entry: Blocked, event: Event | None, frontier: int, now: datetime) -> None:
        """Answer :meth:`due`: the key's first owed event up to ``frontier``, or None when there is no more."""
        place = (entry.feed, entry.key)
        if event is not None:
            attempts = entry.attempts if event.sequence == entry.sequence else 0
            if event.sequence != entry.sequence:
                self._blocked[place] = replace(entry, sequence=event.sequence, attempts=0)
            self._ready.append((event, attempts + 1))
        elif frontier < self._lines[entry.feed].frontier:
            self._block(replace(entry, due=now))  # more was read meanwhile: look again
        else:
            self._resuming.discard(place)
            del self._blocked[place]
            self._pending.blocked.pop(place, None)
            self._pending.freed.add(place)

    def wake_at(self, now: datetime) -> datetime | None:
        """Return when to look again if nothing is settled or admitted before, or None."""
        if len(self._flights) >= self.window:
            return None
        due = now if self._ready else self._due[0][0] if self._due else None
        if self.breaker.probe_at is None or due is None:
            return due
        return None if self._flights else max(self.breaker.probe_at, due)

    def checkpoint(self, now: datetime) -> Settlement:
        """Return what is to be saved, and begin anew.

        Keys whose delivery was in flight at the previous checkpoint already are blocked, so that the position passes
        them.
        """
        if self._checked_at is not None:
            for place, flight in list(self._flights.items()):
                if flight.since < self._checked_at and place not in self._blocked:
                    self._park(flight, now)
        self._checked_at = now
        for feed, line in self._lines.items():
            if line.settled > line.position:
                line.position = self._pending.positions[feed] = line.settled
        settlement, self._pending = self._pending, Settlement()
        return settlement

    def _park(self, flight: _Flight, now: datetime) -> None:
        event = flight.event
        self._block(Blocked(event.feed, event.key, event.sequence, flight.attempt - 1, now), event)
