"""One feed in the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.known_pages import BYTES_MOST, POLL_BYTES_MOST, KnownPages
from dockbell.core.comparing.page_diff import Finding, PageDiff, Pending, Snapshots
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import JSON, RESOURCES, Change, Feed, Statement, Via
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.ports import Absentees, Awaited, Checkpoint, Committed, Compose, FeedState, FeedStore, RunRecord
from dockbell.stores.handles.engine import Engine, call_and_find_end
from dockbell.stores.handles.last_pass import LastPass
from dockbell.stores.sql import absence, cleaning, details, feeds, runs, snapshots
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.lease import Lease

_T = TypeVar("_T")
_P = ParamSpec("_P")


class SqlFeedStore(FeedStore):
    def __init__(self, engine: Engine, feed: Feed) -> None:
        self._engine = engine
        self._feed = feed
        resource = RESOURCES.get(feed.resource)  # a feed of notices has none
        self._is_polled = resource is not None and resource.polled
        self._known_pages = KnownPages(POLL_BYTES_MOST if self._is_polled else BYTES_MOST)
        self._last_pass = LastPass()
        self._known_since = (0, 0)  # the token of the lease and the count of purges under which they are known

    @property
    def _lease(self) -> Lease:
        lease = self._engine.leases.get(self._feed)
        assert lease is not None, f"{self._feed} is not open"
        return lease

    @property
    def _id(self) -> int:
        return self._lease.id

    @property
    def known_pages(self) -> KnownPages:
        since = (self._lease.token, self._engine.purges)
        if since != self._known_since:  # another process, or a purge, has written to the records
            self._known_since = since
            self._known_pages.clear()
        return self._known_pages

    @contextmanager
    def _writing_to(self, rows: Collection[int] | None) -> Iterator[None]:
        """Let something be written to the records of some rows, None: of any, which are not known any more.

        They are forgotten before, so that those of a page which comes meanwhile are compared, after what is written;
        and again afterwards, for they may have been compared before. After an error too: it may have been written.
        """
        self._forget(rows)
        try:
            yield
        finally:
            self._forget(rows)

    def _forget(self, rows: Collection[int] | None) -> None:
        if rows is None:
            self._known_pages.clear()
        elif rows:
            self._known_pages.forget(rows)

    async def _append(
        self, function: Callable[Concatenate[Connection, Lease, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call a function that may add events to the feed; wake those who wait for them.

        Raises:
            StoreUnavailable: It cannot be written now; an outage has begun.
        """
        result, end = await self._engine.write(call_and_find_end, self._feed, function, self._lease, *args, **kwargs)
        await self._engine.announce(self._feed, end)  # at once: the caller may be cancelled at the next turn
        return result

    async def open(self) -> FeedState:
        await self._engine.take(self._feed)
        (state,) = await self._engine.write(feeds.load_feeds, self._feed)
        self._engine.outbox.ends.setdefault(self._feed, 0)
        self._engine.ring(self._feed, state.sequence)  # the process that had it may have published more meanwhile
        return state

    async def begin_feed(self, first_asked_at: datetime, boundary: datetime | None = None) -> None:
        await self._engine.write(feeds.begin_feed, self._lease, first_asked_at, boundary)

    async def save_read_settings(
        self, read_settings: Mapping[str, JSON], *, rebaseline: Statement | None = None, compose: Compose | None = None
    ) -> None:
        with self._writing_to(None):
            await self._append(
                feeds.save_read_settings, read_settings, rebaseline=rebaseline, compose=compose, now=self._engine.now()
            )

    async def save_shape(self, shape: Shape, *, proven: bool) -> None:
        with self._writing_to(None):
            await self._engine.write(feeds.save_shape, self._lease, shape, proven=proven)

    async def save_listing_profile(self, listing_profile: str) -> None:
        await self._engine.write(feeds.save_listing_profile, self._lease, listing_profile)

    async def save_plan(self, plan: str) -> None:
        await self._engine.write(feeds.save_plan, self._lease, plan)

    async def save_signal(self, signal: str) -> None:
        await self._engine.write(feeds.save_signal, self._lease, signal)

    async def save_problem(self, problem: str) -> None:
        await self._engine.write(feeds.save_problem, self._lease, problem)

    async def last_row(self) -> int:
        return await self._engine.write(snapshots.last_row, self._id)

    async def commit_page(
        self,
        detect: Callable[[Snapshots], PageDiff],
        compose: Compose,
        *,
        via: Via,
        find_statement: Callable[[PageDiff], Statement | None] | None = None,
    ) -> Committed:
        look, now = self._engine.look, self._engine.now()
        page = snapshots.PageCommit(self._lease, look, detect, compose, via=via, find_statement=find_statement, now=now)
        with self._last_pass.committing():
            try:
                return await self._engine.joined.commit(page, self._take_committed)
            except BaseException:  # whether it was committed is not known
                self._known_pages.clear()
                raise

    def _take_committed(self, committed: Committed) -> None:
        if not committed.page_diff.is_idle:
            before = self._known_pages.version
            self._known_pages.forget(committed.page_diff.written)
            self._last_pass.follow(before, self._known_pages.version, committed.page_diff)
        self._engine.ring(self._feed, committed.end)

    async def close_run(
        self,
        run: RunRecord,
        progress: Progress | None = None,
        *,
        lateness: Lateness | None = None,
        statements: Sequence[Statement] = (),
        compose: Compose | None = None,
    ) -> FeedState | None:
        if not statements:
            return await self._engine.joined.add(
                partial(feeds.note_run, lease=self._lease, run=run, progress=progress, lateness=lateness), self._id
            )
        await self._append(
            feeds.close_run,
            run,
            progress,
            lateness=lateness,
            statements=statements,
            compose=compose,
            now=self._engine.now(),
        )
        return None

    async def publish(self, statements: Sequence[Statement], compose: Compose) -> None:
        await self._append(feeds.publish, statements, compose, now=self._engine.now())

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        await self._engine.write(runs.save_checkpoint, self._lease, checkpoint)

    async def load_checkpoint(self) -> Checkpoint | None:
        return await self._engine.write(runs.load_checkpoint, self._id)

    async def drop_checkpoint(self) -> None:
        await self._engine.write(runs.drop_checkpoint, self._lease)

    async def find_absent(self, seen: SeenRows) -> Absentees:
        pages, last = self.known_pages, self._last_pass
        if (expected := last.find(pages.version, seen)) is not None:
            return expected
        begun, version = last.begin_look(), pages.version
        found = await self._engine.read(absence.find_absent, self._id, seen)
        if not pages.is_trusted or version != self.known_pages.version:
            last.forget()
        elif not last.take(begun, version, seen, found):
            pages.distrust()
            return replace(found, is_contradiction=True)
        return found

    async def count_deleted(self, since: datetime) -> int:
        return await self._engine.read(absence.count_deleted, self._id, since)

    async def suspect(self, rows: Sequence[int], at: datetime) -> None:
        with self._writing_to(rows):
            await self._engine.write(absence.suspect, self._lease, rows, at, self._engine.now())

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
        is_approved: bool = False,
        lateness: Lateness | None,
        statements: Sequence[Statement],
        compose: Compose,
        drift_before: datetime | None = None,
    ) -> None:
        await self._append(
            absence.close_pass,
            run,
            held=held,
            confirm_at=confirm_at,
            proven=proven,
            newest=newest,
            boundary=boundary,
            is_first=is_first,
            is_approved=is_approved,
            lateness=lateness,
            statements=statements,
            compose=compose,
            drift_before=drift_before,
            now=self._engine.now(),
        )
        if not self._is_polled:  # else the known pages are those of polls
            self._known_pages.end_pass()
        if not statements:
            self._engine.outbox.ring()  # a backfill may have waited for the pass

    async def decide(self, detect: Callable[[bytes], Change] | None, compose: Compose, limit: int) -> int:
        with self._writing_to(None):
            return await self._append(snapshots.decide, detect, compose, limit, now=self._engine.now())

    async def end_baseline(self, *, proven: bool, newest: datetime | None, boundary: datetime | None = None) -> None:
        await self._engine.write(absence.end_baseline, self._lease, proven=proven, newest=newest, boundary=boundary)

    async def keep(self, rows: Sequence[int], finding: Finding, *, ignored_until_seen: bool = False) -> None:
        with self._writing_to(rows):
            await self._engine.write(
                absence.keep, self._lease, rows, finding, ignored_until_seen=ignored_until_seen, now=self._engine.now()
            )

    async def find_suspected(self) -> Sequence[int]:
        return await self._engine.read(absence.find_suspected, self._id)

    async def find_told_apart(
        self, rows: Sequence[int], *, keyless: int, met_since: datetime, offset: timedelta
    ) -> Sequence[int]:
        return await self._engine.read(
            absence.find_told_apart, self._id, rows, keyless=keyless, met_since=met_since, offset=offset
        )

    async def count_holds(self, asked_at: datetime) -> int:
        return await self._engine.read(absence.count_holds, self._id, asked_at)

    async def end_suspicion(self) -> bool:
        with self._writing_to(None):
            return await self._engine.write(absence.end_suspicion, self._lease)

    async def delete_records(
        self, rows: Sequence[int], detect: Callable[[bytes, int, datetime | None], Change], compose: Compose
    ) -> int:
        with self._writing_to(rows):
            return await self._append(absence.delete_records, rows, detect, compose, now=self._engine.now())

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
        with self._writing_to([row]):
            return await self._append(details.complete, row, detect, compose, listed=listed, now=self._engine.now())

    async def complete_overdue(
        self,
        since: Sequence[datetime],
        detect: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        limit: int,
    ) -> None:
        with self._writing_to(None):
            await self._append(details.complete_overdue, since, detect, compose, limit=limit, now=self._engine.now())

    async def load_waits(self) -> Sequence[datetime]:
        return await self._engine.read(details.load_waits, self._id)

    async def begin_emitting(self) -> None:
        await self._engine.write(snapshots.begin_emitting, self._lease)

    async def emit_snapshots(
        self, detect: Callable[[bytes, datetime | None], Change], compose: Compose, limit: int
    ) -> int:
        return await self._append(snapshots.emit_snapshots, detect, compose, limit, now=self._engine.now())

    async def decide_drift(self, decision: Decision) -> None:
        await self._engine.write(feeds.decide_drift, self._lease, decision)

    async def mark_dropped(self, drop: Sequence[str]) -> bool:
        with self._writing_to(None):
            return await self._engine.write(cleaning.mark_dropped, self._lease, drop)

    async def clean(
        self, erasure: Erasure, fingerprint: Callable[[bytes], bytes] | None, limit: int
    ) -> tuple[int, int] | None:
        with self._writing_to(None):
            return await self._engine.write(cleaning.clean, self._lease, erasure, fingerprint, limit)

    async def end_cleaning(self) -> None:
        await self._engine.write(cleaning.end_cleaning, self._lease)

    async def read_bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        return await self._engine.read(snapshots.read_bodies, self._id, rows)

    async def note_missing(self, rows: Sequence[int]) -> None:
        with self._writing_to(rows):
            await self._engine.write(absence.note_missing, self._lease, rows, self._engine.now())

    async def note_found(self, rows: Sequence[int]) -> None:
        with self._writing_to(rows):
            await self._engine.write(absence.note_found, self._lease, rows)

    async def find_missing(self, rows: Sequence[int]) -> Mapping[int, datetime | None]:
        return await self._engine.read(absence.find_missing, self._id, rows)

    async def postpone(self, row: int) -> None:
        await self._engine.write(details.postpone, self._lease, row)
