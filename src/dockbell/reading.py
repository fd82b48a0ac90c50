"""One run over a feed, from its first page to its last; poller and reconciler share it.

The requests of a feed are serial: polls slip in between the pages of a pass, and each page is judged and committed
before the next is asked for, so that no reading is ever compared with a later one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Final

import anyio

from dockbell.config import ResourceSettings
from dockbell.core.comparing.absence import SeenRows
from dockbell.core.comparing.canon import Canon, decode
from dockbell.core.comparing.judge import Judge, Reading
from dockbell.core.model import RESOURCES, Change, ClockSource, Event, Feed, Page, RunKind, Urgency, Via
from dockbell.core.publishing.event import compose
from dockbell.core.reading.shape import Shape, ShapeUnknown, learn_shape
from dockbell.core.reading.window import Proof
from dockbell.errors import CursorExpired, DockbellError, SchemaMismatch, SourceUnavailable
from dockbell.ports import Committed, FeedState, RunRecord, Source, Store
from dockbell.telemetry import AgentFails, FeedFails, FeedMended, RunEnded, Telemetry

LIMIT: Final = 200
"""Records per page: the API's maximum, so that a run costs the fewest requests."""

_EMPTY_PAGES_MOST: Final = 10
_RESTARTS_MOST: Final = 2

_PROBE_PAUSE: Final = timedelta(minutes=1)
"""A feed that the operator must mend is tried again once a minute."""
_RETRY_PAUSE: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run came to.

    Attributes:
        run: Its record, as it is stored.
        proof: What it says about the watermark.
    """

    run: RunRecord
    proof: Proof


class Reader:
    """Reads one feed: learns its shape, walks its pages, commits each."""

    def __init__(
        self,
        feed: Feed,
        settings: ResourceSettings,
        *,
        name: str,
        source: Source,
        store: Store,
        telemetry: Telemetry,
        now: Callable[[], datetime],
    ) -> None:
        self.feed = feed
        self.settings = settings
        self.store = store
        self.now = now
        self._resource = RESOURCES[feed.resource]
        self._name = name
        self._source = source
        self.telemetry = telemetry
        self._turn = anyio.Lock()
        self._passes: set[SeenRows] = set()
        self._state: FeedState | None = None
        self._judge: Judge | None = None
        self.clock: ClockSource | None = None

    async def state(self) -> FeedState:
        """Return what is stored about the feed."""
        if self._state is None:
            await self.reload()
        assert self._state is not None
        return self._state

    async def reload(self) -> FeedState:
        """Read the feed's state from the store again, after it was changed there."""
        self._state = await self.store.open_feed(self.feed)
        if self._state.shape is not None:
            self._use(self._state.shape)
        return self._state

    @property
    def judge(self) -> Judge:
        """The judge of the feed's records, once their shape is known."""
        assert self._judge is not None
        return self._judge

    async def note_problem(self, problem: str) -> None:
        """Tell and store what stops the feed; the empty string when nothing does any more."""
        self.telemetry.emit(FeedFails(self.feed, problem) if problem else FeedMended(self.feed))
        await self.store.save_problem((await self.state()).id, problem)
        await self.reload()

    def number(self, change: Change, sequence: int) -> Event:
        """Return the event of a change under a sequence of this feed."""
        return compose(
            change, name=self._name, singular=self._resource.singular, epoch=self.store.epoch, sequence=sequence
        )

    async def watch(self) -> SeenRows:
        """Begin to note every stored row that any request of the feed shows from now on; end it by :meth:`unwatch`."""
        seen = SeenRows(await self.store.last_row((await self.state()).id))
        self._passes.add(seen)
        return seen

    def unwatch(self, seen: SeenRows) -> None:
        """Stop noting rows."""
        self._passes.discard(seen)

    async def read_run(self, kind: RunKind, *, since: datetime | None = None) -> RunReport:
        """Read a run to its end, beginning again where the API has forgotten a cursor.

        Raises:
            SourceRefused: The key, or the request as such, is not accepted.
            SchemaMismatch: The records cannot be told apart, or there are none where they should be.
        """
        began = anyio.current_time()
        walk = _Walk(self, kind, since)
        problem = await walk.go()
        for _ in range(_RESTARTS_MOST):
            if problem != _CURSOR_EXPIRED:
                break
            again = _Walk(self, kind, since)
            again.events, again.oldest_unseen = walk.events, walk.oldest_unseen  # what is committed counts
            walk = again
            problem = await walk.go()
        ended_at = self.now()
        run = RunRecord(
            kind,
            walk.asked_at or ended_at,
            since,
            ended_at,
            pages=walk.pages,
            records=walk.records,
            events=walk.events,
            problem=problem,
        )
        elapsed = timedelta(seconds=anyio.current_time() - began)
        self.telemetry.emit(RunEnded(self.feed, kind, walk.pages, walk.records, walk.events, elapsed, problem))
        return RunReport(run, Proof(run.asked_at, run.pages, not problem, walk.oldest_unseen))

    async def read_page(
        self, kind: RunKind, since: datetime | None, cursor: str | None
    ) -> tuple[Page, Committed | None]:
        """Read and commit one page in the feed's turn; None for a page without records before any were seen."""
        async with self._turn:
            page = await self._source.read_page(
                self.feed.resource,
                cursor=cursor,
                updated_since=since,
                limit=LIMIT,
                query=self.settings.query,
                expand=self.settings.expand,
                urgency=Urgency.POLL if kind is RunKind.POLL else Urgency.PASS,
            )
            self.clock = page.clock
            state = await self.state()
            if state.first_asked_at is None:
                await self.store.begin_feed(state.id, page.asked_at)
                state = await self.reload()
            if state.shape is None:
                if not page.records:
                    return page, None
                state = await self._learn(state, page)
            committed = await self.store.commit_page(
                state.id,
                partial(self.judge.judge, page, self._reading(kind, state)),
                self.number,
            )
            for seen in self._passes:
                seen.add(committed.judgement.seen)
            return page, committed

    def _reading(self, kind: RunKind, state: FeedState) -> Reading:
        assert state.first_asked_at is not None
        baseline = state.passes == 0
        poll = state.poll
        via = Via.POLL if kind is RunKind.POLL else Via.FIRST_PASS if baseline else Via.PASS
        return Reading(
            via,
            state.first_asked_at,
            baseline=baseline,
            settling=state.passes == 1,
            emit=self.settings.first_pass == "emit",
            last_poll=None if poll is None or poll.since is None else (poll.since, poll.asked_at),
            last_pass=None if state.full is None else state.full.asked_at,
        )

    async def _learn(self, state: FeedState, page: Page) -> FeedState:
        try:
            shape = learn_shape(
                self._resource.singular,
                [decode(raw) for raw in page.records],
                key=self.settings.key,
                updated_at=self.settings.updated_at,
            )
        except ShapeUnknown as error:
            raise SchemaMismatch(
                f'resource "{self.feed.resource}": {error}; set key in [resources.{self.feed.resource}]'
            ) from error
        except ValueError as error:
            raise SourceUnavailable(f'resource "{self.feed.resource}": {error}') from error
        await self.store.save_shape(state.id, shape)
        return await self.reload()

    def _use(self, shape: Shape) -> None:
        settings = self.settings
        updated_at = settings.updated_at or shape.updated_at
        self._judge = Judge(
            self.feed,
            key=settings.key or shape.key,
            updated_at=updated_at,
            created_at=shape.created_at,
            canon=Canon(ignore=settings.ignore, unordered=settings.unordered, updated_at=updated_at),
            quiet=settings.ignore if updated_at is None else (*settings.ignore, updated_at),
            touch=settings.touch,
        )


