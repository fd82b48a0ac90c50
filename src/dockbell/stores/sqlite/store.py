"""The store, held by one process."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from dockbell.core.model import Event, Feed
from dockbell.core.moment import to_micros
from dockbell.core.publishing.settlement import RecordId
from dockbell.ports import Extent, StoredState
from dockbell.stores.sql import backfill, delivery, feeds
from dockbell.stores.sqlite.engine import Clock, Engine
from dockbell.stores.sqlite.feed_store import SqliteFeedStore
from dockbell.stores.sqlite.files import open_files
from dockbell.stores.sqlite.migrations import MIGRATIONS
from dockbell.stores.sqlite.sink_store import SqliteSinkStore
from dockbell.stores.sqlite.upkeep import SqliteCommandInbox, SqliteHealth, SqlitePrivacy, SqliteRetention
from dockbell.telemetry import StoreUpgraded, Telemetry


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
        self._feeds: dict[Feed, SqliteFeedStore] = {}
        self._sinks: dict[str, SqliteSinkStore] = {}

    @classmethod
    async def open(
        cls, path: Path, *, now: Clock, epoch: str | None = None, telemetry: Telemetry | None = None
    ) -> SqliteStore:
        """Open the store to work on it, making the file if there is none, under a new epoch.

        A store of an older dockbell is copied, and brought up to date. ``telemetry`` reports that, and outages.

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
        return self._feeds.setdefault(feed, SqliteFeedStore(self.engine, feed))

    def sink(self, name: str) -> SqliteSinkStore:
        return self._sinks.setdefault(name, SqliteSinkStore(self.engine, name))

    async def add_feeds(self, added: Sequence[Feed]) -> None:
        await self.engine.write(feeds.add_feeds, added)

    async def read_events(
        self, feed: Feed, after: int, limit: int, *, key: str | None = None, until: int | None = None
    ) -> Sequence[Event]:
        return await self.engine.read(delivery.read_events, feed, after, limit, key=key, until=until)

    async def find_extents(self) -> Mapping[Feed, Extent]:
        return await self.engine.read(delivery.find_extents)

    async def read_states(self, places: Sequence[RecordId]) -> Mapping[RecordId, bytes]:
        return await self.engine.read(delivery.read_states, places)

    async def read_stored(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        return await self.engine.read(backfill.read_stored, feed, after, limit)

    async def read_changed(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        return await self.engine.read(backfill.read_changed, feed, after, limit)

    async def aclose(self) -> None:
        await self.engine.aclose()
