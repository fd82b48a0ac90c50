"""One feed as detection knows it: its stored state, how its records are read, and the commit of its pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial

import anyio
from msgspec.structs import replace

from dockbell.config import ResourceSettings
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.page_diff import Collision, PageDiff, Snapshots
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import RESOURCES, Feed, Page, RunKind, Statement
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.publishing.event import Composer, read_named
from dockbell.core.publishing.statement import HoldReason, held, rebaselined
from dockbell.core.reading.shape import Shape, find_differences, is_own_id, keeps_records, keeps_shape, learn_times
from dockbell.detection.gaps import GapWatch
from dockbell.detection.page_fetcher import PageFetcher
from dockbell.detection.problems import Problems
from dockbell.detection.profile import FeedProfile
from dockbell.detection.read_context import make_context
from dockbell.detection.record_shape import check_drop, describe, key_collides, learn_from, make_detector
from dockbell.detection.run import Run, RunEnd
from dockbell.detection.run_summary import RunSummary, Sightings
from dockbell.detection.schedule import Clocks, FeedSchedule
from dockbell.detection.workload import Workload
from dockbell.errors import SchemaMismatch
from dockbell.host.evaluator import SHARED, LimitedEvaluator
from dockbell.ports import Committed, FeedState, RunRecord, Source, Store
from dockbell.telemetry import (
    ChangesStored,
    FeedFails,
    FeedMended,
    ListingChanged,
    NamedEventUnanswered,
    Stated,
    StoreWrittenAside,
    Telemetry,
)


class TrackedFeed:
    """One feed; its agents share it.

    Attributes:
        erasure: Removes from records what is never stored; None where that is nothing.
        workload: What its runs teach the planner.
        sightings: What its pages showed, whichever run read them.
        turns: The lock of its turn: pages are asked for and committed one at a time.
        ask_for_details: Is called when changes begin to wait for the details of their records.
        listeners: Are told what each page of a run came to.
    """

    def __init__(
        self,
        feed: Feed,
        settings: ResourceSettings,
        *,
        name: str,
        base_url: str,
        source: Source,
        store: Store,
        telemetry: Telemetry,
        now: Callable[[], datetime],
        steady: Callable[[], timedelta],
        next_time: Callable[[timedelta | str, datetime], datetime],
    ) -> None:
        """Set what is read.

        ``steady`` returns the time since some origin; it only goes forward, whatever is done to the clock.
        ``next_time`` returns when something is due again that happens at an interval or by a crontab line.
        """
        self.feed = feed
        self.settings = settings
        self.resource = RESOURCES[feed.resource]
        self.store = store.feed(feed)
        self.health, self.privacy = store.health, store.privacy
        self.telemetry = telemetry
        self.compose = Composer(
            feed,
            name=name,
            singular=self.resource.singular,
            epoch=store.epoch,
            named=read_named(settings.events),
            evaluate=LimitedEvaluator(SHARED).evaluate,
        )
        self.erasure = Erasure(settings.drop, store.epoch) if settings.drop else None
        self.clocks = Clocks(now, steady)
        self.schedule = FeedSchedule(settings, next_time, polled=self.resource.polled)
        self.profile = FeedProfile(feed, settings, store=self.store, telemetry=telemetry, clocks=self.clocks)
        self.fetcher = PageFetcher(feed, settings, source=source, profile=self.profile, erasure=self.erasure)
        self.gaps = GapWatch(feed, self.schedule, clocks=self.clocks)
        self.problems = Problems(self.schedule)
        self.workload = Workload(settings, polled=self.resource.polled)
        self.sightings = Sightings()
        self.turns = anyio.Lock(fast_acquire=True)  # asking for a page yields
        self.ask_for_details: Callable[[], None] = lambda: None
        self.listeners: list[Callable[[TrackedFeed, Run, Page, PageDiff], None]] = []
        self._base_url = base_url
        self._state: FeedState | None = None
        self._loads = 0  # how often the state was loaded
        self._is_outdated = False  # a run failed while its end was being stored: only the store knows whether it is
        self._detector: ChangeDetector | None = None
        self._detected_shape: Shape | None = None  # what the detector was made for
        self._end = anyio.Lock()  # of complete runs, so that one states what it ends before another looks for it
        self._is_key_doubted = False
        self._unanswered: set[tuple[str, str]] = set()

    # State ------------------------------------------------------------------------------------------------------------

    async def state(self) -> FeedState:
        if self._state is None:
            await self._open()
        elif self._is_outdated:
            await self.reload()
        assert self._state is not None
        return self._state

    async def reload(self) -> FeedState:
        """Read the feed's state from the store again, after it was changed there."""
        return self._load(await self.store.open())

    def _load(self, state: FeedState) -> FeedState:
        self._state, self._is_outdated = state, False
        self._loads += 1
        self.profile.load(state)
        shape = state.shape
        if shape is not None and (self._detector is None or shape != self._detected_shape):
            self._detected_shape = shape
            self.profile.use_shape(shape)
            self._detector = make_detector(self.feed, self.settings, shape, self.erasure)
        return state

    @property
    def last_poll(self) -> RunRecord | None:
        """The last complete poll, once the state is loaded."""
        return None if self._state is None else self._state.poll

    @property
    def last_long_reading(self) -> RunRecord | None:
        """The last complete trailing poll or pass, once the state is loaded."""
        runs = () if self._state is None else (self._state.trailing, self._state.full)
        return max((run for run in runs if run is not None), key=lambda run: run.ended_at, default=None)

    @property
    def detector(self) -> ChangeDetector:
        """What compares the feed's records, once their shape is known."""
        assert self._detector is not None
        return self._detector

    @property
    def is_provisional(self) -> bool:
        """Whether the key was learned and is not proven yet to tell all records apart."""
        return self._state is None or not (self._state.proven or self.settings.key)

    @property
    def is_withholding(self) -> bool:
        """Whether nothing is published: the key is not proven, and is not the record's own id or seems not unique."""
        if not self.is_provisional:
            return False
        shape = None if self._state is None else self._state.shape
        return self._is_key_doubted or shape is None or not is_own_id(shape.key, self.feed.resource)

    async def _publish(self, *statements: Statement) -> None:
        await self.store.publish(statements, self.compose)
        self.report(*statements)

    def report(self, *statements: Statement) -> None:
        for statement in statements:
            self.telemetry.emit(Stated(statement))

    def report_problem(self, problem: str, rest: timedelta | None = None) -> None:
        """Report what stops the feed, and for how long it rests; an empty problem: that it goes on."""
        self.telemetry.emit(FeedFails(self.feed, problem, rest) if problem else FeedMended(self.feed))

    async def save_problem(self, problem: str) -> None:
        await self.state()
        await self.store.save_problem(problem)
        await self.reload()

    async def _open(self) -> None:
        """Load the state, and begin a new baseline where the feed is read differently now."""
        state = await self.reload()
        self.workload.load(state)
        if (every := self.workload.plan.every) is not None and self.settings.is_auto:
            self.schedule.set_interval(min(every, self.settings.at_most or every))
        if state.blind:
            await self._publish(self.gaps.state_lost_store(state))
            state = await self.reload()
        is_marked = (state.dropped, state.cleaning) == (tuple(sorted(self.settings.drop)), ())
        if not is_marked and await self.store.mark_dropped(self.settings.drop):
            state = await self.reload()
        read_settings = describe(self.settings, self._base_url, state.shape)
        if parts := find_differences(state.read_settings, read_settings):
            statement = rebaselined(self.feed, self.clocks.now(), parts)
            kept = read_settings if keeps_shape(parts) else describe(self.settings, self._base_url, None)
            await self.store.save_read_settings(kept, rebaseline=statement, compose=self.compose)
            if not keeps_records(parts):
                self._detector = None
                self.profile.forget_listing()
            self.report(statement)
            await self.reload()
        elif state.read_settings != read_settings:
            await self.store.save_read_settings(read_settings)
            await self.reload()

    # How records are read ---------------------------------------------------------------------------------------------

    async def learn_shape(self, page: Page) -> FeedState:
        """Learn from a page with records what identifies and dates them.

        Raises:
            SchemaMismatch: Nothing identifies them.
        """
        shape = learn_from(self.feed, self.settings, page.records)
        return await self._save_shape(shape, proven=self.settings.key is not None)

    async def _learn_times(self, state: FeedState, shape: Shape, page: Page) -> FeedState:
        """Learn where the records are dated, if a page shows it and none before did.

        What is stored was compared with the timestamp as content. Both sides of a comparison are brought to the form of
        today, so that this makes no change of any record.
        """
        if self.settings.updated_at or shape.updated_at:
            return state
        learned = learn_times(shape, page.records)
        if learned == shape:
            return state
        state = await self._save_shape(learned, proven=False)
        self.telemetry.emit(ListingChanged(self.feed, f"records are dated by {learned.updated_at}"))
        return state

    async def _save_shape(self, shape: Shape, *, proven: bool) -> FeedState:
        await self.store.save_shape(shape, proven=proven)
        await self.store.save_read_settings(describe(self.settings, self._base_url, shape))
        state = await self.reload()
        self.ask_for_details()  # what waits since before the feed was read differently can be identified now
        return state

    def check_drop(self, state: FeedState) -> None:
        """Refuse to remove from records what was learned to tell them apart, or to date them.

        Raises:
            SchemaMismatch: ``drop`` would.
        """
        if self.settings.drop and state.shape is not None:
            check_drop(self.feed, self.settings, state.shape)

    def doubt_key(self, summary: RunSummary) -> SchemaMismatch:
        """Return the error of a learned key that seems to stand for different records; nothing is published then."""
        twice = f"{summary.collisions} of {summary.records} records came twice with different content under one key"
        return self._doubt_key(twice, "them")

    def doubt_key_of_page(self, collision: Collision) -> SchemaMismatch:
        """Return the error of a key under which a page shows two records each time; nothing is published then."""
        return self._doubt_key(str(collision), "records")

    def _doubt_key(self, collision: str, records: str) -> SchemaMismatch:
        self._is_key_doubted = True
        return key_collides(self.feed, None if self._state is None else self._state.shape, collision, records)

    # Pages ------------------------------------------------------------------------------------------------------------

    async def commit(self, page: Page, run: Run) -> Committed | None:
        """Compare a page with what is stored and store what it comes to; None while no record was ever shown.

        Raises:
            Collision: Two records stand under one key, and the page may be asked for again.
            SchemaMismatch: Nothing identifies the records.
        """
        state = await self.state()
        if state.shape is not None:
            state = await self._learn_times(state, state.shape, page)
        elif page.records:
            state = await self.learn_shape(page)
        else:
            return None
        context = replace(
            self.make_context(run.kind, state), may_ask_again=run.may_ask_again, run_asked_at=run.summary.asked_at
        )
        committed = await self._store_page_of_run(page, context, run.kind)
        page_diff = committed.page_diff
        self.sightings.take_page(run.kind, page_diff)
        await self.profile.observe(run.kind, page, page_diff.dates, is_first=run.cursor is None)
        for hear in self.listeners:
            hear(self, run, page, page_diff)
        self._report_unanswered()
        return committed

    async def _store_page_of_run(self, page: Page, context: ReadContext, kind: RunKind) -> Committed:
        """Store what a page comes to; what the store knows it comes to is not found out again."""
        if not page.records:
            return Committed(PageDiff(), 0)
        # Of a feed that is polled, the pages of passes and of trailing polls seldom come again as they were.
        if (kind is RunKind.POLL) is not self.resource.polled:
            return await self.store_page(page, context)
        lookup = self.store.known_pages.look(page.hashes)
        if lookup.page_diff is not None:
            return Committed(lookup.page_diff, 0)
        detect = self.detector.detect
        committed = await self.store_page(
            page, context, lambda snapshots: detect(page, context, snapshots, lookup.known())
        )
        if not self.store.known_pages.take(lookup, committed.page_diff):
            self.telemetry.emit(StoreWrittenAside(self.feed))
        return committed

    def make_context(self, kind: RunKind, state: FeedState, first_asked_at: datetime | None = None) -> ReadContext:
        first_asked_at = first_asked_at or state.first_asked_at
        assert first_asked_at is not None
        return make_context(
            kind,
            state,
            first_asked_at,
            settings=self.settings,
            profile=self.profile,
            polled=self.resource.polled,
            is_provisional=self.is_provisional,
            is_withholding=self.is_withholding,
        )

    async def store_page(
        self, page: Page, context: ReadContext, detect: Callable[[Snapshots], PageDiff] | None = None
    ) -> Committed:
        """Compare a page with the snapshots, just before the transaction of the only writer, and store the result."""
        committed = await self.store.commit_page(
            detect or partial(self.detector.detect, page, context),
            self.compose,
            via=context.via,
            find_statement=partial(self._find_statement, self.clocks.now()),
        )
        self._report_changes(page, committed.page_diff)
        if committed.page_diff.pending:
            self.ask_for_details()
        if committed.statement is not None:  # drift was found
            self.report(committed.statement)
            await self.reload()
        return committed

    def _find_statement(self, now: datetime, page_diff: PageDiff) -> Statement | None:
        """Return what is to be stated with a page: the drift that it shows for the first time."""
        drift = page_diff.drift
        if drift is None:
            return None
        count, paths = page_diff.drifted, sorted(drift.paths)
        return held(self.feed, now, reason=HoldReason.DRIFT, count=count, since=now, paths=paths)

    def _report_changes(self, page: Page, page_diff: PageDiff) -> None:
        if not page_diff.changes:
            return
        visible = [each.visible_at for each in page_diff.changes if each.visible_at is not None]
        self.telemetry.emit(
            ChangesStored(
                self.feed,
                Counter(each.kind for each in page_diff.changes),
                tuple(max(page.received_at - at, timedelta(0)) for at in visible),
                max(self.clocks.now() - page.received_at, timedelta(0)),
            )
        )

    def _report_unanswered(self) -> None:
        for (name, answer), count in self.compose.unanswered.items():
            is_first = (name, answer) not in self._unanswered
            self._unanswered.add((name, answer))
            self.telemetry.emit(NamedEventUnanswered(self.feed, name, answer, count, is_first=is_first))
        self.compose.unanswered.clear()

    # Runs -------------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def ending(self, run: Run) -> AsyncIterator[RunEnd]:
        """Let one run end at a time, and store in the body that it did.

        Afterwards the state is that which the run has left. What is not stored is not stated: the next run does it.
        """
        async with self._end:
            end = RunEnd(() if run.problem else self.gaps.find(await self.state(), run.silences))
            loads = self._loads
            try:
                yield end
            except BaseException:
                self._is_outdated = True
                raise
            if not run.problem:
                self.gaps.end_run(run.silences)
            if end.state is None or loads != self._loads:  # it may have been loaded since, and newer than this one
                self._is_outdated = True
                await self.reload()
            else:
                self._load(end.state)
