"""The store's file as its one holder works on it: writers one after the other, a reader beside them.

Each statement of ``stores.sql`` runs whole in a worker thread: writers on one connection, readers on another, so that
a long look never delays a commit.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TypeAlias, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from dockbell.errors import StoreError, StoreFull, StoreUnavailable
from dockbell.ports import Bell
from dockbell.stores.sql.transaction import transaction
from dockbell.stores.sqlite.disk_reserve import RESERVED
from dockbell.stores.sqlite.epoch_file import Life, last_entry
from dockbell.stores.sqlite.files import Files
from dockbell.stores.sqlite.footprint import find_free
from dockbell.stores.sqlite.outage import Outage
from dockbell.stores.sqlite.store_errors import blame, blame_reading, find_room, translating
from dockbell.telemetry import Telemetry

Clock: TypeAlias = Callable[[], datetime]
_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")


class Engine:
    """What the handles of a store share.

    Attributes:
        path: The file.
        epoch: Random mark of one life of the store.
        outbox: Rings when events were added.
        purges: How often a record was purged.
        wipes: How many wipes are under way, or next.
        outage: Whether the file can be written.
        now: Returns our time.
        writer: The connection that writes.
    """

    def __init__(self, path: Path, files: Files, *, now: Clock, telemetry: Telemetry) -> None:
        self.path = path
        self.outbox = Bell()
        (self.epoch,) = files.reader.execute("SELECT epoch FROM life").fetchone()
        self.outage = Outage(self._try_to_write, telemetry)
        self.now = now
        self.writer = files.writer
        self.purges = 0
        self.wipes = 0
        self._files = files
        self._reader = files.reader
        self._writing = anyio.CapacityLimiter(1)
        self._reading = anyio.CapacityLimiter(1)

    async def begin(self) -> None:
        """Take the reserve; with a full disk an outage begins, and writers wait for room."""
        with suppress(StoreUnavailable):
            await self.write(self._check_room)

    async def write(self, function: Callable[[sqlite3.Connection, *_Args], _T], *args: *_Args) -> _T:
        """Call a function with the connection that writes.

        Raises:
            StoreUnavailable: It cannot be written now; an outage has begun.
        """
        return await self._do(blame, self._writing, function, self.writer, *args)

    async def read(self, function: Callable[[sqlite3.Connection, *_Args], _T], *args: *_Args) -> _T:
        """Call a function with the connection that reads."""
        return await self._do(blame_reading, self._reading, function, self._reader, *args)

    async def _do(
        self,
        blame_it: Callable[[sqlite3.Error | OSError, Path], StoreError | None],
        turn: anyio.CapacityLimiter,
        function: Callable[[*_Args], _T],
        *args: *_Args,
    ) -> _T:
        try:
            with translating(self.path, blame_it):
                return await anyio.to_thread.run_sync(function, *args, limiter=turn)
        except StoreUnavailable as error:
            if isinstance(error, StoreFull):
                self._files.reserve.give_up()
            self.outage.begin(error)
            raise

    async def _try_to_write(self) -> None:
        await self.write(_write_nothing)
        await self.write(self._check_room)

    def _check_room(self, writer: sqlite3.Connection) -> None:
        """Take the reserve.

        Raises:
            StoreFull: There is no room for it, nor as much in the store itself.
        """
        if self._files.reserve.take() or find_free(writer) + find_room(self.path) >= RESERVED:
            return
        raise StoreFull(f"store {self.path}: disk full; free some space")

    async def note_events(self) -> None:
        """Wake who waits for events, and write beside the store how far it is."""
        self.outbox.ring()  # at once: the caller may be cancelled at the next turn
        with suppress(StoreUnavailable):  # what was committed is committed; the next commit writes it again
            await self.write(self._save_life)

    def _save_life(self, writer: sqlite3.Connection) -> None:
        self._files.life.write(Life(self.epoch, last_entry(writer)))

    async def aclose(self) -> None:
        """Close the file and let it go."""
        with anyio.CancelScope(shield=True):  # a cancelled caller, too: the lock must not outlive its user
            await self.write(sqlite3.Connection.close)
            await self.read(sqlite3.Connection.close)
        self._files.life.close()
        os.close(self._files.lock)


def _write_nothing(writer: sqlite3.Connection) -> None:
    """Commit, and let the log be moved into the store as far as that goes."""
    with transaction(writer):
        writer.execute("UPDATE life SET began_at = began_at")
    writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
