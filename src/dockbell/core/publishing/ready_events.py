"""The events that the delivery queue holds in memory, and the deliveries that the sink has now."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterable, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime

from dockbell.core.model import Event
from dockbell.core.publishing.settlement import Blocked, DeadLetter, Place, Replay


@dataclass(frozen=True, slots=True)
class Flight:
    """A delivery that the sink has now.

    Attributes:
        event: The event.
        attempt: The number of the attempt, from 1.
        since: When the sink got it.
        replay: The replay that it belongs to; None for a live delivery.
    """

    event: Event
    attempt: int
    since: datetime
    replay: Replay | None = None

    @property
    def place(self) -> Place:
        """The event's key in its feed."""
        return self.event.feed, self.event.key

    def block(
        self, due: datetime, error: str = "", *, held: bool = False, planned_at: datetime | None = None
    ) -> Blocked:
        """Return the entry of the key after this attempt has failed."""
        return Blocked(*self.place, self.event.sequence, self.attempt, due, error, held, planned_at)

    def to_dead_letter(self, now: datetime, error: str) -> DeadLetter:
        """Return the dead letter of the event after this attempt."""
        return DeadLetter(*self.place, self.event.sequence, self.attempt, now, error)


@dataclass(slots=True)
class ReadyEvents:
    """Events by key, and the line of those that may be sent: at most one for each key.

    The events of a key that is not blocked are *fresh*: the first is in the line or in flight, the others wait behind
    it. A blocked key has none in memory, but for the one that was read again because its turn has come.
    """

    _line: deque[tuple[Event, int]] = field(default_factory=deque)
    """Each with the number of its attempt."""
    _fresh: dict[Place, deque[Event]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether events are in the line."""
        return bool(self._line)

    def add(self, place: Place, event: Event) -> None:
        """Add a fresh event, behind those of its key."""
        if place in self._fresh:
            self._fresh[place].append(event)
        else:
            self._fresh[place] = deque((event,))
            self._line.append((event, 1))

    def add_resumed(self, event: Event, attempt: int, *, first: bool) -> None:
        """Add an event of a blocked key, to either end of the line."""
        if first:
            self._line.appendleft((event, attempt))
        else:
            self._line.append((event, attempt))

    def take(self, now: datetime, most: int, flights: MutableMapping[Place, Flight]) -> list[tuple[Event, int]]:
        """Move the first events of the line to the flights; skip keys in flight. Return each with its attempt."""
        taken: list[tuple[Event, int]] = []
        for _ in range(len(self._line)):
            if len(taken) >= most:
                break
            event, attempt = self._line.popleft()
            place = (event.feed, event.key)
            if place in flights:  # an earlier event of the key is being replayed
                self._line.append((event, attempt))
            else:
                flights[place] = Flight(event, attempt, now)
                taken.append((event, attempt))
        return taken

    def can_take(self, in_flight: Container[Place]) -> bool:
        """Return whether :meth:`take` would return an event."""
        return any((event.feed, event.key) not in in_flight for event, _ in self._line)

    def rotate(self) -> None:
        """Put events from the middle of the line first."""
        self._line.rotate(-(len(self._line) * 5 // 8))

    def head(self, place: Place) -> Event:
        """Return the first fresh event of a key."""
        return self._fresh[place][0]

    def advance(self, place: Place) -> None:
        """Remove the first fresh event of a key, which is settled; the next joins the line."""
        queue = self._fresh[place]
        queue.popleft()
        if queue:
            self._line.append((queue[0], 1))
        else:
            del self._fresh[place]

    def pop_fresh(self, place: Place) -> Iterable[Event]:
        """Remove the fresh events of a key, but not from the line, and return them."""
        return self._fresh.pop(place, ())

    def drop_from_line(self, places: Collection[Place]) -> None:
        """Remove the events of some keys from the line."""
        if places:
            self._line = deque(each for each in self._line if (each[0].feed, each[0].key) not in places)

    def longer_than(self, most: int) -> Iterable[Place]:
        """Return the keys with more fresh events than ``most``."""
        return [place for place, events in self._fresh.items() if len(events) > most]
