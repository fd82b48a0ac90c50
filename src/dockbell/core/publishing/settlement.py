"""The stored state of a sink: its blocked keys, dead letters, replays and start offsets, and changes of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from dockbell.core.model import Feed

Place: TypeAlias = tuple[Feed, str]
"""A key in its feed; events of one place are delivered in order."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A key whose first owed event waits for its next attempt.

    Attributes:
        feed: Its feed.
        key: Its key string.
        sequence: Its events from here on are owed; at the sink's origin, the backfill event of the record.
        attempts: How many attempts the first of them has had.
        due: When the next may be made.
        error: Why the last one failed.
        held: The key waits behind a dead letter until an operator decides.
        planned_at: When ``due`` was decided; None where the attempt was due at once.
    """

    feed: Feed
    key: str
    sequence: int
    attempts: int
    due: datetime
    error: str = ""
    held: bool = False
    planned_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that is not delivered any more unless an operator replays it."""

    feed: Feed
    key: str
    sequence: int
    attempts: int
    died_at: datetime
    error: str


@dataclass(frozen=True, slots=True)
class StartOffset:
    """Where a sink began in a feed, or began again, and how far the backfill of the stored records is.

    Attributes:
        origin: The number of the feed's last event by then; the sink gets those that follow.
        began_at: Our time of it.
        backfilled_to: The last row of the backfill that is settled; None when all are.
        lost_since: ``recorded_at`` of the first event that the sink has lost; 1970 where that is unknown, None where it
            has lost none.
    """

    origin: int
    began_at: datetime
    backfilled_to: int | None = 0
    lost_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """An event that an operator has ordered to be sent, possibly again.

    Attributes:
        id: Its number.
        feed: The event's feed.
        sequence: The event's number.
        key: The event's key string.
        attempts: How many attempts it has had.
        due: When the next may be made.
        error: Why the last one failed.
    """

    id: int
    feed: Feed
    sequence: int
    key: str
    attempts: int
    due: datetime
    error: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause that a receiver has asked for.

    Attributes:
        asked_at: When it asked.
        until: When the next delivery may be attempted.
    """

    asked_at: datetime
    until: datetime


@dataclass(slots=True)
class Settlement:
    """What changed since the last checkpoint; to be saved in one transaction.

    Attributes:
        positions: Per feed, the sequence up to which all is settled but for the blocked keys.
        blocked: Keys that are blocked, or whose entry changed.
        freed: Keys that are not blocked any more.
        dead: New dead letters.
        revived: Dead letters that are owed again.
        backfilled_to: Per feed, the row up to which the backfill is settled; None when all of it is.
        postponed: Replays that wait for another attempt.
        replayed: The numbers of replays that are done with.
        pause: The pause that the receiver has asked for since.
        origins: Where the sink began in each feed. If it has begun again in a feed since, only the outcomes of single
            events are saved: positions and blocked keys belong to the start before.
    """

    positions: dict[Feed, int] = field(default_factory=dict)
    blocked: dict[Place, Blocked] = field(default_factory=dict)
    freed: set[Place] = field(default_factory=set)
    dead: list[DeadLetter] = field(default_factory=list)
    revived: list[DeadLetter] = field(default_factory=list)
    backfilled_to: dict[Feed, int | None] = field(default_factory=dict)
    postponed: list[Replay] = field(default_factory=list)
    replayed: list[int] = field(default_factory=list)
    pause: Pause | None = None
    origins: Mapping[Feed, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether there is anything to save."""
        return any(
            (
                self.positions,
                self.backfilled_to,
                self.blocked,
                self.freed,
                self.dead,
                self.revived,
                self.postponed,
                self.replayed,
                self.pause,
            )
        )
