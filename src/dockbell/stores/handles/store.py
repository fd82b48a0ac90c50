"""The store, as the process has it that works on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dockbell.core.model import Event, Feed
from dockbell.core.publishing.settlement import RecordId
from dockbell.ports import Extent, Fleet, StoredState
from dockbell.stores.handles.engine import Engine
from dockbell.stores.handles.feed_store import SqlFeedStore
from dockbell.stores.handles.sink_store import SqlSinkStore
from dockbell.stores.handles.upkeep import SqlCommandInbox, SqlHealth, SqlPrivacy, SqlRetention
from dockbell.stores.sql import backfill, delivery, feeds


class SqlStore:
    """A store of any database; see :class:`dockbell.ports.Store` for what the methods promise."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.epoch: str = engine.epoch
        self.outbox = engine.outbox
        self.retention = SqlRetention(engine)
        self.privacy = SqlPrivacy(engine)
        self.health = SqlHealth(engine)
        self.commands = SqlCommandInbox(engine)
        self._feeds: dict[Feed, SqlFeedStore] = {}
        self._sinks: dict[str, SqlSinkStore] = {}

    @property
    def fleet(self) -> Fleet | None:
        return self.engine.fleet

    @property
    def abandoned_by(self) -> str:
        return self.engine.abandoned_by

    @property
    def purges(self) -> int:
        return self.engine.purges

    def feed(self, feed: Feed) -> SqlFeedStore:
        return self._feeds.setdefault(feed, SqlFeedStore(self.engine, feed))

    def sink(self, name: str) -> SqlSinkStore:
        return self._sinks.setdefault(name, SqlSinkStore(self.engine, name))

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
