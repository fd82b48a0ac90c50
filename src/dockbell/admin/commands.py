"""Commands: leaves them and waits for outcomes; lists what waits for a decision; erases the content of a record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from dockbell.admin.why import read_key
from dockbell.config import suggest
from dockbell.core.comparing.deletion_rules import purge
from dockbell.core.comparing.drift import Decision
from dockbell.core.model import RESOURCES, Feed
from dockbell.core.publishing.event import Composer
from dockbell.errors import StoreError
from dockbell.ports import Command, CommandKind, CommandOutcome, CommandStore, FeedState, ReadStore, Store, StoredRecord

_LOOK_EVERY: Final = timedelta(seconds=0.2)
_ASK_EVERY: Final = 10
"""So many looks between two checks that a daemon runs."""


class UnknownFeed(ValueError):
    """A name means no feed of the configuration."""


class AmbiguousFeed(ValueError):
    """A name means several feeds."""


def find_feeds(names: Iterable[str], known: Sequence[Feed]) -> tuple[Feed, ...]:
    """Return the feeds that are named, ``source/resource`` or only the resource where one source has it; else all.

    Raises:
        UnknownFeed: A name means none of them.
        AmbiguousFeed: A name means several of them.
    """
    found = [_find_feed(name, known) for name in names]
    return tuple(dict.fromkeys(found)) or tuple(known)


def _find_feed(name: str, known: Sequence[Feed]) -> Feed:
    meant = [feed for feed in known if name in (str(feed), feed.resource)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise AmbiguousFeed(f'"{name}" is read from several sources; name one of {", ".join(map(str, meant))}')
    names = dict.fromkeys(str(feed) if "/" in name else feed.resource for feed in known)
    raise UnknownFeed(f'feed "{name}" is not configured; {suggest(name, names)}')


# Commands ------------------------------------------------------------------------------------------------------------


class Result(msgspec.Struct, frozen=True):
    """What to show of a command: the fields of its outcome, or ``waiting`` as the verdict where it has none yet."""

    feed: Feed | None
    verdict: str
    counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    detail: str = ""

    @property
    def is_done(self) -> bool:
        return self.verdict == "complete"


def read_result(command: Command) -> Result:
    if (outcome := command.outcome) is None:
        return Result(command.feed, "waiting", detail="the daemon has not run it yet")
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
    tell: Callable[[Sequence[Command]], None] = lambda _: None,
) -> Sequence[Command]:
    """Return commands with their outcomes once each has one, or once no daemon works on the store any more.

    Meanwhile ``tell`` is called again and again with those that wait.
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


class HeldDeletions(msgspec.Struct, frozen=True):
    """Absent records of a feed, too many to believe that they were deleted."""

    feed: Feed
    count: int
    since: datetime | None
    """When a complete pass did not show the first of them, by our clock; None where that is over meanwhile."""
    sample: tuple[StoredRecord, ...]  # some of them, those that were missed first before the others


class HeldDrift(msgspec.Struct, frozen=True):
    """Readings of a feed that differ by members (``paths``) that came or went in many records at once."""

    feed: Feed
    paths: tuple[str, ...]
    count: int  # how many readings the last run held
    since: datetime | None  # when it was found, by our clock
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
    return [
        HeldDrift(state.feed, tuple(sorted(state.drift.paths)), state.drifted, state.drift_at, state.drift.decision)
        for state in await _load(read_store, feeds)
        if state.drift is not None
    ]


async def _load(read_store: ReadStore, feeds: Collection[Feed]) -> Sequence[FeedState]:
    return [state for state in await read_store.load_feeds() if state.feed in feeds]


# Purges --------------------------------------------------------------------------------------------------------------


class Target(msgspec.Struct, frozen=True):
    """A record whose content is to be erased; where only events or readings in quarantine are left, without record."""

    feed: Feed
    key: str
    record: StoredRecord | None

    @property
    def is_there(self) -> bool:
        """Whether the API showed it last time: it will show it again."""
        return self.record is not None and self.record.gone_at is None


async def find_target(read_store: ReadStore, feed: Feed, given: str) -> Target | None:
    """Return the record that is meant by a key, as events or the API write it; None where nothing is stored of it.

    Raises:
        ValueError: What is given can be no key.
    """
    state = next((state for state in await read_store.load_feeds() if state.feed == feed), None)
    for key in read_key(given) if state is not None else ():
        assert state is not None
        record = await read_store.find_record(state.id, key)
        if (
            record is not None
            or await read_store.read_events_of(state.id, key, 1)
            or await read_store.find_quarantined(state.id, 1, key=key)
        ):
            return Target(feed, key, record)
    return None


async def purge_record(
    store: Store, feed: Feed, key: str, *, name: str, rewrite_most: int | None = None
) -> CommandOutcome:
    """Erase what is stored of a record, tell subscribers, and clear the store's files of it; return what came of it.

    The feed may have left the configuration; ``rewrite_most`` is of :meth:`dockbell.ports.Privacy.wipe`.
    """
    compose = Composer(feed, name=name, singular=RESOURCES[feed.resource].singular, epoch=store.epoch)
    purged = await store.privacy.purge(feed, key, partial(purge, feed), compose)
    if not purged.is_known:
        return CommandOutcome("failed", detail="nothing is stored of it")
    done = CommandOutcome("complete", {"emptied": purged.events, "published": int(purged.change is not None)})
    problem = await store.privacy.wipe(rewrite_most=rewrite_most)
    if not problem:
        return done
    words = f"{purged.events} emptied, {int(purged.change is not None)} published, but {problem}; purge it again"
    return CommandOutcome("incomplete", detail=words)
