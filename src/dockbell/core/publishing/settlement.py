"""The nouns of delivery: what is owed, what was settled, and where a sink began; all that is stored of a sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from dockbell.core.model import Feed

Place: TypeAlias = tuple[Feed, str]
"""A key in its feed: what order is kept for."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A key whose head delivery waits for its next attempt.

    Attributes:
        feed: Its feed.
        key: Its key string.
        sequence: Its events from here on are owed; at the sink's origin, what was stored of the record then.
        attempts: How many attempts the first of them has had.
        due: When the next may be made.
        error: Why the last one failed.
        held: Its head is a dead letter, and it waits until an operator decides.
        planned_at: When it was decided that the next attempt is due then; None where it was due at once.
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
    """An event that a sink will not be offered again unless an operator says so."""

    feed: Feed
    key: str
    sequence: int
    attempts: int
    died_at: datetime
    error: str


@dataclass(frozen=True, slots=True)
class StartOffset:
    """Where a sink began in a feed, or began again, and how far the backfill of what was stored then has come.

    Attributes:
        origin: The number of the feed's last event by then; the sink gets those that follow.
        began_at: Our time of it.
        backfilled_to: The last row that it was told of; None when it knows of all that was stored then.
        lost_since: When the first event was recorded that it has lost: 1970 where nobody knows, None where it lost
            none.
    """

    origin: int
    began_at: datetime
    backfilled_to: int | None = 0
    lost_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """An event that is sent again, or for the first time, because an operator said so.

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
    """How long a receiver has asked to be left alone.

    Attributes:
        asked_at: When it did.
        until: When the next delivery may be attempted.
    """

    asked_at: datetime
    until: datetime


@dataclass(slots=True)
class Settlement:
    """What changed since the last checkpoint; to be saved in one transaction.

    Attributes:
        positions: Per feed, the sequence behind which all is settled but for the blocked keys.
        blocked: Keys that are blocked, or whose entry changed.
        freed: Keys that are not blocked any more.
        dead: New dead letters.
        revived: Dead letters that are owed again.
        backfilled_to: Per feed, the row up to which the sink was sent what was stored at its origin; None when that was
            all.
        postponed: Replays that wait for another attempt.
        replayed: The numbers of replays that are done with.
        pause: The pause that the receiver has asked for since.
        origins: Where the sink began in each feed. Of a feed in which it has begun again since, nothing is to be saved
            but what became of single events: all else speaks of what the sink has lost.
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
