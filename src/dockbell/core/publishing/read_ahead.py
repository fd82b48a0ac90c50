"""The events that a delivery queue holds in memory: read ahead of the sink, or read again."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime

from dockbell.core.model import Event, Feed
from dockbell.core.publishing.feed_cursor import FeedCursor
from dockbell.core.publishing.flights import Flight
from dockbell.core.publishing.settlement import Place, StartOffset


@dataclass(slots=True)
class ReadAhead:
    """Events by feed and by key, and the line of those that may be sent: at most one for each key.

    The events of a key that is not blocked are *fresh*: the first is in the line or in flight, the others wait behind
    it. A blocked key has none in memory, but for the one that was read again because the key was due.

    Attributes:
        cursors: How far each feed was read and settled.
    """

    cursors: dict[Feed, FeedCursor] = field(default_factory=dict)
    _fresh: dict[Place, deque[Event]] = field(default_factory=dict)
    _line: deque[tuple[Event, int]] = field(default_factory=deque)
    """Each with the number of its attempt."""

    # By feed --------------------------------------------------------------------------------------------------------

    def add_feeds(self, positions: Mapping[Feed, int], starts: Mapping[Feed, StartOffset]) -> None:
        """Begin with the feeds among these that are not known yet."""
        for feed, position in positions.items():
            if feed not in self.cursors:
                self.cursors[feed] = FeedCursor.begin(position, starts.get(feed))

    @property
    def count(self) -> int:
        """How many fresh events are in memory."""
        return sum(cursor.count for cursor in self.cursors.values())

    @property
    def origins(self) -> Mapping[Feed, int]:
        """Where the sink began in each feed, as far as it is known."""
        return {feed: cursor.origin for feed, cursor in self.cursors.items() if cursor.origin is not None}

    def admit(self, feed: Feed, events: Iterable[Event], frontier: int) -> None:
        """Add fresh events, and move the frontier."""
        cursor = self.cursors[feed]
        for event in events:
            cursor.unsettled[event.sequence] = event
            self._add(event)
        cursor.frontier = max(cursor.frontier, frontier)

    def admit_backfill(self, feed: Feed, events: Iterable[tuple[int, Event]], frontier: int, *, is_read: bool) -> None:
        """Add fresh events of a backfill, each with its row, and move its frontier."""
        backfill = self.cursors[feed].backfill
        assert backfill is not None
        for row, event in events:
            backfill.add(row, event.key)
            self._add(event)
        backfill.frontier = max(backfill.frontier, frontier)
        backfill.is_read = is_read

    def _add(self, event: Event) -> None:
        place = (event.feed, event.key)
        if place in self._fresh:
            self._fresh[place].append(event)
        else:
            self._fresh[place] = deque((event,))
            self._line.append((event, 1))

    # By key ---------------------------------------------------------------------------------------------------------

    def head(self, place: Place) -> Event:
        """Return the first fresh event of a key."""
        return self._fresh[place][0]

    def longer_than(self, most: int) -> Iterable[Place]:
        """Return the keys with more fresh events than ``most``."""
        return [place for place, events in self._fresh.items() if len(events) > most]

    def advance(self, event: Event) -> None:
        """Remove the first fresh event of a key, which is settled; the next joins the line."""
        cursor, place = self.cursors[event.feed], (event.feed, event.key)
        cursor.note_settled(event.sequence)
        cursor.forget(event)
        queue = self._fresh[place]
        queue.popleft()
        if queue:
            self._line.append((queue[0], 1))
        else:
            del self._fresh[place]

    def drop(self, place: Place) -> None:
        """Remove the fresh events of a key, but not from the line: the key is blocked."""
        cursor = self.cursors[place[0]]
        for event in self._fresh.pop(place, ()):
            cursor.forget(event)

    # The line -------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> Collection[tuple[Event, int]]:
        """The line, each event with the number of its attempt."""
        return self._line

    def can_take(self, in_flight: Container[Place]) -> bool:
        """Return whether the line has an event of a key that is not in flight."""
        return any((event.feed, event.key) not in in_flight for event, _ in self._line)

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

    def add_resumed(self, event: Event, attempt: int, *, first: bool) -> None:
        """Add an event of a blocked key, to either end of the line."""
        if first:
            self._line.appendleft((event, attempt))
        else:
            self._line.append((event, attempt))

    def rotate(self) -> None:
        """Put events from the middle of the line first."""
        self._line.rotate(-(len(self._line) * 5 // 8))

    def drop_from_line(self, places: Collection[Place]) -> None:
        """Remove the events of some keys from the line."""
        if places:
            self._line = deque(each for each in self._line if (each[0].feed, each[0].key) not in places)
