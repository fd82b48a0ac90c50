"""Retention, erasure, health and commands of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from dockbell.core.model import Change, Feed, Key
from dockbell.errors import StoreUnavailable
from dockbell.ports import (
    Bell,
    Command,
    CommandInbox,
    CommandOutcome,
    Compose,
    Footprint,
    Found,
    Health,
    Privacy,
    Purged,
    Retention,
)
from dockbell.stores.sql import (
    commands,
    delivery,
    pruning,
    purging,
)
from dockbell.stores.sqlite import footprint, wiping
from dockbell.stores.sqlite.engine import Engine

_PRUNED_AT_ONCE: Final = 1000
"""Events per transaction: a commit of a page never waits long."""


class SqliteRetention(Retention):
    """The statements of the janitor."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find_owing(self, sinks: Sequence[str], before: datetime) -> Sequence[str]:
        return await self._engine.read(pruning.find_owing, sinks, before)

    async def find_left(self, sinks: Collection[str]) -> Mapping[str, int]:
        return await self._engine.read(delivery.find_left, sinks)

    async def measure(self) -> Footprint:
        return await self._engine.read(footprint.measure)

    async def prune_events(self, before: datetime, sinks: Sequence[str], limit: int | None = None) -> int:
        pruned, place = 0, (0, 0)
        while limit is None or pruned < limit:
            most = _PRUNED_AT_ONCE if limit is None else min(limit - pruned, _PRUNED_AT_ONCE)
            prunable, further = await self._engine.read(pruning.find_prunable, before, sinks, place, most)
            if prunable.events:
                await self._engine.write(pruning.prune_events, prunable, sinks)
                pruned += len(prunable.events)
            if further is None:
                break
            place = further
        return pruned

    async def prune_history(self, before: datetime, limit: int) -> int:
        return await self._engine.write(pruning.prune_history, before, limit)

    async def forget_letters(self, before: datetime) -> Mapping[str, int]:
        return await self._engine.write(pruning.forget_letters, before, self._engine.now())


class SqlitePrivacy(Privacy):
    """The statements that erase."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def purge(
        self, feed: Feed, key: str, detect: Callable[[Key, int, datetime], Change], compose: Compose
    ) -> Purged:
        purged = await self._engine.write(
            partial(purging.purge, feed=feed, key=key, detect=detect, compose=compose, now=self._engine.now())
        )
        if purged.is_known:
            self._engine.purges += 1
            await self._engine.note_events()
        return purged

    async def wipe(self, *, rewrite_most: int | None = None) -> str:
        self._engine.wipes += 1
        try:
            return await self._engine.write(wiping.wipe, rewrite_most)
        finally:
            self._engine.wipes -= 1


class SqliteHealth(Health):
    """Whether the file can be written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def trouble(self) -> StoreUnavailable | None:
        return self._engine.outage.reason

    @property
    def stalled(self) -> Bell:
        return self._engine.outage.began

    async def recovered(self) -> None:
        await self._engine.outage.over()

    async def check(self) -> None:
        if not self._engine.wipes:  # a wipe may keep the writer busy for minutes; the daemon is well
            await self._engine.write(_check)

    async def note_conditions(self, found: Mapping[str, Found]) -> None:
        await self._engine.write(delivery.note_conditions, found)


class SqliteCommandInbox(CommandInbox):
    """The commands of operators, which other processes write."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._version = 0

    async def take(self) -> Sequence[Command]:
        return await self._engine.read(self._look_for_commands)

    async def finish(self, command: Command, outcome: CommandOutcome) -> None:
        await self._engine.write(commands.finish_command, command, outcome, self._engine.now())

    def _look_for_commands(self, reader: sqlite3.Connection) -> Sequence[Command]:
        # https://www.sqlite.org/pragma.html#pragma_data_version moves when another process has written.
        (version,) = reader.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return ()
        waiting = commands.load_commands(reader)
        self._version = version
        return waiting


def _check(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT 1").fetchone()
