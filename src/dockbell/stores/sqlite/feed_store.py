"""One feed in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.page_diff import Finding, PageDiff, Pending, Snapshots
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import JSON, Change, Feed, Statement, Via
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.ports import (
    Absentees,
    Awaited,
    Checkpoint,
    Committed,
    Compose,
    FeedState,
    FeedStore,
    RunRecord,
)
from dockbell.stores.sql import (
    absence,
    cleaning,
    details,
    feeds,
    runs,
    snapshots,
)
from dockbell.stores.sqlite.engine import Engine


class SqliteFeedStore(FeedStore):
    """The statements of detection, bound to a feed."""

    def __init__(self, engine: Engine, feed: Feed, feed_id: int = 0) -> None:
        self._engine = engine
        self._feed = feed
        self._id = feed_id

    async def open(self) -> FeedState:
        state = await self._engine.write(feeds.open_feed, self._feed)
        self._id = state.id
        return state

    async def begin_feed(self, first_asked_at: datetime, boundary: datetime | None = None) -> None:
        await self._engine.write(feeds.begin_feed, self._id, first_asked_at, boundary)

    async def save_read_settings(
        self,
        read_settings: Mapping[str, JSON],
        *,
        rebaseline: Statement | None = None,
        compose: Compose | None = None,
    ) -> None:
        await self._engine.write(
            partial(
                feeds.save_read_settings,
                feed_id=self._id,
                read_settings=read_settings,
                rebaseline=rebaseline,
                compose=compose,
                now=self._engine.now(),
            )
        )
        if rebaseline is not None:
            await self._engine.note_events()

    async def save_shape(self, shape: Shape, *, proven: bool) -> None:
        await self._engine.write(partial(feeds.save_shape, feed_id=self._id, shape=shape, proven=proven))

    async def save_listing_profile(self, listing_profile: str) -> None:
        await self._engine.write(feeds.save_listing_profile, self._id, listing_profile)

    async def save_problem(self, problem: str) -> None:
        await self._engine.write(feeds.save_problem, self._id, problem)

    async def last_row(self) -> int:  # rows are numbered over all feeds here
        return await self._engine.write(snapshots.last_row)

    async def commit_page(
        self,
        detect: Callable[[Snapshots], PageDiff],
        compose: Compose,
        *,
        via: Via,
        announce: Callable[[PageDiff], Statement | None] | None = None,
    ) -> Committed:
        committed = await self._engine.write(
            partial(
                snapshots.commit_page,
                feed_id=self._id,
                detect=detect,
                compose=compose,
                via=via,
                announce=announce,
                now=self._engine.now(),
            )
        )
        if committed.events or committed.statement is not None:
            await self._engine.note_events()
        return committed

    async def close_run(
        self,
        run: RunRecord,
        progress: Progress | None = None,
        *,
        lateness: Lateness | None = None,
        statements: Sequence[Statement] = (),
        compose: Compose | None = None,
    ) -> None:
        await self._engine.write(
            partial(
                feeds.close_run,
                feed_id=self._id,
                run=run,
                progress=progress,
                lateness=lateness,
                statements=statements,
                compose=compose,
                now=self._engine.now(),
            )
        )
        if statements:
            await self._engine.note_events()

    async def publish(self, statements: Sequence[Statement], compose: Compose) -> None:
        await self._engine.write(
            partial(feeds.publish, feed_id=self._id, statements=statements, compose=compose, now=self._engine.now())
        )
        await self._engine.note_events()

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        await self._engine.write(runs.save_checkpoint, self._id, checkpoint)

    async def load_checkpoint(self) -> Checkpoint | None:
        return await self._engine.write(runs.load_checkpoint, self._id)

    async def drop_checkpoint(self) -> None:
        await self._engine.write(runs.drop_checkpoint, self._id)

    async def find_absent(self, seen: SeenRows) -> Absentees:
        return await self._engine.read(absence.find_absent, self._id, seen)

    async def count_deleted(self, since: datetime) -> int:
        return await self._engine.read(absence.count_deleted, self._id, since)

    async def suspect(self, rows: Sequence[int], at: datetime) -> None:
        await self._engine.write(absence.suspect, self._id, rows, at, self._engine.now())

    async def close_pass(
        self,
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
        await self._engine.write(
            partial(
                absence.close_pass,
                feed_id=self._id,
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
                now=self._engine.now(),
            )
        )
        await self._engine.note_events()

    async def decide(self, detect: Callable[[bytes], Change] | None, compose: Compose, limit: int) -> int:
        count = await self._engine.write(
            partial(
                snapshots.decide, feed_id=self._id, detect=detect, compose=compose, limit=limit, now=self._engine.now()
            )
        )
        if count:
            await self._engine.note_events()
        return count

    async def end_baseline(self, *, proven: bool, newest: datetime | None, boundary: datetime | None = None) -> None:
        ending = partial(absence.end_baseline, feed_id=self._id, proven=proven, newest=newest, boundary=boundary)
        await self._engine.write(ending)

    async def keep(self, rows: Sequence[int], finding: Finding, *, ignored_until_seen: bool = False) -> None:
        await self._engine.write(
            partial(
                absence.keep,
                feed_id=self._id,
                rows=rows,
                finding=finding,
                ignored_until_seen=ignored_until_seen,
                now=self._engine.now(),
            )
        )

    async def find_suspected(self) -> Sequence[int]:
        return await self._engine.read(absence.find_suspected, self._id)

    async def find_told_apart(
        self, rows: Sequence[int], *, keyless: int, met_since: datetime, offset: timedelta
    ) -> Sequence[int]:
        return await self._engine.read(
            partial(
                absence.find_told_apart,
                feed_id=self._id,
                rows=rows,
                keyless=keyless,
                met_since=met_since,
                offset=offset,
            )
        )

    async def count_holds(self, asked_at: datetime) -> int:
        return await self._engine.read(absence.count_holds, self._id, asked_at)

    async def end_suspicion(self) -> bool:
        return await self._engine.write(absence.end_suspicion, self._id)

    async def delete_records(
        self,
        rows: Sequence[int],
        detect: Callable[[bytes, int, datetime | None], Change],
        compose: Compose,
    ) -> int:
        count = await self._engine.write(
            partial(
                absence.delete_records,
                feed_id=self._id,
                rows=rows,
                detect=detect,
                compose=compose,
                now=self._engine.now(),
            )
        )
        if count:
            await self._engine.note_events()
        return count

    async def load_awaited(self, limit: int) -> Sequence[Awaited]:
        return await self._engine.read(details.load_awaited, self._id, limit)

    async def complete(
        self,
        row: int,
        detect: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        *,
        listed: bytes | None = None,
    ) -> int:
        completing = partial(details.complete, feed_id=self._id, record=row, detect=detect, compose=compose)
        count = await self._engine.write(partial(completing, listed=listed, now=self._engine.now()))
        if count:
            await self._engine.note_events()
        return count

    async def complete_overdue(
        self,
        since: Sequence[datetime],
        detect: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        limit: int,
    ) -> None:
        completing = partial(details.complete_overdue, feed_id=self._id, since=since, detect=detect, compose=compose)
        if await self._engine.write(partial(completing, limit=limit, now=self._engine.now())):
            await self._engine.note_events()

    async def load_waits(self) -> Sequence[datetime]:
        return await self._engine.read(details.load_waits, self._id)

    async def begin_emitting(self) -> None:
        await self._engine.write(snapshots.begin_emitting, self._id)

    async def emit_snapshots(
        self, detect: Callable[[bytes, datetime | None], Change], compose: Compose, limit: int
    ) -> int:
        count = await self._engine.write(
            partial(
                snapshots.emit_snapshots,
                feed_id=self._id,
                detect=detect,
                compose=compose,
                limit=limit,
                now=self._engine.now(),
            )
        )
        if count:
            await self._engine.note_events()
        return count

    async def decide_drift(self, decision: Decision) -> None:
        await self._engine.write(feeds.decide_drift, self._id, decision)

    async def mark_dropped(self, drop: Sequence[str]) -> bool:
        return await self._engine.write(cleaning.mark_dropped, self._id, drop)

    async def clean(
        self, erasure: Erasure, fingerprint: Callable[[bytes], bytes] | None, limit: int
    ) -> tuple[int, int] | None:
        return await self._engine.write(cleaning.clean, self._id, erasure, fingerprint, limit)

    async def end_cleaning(self) -> None:
        await self._engine.write(cleaning.end_cleaning, self._id)

    async def read_bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        return await self._engine.read(snapshots.read_bodies, rows)

    async def note_missing(self, rows: Sequence[int]) -> None:
        await self._engine.write(absence.note_missing, rows, self._engine.now())

    async def note_found(self, rows: Sequence[int]) -> None:
        await self._engine.write(absence.note_found, rows)

    async def find_missing(self, rows: Sequence[int]) -> Mapping[int, datetime | None]:
        return await self._engine.read(absence.find_missing, rows)

    async def postpone(self, row: int) -> None:
        await self._engine.write(details.postpone, row)
