"""How far a sink is in one feed: what was read of it and is not settled, and what the sink is told of first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from dockbell.core.model import Event


@dataclass(slots=True)
class FeedCursor:
    """One feed as this sink sees it."""

    position: int
    frontier: int
    furthest: int = 0
    """The furthest event that was settled."""
    overtaking: int = 0
    """The same as it was at the last checkpoint."""
    origin: int | None = None
    backfill: Backfill | None = None
    unsettled: OrderedDict[int, Event] = field(default_factory=OrderedDict)

    @property
    def settled(self) -> int:
        """The last number up to which all is settled but for blocked keys."""
        return next(iter(self.unsettled)) - 1 if self.unsettled else self.frontier

    def forget(self, event: Event) -> None:
        """Let an event go that is settled, or left to the outbox."""
        backfill = self.backfill
        if backfill is not None and event.sequence == backfill.origin:
            del backfill.unsettled[backfill.rows.pop(event.key)]
        else:
            del self.unsettled[event.sequence]


@dataclass(slots=True)
class Backfill:
    """The stored records that a sink is being told of; row 0 is what is said of the feed."""

    origin: int
    backfilled_to: int
    frontier: int
    is_read: bool = False
    unsettled: OrderedDict[int, str] = field(default_factory=OrderedDict)
    rows: dict[str, int] = field(default_factory=dict)

    @property
    def settled(self) -> int:
        """The last row up to which all is settled but for blocked keys."""
        return next(iter(self.unsettled)) - 1 if self.unsettled else self.frontier
