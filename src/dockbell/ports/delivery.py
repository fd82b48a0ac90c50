"""What a store tells of sinks, and of the records that they are told of."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from dockbell.core.model import Feed, Key
from dockbell.core.publishing.settlement import Blocked, DeadLetter, Pause


class Condition(StrEnum):
    """How a relay last found its receiver."""

    UNKNOWN = "unknown"  # nothing was tried since the start
    CONNECTED = "connected"
    DOWN = "down"


class Found(msgspec.Struct, frozen=True):
    """How a relay last found its receiver.

    Attributes:
        condition: How.
        since: Since when it is so.
        reason: Why, where something is wrong.
    """

    condition: Condition
    since: datetime
    reason: str = ""


class SinkState(msgspec.Struct, frozen=True):
    """How far a sink has come.

    Attributes:
        name: As in ``[sinks.NAME]``.
        owed: Events that it has not settled; those that its filters will hold back count until the position passes.
        owed_at_most: Whether it may get fewer of them, because of its filters or of ``coalesce``.
        blocked: Keys that wait for another attempt.
        dead: Dead letters.
        oldest: When the oldest event that it owes was recorded.
        error: Why a blocked key's last attempt did not succeed.
        held: Blocked keys that wait for an operator, because of a dead letter.
        replays: Events that wait to be sent on an operator's request.
        paused: Why it takes nothing until an operator resumes it; empty while it is not paused.
        paused_at: Since when.
        found: How its relay last found the receiver; None where no daemon has run since it was configured.
    """

    name: str
    owed: int
    blocked: int
    dead: int
    oldest: datetime | None
    error: str
    held: int = 0
    replays: int = 0
    paused: str = ""
    paused_at: datetime | None = None
    found: Found | None = None
    owed_at_most: bool = False

    @property
    def last_error(self) -> str:
        """Why the receiver is down, else why a key's last attempt did not succeed; empty where nothing is known."""
        found = self.found
        reason = found.reason if found is not None and found.condition is Condition.DOWN else ""
        return reason or self.error


class Extent(msgspec.Struct, frozen=True):
    """Which events of a feed the outbox holds.

    Attributes:
        pruned: Events up to this number may be gone; every later one is there.
        last: The number of the last event.
        baselines: How often all records were stored without events, for the first time or because they are read
            differently.
        is_complete: That is not going on now: what is stored of the feed is all that there is.
    """

    pruned: int
    last: int
    baselines: int = 0
    is_complete: bool = True


class StoredState(msgspec.Struct, frozen=True):
    """A record as it is stored.

    Attributes:
        row: Its place: rows are read in the order of their places, and a record never changes its own.
        feed: Its feed.
        key: Its key string.
        revision: Its change count.
        body: Its raw JSON; None when it is gone.
    """

    row: int
    feed: Feed
    key: str
    revision: int
    body: bytes | None


class BackfillRecord(msgspec.Struct, frozen=True):
    """A record as a sink is told of it that begins with what is stored.

    Attributes:
        row: Its place.
        key: Its key.
        revision: Its change count then.
        body: Its raw JSON then; None when it was gone.
        modified: Its own timestamp, where that is known.
    """

    row: int
    key: Key
    revision: int
    body: bytes | None
    modified: datetime | None = None


class Controls(msgspec.Struct, frozen=True):
    """What was decided of a sink beside its relay.

    Attributes:
        paused: Why it takes nothing; None while it is not paused.
        held: How many of its keys wait for an operator.
        replay_at: When the next replay is due; None where none waits.
        pause: The last pause that its receiver has asked for; it may be over.
        hurried: How often an operator had what waits for its next attempt sent at once.
        decided: How often an operator decided what becomes of dead letters.
    """

    paused: str | None
    held: int
    replay_at: datetime | None
    pause: Pause | None = None
    hurried: int = 0
    decided: int = 0


ROOM_LEAST: Final = 256 * 1024 * 1024
"""Bytes that should be left on the disk of the store; on a small disk, a twentieth of it."""
_ROOM_SHARE: Final = 20


class Footprint(msgspec.Struct, frozen=True):
    """How much of its disk a store uses, in bytes.

    Attributes:
        used: By the store; what is free in its file is left out.
        disk: All that there is; 0 where a server does not tell.
        left: What others may still use.
        free: What is free in the file of the store.
    """

    used: int
    disk: int
    left: int = 0
    free: int = 0

    @property
    def room(self) -> int:
        """What the store may still use."""
        return self.left + self.free

    @property
    def is_short(self) -> bool:
        """Whether so little is left that an operator should make room."""
        return self.room < min(ROOM_LEAST, self.disk // _ROOM_SHARE)


class KeyStatus(msgspec.Struct, frozen=True):
    """How far a sink has come with the events of one key.

    Attributes:
        sink: As in ``[sinks.NAME]``.
        position: Behind this sequence of the feed all is settled but for blocked keys.
        blocked: From where on the key's events are owed, where it waits for another attempt.
        dead: Its dead letters.
        origin: Where it began: it was never owed what is up to this sequence.
    """

    sink: str
    position: int
    blocked: Blocked | None = None
    dead: tuple[DeadLetter, ...] = ()
    origin: int = 0
