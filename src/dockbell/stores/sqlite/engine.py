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
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from dockbell.core.model import Feed
from dockbell.errors import StoreError, StoreFull, StoreUnavailable
from dockbell.ports import OutboxBell
from dockbell.stores.sql import feeds, outbox
from dockbell.stores.sql.connection import transaction
from dockbell.stores.sql.lease import Lease, find_lease
from dockbell.stores.sqlite.disk_reserve import RESERVED, find_free
from dockbell.stores.sqlite.epoch_file import EpochMark, last_entry
from dockbell.stores.sqlite.files import Files
from dockbell.stores.sqlite.outage import Outage
from dockbell.stores.sqlite.store_errors import blame, blame_reading, find_room, translating
from dockbell.telemetry import Telemetry

Clock: TypeAlias = Callable[[], datetime]
_T = TypeVar("_T")
_P = ParamSpec("_P")


class Engine:
    """What the handles of a store share.

    Attributes:
        epoch: Random mark of one life of the store.
        outbox: Tells which feeds have new events.
        purges: How often a record was purged.
        wipes: How many wipes are under way, or next.
    """

    def __init__(self, path: Path, files: Files, *, now: Clock, telemetry: Telemetry) -> None:
        self.path = path
        self.outbox = OutboxBell(outbox.last_sequences(files.reader))
        (self.epoch,) = files.reader.execute("SELECT epoch FROM life").fetchone()
        self.outage = Outage(self._try_to_write, telemetry)
        self.now = now
        self.writer = files.writer
        self.leases: dict[Feed, Lease] = {}
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

    async def _try_to_write(self) -> None:
        await self.write(_write_nothing)
        await self.write(self._check_room)
        for feed, end in (await self.read(outbox.last_sequences)).items():
            self.outbox.announce(feed, end)  # a commit may have succeeded that seemed to fail

    def _check_room(self, writer: sqlite3.Connection) -> None:
        """Take the reserve.

        Raises:
            StoreFull: There is no room for it, nor as much in the store itself.
        """
        if self._files.reserve.take() or find_free(writer) + find_room(self.path) >= RESERVED:
            return
        raise StoreFull(f"store {self.path}: disk full; free some space")

    async def announce(self, feed: Feed, end: int) -> None:
        """Wake those who wait for events of a feed where it has new ones, and write beside the store how far it is."""
        if end > self.outbox.ends.get(feed, 0):
            self.outbox.announce(feed, end)
            with suppress(StoreUnavailable):  # what was committed is committed; the next commit writes it again
                await self.write(self._save_life)

    async def take(self, feed: Feed) -> Lease:
        """Return the lease of a feed, which this process takes once; a feed that is new is made."""
        lease = self.leases.get(feed)
        return lease if lease is not None and lease.is_taken else await self.write(self._take, feed)

    def _take(self, writer: sqlite3.Connection, feed: Feed) -> Lease:
        lease = self.leases.get(feed)
        if lease is None or not lease.is_taken:  # decided in the writer's turn: a second taking would end the first
            try:
                lease = feeds.open_feed(writer, feed)
            except sqlite3.OperationalError:  # the disk is full, say: the daemon starts, and takes it at its next look
                lease = find_lease(writer, feed)
                if lease is None:
                    raise
            self.leases[feed] = lease
        return lease

    def _save_life(self, writer: sqlite3.Connection) -> None:
        self._files.life.write(EpochMark(self.epoch, last_entry(writer)))

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):  # a cancelled caller, too: the lock must not outlive its user
            await self.write(sqlite3.Connection.close)
            await self.read(sqlite3.Connection.close)
        self._files.life.close()
        os.close(self._files.lock)


def call_and_find_end(
    writer: sqlite3.Connection,
    feed: Feed,
    function: Callable[Concatenate[sqlite3.Connection, _P], _T],
    /,
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> tuple[_T, int]:
    return function(writer, *args, **kwargs), outbox.find_end(writer, feed)


def _write_nothing(writer: sqlite3.Connection) -> None:
    """Commit, and let the log be moved into the store as far as that goes."""
    with transaction(writer):
        writer.execute("UPDATE life SET began_at = began_at")
    writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
