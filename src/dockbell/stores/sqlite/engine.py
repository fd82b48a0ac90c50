"""The store's file as its one holder works on it: writers one after the other, a reader beside them.

Each statement of ``stores.sql`` runs whole in a worker thread: writers on one connection, readers on another, so that
a long look never delays a commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import anyio.to_thread

from dockbell.errors import StoreError, StoreFull, StoreUnavailable
from dockbell.ports import Footprint, OutboxBell
from dockbell.stores.handles.engine import Clock, Engine
from dockbell.stores.sql import outbox
from dockbell.stores.sql.connection import Connection, transaction
from dockbell.stores.sql.snapshots import FeedSnapshots
from dockbell.stores.sqlite.disk_reserve import RESERVED, find_free, measure
from dockbell.stores.sqlite.epoch_file import EpochMark, last_entry
from dockbell.stores.sqlite.files import Files
from dockbell.stores.sqlite.store_errors import blame, blame_reading, find_room, translating
from dockbell.stores.sqlite.wiping import wipe
from dockbell.telemetry import Telemetry

_T = TypeVar("_T")
_P = ParamSpec("_P")


class SqliteEngine(Engine):
    is_lazy = False

    def __init__(self, path: Path, files: Files, *, now: Clock, telemetry: Telemetry) -> None:
        (epoch,) = files.reader.execute("SELECT epoch FROM life").fetchone()
        super().__init__(epoch, OutboxBell(outbox.last_sequences(files.reader)), now=now, telemetry=telemetry)
        self.path = path
        self.abandoned_by = files.lock.abandoned_by
        self.writer = files.writer
        self._files = files
        self._reader = files.reader
        self._writing = anyio.CapacityLimiter(1)
        self._reading = anyio.CapacityLimiter(1)

    async def begin(self) -> None:
        """Take the reserve; with a full disk an outage begins, and writers wait for room."""
        with suppress(StoreUnavailable):
            await self.write(self._check_room)

    async def write(
        self, function: Callable[Concatenate[sqlite3.Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call a function with the connection that writes.

        Raises:
            StoreUnavailable: It cannot be written now; an outage has begun.
        """
        return await self._do(blame, self._writing, partial(function, self.writer, *args, **kwargs))

    async def read(
        self, function: Callable[Concatenate[sqlite3.Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        return await self._do(blame_reading, self._reading, partial(function, self._reader, *args, **kwargs))

    async def _do(
        self,
        blame_it: Callable[[sqlite3.Error | OSError, Path], StoreError | None],
        turn: anyio.CapacityLimiter,
        function: Callable[[], _T],
    ) -> _T:
        try:
            with translating(self.path, blame_it):
                return await anyio.to_thread.run_sync(function, limiter=turn)
        except StoreUnavailable as error:
            if isinstance(error, StoreFull):
                self._files.reserve.give_up()
            self.outage.begin(error)
            raise

    async def check_writing(self) -> None:
        await self.write(_write_nothing)
        await self.write(self._check_room)

    def look(self, connection: Connection, feed_id: int) -> FeedSnapshots:
        return FeedSnapshots(connection, feed_id)

    async def measure(self) -> Footprint:
        return await self.read(measure)

    async def drop_events(
        self,
        before: datetime,
        sinks: Sequence[str],  # noqa: ARG002  # a file has no part that could be dropped
    ) -> tuple[int, datetime | None]:
        return 0, before

    async def wipe(self, rewrite_most: int | None) -> str:
        return await self.write(wipe, rewrite_most)

    def find_version(self, reader: Connection) -> int | None:
        # https://www.sqlite.org/pragma.html#pragma_data_version moves when another process has written.
        (version,) = reader.execute("PRAGMA data_version").fetchone()
        return int(version)

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.OperationalError)

    async def note_end(self) -> None:
        await self.write(self.save_end)

    def _check_room(self, writer: sqlite3.Connection) -> None:
        """Take the reserve.

        Raises:
            StoreFull: There is no room for it, nor as much in the store itself.
        """
        if self._files.reserve.take() or find_free(writer) + find_room(self.path) >= RESERVED:
            return
        raise StoreFull(f"store {self.path}: disk full; free some space")

    def save_end(self, writer: Connection) -> None:
        self._files.life.write(EpochMark(self.epoch, last_entry(writer)))

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):  # a cancelled caller, too: the lock must not outlive its user
            await self.write(sqlite3.Connection.close)
            await self.read(sqlite3.Connection.close)
        self._files.life.close()
        self._files.lock.release()


def _write_nothing(writer: sqlite3.Connection) -> None:
    """Commit, and let the log be moved into the store as far as that goes."""
    with transaction(writer):
        writer.execute("UPDATE life SET began_at = began_at")
    writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
