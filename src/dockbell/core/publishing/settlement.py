"""The stored state of a sink: its blocked keys, dead letters, replays and start offsets, and changes of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec

from dockbell.core.model import Feed

RecordId: TypeAlias = tuple[Feed, str]
"""A key in its feed; events of one record are delivered in order."""


class Blocked(msgspec.Struct, frozen=True):
    """A key whose first owed event waits for its next attempt."""

    feed: Feed
    key: str
    sequence: int  # its events from here on are owed; at the sink's origin, the backfill event of the record
    attempts: int  # how many attempts the first of them has had
    due: datetime  # when the next may be made
    error: str = ""
    held: bool = False  # the key waits behind a dead letter until an operator decides
    planned_at: datetime | None = None  # when ``due`` was decided; None where the attempt was due at once


class DeadLetter(msgspec.Struct, frozen=True):
    """An event that is not delivered any more unless an operator replays it."""

    feed: Feed
    key: str
    sequence: int
    attempts: int
    died_at: datetime
    error: str
    answer: str = ""  # what the receiver answered last


class Verdict(StrEnum):
    """What an outcome means for its event."""

    SETTLED = "delivered"
    RETRY = "failed"  # the attempt counts
    WAIT = "deferred"  # the receiver takes nothing: the attempt does not count
    REFUSED = "refused"  # a dead letter, taken back should the receiver turn out to be to blame
    DEAD = "dead"


class Attempt(msgspec.Struct, frozen=True):
    """One attempt to deliver an event, and what came of it."""

    feed: Feed
    key: str
    sequence: int
    number: int  # among the attempts of the event, from 1
    began_at: datetime  # when the sink was given it
    took: timedelta
    verdict: Verdict
    error: str = ""
    status: int | None = None  # of HTTP
    answer: str = ""  # what the receiver answered
    next_at: datetime | None = None  # when the next was planned for; None where none was
    is_replay: bool = False


class StartOffset(msgspec.Struct, frozen=True):
    """Where a sink began in a feed, or began again, and how far the backfill of the stored records is."""

    origin: int  # the number of the feed's last event by then; the sink gets those that follow
    began_at: datetime
    backfilled_to: int | None = 0  # the last row of the backfill that is settled; None when all are
    lost_since: datetime | None = None
    """``recorded_at`` of the first event that the sink has lost; 1970 where that is unknown, None where it has lost
    none."""


class Replay(msgspec.Struct, frozen=True):
    """An event that an operator has ordered to be sent, possibly again; its next attempt is ``due``."""

    id: int
    feed: Feed
    sequence: int
    key: str
    attempts: int
    due: datetime
    error: str = ""


class Pause(msgspec.Struct, frozen=True):
    """A pause that a receiver has asked for."""

    asked_at: datetime
    until: datetime


@dataclass(slots=True)
class Settlement:
    """What changed since the last checkpoint; to be saved in one transaction."""

    positions: dict[Feed, int] = field(default_factory=dict)
    """Per feed, the sequence up to which all is settled but for the blocked keys."""
    blocked: dict[RecordId, Blocked] = field(default_factory=dict)  # keys that are blocked, or whose entry changed
    freed: set[RecordId] = field(default_factory=set)
    dead: list[DeadLetter] = field(default_factory=list)
    revived: list[DeadLetter] = field(default_factory=list)  # dead letters that are owed again
    backfilled_to: dict[Feed, int | None] = field(default_factory=dict)
    """Per feed, the row up to which the backfill is settled; None when all of it is."""
    postponed: list[Replay] = field(default_factory=list)  # replays that wait for another attempt
    replayed: list[int] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    pause: Pause | None = None  # the pause that the receiver has asked for since
    origins: Mapping[Feed, int] = field(default_factory=dict)
    """Where the sink began in each feed. If it has begun again in a feed since, only the outcomes of single events are
    saved: positions and blocked keys belong to the start before."""

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self) if each.name != "origins")
