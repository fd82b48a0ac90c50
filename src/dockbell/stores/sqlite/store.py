"""The store, held by one process."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
import anyio.to_thread

from dockbell.core.model import NOTICES, Event, Feed
from dockbell.core.moment import to_micros
from dockbell.core.publishing.settlement import Place
from dockbell.ports import (
    Extent,
    FeedState,
    StoredState,
)
from dockbell.stores.sql import (
    backfill,
    delivery,
)
from dockbell.stores.sqlite.engine import Clock, Engine
from dockbell.stores.sqlite.feed_store import SqliteFeedStore
from dockbell.stores.sqlite.files import open_files
from dockbell.stores.sqlite.migrations import MIGRATIONS
from dockbell.stores.sqlite.sink_store import SqliteSinkStore
from dockbell.stores.sqlite.upkeep import SqliteCommandInbox, SqliteHealth, SqlitePrivacy, SqliteRetention
from dockbell.telemetry import StoreUpgraded, Telemetry

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _by_id(
    method: Callable[Concatenate[SqliteFeedStore, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[SqliteStore, int, _P], Coroutine[Any, Any, _T]]:
    async def call(self: SqliteStore, feed_id: int, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return await method(SqliteFeedStore(self.engine, NOTICES, feed_id), *args, **named)

    return call


def _by_rows(
    method: Callable[Concatenate[SqliteFeedStore, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[SqliteStore, _P], Coroutine[Any, Any, _T]]:
    async def call(self: SqliteStore, /, *args: _P.args, **named: _P.kwargs) -> _T:
        return await method(SqliteFeedStore(self.engine, NOTICES), *args, **named)

    return call


class SqliteStore:
    """One SQLite file, held by one process; see :class:`dockbell.ports.Store` for what the methods promise."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.path = engine.path
        self.epoch: str = engine.epoch
        self.outbox = engine.outbox
        self.retention = SqliteRetention(engine)
        self.privacy = SqlitePrivacy(engine)
        self.health = SqliteHealth(engine)
        self.commands = SqliteCommandInbox(engine)
        self._sinks: dict[str, SqliteSinkStore] = {}

    @classmethod
    async def open(
        cls, path: Path, *, now: Clock, epoch: str | None = None, telemetry: Telemetry | None = None
    ) -> SqliteStore:
        """Open the store to work on it, making the file if there is none, under a new epoch.

        A store of an older dockbell is copied, and brought up to date. ``telemetry`` hears of that, and of outages.

        Raises:
            StoreInUse: Another process works on it.
            StoreIncompatible: It is not a store, or one of a newer dockbell.
            StoreError: It cannot be opened.
        """
        telemetry = telemetry or Telemetry()
        opening = partial(open_files, path, epoch=epoch or secrets.token_hex(8), now=to_micros(now()))
        files = await anyio.to_thread.run_sync(opening)
        upgrade = files.upgrade
        if upgrade.copy is not None:
            telemetry.emit(StoreUpgraded(upgrade.version, len(MIGRATIONS), str(upgrade.copy)))
        engine = Engine(path, files, now=now, telemetry=telemetry)
        await engine.begin()
        return cls(engine)

    @property
    def purges(self) -> int:
        return self.engine.purges

    def feed(self, feed: Feed) -> SqliteFeedStore:
        return SqliteFeedStore(self.engine, feed)

    def sink(self, name: str) -> SqliteSinkStore:
        return self._sinks.setdefault(name, SqliteSinkStore(self.engine, name))

    async def open_feed(self, feed: Feed) -> FeedState:
        return await self.feed(feed).open()

    async def read_events(
        self, feed: Feed, after: int, limit: int, *, key: str | None = None, until: int | None = None
    ) -> Sequence[Event]:
        return await self.engine.read(
            partial(delivery.read_events, feed=feed, after=after, limit=limit, key=key, until=until)
        )

    async def last_sequences(self) -> Mapping[Feed, int]:
        return await self.engine.read(delivery.last_sequences)

    async def find_extents(self) -> Mapping[Feed, Extent]:
        return await self.engine.read(delivery.find_extents)

    async def read_states(self, places: Sequence[Place]) -> Mapping[Place, bytes]:
        return await self.engine.read(delivery.read_states, places)

    async def read_stored(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        return await self.engine.read(backfill.read_stored, feed, after, limit)

    async def read_changed(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        return await self.engine.read(backfill.read_changed, feed, after, limit)

    async def aclose(self) -> None:
        await self.engine.aclose()

    # Until detection holds handles, see ports.feed_calls.
    begin_feed = _by_id(SqliteFeedStore.begin_feed)
    save_read_settings = _by_id(SqliteFeedStore.save_read_settings)
    save_shape = _by_id(SqliteFeedStore.save_shape)
    save_listing_profile = _by_id(SqliteFeedStore.save_listing_profile)
    save_problem = _by_id(SqliteFeedStore.save_problem)
    last_row = _by_id(SqliteFeedStore.last_row)
    commit_page = _by_id(SqliteFeedStore.commit_page)
    close_run = _by_id(SqliteFeedStore.close_run)
    publish = _by_id(SqliteFeedStore.publish)
    save_checkpoint = _by_id(SqliteFeedStore.save_checkpoint)
    load_checkpoint = _by_id(SqliteFeedStore.load_checkpoint)
    drop_checkpoint = _by_id(SqliteFeedStore.drop_checkpoint)
    find_absent = _by_id(SqliteFeedStore.find_absent)
    count_deleted = _by_id(SqliteFeedStore.count_deleted)
    suspect = _by_id(SqliteFeedStore.suspect)
    close_pass = _by_id(SqliteFeedStore.close_pass)
    decide = _by_id(SqliteFeedStore.decide)
    end_baseline = _by_id(SqliteFeedStore.end_baseline)
    keep = _by_id(SqliteFeedStore.keep)
    find_suspected = _by_id(SqliteFeedStore.find_suspected)
    find_told_apart = _by_id(SqliteFeedStore.find_told_apart)
    count_holds = _by_id(SqliteFeedStore.count_holds)
    end_suspicion = _by_id(SqliteFeedStore.end_suspicion)
    delete_records = _by_id(SqliteFeedStore.delete_records)
    load_awaited = _by_id(SqliteFeedStore.load_awaited)
    complete = _by_id(SqliteFeedStore.complete)
    complete_overdue = _by_id(SqliteFeedStore.complete_overdue)
    load_waits = _by_id(SqliteFeedStore.load_waits)
    begin_emitting = _by_id(SqliteFeedStore.begin_emitting)
    emit_snapshots = _by_id(SqliteFeedStore.emit_snapshots)
    decide_drift = _by_id(SqliteFeedStore.decide_drift)
    mark_dropped = _by_id(SqliteFeedStore.mark_dropped)
    clean = _by_id(SqliteFeedStore.clean)
    end_cleaning = _by_id(SqliteFeedStore.end_cleaning)
    read_bodies = _by_rows(SqliteFeedStore.read_bodies)
    note_missing = _by_rows(SqliteFeedStore.note_missing)
    note_found = _by_rows(SqliteFeedStore.note_found)
    find_missing = _by_rows(SqliteFeedStore.find_missing)
    postpone = _by_rows(SqliteFeedStore.postpone)
