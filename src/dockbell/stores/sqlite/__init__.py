"""The store in one SQLite file: WAL, one writer.

Each method of the port is a plain function of ``detection``, ``delivery`` or ``inspection`` that runs whole in a worker
thread: writers one after the other on one connection, readers on another, so that a long look never delays a commit.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from dockbell.core.comparing.absence import SeenRows
from dockbell.core.comparing.judge import Judgement, Snapshots
from dockbell.core.model import Change, Event, Feed
from dockbell.core.moment import to_micros
from dockbell.core.publishing.ledger import Blocked, Place, Settlement
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.errors import StoreError, StoreInUse
from dockbell.ports import Bell, Committed, FeedState, RunRecord, SinkState
from dockbell.stores.sqlite import delivery, detection, inspection
from dockbell.stores.sqlite.schema import check_version, migrate

Clock: TypeAlias = Callable[[], datetime]
_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

_BUSY_TIMEOUT_SECONDS: Final = 30
_CACHED_STATEMENTS: Final = 512
_ASKING_SECONDS: Final = 0.1
"""More than anybody takes to ask whether the store is held."""


class SqliteStore:
    """One SQLite file, held by one process; see :class:`dockbell.ports.Store` for what the methods promise."""

    def __init__(
        self, path: Path, *, lock: int, writer: sqlite3.Connection, reader: sqlite3.Connection, now: Clock
    ) -> None:
        self.path = path
        self.outbox = Bell()
        (self.epoch,) = reader.execute("SELECT epoch FROM life").fetchone()
        self._lock = lock
        self._now = now
        self._writer = writer
        self._reader = reader
        self._writing = anyio.CapacityLimiter(1)
        self._reading = anyio.CapacityLimiter(1)

    @classmethod
    async def open(cls, path: Path, *, now: Clock, epoch: str | None = None) -> SqliteStore:
        """Open the store to work on it, making the file if there is none, under a new epoch.

        Raises:
            StoreInUse: Another process works on it.
            StoreIncompatible: It is not a store, or one of a newer dockbell.
            StoreError: It cannot be opened.
        """
        return await anyio.to_thread.run_sync(partial(_open, cls, path, now, epoch or secrets.token_hex(8)))

    async def _write(self, function: Callable[[sqlite3.Connection, *_Args], _T], *args: *_Args) -> _T:
        return await anyio.to_thread.run_sync(function, self._writer, *args, limiter=self._writing)

    async def _read(self, function: Callable[[sqlite3.Connection, *_Args], _T], *args: *_Args) -> _T:
        return await anyio.to_thread.run_sync(function, self._reader, *args, limiter=self._reading)

    async def open_feed(self, feed: Feed) -> FeedState:
        """See the port."""
        return await self._write(detection.open_feed, feed)

    async def begin_feed(self, feed_id: int, first_asked_at: datetime) -> None:
        """See the port."""
        await self._write(detection.begin_feed, feed_id, first_asked_at)

    async def save_shape(self, feed_id: int, shape: Shape) -> None:
        """See the port."""
        await self._write(detection.save_shape, feed_id, shape)

    async def save_problem(self, feed_id: int, problem: str) -> None:
        """See the port."""
        await self._write(detection.save_problem, feed_id, problem)

    async def last_row(self, feed_id: int) -> int:  # noqa: ARG002  # rows are numbered over all feeds here
        """See the port."""
        return await self._write(detection.last_row)

    async def commit_page(
        self, feed_id: int, judge: Callable[[Snapshots], Judgement], compose: Callable[[Change, int], Event]
    ) -> Committed:
        """See the port."""
        committed = await self._write(
            partial(detection.commit_page, feed_id=feed_id, judge=judge, compose=compose, now=self._now())
        )
        if committed.events:
            self.outbox.ring()
        return committed

    async def close_run(self, feed_id: int, run: RunRecord, progress: Progress | None = None) -> None:
        """See the port."""
        await self._write(detection.close_run, feed_id, run, progress)

    async def find_absent(self, feed_id: int, seen: SeenRows) -> Sequence[tuple[int, datetime | None]]:
        """See the port."""
        return await self._read(detection.find_absent, feed_id, seen)

    async def count_deleted(self, feed_id: int, since: datetime) -> int:
        """See the port."""
        return await self._read(detection.count_deleted, feed_id, since)

    async def close_pass(
        self, feed_id: int, run: RunRecord, *, suspected: Sequence[int], held: int, confirm_at: datetime | None
    ) -> None:
        """See the port."""
        await self._write(
            partial(
                detection.close_pass, feed_id=feed_id, run=run, suspected=suspected, held=held, confirm_at=confirm_at
            )
        )

    async def bury(
        self,
        feed_id: int,
        rows: Sequence[int],
        judge: Callable[[bytes, int, datetime | None], Change],
        compose: Callable[[Change, int], Event],
    ) -> int:
        """See the port."""
        count = await self._write(
            partial(detection.bury, feed_id=feed_id, rows=rows, judge=judge, compose=compose, now=self._now())
        )
        if count:
            self.outbox.ring()
        return count

    async def enroll(self, sink: str, start: Literal["now", "beginning"]) -> None:
        """See the port."""
        await self._write(delivery.enroll, sink, start)

    async def load_ledger(self, sink: str) -> tuple[Mapping[Feed, int], Sequence[Blocked]]:
        """See the port."""
        return await self._read(delivery.load_ledger, sink)

    async def read_events(
        self, feed: Feed, after: int, limit: int, *, key: str | None = None, until: int | None = None
    ) -> Sequence[Event]:
        """See the port."""
        return await self._read(
            partial(delivery.read_events, feed=feed, after=after, limit=limit, key=key, until=until)
        )

    async def last_sequences(self) -> Mapping[Feed, int]:
        """See the port."""
        return await self._read(delivery.last_sequences)

    async def read_states(self, places: Sequence[Place]) -> Mapping[Place, bytes]:
        """See the port."""
        return await self._read(delivery.read_states, places)

    async def settle(self, sink: str, settlement: Settlement) -> None:
        """See the port."""
        await self._write(delivery.settle, sink, settlement)

    async def prune_events(self, before: datetime, sinks: Sequence[str], limit: int) -> int:
        """See the port."""
        return await self._write(delivery.prune_events, before, sinks, limit)

    async def aclose(self) -> None:
        """See the port."""
        with anyio.CancelScope(shield=True):  # also for who was cancelled: the lock must not outlive its user
            await self._write(sqlite3.Connection.close)
            await self._read(sqlite3.Connection.close)
        os.close(self._lock)


class SqliteView:
    """A look at the file, for which nothing is locked and nothing written."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        (self.epoch,) = connection.execute("SELECT epoch FROM life").fetchone()
        self._reading = anyio.CapacityLimiter(1)

    @classmethod
    async def open(cls, path: Path) -> SqliteView:
        """Open a store to look at it.

        Raises:
            StoreIncompatible: It is not a store, or one of a newer dockbell.
            StoreError: There is none, or it cannot be opened.
        """
        return cls(await anyio.to_thread.run_sync(_look, path))

    async def _read(self, function: Callable[[sqlite3.Connection, *_Args], _T], *args: *_Args) -> _T:
        return await anyio.to_thread.run_sync(function, self._connection, *args, limiter=self._reading)

    async def load_feeds(self) -> Sequence[FeedState]:
        """See the port."""
        return await self._read(detection.load_feeds)

    async def load_sinks(self) -> Sequence[SinkState]:
        """See the port."""
        return await self._read(inspection.load_sinks)

    async def count_records(self) -> Mapping[Feed, int]:
        """See the port."""
        return await self._read(inspection.count_records)

    async def read_latest(self, after: int, limit: int) -> Sequence[tuple[int, Event]]:
        """See the port."""
        return await self._read(inspection.read_latest, after, limit)

    async def aclose(self) -> None:
        """See the port."""
        await self._read(sqlite3.Connection.close)


