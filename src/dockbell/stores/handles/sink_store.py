"""One sink in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from dockbell.core.model import Feed
from dockbell.core.publishing.settlement import Blocked, Replay, Settlement, StartOffset
from dockbell.ports import BackfillRecord, Controls, SinkStore
from dockbell.stores.handles.engine import Engine
from dockbell.stores.sql import attempts, backfill, delivery, replays
from dockbell.stores.sql.connection import Connection


class SqlSinkStore(SinkStore):
    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self.starts = 0
        self._controls: tuple[int | None, Controls] | None = None

    async def enroll(self, start: Literal["now", "beginning", "state"]) -> Sequence[Feed]:
        try:
            return await self._engine.write(delivery.enroll, self._name, start, self._engine.now(), self._engine.scope)
        finally:
            self.starts += 1  # when it can be read: a relay that looks before would not look again

    async def overrun(self, before: datetime) -> Mapping[Feed, datetime]:
        try:
            return await self._engine.write(delivery.overrun, self._name, before, self._engine.now())
        finally:
            self.starts += 1  # as above

    async def load_queue(self) -> tuple[Mapping[Feed, int], Sequence[Blocked]]:
        return await self._engine.read(delivery.load_queue, self._name, self._engine.scope)

    async def load_starts(self) -> Mapping[Feed, StartOffset]:
        return await self._engine.read(delivery.load_starts, self._name, self._engine.scope)

    async def load_controls(self) -> Controls:
        return await self._engine.read(self._look_at_controls, self._name)

    async def pause(self, reason: str) -> None:
        await self._engine.write(replays.pause, self._name, reason, self._engine.now())

    async def load_replays(self, now: datetime, limit: int) -> Sequence[Replay]:
        return await self._engine.read(delivery.load_replays, self._name, now, limit, self._engine.scope)

    async def settle(self, settlement: Settlement) -> None:
        await self._engine.write(delivery.settle, self._name, settlement, self._engine.held)

    async def trim_attempts(self, keep: int) -> None:
        await self._engine.write(attempts.trim_attempts, keep)

    async def read_backfill(
        self, feed: Feed, start: StartOffset, after: int, limit: int
    ) -> tuple[Sequence[BackfillRecord], int, bool] | None:
        return await self._engine.read(backfill.read_backfill, feed, start, after, limit)

    async def find_backfilled(self, feed: Feed, start: StartOffset, key: str) -> BackfillRecord | None:
        return await self._engine.read(backfill.find_backfilled, feed, start, key)

    def _look_at_controls(self, reader: Connection, sink: str) -> Controls:
        # Every relay looks twice a second; mostly no process has written since.
        version = self._engine.find_version(reader)
        if version is None or self._controls is None or self._controls[0] != version:
            self._controls = version, delivery.load_controls(reader, sink, self._engine.scope)
        return self._controls[1]
