"""What operators ask of a daemon, by way of its store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

import msgspec

from dockbell.core.counting import count_of
from dockbell.core.model import Event, Feed
from dockbell.core.publishing.settlement import DeadLetter
from dockbell.ports.delivery import Extent


class CommandKind(StrEnum):
    """What an operator asks of a feed, or of its daemon."""

    RECONCILE = "reconcile"
    APPROVE = "approve deletions"
    REJECT = "reject deletions"
    ABSORB = "absorb drift"
    PUBLISH = "publish drift"
    RELOAD = "reload"
    PURGE = "purge"


Status: TypeAlias = Literal["complete", "incomplete", "failed"]


class CommandOutcome(msgspec.Struct, frozen=True):
    """The result of a command, as the daemon stores it; its text is what logs and the web show.

    Attributes:
        status: ``complete`` where all was done.
        counts: What was counted, by name: pages, records, created …
        detail: Why it is not complete; what was done, where no counts say it.
    """

    status: Status
    counts: dict[str, int] = {}
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.detail or ', '.join(map(_write_count, self.counts.items()))}"


def _write_count(counted: tuple[str, int]) -> str:
    name, count = counted
    return count_of(count, name[:-1]) if name.endswith("s") else f"{count} {name}"


class Command(msgspec.Struct, frozen=True):
    """What an operator asks of the daemon.

    Attributes:
        id: Its number.
        kind: What is asked.
        feed: Of which feed; None where it is asked of the daemon as such.
        outcome: What came of it; None while it waits.
        key: Of which record; empty where it is asked of the feed.
    """

    id: int
    kind: CommandKind
    feed: Feed | None
    outcome: CommandOutcome | None = None
    key: str = ""


class Selection(msgspec.Struct, frozen=True):
    """Which events an operator means; what is empty or None leaves none out.

    Attributes:
        feeds: Their feeds.
        keys: Their key strings.
        ids: Their ids.
        first: Their sequences are not below this.
        last: Their sequences are not above this.
        since: They were recorded at this time or later.
        until: They were recorded before this time.
        failed: They are dead letters of the sink.
        never_sent: The sink began after them; with ``failed``, either.
    """

    feeds: tuple[Feed, ...] = ()
    keys: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    first: int | None = None
    last: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    failed: bool = False
    never_sent: bool = False


class Reach(msgspec.Struct, frozen=True):
    """How far a sink has come in a feed.

    Attributes:
        extent: Which of the feed's events are kept.
        origin: The sink began after this sequence.
        position: Behind it the sink has settled all but the blocked keys.
    """

    extent: Extent
    origin: int
    position: int


class Candidate(msgspec.Struct, frozen=True):
    """A kept event that an operator means.

    Attributes:
        event: The event.
        is_owed: The sink will be offered it without a replay.
        is_waiting: A replay of it waits already.
    """

    event: Event
    is_owed: bool
    is_waiting: bool


class Offered(msgspec.Struct, frozen=True):
    """What came of events that are to be offered again.

    Attributes:
        entered: Replays that wait now because of it.
        released: Keys that were on hold and go on with their dead letter.
        missing: Events that are not kept any more.
    """

    entered: int = 0
    released: int = 0
    missing: int = 0


class Hurried(msgspec.Struct, frozen=True):
    """What is attempted at once because an operator says so.

    Attributes:
        keys: Keys that waited for their next attempt.
        replays: Replays that waited.
    """

    keys: int = 0
    replays: int = 0


class Undelivered(msgspec.Struct, frozen=True):
    """A dead letter as an operator sees it.

    Attributes:
        sink: Whose.
        letter: The dead letter.
        type: The event's; empty where it is not kept any more.
        holds: Its key waits for the operator.
    """

    sink: str
    letter: DeadLetter
    type: str
    holds: bool


class DeadGroup(msgspec.Struct, frozen=True):
    """Dead letters of one feed that died of the same error.

    Attributes:
        sink: Whose.
        feed: The feed.
        error: The error.
        letters: How many.
        keys: Of how many keys.
        first_at: When the first died.
        last_at: When the last died.
    """

    sink: str
    feed: Feed
    error: str
    letters: int
    keys: int
    first_at: datetime
    last_at: datetime


class CommandStore(Protocol):
    """Takes an operator's commands to the daemon, and decisions about events and sinks.

    Every method is one short transaction, and raises :class:`dockbell.errors.StoreError` where the store is busy for
    too long or must not be written.
    """

    async def make_command(self, feed: Feed | None, kind: CommandKind, now: datetime, key: str = "") -> int:
        """Leave a command, about a record where a key is given; return its number."""

    async def load_command(self, number: int) -> Command:
        """Return a command, and its outcome once it has one."""

    async def find_command(self, number: int) -> Command | None:
        """Return a command as :meth:`load_command`; None where none has this number."""

    async def load_reaches(self, sink: str, start: Literal["now", "beginning", "state"]) -> Mapping[Feed, Reach]:
        """Return how far a sink has come in each feed; where it has not begun, where it would begin now."""

    async def read_candidates(
        self, sink: str, feed: Feed, reach: Reach, selection: Selection, *, within: tuple[int, int], limit: int
    ) -> Sequence[Candidate]:
        """Return the chosen events of a feed after one sequence and up to another, in order."""

    async def offer(self, sink: str, feed: Feed, events: Sequence[tuple[int, str]], now: datetime) -> Offered:
        """Have a sink offered events of a feed again, each a sequence and a key; they are dead letters no longer.

        A replay waits for each, but a key on hold goes on with its dead letter. A dead letter whose event is not kept
        any more stays.
        """

    async def forget_replays(self, sink: str, limit: int) -> int:
        """Delete replays of a sink that wait; return how many."""

    async def count_dead(self, sink: str | None, selection: Selection) -> Sequence[DeadGroup]:
        """Return what dead letters there are, of one sink or of all, by sink, most first."""

    async def read_dead(
        self, sink: str | None, selection: Selection, limit: int, after: Undelivered | None = None
    ) -> Sequence[Undelivered]:
        """Return dead letters by sink, feed and sequence, after one of them."""

    async def discard(self, sink: str, feed: Feed, events: Sequence[tuple[int, str]], now: datetime) -> int:
        """Delete dead letters of a feed, each a sequence and a key; return how many keys on hold go on without them."""

    async def pause(self, sink: str, reason: str, now: datetime) -> bool:
        """Have a sink take nothing until :meth:`resume`; return whether it was not paused already."""

    async def resume(self, sink: str, now: datetime) -> bool:
        """Have a paused sink take events again, all that waits at once; return whether it was paused."""

    async def hurry(self, sink: str, now: datetime) -> Hurried:
        """Have a sink attempt at once what waits for its next attempt, whatever pause its receiver has asked for.

        Keys that are on hold wait on.
        """

    async def aclose(self) -> None:
        """Close it."""
