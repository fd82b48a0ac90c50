"""Retention, erasure, health and commands of the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from dockbell.core.delays import MeasuredDelays
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
from dockbell.stores.handles.engine import Engine, call_and_find_end
from dockbell.stores.sql import commands, delays, delivery, pruning, purging
from dockbell.stores.sql.connection import Connection

_PRUNED_AT_ONCE: Final = 1000
"""Events per transaction: a commit of a page never waits long."""


class SqlRetention(Retention):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find_owing(self, sinks: Sequence[str], before: datetime) -> Sequence[str]:
        return await self._engine.read(pruning.find_owing, sinks, before)

    async def find_left(self, sinks: Collection[str]) -> Mapping[str, int]:
        return await self._engine.read(delivery.find_left, sinks)

    async def measure(self) -> Footprint:
        return await self._engine.measure()

    async def prune_events(self, before: datetime, sinks: Sequence[str], limit: int | None = None) -> int:
        if limit is not None:
            return await self._delete_events(before, sinks, limit)
        dropped, rest = await self._engine.drop_events(before, sinks)
        return dropped if rest is None else dropped + await self._delete_events(rest, sinks)

    async def _delete_events(self, before: datetime, sinks: Sequence[str], limit: int | None = None) -> int:
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

    async def thin_runs(self, before: datetime, limit: int) -> int:
        return await self._engine.write(pruning.thin_runs, before, limit)

    async def prune_delays(self, before: datetime, limit: int) -> int:
        return await self._engine.write(delays.prune_delays, before, limit)

    async def forget_letters(self, before: datetime) -> Mapping[str, int]:
        return await self._engine.write(pruning.forget_letters, before, self._engine.now())


class SqlPrivacy(Privacy):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def purge(
        self, feed: Feed, key: str, detect: Callable[[Key, int, datetime], Change], compose: Compose
    ) -> Purged:
        engine = self._engine
        if feed not in engine.outbox.ends:
            return Purged()
        lease = await engine.take(feed)
        try:
            purged, end = await engine.write(
                call_and_find_end, feed, purging.purge, lease, key, detect, compose, now=engine.now()
            )
        except BaseException:  # whether it was committed is not known
            engine.purges += 1
            engine.outbox.ring()
            raise
        if purged.is_known:  # first of all: relays must not send what they have read before
            engine.purges += 1
            engine.outbox.ring()
        await engine.announce(feed, end)
        return purged

    async def wipe(self, *, rewrite_most: int | None = None) -> str:
        self._engine.wipes += 1
        try:
            return await self._engine.wipe(rewrite_most)
        finally:
            self._engine.wipes -= 1


class SqlHealth(Health):
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

    async def note_delays(self, measured: Sequence[MeasuredDelays]) -> None:
        await self._engine.write(delays.add_delays, measured)


class SqlCommandInbox(CommandInbox):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._version: int | None = None

    async def take(self) -> Sequence[Command]:
        return await self._engine.read(self._look_for_commands)

    async def finish(self, command: Command, outcome: CommandOutcome) -> None:
        await self._engine.write(commands.finish_command, command, outcome, self._engine.now())

    def _look_for_commands(self, reader: Connection) -> Sequence[Command]:
        version = self._engine.find_version(reader)
        if version is not None and version == self._version:
            return ()
        waiting = commands.load_commands(reader, scope=self._engine.commanded)
        self._version = version
        return waiting


def _check(connection: Connection) -> None:
    connection.execute("SELECT 1").fetchone()
