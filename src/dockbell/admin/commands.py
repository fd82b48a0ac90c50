"""Commands about feeds: leaves them and waits for outcomes; lists deletions and drift that wait for a decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import anyio

from dockbell.config import suggest
from dockbell.core.comparing.drift import Decision
from dockbell.core.model import Feed
from dockbell.errors import StoreError
from dockbell.ports import Command, CommandKind, CommandOutcome, CommandStore, FeedState, ReadStore, StoredRecord

_LOOK_EVERY: Final = timedelta(seconds=0.2)
_ASK_EVERY: Final = 10
"""So many looks between two checks that a daemon runs."""


class UnknownFeed(ValueError):
    """A name means no feed of the configuration, or several."""


def find_feeds(names: Iterable[str], known: Sequence[Feed]) -> tuple[Feed, ...]:
    """Return the feeds that are named; all where none is.

    Args:
        names: Each ``source/resource``, or only the resource where one source has it.
        known: Those that are configured.

    Raises:
        UnknownFeed: A name means none of them, or several.
    """
    found = [_find_feed(name, known) for name in names]
    return tuple(dict.fromkeys(found)) or tuple(known)


def _find_feed(name: str, known: Sequence[Feed]) -> Feed:
    meant = [feed for feed in known if name in (str(feed), feed.resource)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UnknownFeed(f'"{name}" is read from several sources; name one of {", ".join(map(str, meant))}')
    names: Collection[str] = [str(feed) for feed in known]
    if "/" not in name:
        names = dict.fromkeys(feed.resource for feed in known)
    raise UnknownFeed(f'feed "{name}" is not configured; {suggest(name, names)}')


# Commands ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """What to show of a command.

    Attributes:
        feed: Of which feed; None: of the daemon.
        verdict: ``complete``, ``incomplete``, ``failed``; ``waiting`` where it has no outcome yet.
        counts: What was counted, by name: pages, records, created …
        detail: Why it is not complete; what was done, where no counts say it.
    """

    feed: Feed | None
    verdict: str
    counts: Mapping[str, int] = field(default_factory=dict)
    detail: str = ""

    @property
    def is_done(self) -> bool:
        """Whether it was done, and well."""
        return self.verdict == "complete"


def read_result(command: Command) -> Result:
    """Return what came of a command; one that waits has no outcome yet."""
    outcome = command.outcome
    if outcome is None:
        return Result(command.feed, "waiting", detail="the daemon has not done it yet")
    return Result(command.feed, outcome.status, outcome.counts, outcome.detail)


async def enqueue_commands(
    command_store: CommandStore, feeds: Iterable[Feed | None], kind: CommandKind, now: datetime
) -> Sequence[Command]:
    """Leave the same command for several feeds; where the store refuses one, it comes back as failed."""
    commands = []
    for feed in feeds:
        try:
            commands.append(Command(await command_store.make_command(feed, kind, now), kind, feed))
        except StoreError as error:
            commands.append(Command(0, kind, feed, CommandOutcome("failed", detail=str(error))))
    return commands


async def await_commands(
    command_store: CommandStore,
    commands: Sequence[Command],
    *,
    is_held: Callable[[], bool],
    tell: Callable[[Sequence[Command]], None],
) -> Sequence[Command]:
    """Return commands with their outcomes once each has one, or once no daemon runs any more.

    Args:
        command_store: Where they were left.
        commands: As they were left.
        is_held: Whether a daemon works on the store.
        tell: Called again and again with those that wait.
    """
    looks = 0
    while waiting := [command for command in commands if command.outcome is None]:
        tell(waiting)
        found = {command.id: await command_store.load_command(command.id) for command in waiting}
        commands = [found.get(command.id, command) if command.outcome is None else command for command in commands]
        looks += 1
        if looks % _ASK_EVERY == 0 and not is_held():
            break
        await anyio.sleep(_LOOK_EVERY.total_seconds())
    return [
        command
        if command.outcome is not None
        else replace(command, outcome=(await command_store.load_command(command.id)).outcome)
        for command in commands
    ]


# What is held --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldDeletions:
    """Absent records of a feed, too many to believe that they were deleted.

    Attributes:
        feed: Which.
        count: How many.
        since: When a complete pass did not show the first of them, by our clock; None where that is over meanwhile.
        sample: Some of them, those that were missed first before the others.
    """

    feed: Feed
    count: int
    since: datetime | None
    sample: tuple[StoredRecord, ...]


@dataclass(frozen=True, slots=True)
class HeldDrift:
    """Readings of a feed that differ by members that came or went in many records at once.

    Attributes:
        feed: Which.
        paths: Pointers to these members.
        count: How many readings the last run held.
        since: When it was found, by our clock.
        decision: What becomes of it.
    """

    feed: Feed
    paths: tuple[str, ...]
    count: int
    since: datetime | None
    decision: Decision


async def list_deletions(read_store: ReadStore, feeds: Collection[Feed], *, most: int) -> Sequence[HeldDeletions]:
    """Return the deletions that these feeds hold back, with at most so many examples of each."""
    held = []
    for state in await _load(read_store, feeds):
        if state.held:
            sample = tuple(await read_store.find_suspected(state.id, most))
            held.append(HeldDeletions(state.feed, state.held, sample[0].suspected_at if sample else None, sample))
    return held


async def list_drift(read_store: ReadStore, feeds: Collection[Feed]) -> Sequence[HeldDrift]:
    """Return the drift that is known of these feeds."""
    return [
        HeldDrift(state.feed, tuple(sorted(state.drift.paths)), state.drifted, state.drift_at, state.drift.decision)
        for state in await _load(read_store, feeds)
        if state.drift is not None
    ]


async def _load(read_store: ReadStore, feeds: Collection[Feed]) -> Sequence[FeedState]:
    return [state for state in await read_store.load_feeds() if state.feed in feeds]