async def tend(reader: Reader, run_once: Callable[[], Awaitable[object]], *, pause: bool = True) -> None:
    """Run an agent once on a feed; what goes wrong is told and stored, and stays with this feed, after a pause."""
    try:
        rest = await _attempt(reader, run_once)
    except Exception as error:  # noqa: BLE001  # whatever it is, the other feeds go on, and so will this one
        reader.telemetry.emit(AgentFails(str(reader.feed), error))
        rest = _RETRY_PAUSE
    if pause:
        await anyio.sleep(rest.total_seconds())


async def _attempt(reader: Reader, run_once: Callable[[], Awaitable[object]]) -> timedelta:
    """Run once and store what the operator must mend, or that it is mended; return for how long to rest."""
    state = await reader.state()
    try:
        await run_once()
    except DockbellError as error:
        await reader.note_problem(str(error))
        return _PROBE_PAUSE
    if state.problem:
        await reader.note_problem("")
    return timedelta(0)


_CURSOR_EXPIRED: Final = "the API forgot the cursor"


class _Walk:
    """The pages of one run, one after the other, guarded against lists that never end."""

    def __init__(self, reader: Reader, kind: RunKind, since: datetime | None) -> None:
        self._reader = reader
        self._kind = kind
        self._since = since
        self._cursors: set[str] = set()
        self._pages: set[bytes] = set()
        self._empty = 0
        self._bad: list[str] = []
        self.asked_at: datetime | None = None
        self.pages = self.records = self.events = 0
        self.oldest_unseen: datetime | None = None

    async def go(self) -> str:
        """Read to the end; return why the run is incomplete, or the empty string."""
        cursor: str | None = None
        while True:
            try:
                page, committed = await self._reader.read_page(self._kind, self._since, cursor)
            except CursorExpired:
                return _CURSOR_EXPIRED
            except SourceUnavailable as error:
                return str(error)
            if self.asked_at is None:
                self.asked_at = page.asked_at
            self.pages += 1
            self.records += len(page.records)
            if committed is not None:
                self._count(committed)
            if page.next_cursor is None:
                return self._bad[0] if self._bad else ""
            if anomaly := self._find_anomaly(page, page.next_cursor):
                return anomaly
            cursor = page.next_cursor

    def _count(self, committed: Committed) -> None:
        self.events += committed.events
        self._bad.extend(committed.judgement.problems)
        oldest = committed.judgement.oldest_unseen
        if oldest is not None and (self.oldest_unseen is None or oldest < self.oldest_unseen):
            self.oldest_unseen = oldest

    def _find_anomaly(self, page: Page, cursor: str) -> str:
        if cursor in self._cursors:
            return "the API gave a cursor a second time"
        self._cursors.add(cursor)
        if page.records:
            self._empty = 0
            # By its ends: no two pages of a list that moves on begin and end with the same records.
            digest = blake2b(page.records[0] + page.records[-1], digest_size=16).digest()
            if digest in self._pages:
                return "the API gave the same page twice"
            self._pages.add(digest)
            return ""
        self._empty += 1
        return "the API gives empty pages without end" if self._empty > _EMPTY_PAGES_MOST else ""
