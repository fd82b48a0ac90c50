"""The store, held by one process.

Each method of the port is a plain function of one of the modules beside this that runs whole in a worker
thread: writers one after the other on one connection, readers on another, so that a long look never delays a commit.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.page_diff import Finding, PageDiff, Pending, Snapshots
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import JSON, Change, Event, Feed, Key, Statement, Via
from dockbell.core.moment import to_micros
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.publishing.settlement import Blocked, Place, Replay, Settlement, StartOffset
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.errors import StoreError, StoreFull, StoreUnavailable
from dockbell.ports import (
    Absentees,
    Awaited,
    BackfillRecord,
    Bell,
    Checkpoint,
    Command,
    CommandOutcome,
    Committed,
    Compose,
    Controls,
    Extent,
    FeedState,
    Footprint,
    Found,
    Purged,
    RunRecord,
    StoredState,
)
from dockbell.stores.sql import (
    absence,
    backfill,
    cleaning,
    commands,
    delivery,
    details,
    feeds,
    pruning,
    purging,
    replays,
    runs,
    snapshots,
)
from dockbell.stores.sql.transaction import transaction
from dockbell.stores.sqlite import footprint, wiping
from dockbell.stores.sqlite.disk_reserve import RESERVED
from dockbell.stores.sqlite.epoch_file import Life, last_entry
from dockbell.stores.sqlite.files import Files, open_files
from dockbell.stores.sqlite.footprint import find_free
from dockbell.stores.sqlite.migrations import MIGRATIONS
from dockbell.stores.sqlite.outage import Outage
from dockbell.stores.sqlite.store_errors import blame, blame_reading, find_room, translating
from dockbell.telemetry import StoreUpgraded, Telemetry

Clock: TypeAlias = Callable[[], datetime]
_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

_PRUNED_AT_ONCE: Final = 1000
"""Events per transaction: a commit of a page never waits long."""


class SqliteStore:
    """One SQLite file, held by one process; see :class:`dockbell.ports.Store` for what the methods promise."""

    def __init__(
        self,
        path: Path,
        files: Files,
        *,
        now: Clock,
        telemetry: Telemetry,
    ) -> None:
        self.path = path
        self.outbox = Bell()
        (self.epoch,) = files.reader.execute("SELECT epoch FROM life").fetchone()
        self._files = files
        self._outage = Outage(self._try_to_write, telemetry)
        self._now = now
        self._writer = files.writer
        self._reader = files.reader
        self._writing = anyio.CapacityLimiter(1)
        self._reading = anyio.CapacityLimiter(1)
        self._commands_version = 0
        self._controls: dict[str, tuple[int, Controls]] = {}
        self._wipes = 0  # that are under way, or next
        self.purges = 0

    @classmethod
    async def open(
        cls, path: Path, *, now: Clock, epoch: str | None = None, telemetry: Telemetry | None = None
    ) -> SqliteStore:
        """Open the store to work on it, making the file if there is none, under a new epoch.

        One of an older dockbell is copied, and brought up to date. ``telemetry`` is told of that, and when the store
        cannot be written, or can again.

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
        store = cls(path, files, now=now, telemetry=telemetry)
        await store._begin()
        return store

    async def _begin(self) -> None:
        with suppress(StoreUnavailable):  # told; who wants to write waits until there is room
            await self._write(self._check_room)

    @property
    def trouble(self) -> StoreUnavailable | None:
        """See the port."""
        return self._outage.reason

    @property
    def stalled(self) -> Bell:
        """See the port."""
        return self._outage.began

    async def recovered(self) -> None:
        """See the port."""
        await self._outage.over()

    async def _write(self, function: Callable[[sqlite3.Connection, *_Args], _T], *args: *_Args) -> _T:
        return await self._do(blame, self._writing, function, self._writer, *args)

    async def _read(self, function: Callable[[sqlite3.Connection, *_Args], _T], *args: *_Args) -> _T:
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
            self._outage.begin(error)
            raise

    async def _try_to_write(self) -> None:
        await self._write(_write_nothing)
        await self._write(self._check_room)

    def _check_room(self, writer: sqlite3.Connection) -> None:
        """Take the reserve.

        Raises:
            StoreFull: There is no room for it, nor as much in the store itself.
        """
        if self._files.reserve.take() or find_free(writer) + find_room(self.path) >= RESERVED:
            return
        raise StoreFull(f"store {self.path}: disk full; free some space")

    async def open_feed(self, feed: Feed) -> FeedState:
        """See the port."""
        return await self._write(feeds.open_feed, feed)

    async def begin_feed(self, feed_id: int, first_asked_at: datetime, boundary: datetime | None = None) -> None:
        """See the port."""
        await self._write(feeds.begin_feed, feed_id, first_asked_at, boundary)

    async def save_read_settings(
        self,
        feed_id: int,
        read_settings: Mapping[str, JSON],
        *,
        rebaseline: Statement | None = None,
        compose: Compose | None = None,
    ) -> None:
        """See the port."""
        await self._write(
            partial(
                feeds.save_read_settings,
                feed_id=feed_id,
                read_settings=read_settings,
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

    async def save_listing_profile(self, feed_id: int, listing_profile: str) -> None:
        """See the port."""
        await self._write(feeds.save_listing_profile, feed_id, listing_profile)

    async def save_problem(self, feed_id: int, problem: str) -> None:
        """See the port."""
        await self._write(feeds.save_problem, feed_id, problem)

    async def last_row(self, feed_id: int) -> int:  # noqa: ARG002  # rows are numbered over all feeds here
        """See the port."""
        return await self._write(snapshots.last_row)

    async def commit_page(
        self,
        feed_id: int,
        detect: Callable[[Snapshots], PageDiff],
        compose: Compose,
        *,
        via: Via,
        announce: Callable[[PageDiff], Statement | None] | None = None,
    ) -> Committed:
        """See the port."""
        committed = await self._write(
            partial(
                snapshots.commit_page,
                feed_id=feed_id,
                detect=detect,
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
        await self._write(runs.save_checkpoint, feed_id, checkpoint)

    async def load_checkpoint(self, feed_id: int) -> Checkpoint | None:
        """See the port."""
        return await self._write(runs.load_checkpoint, feed_id)

    async def drop_checkpoint(self, feed_id: int) -> None:
        """See the port."""
        await self._write(runs.drop_checkpoint, feed_id)

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
        boundary: datetime | None = None,
        is_first: bool = False,
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
                boundary=boundary,
                is_first=is_first,
                lateness=lateness,
                statements=statements,
                compose=compose,
                drift_before=drift_before,
                now=self._now(),
            )
        )
        await self._note_events()

    async def decide(self, feed_id: int, detect: Callable[[bytes], Change] | None, compose: Compose, limit: int) -> int:
        """See the port."""
        count = await self._write(
            partial(snapshots.decide, feed_id=feed_id, detect=detect, compose=compose, limit=limit, now=self._now())
        )
        if count:
            await self._note_events()
        return count

    async def end_baseline(
        self, feed_id: int, *, proven: bool, newest: datetime | None, boundary: datetime | None = None
    ) -> None:
        """See the port."""
        ending = partial(absence.end_baseline, feed_id=feed_id, proven=proven, newest=newest, boundary=boundary)
        await self._write(ending)

    async def read_bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        """See the port."""
        return await self._read(snapshots.read_bodies, rows)

    async def keep(
        self, feed_id: int, rows: Sequence[int], finding: Finding, *, ignored_until_seen: bool = False
    ) -> None:
        """See the port."""
        await self._write(
            partial(
                absence.keep,
                feed_id=feed_id,
                rows=rows,
                finding=finding,
                ignored_until_seen=ignored_until_seen,
                now=self._now(),
            )
        )

    async def find_suspected(self, feed_id: int) -> Sequence[int]:
        """See the port."""
        return await self._read(absence.find_suspected, feed_id)

    async def find_told_apart(
        self, feed_id: int, rows: Sequence[int], *, keyless: int, met_since: datetime, offset: timedelta
    ) -> Sequence[int]:
        """See the port."""
        return await self._read(
            partial(
                absence.find_told_apart, feed_id=feed_id, rows=rows, keyless=keyless, met_since=met_since, offset=offset
            )
        )

    async def count_holds(self, feed_id: int, asked_at: datetime) -> int:
        """See the port."""
        return await self._read(absence.count_holds, feed_id, asked_at)

    async def note_missing(self, rows: Sequence[int]) -> None:
        """See the port."""
        await self._write(absence.note_missing, rows, self._now())

    async def note_found(self, rows: Sequence[int]) -> None:
        """See the port."""
        await self._write(absence.note_found, rows)

    async def find_missing(self, rows: Sequence[int]) -> Mapping[int, datetime | None]:
        """See the port."""
        return await self._read(absence.find_missing, rows)

    async def end_suspicion(self, feed_id: int) -> bool:
        """See the port."""
        return await self._write(absence.end_suspicion, feed_id)

    async def delete_records(
        self,
        feed_id: int,
        rows: Sequence[int],
        detect: Callable[[bytes, int, datetime | None], Change],
        compose: Compose,
    ) -> int:
        """See the port."""
        count = await self._write(
            partial(absence.delete_records, feed_id=feed_id, rows=rows, detect=detect, compose=compose, now=self._now())
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
        detect: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        *,
        listed: bytes | None = None,
    ) -> int:
        """See the port."""
        completing = partial(details.complete, feed_id=feed_id, record=row, detect=detect, compose=compose)
        count = await self._write(partial(completing, listed=listed, now=self._now()))
        if count:
            await self._note_events()
        return count

    async def complete_overdue(
        self,
        feed_id: int,
        since: Sequence[datetime],
        detect: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        limit: int,
    ) -> None:
        """See the port."""
        completing = partial(details.complete_overdue, feed_id=feed_id, since=since, detect=detect, compose=compose)
        if await self._write(partial(completing, limit=limit, now=self._now())):
            await self._note_events()

    async def load_waits(self, feed_id: int) -> Sequence[datetime]:
        """See the port."""
        return await self._read(details.load_waits, feed_id)

    async def begin_emitting(self, feed_id: int) -> None:
        """See the port."""
        await self._write(snapshots.begin_emitting, feed_id)

    async def emit_snapshots(
        self, feed_id: int, detect: Callable[[bytes, datetime | None], Change], compose: Compose, limit: int
    ) -> int:
        """See the port."""
        count = await self._write(
            partial(
                snapshots.emit_snapshots, feed_id=feed_id, detect=detect, compose=compose, limit=limit, now=self._now()
            )
        )
        if count:
            await self._note_events()
        return count

    async def decide_drift(self, feed_id: int, decision: Decision) -> None:
        """See the port."""
        await self._write(feeds.decide_drift, feed_id, decision)

    async def check(self) -> None:
        """See the port."""
        if not self._wipes:  # a daemon that writes its store anew for minutes is well, although nobody else can write
            await self._write(_check)

    async def take_commands(self) -> Sequence[Command]:
        """See the port."""
        return await self._read(self._look_for_commands)

    def _look_for_commands(self, reader: sqlite3.Connection) -> Sequence[Command]:
        # https://www.sqlite.org/pragma.html#pragma_data_version moves when somebody else has written.
        (version,) = reader.execute("PRAGMA data_version").fetchone()
        if version == self._commands_version:
            return ()
        waiting = commands.load_commands(reader)
        self._commands_version = version
        return waiting

    async def finish_command(self, command: Command, outcome: CommandOutcome) -> None:
        """See the port."""
        await self._write(commands.finish_command, command, outcome, self._now())

    async def _note_events(self) -> None:
        """Wake those who wait for events, and say beside the store how far it is."""
        self.outbox.ring()  # at once: whoever committed may be cancelled at the next turn
        with suppress(StoreUnavailable):  # what was committed is committed; the next commit says it again
            await self._write(self._save_life)

    def _save_life(self, writer: sqlite3.Connection) -> None:
        self._files.life.write(Life(self.epoch, last_entry(writer)))

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
        return await self._read(footprint.measure)

    async def find_left(self, sinks: Collection[str]) -> Mapping[str, int]:
        """See the port."""
        return await self._read(delivery.find_left, sinks)

    async def load_starts(self, sink: str) -> Mapping[Feed, StartOffset]:
        """See the port."""
        return await self._read(delivery.load_starts, sink)

    async def load_controls(self, sink: str) -> Controls:
        """See the port."""
        return await self._read(self._look_at_controls, sink)

    def _look_at_controls(self, reader: sqlite3.Connection, sink: str) -> Controls:
        # Every relay looks twice a second, however many there are; mostly nobody has written since.
        (version,) = reader.execute("PRAGMA data_version").fetchone()
        known = self._controls.get(sink)
        if known is None or known[0] != version:
            known = self._controls[sink] = version, delivery.load_controls(reader, sink)
        return known[1]

    async def note_conditions(self, found: Mapping[str, Found]) -> None:
        """See the port."""
        await self._write(delivery.note_conditions, found)

    async def pause(self, sink: str, reason: str) -> None:
        """See the port."""
        await self._write(replays.pause, sink, reason, self._now())

    async def load_replays(self, sink: str, now: datetime, limit: int) -> Sequence[Replay]:
        """See the port."""
        return await self._read(delivery.load_replays, sink, now, limit)

    async def read_backfill(
        self, feed: Feed, start: StartOffset, after: int, limit: int
    ) -> tuple[Sequence[BackfillRecord], int, bool] | None:
        """See the port."""
        return await self._read(backfill.read_backfill, feed, start, after, limit)

    async def find_backfilled(self, feed: Feed, start: StartOffset, key: str) -> BackfillRecord | None:
        """See the port."""
        return await self._read(backfill.find_backfilled, feed, start, key)

    async def read_stored(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        """See the port."""
        return await self._read(backfill.read_stored, feed, after, limit)

    async def read_changed(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        """See the port."""
        return await self._read(backfill.read_changed, feed, after, limit)

    async def find_extents(self) -> Mapping[Feed, Extent]:
        """See the port."""
        return await self._read(delivery.find_extents)

    async def load_queue(self, sink: str) -> tuple[Mapping[Feed, int], Sequence[Blocked]]:
        """See the port."""
        return await self._read(delivery.load_queue, sink)

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

    async def mark_dropped(self, feed_id: int, drop: Sequence[str]) -> bool:
        """See the port."""
        return await self._write(cleaning.mark_dropped, feed_id, drop)

    async def clean(
        self, feed_id: int, erasure: Erasure, fingerprint: Callable[[bytes], bytes] | None, limit: int
    ) -> tuple[int, int] | None:
        """See the port."""
        return await self._write(cleaning.clean, feed_id, erasure, fingerprint, limit)

    async def end_cleaning(self, feed_id: int) -> None:
        """See the port."""
        await self._write(cleaning.end_cleaning, feed_id)

    async def purge(
        self, feed: Feed, key: str, detect: Callable[[Key, int, datetime], Change], compose: Compose
    ) -> Purged:
        """See the port."""
        purged = await self._write(
            partial(purging.purge, feed=feed, key=key, detect=detect, compose=compose, now=self._now())
        )
        if purged.is_known:
            self.purges += 1
            await self._note_events()
        return purged

    async def wipe(self, *, rewrite_most: int | None = None) -> str:
        """See the port."""
        self._wipes += 1
        try:
            return await self._write(wiping.wipe, rewrite_most)
        finally:
            self._wipes -= 1

    async def aclose(self) -> None:
        """See the port."""
        with anyio.CancelScope(shield=True):  # also for who was cancelled: the lock must not outlive its user
            await self._write(sqlite3.Connection.close)
            await self._read(sqlite3.Connection.close)
        self._files.life.close()
        os.close(self._files.lock)


def _check(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT 1").fetchone()


def _write_nothing(writer: sqlite3.Connection) -> None:
    """Commit, and let the log be moved into the store as far as that goes."""
    with transaction(writer):
        writer.execute("UPDATE life SET began_at = began_at")
    writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
