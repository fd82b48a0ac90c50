"""Retention, erasure, health and commands of the store."""

from __future__ import annotations

import sqlite3
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
from dockbell.stores.sql import commands, delays, delivery, pruning, purging
from dockbell.stores.sqlite.disk_reserve import measure
from dockbell.stores.sqlite.engine import Engine, call_and_find_end

_LOG_BUSY: Final = "the log beside the store cannot be emptied while a process reads it"
_PATIENCE: Final = 1000
"""How long to wait for readers of the log, in milliseconds; no write is possible meanwhile."""
_PRUNED_AT_ONCE: Final = 1000
"""Events per transaction: a commit of a page never waits long."""


class SqliteRetention(Retention):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find_owing(self, sinks: Sequence[str], before: datetime) -> Sequence[str]:
        return await self._engine.read(pruning.find_owing, sinks, before)

    async def find_left(self, sinks: Collection[str]) -> Mapping[str, int]:
        return await self._engine.read(delivery.find_left, sinks)

    async def measure(self) -> Footprint:
        return await self._engine.read(measure)

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

    async def thin_runs(self, before: datetime, limit: int) -> int:
        return await self._engine.write(pruning.thin_runs, before, limit)

    async def prune_delays(self, before: datetime, limit: int) -> int:
        return await self._engine.write(delays.prune_delays, before, limit)

    async def forget_letters(self, before: datetime) -> Mapping[str, int]:
        return await self._engine.write(pruning.forget_letters, before, self._engine.now())


class SqlitePrivacy(Privacy):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def purge(
        self, feed: Feed, key: str, detect: Callable[[Key, int, datetime], Change], compose: Compose
    ) -> Purged:
        engine = self._engine
        if feed not in engine.outbox.ends:
            return Purged()
        lease = await engine.take(feed)
        purged, end = await engine.write(
            call_and_find_end, feed, purging.purge, lease, key, detect, compose, now=engine.now()
        )
        if purged.is_known:  # first of all: relays must not send what they have read before
            engine.purges += 1
            engine.outbox.ring()
        await engine.announce(feed, end)
        return purged

    async def wipe(self, *, rewrite_most: int | None = None) -> str:
        self._engine.wipes += 1
        try:
            return await self._engine.write(wipe, rewrite_most)
        finally:
            self._engine.wipes -= 1


class SqliteHealth(Health):
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


class SqliteCommandInbox(CommandInbox):
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


def wipe(connection: sqlite3.Connection, rewrite_most: int | None) -> str:
    """Leave nothing in the store's files of what was deleted; return why something may be left, empty when nothing is.

    What is deleted is overwritten with zeros as it is (``secure_delete``), but pages that were divided or joined before
    may hold old copies of what they held, in parts that they do not use: only writing the whole file anew removes them.

    Args:
        connection: To the store; no other of this process may be in a transaction.
        rewrite_most: A larger file, in bytes, is not written anew: nothing else can be written meanwhile. None: any is.
    """
    if not _empty_log(connection):
        return _LOG_BUSY  # before all is written anew in vain
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    problem = ""
    if rewrite_most is not None and pages * size > rewrite_most:
        problem = (
            f"the store has {pages * size >> 20} MB, too much to write it anew unless the daemon is stopped: unused"
            " parts of it may hold traces"
        )
    else:
        try:
            connection.execute("VACUUM")
        except sqlite3.Error as error:
            problem = f"the store could not be written anew ({error}), unused parts of it may hold traces"
    return problem or ("" if _empty_log(connection) else _LOG_BUSY)


def _empty_log(connection: sqlite3.Connection) -> bool:
    """Return whether the log beside the store is empty now; not while a reader needs it."""
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {min(patience, _PATIENCE)}")
    try:
        is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
    return not is_busy
