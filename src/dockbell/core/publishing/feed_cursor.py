"""The progress of a sink in one feed: events that are read but not settled, and the backfill before them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import takewhile

from dockbell.core.model import Event
from dockbell.core.publishing.settlement import Place, StartOffset


@dataclass(slots=True)
class FeedCursor:
    """One feed as one sink sees it.

    Attributes:
        position: The saved position.
        frontier: The last sequence that was read ahead.
        furthest: The highest sequence that was settled.
        overtaking: The same at the last checkpoint; :meth:`take_overtaken`.
        origin: The feed's last sequence when the sink began; None where it is not known.
        backfill: The stored records that come first; None once all are settled.
        unsettled: Events that were read, by sequence, but for those of blocked keys.
    """

    position: int
    frontier: int
    furthest: int = 0
    overtaking: int = 0
    origin: int | None = None
    backfill: Backfill | None = None
    unsettled: OrderedDict[int, Event] = field(default_factory=OrderedDict)

    @classmethod
    def begin(cls, position: int, start: StartOffset | None) -> FeedCursor:
        """Return the cursor at a saved position, with what is left of the backfill."""
        if start is None:
            return cls(position, position)
        row = start.backfilled_to
        backfill = None if row is None else Backfill(start.origin, row, row)
        return cls(position, position, origin=start.origin, backfill=backfill)

    @property
    def count(self) -> int:
        """How many events are in memory."""
        return len(self.unsettled) + (len(self.backfill.unsettled) if self.backfill else 0)

    def forget(self, event: Event) -> None:
        """Remove an event that is settled, or left to the outbox."""
        if self.backfill is not None and event.sequence == self.backfill.origin:
            self.backfill.forget(event.key)
        else:
            del self.unsettled[event.sequence]

    def note_settled(self, sequence: int) -> None:
        """Note the sequence of an event that is settled."""
        self.furthest = max(self.furthest, sequence)

    def take_overtaken(self) -> list[Place]:
        """Return the keys of unsettled events before the furthest that was settled at the last call."""
        before = takewhile(lambda event: event.sequence <= self.overtaking, self.unsettled.values())
        places = [(event.feed, event.key) for event in before]
        self.overtaking = self.furthest
        return places

    def save(self) -> bool:
        """Move the position as far as all is settled but for blocked keys; return whether it moved.

        Not during the backfill: after a crash, part of it is repeated, and then later events must be repeated too.
        """
        settled = next(iter(self.unsettled)) - 1 if self.unsettled else self.frontier
        if self.backfill is not None or settled <= self.position:
            return False
        self.position = settled
        return True


@dataclass(slots=True)
class Backfill:
    """The stored records that a sink gets before the events; row 0 is the gap event of the feed.

    Attributes:
        origin: The sequence that all its events have.
        backfilled_to: The saved row: all up to it is settled but for blocked keys.
        frontier: The last row that was read.
        is_read: There are no more.
        unsettled: The key strings of events that were read, by row.
        rows: Their rows, by key string.
    """

    origin: int
    backfilled_to: int
    frontier: int
    is_read: bool = False
    unsettled: OrderedDict[int, str] = field(default_factory=OrderedDict)
    rows: dict[str, int] = field(default_factory=dict)

    def add(self, row: int, key: str) -> None:
        """Add an event that was read."""
        self.unsettled[row] = key
        self.rows[key] = row

    def forget(self, key: str) -> None:
        """Remove an event that is settled, or left to the outbox."""
        del self.unsettled[self.rows.pop(key)]

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to send, but for blocked keys."""
        return self.is_read and not self.unsettled

    def save(self) -> bool:
        """Move the row as far as all is settled but for blocked keys; return whether it moved."""
        settled = next(iter(self.unsettled)) - 1 if self.unsettled else self.frontier
        moves = settled > self.backfilled_to
        self.backfilled_to = max(settled, self.backfilled_to)
        return moves
