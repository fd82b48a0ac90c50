"""The store in one SQLite file: WAL, one writer.

Each method of the port is a plain function of one of the modules beside this that runs whole in a worker
thread: writers one after the other on one connection, readers on another, so that a long look never delays a commit.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from dockbell.core.comparing.absence import SeenRows
from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.judgement import Finding, Judgement, Pending, Snapshots
from dockbell.core.model import JSON, Change, Event, Feed, Statement, Via
from dockbell.core.moment import to_micros
from dockbell.core.publishing.settlement import Beginning, Blocked, Place, Replay, Settlement
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.errors import StoreError, StoreInUse
from dockbell.ports import (
    Absentees,
    Awaited,
    Bell,
    Checkpoint,
    Committed,
    Compose,
    Controls,
    Extent,
    FeedState,
    Footprint,
    Kept,
    RunRecord,
    Told,
    Wished,
)
from dockbell.stores.sqlite import absence, delivery, details, feeds, pruning, replays, snapshots, telling
from dockbell.stores.sqlite.connection import connect
from dockbell.stores.sqlite.life import Life, LifeFile, begin_anew, end_beginning, last_entry, look_back
from dockbell.stores.sqlite.schema import check_version, migrate
from dockbell.stores.sqlite.transaction import transaction
from dockbell.stores.sqlite.view import SqliteView

__all__ = ["SqliteStore", "SqliteView"]

Clock: TypeAlias = Callable[[], datetime]
_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

_PRUNED_AT_ONCE: Final = 1000
"""Events per transaction: a commit of a page never waits long."""
_ASKING_SECONDS: Final = 0.1
"""More than anybody takes to ask whether the store is held."""


class SqliteStore:
    """One SQLite file, held by one process; see :class:`dockbell.ports.Store` for what the methods promise."""

    def __init__(
        self,
        path: Path,
        *,
        lock: int,
        life: LifeFile,
        writer: sqlite3.Connection,
        reader: sqlite3.Connection,
        now: Clock,
    ) -> None:
        self.path = path
        self.outbox = Bell()
        (self.epoch,) = reader.execute("SELECT epoch FROM life").fetchone()
        self._lock = lock
        self._life = life
        self._now = now
        self._writer = writer
        self._reader = reader
        self._writing = anyio.CapacityLimiter(1)
        self._reading = anyio.CapacityLimiter(1)
        self._wishes_version = 0

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
        return await self._write(feeds.open_feed, feed)

    async def begin_feed(self, feed_id: int, first_asked_at: datetime) -> None:
        """See the port."""
        await self._write(feeds.begin_feed, feed_id, first_asked_at)

    async def save_signature(
        self,
        feed_id: int,
        signature: Mapping[str, JSON],
        *,
        rebaseline: Statement | None = None,
        compose: Compose | None = None,
    ) -> None:
        """See the port."""
        await self._write(
            partial(
                feeds.save_signature,
                feed_id=feed_id,
                signature=signature,
                rebaseline=rebaseline,
                compose=compose,
                now=self._now(),
            )
        )
        if rebaseline is not None:
            await self._note_events()

    async def save_shape(self, feed_id: int, shape: Shape, *, proven: bool) -> None:
        """See the port."""
        await self._write(partial(feeds.save_shape, feed_id=feed_id, shape=shape, proven=proven))

    async def save_habits(self, feed_id: int, habits: str) -> None:
        """See the port."""
        await self._write(feeds.save_habits, feed_id, habits)

    async def save_problem(self, feed_id: int, problem: str) -> None:
        """See the port."""
        await self._write(feeds.save_problem, feed_id, problem)

    async def last_row(self, feed_id: int) -> int:  # noqa: ARG002  # rows are numbered over all feeds here
        """See the port."""
        return await self._write(snapshots.last_row)

    async def commit_page(
        self,
        feed_id: int,
        judge: Callable[[Snapshots], Judgement],
        compose: Compose,
        *,
        via: Via,
        announce: Callable[[Judgement], Statement | None] | None = None,
    ) -> Committed:
        """See the port."""
        committed = await self._write(
            partial(
                snapshots.commit_page,
                feed_id=feed_id,
                judge=judge,
                compose=compose,
                via=via,
                announce=announce,
                now=self._now(),
            )
        )
        if committed.events or committed.statement is not None:
            await self._note_events()
        return committed

    async def close_run(
        self,
        feed_id: int,
        run: RunRecord,
        progress: Progress | None = None,
        *,
        lateness: Lateness | None = None,
        statements: Sequence[Statement] = (),
        compose: Compose | None = None,
    ) -> None:
        """See the port."""
        await self._write(
            partial(
                feeds.close_run,
                feed_id=feed_id,
                run=run,
                progress=progress,
                lateness=lateness,
                statements=statements,
                compose=compose,
                now=self._now(),
            )
        )
        if statements:
            await self._note_events()

    async def publish(self, feed_id: int, statements: Sequence[Statement], compose: Compose) -> None:
        """See the port."""
        await self._write(
            partial(feeds.publish, feed_id=feed_id, statements=statements, compose=compose, now=self._now())
        )
        await self._note_events()

    async def save_checkpoint(self, feed_id: int, checkpoint: Checkpoint) -> None:
        """See the port."""
        await self._write(feeds.save_checkpoint, feed_id, checkpoint)

    async def load_checkpoint(self, feed_id: int) -> Checkpoint | None:
        """See the port."""
        return await self._write(feeds.load_checkpoint, feed_id)

    async def drop_checkpoint(self, feed_id: int) -> None:
        """See the port."""
        await self._write(feeds.drop_checkpoint, feed_id)

    async def find_absent(self, feed_id: int, seen: SeenRows) -> Absentees:
        """See the port."""
        return await self._read(absence.find_absent, feed_id, seen)

    async def count_deleted(self, feed_id: int, since: datetime) -> int:
        """See the port."""
        return await self._read(absence.count_deleted, feed_id, since)

    async def suspect(self, feed_id: int, rows: Sequence[int], at: datetime) -> None:
        """See the port."""
        await self._write(absence.suspect, feed_id, rows, at, self._now())

    async def close_pass(
        self,
        feed_id: int,
        run: RunRecord,
        *,
        held: int,
        confirm_at: datetime | None,
        proven: bool,
        newest: datetime | None,
        lateness: Lateness | None,
        statements: Sequence[Statement],
        compose: Compose,
        drift_before: datetime | None = None,
    ) -> None:
        """See the port."""
        await self._write(
            partial(
                absence.close_pass,
                feed_id=feed_id,
                run=run,
                held=held,
                confirm_at=confirm_at,
                proven=proven,
                newest=newest,
                lateness=lateness,
                statements=statements,
                compose=compose,
                drift_before=drift_before,
                now=self._now(),
            )
        )
        await self._note_events()

    async def end_baseline(self, feed_id: int, *, proven: bool, newest: datetime | None) -> None:
        """See the port."""
        await self._write(partial(absence.end_baseline, feed_id=feed_id, proven=proven, newest=newest))

    async def read_bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        """See the port."""
        return await self._read(snapshots.read_bodies, rows)

    async def spare(self, feed_id: int, rows: Sequence[int], finding: Finding, *, dormant: bool = False) -> None:
        """See the port."""
        await self._write(
            partial(absence.spare, feed_id=feed_id, rows=rows, finding=finding, dormant=dormant, now=self._now())
        )

    async def find_suspected(self, feed_id: int) -> Sequence[int]:
        """See the port."""
        return await self._read(absence.find_suspected, feed_id)

    async def bury(
        self,
        feed_id: int,
        rows: Sequence[int],
        judge: Callable[[bytes, int, datetime | None], Change],
        compose: Compose,
    ) -> int:
        """See the port."""
        count = await self._write(
            partial(absence.bury, feed_id=feed_id, rows=rows, judge=judge, compose=compose, now=self._now())
        )
        if count:
            await self._note_events()
        return count

    async def load_awaited(self, feed_id: int, limit: int) -> Sequence[Awaited]:
        """See the port."""
        return await self._read(details.load_awaited, feed_id, limit)

    async def postpone(self, row: int) -> None:
        """See the port."""
        await self._write(details.postpone, row)

    async def complete(
        self,
        feed_id: int,
        row: int,
        judge: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        *,
        listed: bytes | None = None,
    ) -> int:
        """See the port."""
        completing = partial(details.complete, feed_id=feed_id, record=row, judge=judge, compose=compose)
        count = await self._write(partial(completing, listed=listed, now=self._now()))
        if count:
            await self._note_events()
        return count

    async def complete_overdue(
        self,
        feed_id: int,
        before: datetime,
        judge: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        limit: int,
    ) -> datetime | None:
        """See the port."""
        completing = partial(details.complete_overdue, feed_id=feed_id, before=before, judge=judge, compose=compose)
        count, oldest = await self._write(partial(completing, limit=limit, now=self._now()))
        if count:
            await self._note_events()
        return oldest

    async def begin_emitting(self, feed_id: int) -> None:
        """See the port."""
        await self._write(snapshots.begin_emitting, feed_id)

    async def emit_snapshots(
        self, feed_id: int, judge: Callable[[bytes, datetime | None], Change], compose: Compose, limit: int
    ) -> int:
        """See the port."""
        count = await self._write(
            partial(
                snapshots.emit_snapshots, feed_id=feed_id, judge=judge, compose=compose, limit=limit, now=self._now()
            )
        )
        if count:
            await self._note_events()
        return count

    async def decide_drift(self, feed_id: int, decision: Decision) -> None:
        """See the port."""
        await self._write(feeds.decide_drift, feed_id, decision)

    async def take_wishes(self) -> Sequence[Wished]:
        """See the port."""
        return await self._read(self._look_for_wishes)

    def _look_for_wishes(self, reader: sqlite3.Connection) -> Sequence[Wished]:
        # https://www.sqlite.org/pragma.html#pragma_data_version moves when somebody else has written.
        (version,) = reader.execute("PRAGMA data_version").fetchone()
        if version == self._wishes_version:
            return ()
        wishes = feeds.load_wishes(reader)
        self._wishes_version = version
        return wishes

    async def fulfil(self, wish: Wished, outcome: str) -> None:
        """See the port."""
        await self._write(feeds.fulfil, wish, outcome, self._now())

    async def _note_events(self) -> None:
        """Say beside the store how far it is, and wake those who wait for events."""
        await self._write(self._save_life)
        self.outbox.ring()

    def _save_life(self, writer: sqlite3.Connection) -> None:
        self._life.write(Life(self.epoch, last_entry(writer)))

    async def enroll(self, sink: str, start: Literal["now", "beginning", "state"]) -> Sequence[Feed]:
        """See the port."""
        return await self._write(delivery.enroll, sink, start, self._now())

    async def overrun(self, sink: str, before: datetime) -> Mapping[Feed, datetime]:
        """See the port."""
        return await self._write(delivery.overrun, sink, before, self._now())

    async def find_owing(self, sinks: Sequence[str], before: datetime) -> Sequence[str]:
        """See the port."""
        return await self._read(pruning.find_owing, sinks, before)

    async def measure(self) -> Footprint:
        """See the port."""
        return await self._read(pruning.measure, self.path)

    async def find_left(self, sinks: Collection[str]) -> Mapping[str, int]:
        """See the port."""
        return await self._read(delivery.find_left, sinks)

    async def load_beginnings(self, sink: str) -> Mapping[Feed, Beginning]:
        """See the port."""
        return await self._read(delivery.load_beginnings, sink)

    async def load_controls(self, sink: str) -> Controls:
        """See the port."""
        return await self._read(delivery.load_controls, sink)

    async def pause(self, sink: str, reason: str) -> None:
        """See the port."""
        await self._write(replays.pause, sink, reason, self._now())

    async def load_replays(self, sink: str, now: datetime, limit: int) -> Sequence[Replay]:
        """See the port."""
        return await self._read(delivery.load_replays, sink, now, limit)

    async def read_told(
        self, feed: Feed, beginning: Beginning, after: int, limit: int
    ) -> tuple[Sequence[Told], int, bool] | None:
        """See the port."""
        return await self._read(telling.read_told, feed, beginning, after, limit)

    async def find_told(self, feed: Feed, beginning: Beginning, key: str) -> Told | None:
        """See the port."""
        return await self._read(telling.find_told, feed, beginning, key)

    async def read_kept(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[Kept], int]:
        """See the port."""
        return await self._read(telling.read_kept, feed, after, limit)

    async def read_changed(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[Kept], int]:
        """See the port."""
        return await self._read(telling.read_changed, feed, after, limit)

    async def find_extents(self) -> Mapping[Feed, Extent]:
        """See the port."""
        return await self._read(delivery.find_extents)

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

    async def prune_events(self, before: datetime, sinks: Sequence[str], limit: int | None = None) -> int:
        """See the port."""
        pruned, place = 0, (0, 0)
        while limit is None or pruned < limit:
            most = _PRUNED_AT_ONCE if limit is None else min(limit - pruned, _PRUNED_AT_ONCE)
            prunable, further = await self._read(pruning.find_prunable, before, sinks, place, most)
            if prunable.events:
                await self._write(pruning.prune_events, prunable, sinks)
                pruned += len(prunable.events)
            if further is None:
                break
            place = further
        return pruned

    async def forget_letters(self, before: datetime) -> Mapping[str, int]:
        """See the port."""
        return await self._write(pruning.forget_letters, before, self._now())

    async def prune_history(self, before: datetime, limit: int) -> int:
        """See the port."""
        return await self._write(pruning.prune_history, before, limit)

    async def aclose(self) -> None:
        """See the port."""
        with anyio.CancelScope(shield=True):  # also for who was cancelled: the lock must not outlive its user
            await self._write(sqlite3.Connection.close)
            await self._read(sqlite3.Connection.close)
        self._life.close()
        os.close(self._lock)


def _open(cls: type[SqliteStore], path: Path, now: Clock, epoch: str) -> SqliteStore:
    try:
        with ExitStack() as opened:
            lock = _take_lock(path)
            opened.callback(os.close, lock)
            # Records hold names and addresses: the file, and what SQLite puts beside it, is for its owner only.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            writer = opened.enter_context(closing(connect(path)))
            check_version(writer, path)
            writer.execute("PRAGMA journal_mode = WAL")
            # FULL: what is committed survives a power loss; a feed yields a few pages a second, so it costs nothing.
            writer.execute("PRAGMA synchronous = FULL")
            life = _begin_life(path, writer, epoch=epoch, now=to_micros(now()))
            store = cls(path, lock=lock, life=life, writer=writer, reader=connect(path), now=now)
            opened.pop_all()
            return store
    except (OSError, sqlite3.Error) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise StoreError(f"store {path}: {reason}; check [store] url and the permissions of its folder") from error


def _begin_life(path: Path, writer: sqlite3.Connection, *, epoch: str, now: int) -> LifeFile:
    """Bring a store up to date, and begin a new life where the file is not the one that was there."""
    life = LifeFile(path)
    known = life.read()
    is_new = migrate(writer, path, epoch=epoch, now=now)
    if reason := look_back(writer, known, is_new=is_new):
        with transaction(writer):
            begin_anew(writer, epoch, reason, now)
    else:
        end_beginning(writer)
    (current,) = writer.execute("SELECT epoch FROM life").fetchone()
    life.write(Life(current, last_entry(writer)))
    return life


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