def _open(cls: type[SqliteStore], path: Path, now: Clock, epoch: str) -> SqliteStore:
    try:
        lock = _take_lock(path)
        try:
            # Records hold names and addresses: the file, and what SQLite puts beside it, is for its owner only.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            writer = _connect(path)
            check_version(writer, path)
            writer.execute("PRAGMA journal_mode = WAL")
            # FULL: what is committed survives a power loss; a feed yields a few pages a second, so it costs nothing.
            writer.execute("PRAGMA synchronous = FULL")
            migrate(writer, path, epoch=epoch, now=to_micros(now()))
            return cls(path, lock=lock, writer=writer, reader=_connect(path), now=now)
        except BaseException:
            os.close(lock)
            raise
    except (OSError, sqlite3.Error) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise StoreError(f"store {path}: {reason}; check [store] url and the permissions of its folder") from error


def _look(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise StoreError(f'store {path}: not found; "dockbell run" makes it')
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_SECONDS, check_same_thread=False
        )
        check_version(connection, path)
    except sqlite3.Error as error:
        raise StoreError(f"store {path}: {error}; check its permissions") from error
    return connection


def _take_lock(path: Path) -> int:
    """Hold the store for this process until it ends, however it ends."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # perhaps only by somebody who asks, see probe.find_holder
            time.sleep(_ASKING_SECONDS)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 100, 0).decode(errors="replace").strip() or "another process"
        os.close(lock)
        raise StoreInUse(f"store {path}: held by {holder}; stop it, or give this one another [store] url") from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"process {os.getpid()}".encode(), 0)
    return lock


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_CACHED_STATEMENTS,
    )
