"""The reading of one feed, which poller and reconciler share: its state, its turn, the judging of its pages.

The requests of a feed are serial: polls slip in between the pages of a pass, and between two tries of a page that does
not come, and each page is judged and committed before the next is asked for. So pages reach the store in the order in
which they were asked for, and no reading is ever compared with a later one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import anyio

from dockbell.config import ResourceSettings, find_taken
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.page_diff import Collision, PageDiff
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.document import decode
from dockbell.core.model import JSON, RESOURCES, ClockSource, Feed, Page, RunKind, Statement, Urgency, Via
from dockbell.core.moment import to_micros
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.named import read_named
from dockbell.core.publishing.statement import GapReason, HoldReason, gap, held, rebaselined
from dockbell.core.reading.anchor import Short, find_boundary, next_since
from dockbell.core.reading.lateness import MOST_LOOKBACK, Lateness
from dockbell.core.reading.listing_profile import Beside, ListingProfile
from dockbell.core.reading.page_limit import LIMITS, PageLimit
from dockbell.core.reading.page_sample import Head, Sampler, Sighting
from dockbell.core.reading.reach import BEHIND_MOST, BoundWindow, ages_to_try, bound_window
from dockbell.core.reading.read_settings import describe_read_settings, find_differences, keeps_records, keeps_shape
from dockbell.core.reading.shape import (
    Shape,
    ShapeUnknown,
    find_dates,
    is_own_id,
    learn_shape,
    learn_times,
)
from dockbell.core.reading.window import choose_lookback, covered_until, is_narrow
from dockbell.core.running.backoff import delay
from dockbell.core.running.timeline import Timeline
from dockbell.detection.lone_cursor import try_alone
from dockbell.detection.run import LIMIT_CHANGED, Walk
from dockbell.detection.turn import Turn
from dockbell.errors import (
    CursorExpired,
    DockbellError,
    PageUnreadable,
    RateLimited,
    RequestRefused,
    SchemaMismatch,
    SourceError,
    SourceRefused,
    SourceUnavailable,
    StoreError,
)
from dockbell.host.evaluator import SHARED, LimitedEvaluator
from dockbell.ports import Bell, BetweenTries, Checkpoint, Committed, FeedState, RunRecord, Source, Store
from dockbell.telemetry import (
    ChangesStored,
    FeedFails,
    FeedMended,
    HabitChanged,
    LookbackNarrow,
    NamedEventUnanswered,
    PageRead,
    RunEnded,
    Stated,
    Telemetry,
)

_RESTARTS_MOST: Final = 2
_JUST_GIVEN: Final = timedelta(minutes=1)
"""A cursor that is refused sooner than this is not too old."""
_ALONE_PAUSE: Final = timedelta(hours=1)
"""So long a cursor is not tried alone again that did not show the list it was given for."""
_ODD_TRIES: Final = 4
"""So often a page is asked for on which two records stand under one key."""
_ODD_PAUSE: Final = timedelta(seconds=0.5)

PROBE_PAUSE: Final = timedelta(minutes=1)
"""A feed that the operator must mend is tried again once a minute at the least."""
_REST_FIRST: Final = timedelta(seconds=5)
_REST_INTERVALS: Final = 3
"""A run that failed is followed by the next after so many intervals of the feed at most."""
_GRACE: Final = timedelta(minutes=1)
_UNPUNCTUAL: Final = timedelta(seconds=2)
"""The service tells its time in whole seconds: what is late by less may be in time."""
_INTERVALS_MOST: Final = 3
"""So many intervals without a complete run, and a minute, and dockbell was blind."""

_URGENCY: Final = {RunKind.POLL: Urgency.POLL, RunKind.TRAILING: Urgency.TRAILING, RunKind.PASS: Urgency.PASS}
_VIA: Final = {RunKind.POLL: Via.POLL, RunKind.TRAILING: Via.TRAILING, RunKind.PASS: Via.PASS}


_STARTS_MOST: Final = 3
_EVER_AFTER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class _Start:
    """What tells when a feed was first asked for.

    Attributes:
        asked_at: S of the first request; None before it.
        answers: What was learned of the records' clock.
        pages: The same, as they came.
    """

    asked_at: datetime | None = None
    answers: list[Short] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)

    def take(self, since: datetime, page: Page, dates: Sequence[datetime]) -> None:
        """Take in the answer to one request."""
        self.asked_at = self.asked_at or page.asked_at
        is_whole = page.next_cursor is None and len(page.records) < LIMITS[0]
        self.answers.append(Short(since, is_whole, dates))
        self.pages.append(page)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run came to.

    Attributes:
        run: Its record, as it is stored.
        walk: All that it found.
    """

    run: RunRecord
    walk: Walk


class Reader:
    """Reads one feed: learns its shape, walks its pages, commits each."""

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

        Args:
            feed: What is read.
            settings: How.
            name: The name of this dockbell.
            base_url: Where the API is.
            source: The API.
            store: Where it is kept.
            telemetry: Who hears of it.
            now: Our clock.
            steady: The time since some origin; it only goes forward, whatever is done to the clock.
            next_time: When something is due that happens at an interval or by a crontab line, and was done before.
        """
        self.feed = feed
        self.settings = settings
        self.resource = RESOURCES[feed.resource]
        self.source = source
        self.store = store
        self.telemetry = telemetry
        self.now = now
        self.steady = steady
        self.compose = Composer(
            feed,
            name=name,
            singular=self.resource.singular,
            epoch=store.epoch,
            named=read_named(settings.events),
            judge=LimitedEvaluator(SHARED).evaluate,
        )
        self.erasure = Erasure(settings.drop, store.epoch) if settings.drop else None
        """Takes out of records what is never stored; None where that is nothing."""
        self.awaited = Bell()
        """Rings when changes begin to wait for the details of their records."""
        self.clock: ClockSource | None = None
        self.asked_at: datetime | None = None
        """S of the last request; None before it."""
        self._ahead: timedelta | None = None  # how far the service's clock is ahead of ours
        self.wants_pass = False
        """A pass is to be made at once, whenever the next one is due."""
        self.call_for_pass: Callable[[], None] | None = None
        """Wakes the agent that makes passes; None while none waits."""
        self._base_url = base_url
        self._next_time = next_time
        self._turns = anyio.Lock()
        self._passes: set[SeenRows] = set()
        self._state: FeedState | None = None
        self._judge: ChangeDetector | None = None
        self._timeline = Timeline.begin(now(), steady())
        self._end = anyio.Lock()  # of complete runs, so that one states what it ends before another looks for it
        self._read_at: timedelta | None = None  # the last page of the last complete run, by the steady clock
        self._passed_at: timedelta | None = None  # the last pass before the process began, by the steady clock
        self._blind: GapReason | None = None
        self._sampler: Sampler | None = None
        self._listing_profile = ListingProfile()
        self._heads: dict[RunKind, Head] = {}
        self._limits: dict[RunKind, PageLimit] = {}
        self._lateness = Lateness()
        self._is_narrow = False
        self._found_aside: datetime | None = None
        self._is_gap_told = False
        self._is_key_doubted = False
        self._starts = 0  # searches for where the records' clock stands that found no answer
        self._due_at: datetime | None = None  # when the next run should ask, by the service's clock
        self._problems: dict[str, DockbellError] = {}  # by the agent that they stop
        self._failures = Counter[str]()  # in a row, by the agent that met them
        self._told_at: dict[str, timedelta] = {}  # problems, by the steady clock
        self._unanswered: set[tuple[str, str]] = set()
        self._given: dict[RunKind, tuple[str | None, float]] = {}  # the last cursor, and when, by the loop's clock
        self._alone_again_at = 0.0

    # State ------------------------------------------------------------------------------------------------------------

    async def state(self) -> FeedState:
        """Return what is stored about the feed."""
        if self._state is None:
            await self._open()
        assert self._state is not None
        return self._state

    async def reload(self) -> FeedState:
        """Read the feed's state from the store again, after it was changed there."""
        first = self._state is None
        self._state = await self.store.open_feed(self.feed)
        if first:
            self._lateness = self._state.lateness
            self._listing_profile = ListingProfile.from_json(self._state.listing_profile)
        if self._state.shape is not None:
            self._use(self._state.shape)
        return self._state

    @property
    def detector(self) -> ChangeDetector:
        """The judge of the feed's records, once their shape is known."""
        assert self._judge is not None
        return self._judge

    @property
    def lookback(self) -> timedelta:
        """How far before the watermark polls start now."""
        return choose_lookback(self.settings.lookback, self.clock, self._lateness.lookback(self.now()))

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

    @property
    def pass_schedule(self) -> timedelta | str:
        """When passes are made: an interval, or a crontab line."""
        return self.settings.reconcile or self.settings.schedule

    def next_pass(self, after: datetime) -> datetime:
        """Return when a pass is due after one that was made at a given time."""
        return self._next_time(self.pass_schedule, after)

    def learn_lateness(self, walk: Walk) -> Lateness | None:
        """Take in how late the changes of a run were; return what is to be stored, None where nothing is."""
        now, known, lookback = self.now(), self._lateness, self.lookback
        lateness = known.observe(walk.lateness, walk.on_time, now)
        if walk.tally.missed and any(lookback < late <= MOST_LOOKBACK for late in walk.lateness):
            lateness = lateness.miss(lookback, now)
        self._lateness = lateness
        setting = self.settings.lookback
        if setting != "auto" and is_narrow(setting, lateness.quantile(now)) and not self._is_narrow:
            self.telemetry.emit(LookbackNarrow(self.feed, setting, lateness.quantile(now)))
        self._is_narrow = setting != "auto" and is_narrow(setting, lateness.quantile(now))
        return None if lateness == known else lateness

    @property
    def precision(self) -> timedelta:
        """The unit in which the records' timestamps are whole."""
        return self._listing_profile.precision

    @property
    def service_now(self) -> datetime:
        """The service's time now, as far as its last answer told it."""
        offset = self._listing_profile.offset
        stored = timedelta(0) if offset is None else timedelta(seconds=offset.seconds)
        return self.now() + (stored if self._ahead is None else self._ahead)

    async def bound(self, since: datetime) -> BoundWindow:
        """Return from when a poll asks that would start at ``since``, as far back as the API allows."""
        state = await self.state()
        reach = self._listing_profile.reach
        now, behind = self.service_now, self._listing_profile.behind
        read = [now if state.progress.watermark is None else min(state.progress.watermark, now)]
        if state.full is not None and not state.held:  # a pass that showed too little has not read everything
            read.append(state.full.asked_at)
        return bound_window(
            since,
            None if reach is None else timedelta(seconds=reach),
            now=now,
            read_until=max(read),
            behind=BEHIND_MOST if behind is None else behind,
            lookback=self.lookback + self.precision,
        )

    async def learn_reach(self, refused: datetime) -> bool:
        """Find out whether the API refused a poll because of how old its start was; return whether it did.

        The youngest start is tried first: where that is refused too, the refusal has another reason. Then the refused
        one is tried again, because a refusal may pass; then ever younger ones, until one is accepted.
        """
        now = self.service_now
        ages = ages_to_try(now - refused)
        if not ages or not await self._is_accepted(now - ages[-1]) or await self._is_accepted(refused):
            return False
        for age in ages:
            if age == ages[-1] or await self._is_accepted(now - age):
                await self._adopt(await self.state(), *self._listing_profile.learn_reach(age))
                break
        return True

    async def _is_accepted(self, since: datetime) -> bool:
        async with Turn(self._turns):
            try:
                await self._ask_for_page(RunKind.POLL, since, None, 1)
            except RequestRefused:
                return False
            return True

    def request_pass(self) -> None:
        """Let a pass be made at once."""
        self.wants_pass = True
        if self.call_for_pass is not None:
            self.call_for_pass()

    async def note_problem(self, problem: DockbellError, agent: str) -> timedelta:
        """Tell and store what stops an agent of the feed; return for how long it is to rest.

        One odd answer costs little more than the run that met it: the rest begins short, and doubles with each failure
        in a row up to a few of the feed's own intervals. A refused key costs no requests: the client probes it.
        """
        self._problems[agent] = problem
        self._failures[agent] += 1
        rest = choose_rest(self._failures[agent], self.settings.every)
        words, now = str(problem), self.steady()
        if words not in self._told_at or now - self._told_at[words] >= PROBE_PAUSE:
            self._told_at[words] = now
            await self._save_problem(words, rest)
        return rest

    async def note_mended(self, agent: str) -> None:
        """Tell and store that an agent of the feed goes on; what stops other agents stays.

        A refusal of the key ends for all of them. A refused request says nothing of others: a pass that is accepted
        does not show that polls are.
        """
        del self._failures[agent]
        self._problems = {
            each: problem
            for each, problem in self._problems.items()
            if each != agent and (isinstance(problem, RequestRefused) or not isinstance(problem, SourceRefused))
        }
        left = next(map(str, self._problems.values()), "")
        if left != (await self.state()).problem:
            self._told_at.clear()
            await self._save_problem(left)

    async def _save_problem(self, problem: str, rest: timedelta | None = None) -> None:
        self.telemetry.emit(FeedFails(self.feed, problem, rest) if problem else FeedMended(self.feed))
        await self.store.save_problem((await self.state()).id, problem)
        await self.reload()

    async def publish(self, *statements: Statement) -> None:
        """State something about the feed."""
        await self.store.publish((await self.state()).id, statements, self.compose)
        self.tell(*statements)

    def tell(self, *statements: Statement) -> None:
        """Tell what was stated."""
        for statement in statements:
            self.telemetry.emit(Stated(statement))

    async def _open(self) -> None:
        """Load the state, and begin a new baseline where the feed is read differently now."""
        state = await self.reload()
        if state.blind:
            last = max((run.asked_at for run in (state.poll, state.full) if run is not None), default=None)
            now = self.now()
            await self.publish(gap(self.feed, now, began_at=last, ended_at=now, reason=GapReason.STORE_LOST))
            self._is_gap_told = True
            state = await self.reload()
        if await self.store.mark_dropped(state.id, self.settings.drop):
            state = await self.reload()
        read_settings = self._sign(state.shape)
        if parts := find_differences(state.read_settings, read_settings):
            statement = rebaselined(self.feed, self.now(), parts)
            signed = read_settings if keeps_shape(parts) else self._sign(None)
            await self.store.save_read_settings(state.id, signed, rebaseline=statement, compose=self.compose)
            if not keeps_records(parts):
                self._judge, self._listing_profile = None, ListingProfile()
            self.tell(statement)
            await self.reload()
        elif state.read_settings != read_settings:
            await self.store.save_read_settings(state.id, read_settings)
            await self.reload()

    def _sign(self, shape: Shape | None) -> dict[str, object]:
        settings = self.settings
        return describe_read_settings(
            base_url=self._base_url,
            key=settings.key or (None if shape is None else shape.key),
            updated_at=settings.updated_at or (None if shape is None else shape.updated_at),
            query=settings.query,
            expand=settings.expand,
            detail=settings.detail,
            ignore=settings.ignore,
            unordered=settings.unordered,
            drop=settings.drop,
        )

    # Runs -------------------------------------------------------------------------------------------------------------

    async def watch(self, seen: SeenRows | None = None) -> SeenRows:
        """Begin to note every stored row that any request of the feed shows from now on; end it by :meth:`unwatch`."""
        seen = seen or SeenRows(await self.store.last_row((await self.state()).id))
        self._passes.add(seen)
        return seen

    def unwatch(self, seen: SeenRows) -> None:
        """Stop noting rows."""
        self._passes.discard(seen)

    async def begin(self, kind: RunKind) -> Walk:
        """Return a run that has read nothing yet."""
        state = await self.state()
        rows = SeenRows(await self.store.last_row(state.id))
        level = self._limits.get(kind, PageLimit()).begins_at
        return Walk(kind, rows, began_at=self.now(), forgiven=state.quarantined, level=level)

    async def read_run(
        self,
        kind: RunKind,
        *,
        since: datetime | None = None,
        walk: Walk | None = None,
        save: Callable[[Checkpoint], Awaitable[None]] | None = None,
        anchor: str = "",
    ) -> RunReport:
        """Read a run to its end, beginning again where the API has forgotten a cursor.

        Args:
            kind: Poll, trailing poll or pass.
            since: The ``updated_since`` of a poll.
            walk: A pass that goes on.
            save: Stores how far a pass has come.
            anchor: The key of a record that a poll must show; empty for none.

        Raises:
            SourceRefused: The key is not accepted; :class:`RequestRefused`: the request as such is not.
            SchemaMismatch: The records cannot be told apart, or there are none where they should be.
        """
        began = anyio.current_time()
        walk = walk or await self.begin(kind)
        walk.page_most, walk.anchor = self._listing_profile.page_most, anchor
        read_page = partial(self._read_next, kind, since, walk)
        await walk.go(read_page, save)
        restarts = 0
        # Each time it begins again for its limit, that is a smaller one: that comes to an end by itself.
        refused_at: set[int | None] = {None}  # what is refused at the same page twice will be a third time
        while walk.problem == LIMIT_CHANGED or (
            walk.is_cursor_lost
            and restarts < _RESTARTS_MOST
            and (walk.refused_at is None or walk.refused_at not in refused_at)
        ):
            restarts += walk.is_cursor_lost
            refused_at.add(walk.refused_at)
            walk.begin_again(await self.store.last_row((await self.state()).id))
            await walk.go(read_page, save)
        self._limits[kind] = self._limits.get(kind, PageLimit()).end_run(walk.needed, complete=not walk.problem)
        if walk.is_colliding and not self.settings.key:
            raise self.doubt_key(walk)
        await self._adopt(
            await self.state(),
            *self._listing_profile.end_run(pages=walk.pages, repeated=walk.tally.repeated, complete=not walk.problem),
        )
        if walk.cause is not None:
            self._blind = GapReason.NO_BUDGET if isinstance(walk.cause, RateLimited) else GapReason.UNAVAILABLE
        ended_at = self.now()
        run = RunRecord(
            kind,
            walk.asked_at or ended_at,
            since,
            ended_at,
            pages=walk.pages,
            records=walk.records,
            events=walk.events,
            problem=walk.problem,
            tally=walk.tally,
            sent_at=walk.sent_at,
        )
        elapsed = timedelta(seconds=anyio.current_time() - began)
        self.telemetry.emit(
            RunEnded(
                self.feed,
                kind,
                walk.pages,
                walk.records,
                walk.events,
                elapsed,
                walk.problem,
                walk.asked_at,
                self._judge_lateness(kind, walk.asked_at),
                walk.tally,
                walk.sent_at,
            )
        )
        return RunReport(run, walk)

    def _judge_lateness(self, kind: RunKind, asked_at: datetime | None) -> bool | None:
        """Return whether a run asked later than the feed's schedule says; None where it says nothing of it."""
        if asked_at is None or kind is not (RunKind.POLL if self.resource.polled else RunKind.PASS):
            return None
        due_at, every = self._due_at, self._next_time(self.settings.schedule, asked_at) - asked_at
        self._due_at = asked_at + every
        return None if due_at is None else asked_at > due_at + max(_UNPUNCTUAL, every / 10)

    async def _read_next(
        self, kind: RunKind, since: datetime | None, walk: Walk, cursor: str | None, limit: int
    ) -> tuple[Page, Committed | None]:
        if self.is_provisional and walk.is_colliding:  # the more is read, the more is published that is wrong
            raise self.doubt_key(walk)
        asked = self.steady()
        page, committed = await self.read_page(kind, since, cursor, limit)
        if self.steady() - asked > _GRACE and self._blind is None:
            self._blind = GapReason.UNAVAILABLE  # where that makes a gap, dockbell was not down
        await self._hear(walk, page)
        events = walk.events + (0 if committed is None else committed.events)
        records = walk.records + len(page.records)
        began_at = walk.began_at or page.received_at
        self.telemetry.emit(PageRead(self.feed, kind, began_at, walk.pages + 1, records, events))
        return page, committed

    async def read_page(
        self, kind: RunKind, since: datetime | None, cursor: str | None, limit: int
    ) -> tuple[Page, Committed | None]:
        """Read and commit one page; None for a page without records before any were seen.

        A page on which two records stand under one key is asked for again: most often it is odd once.
        """
        for attempt in range(1, _ODD_TRIES):
            with suppress(Collision):
                return await self._read_page(kind, since, cursor, limit, may_ask_again=True)
            jitter = random.random()  # noqa: S311  # no secret
            await anyio.sleep(delay(attempt, base=_ODD_PAUSE, cap=4 * _ODD_PAUSE, jitter=jitter).total_seconds())
        try:
            return await self._read_page(kind, since, cursor, limit, may_ask_again=False)
        except Collision as error:
            self._is_key_doubted = True
            raise SchemaMismatch(
                f'resource "{self.feed.resource}": {error}, so {self._name_key()} does not tell records apart;'
                f" set key in [resources.{self.feed.resource}]"
            ) from error

    async def _read_page(
        self, kind: RunKind, since: datetime | None, cursor: str | None, limit: int, *, may_ask_again: bool
    ) -> tuple[Page, Committed | None]:
        """Read and commit one page in the feed's turn, which other runs may have between two tries of the request.

        The store calls the judge inside of the transaction that writes what it decides.
        """
        async with Turn(self._turns) as turn:
            start = await self._find_start() if (await self.state()).first_asked_at is None else None
            # What a feed is first asked for belongs together, so that no other run may come in between.
            between_tries = turn.lent if start is None else nullcontext
            page = await self._ask_for_page(kind, since, cursor, limit, between_tries)
            self.clock, self.asked_at = page.clock, page.asked_at
            self._ahead = page.answered_at - page.received_at
            if start is not None:
                await self._begin(start, page)
            state = await self.state()
            if state.shape is None:
                if not page.records:
                    return page, None
                state = await self._learn(state, page)
            else:
                state = await self._learn_times(state, page)
            reading = replace(self._reading(kind, state), may_ask_again=may_ask_again)
            committed = await self._commit(state, page, reading)
            for seen in self._passes:
                seen.add(committed.page_diff.seen)
            oldest = committed.page_diff.oldest_unseen
            if kind is not RunKind.POLL and oldest is not None:
                self._found_aside = min(self._found_aside or oldest, oldest)
            await self._observe(kind, page, committed, state, is_first=cursor is None)
            for (name, answer), count in self.compose.unanswered.items():
                is_first = (name, answer) not in self._unanswered
                self._unanswered.add((name, answer))
                self.telemetry.emit(NamedEventUnanswered(self.feed, name, answer, count, is_first=is_first))
            self.compose.unanswered.clear()
            return page, committed

    async def _commit(self, state: FeedState, page: Page, reading: ReadContext) -> Committed:
        """Judge a page and store what it comes to."""
        committed = await self.store.commit_page(
            state.id,
            partial(self.detector.detect, page, reading),
            self.compose,
            via=reading.via,
            announce=partial(self._announce, self.now()),
        )
        self._tell_changes(page, committed.page_diff)
        if committed.page_diff.pending:
            self.awaited.ring()
        if committed.statement is not None:  # drift was found
            self.tell(committed.statement)
            await self.reload()
        return committed

    async def _find_start(self) -> _Start:
        """Return when the feed is first asked for, by the service's clock and by that of its records.

        An API that does not answer is asked again with the next run, a few times; then the service's clock must do.
        """
        start = _Start()
        while self.resource.polled:
            # Until an answer has told the service's time, ours must do.
            since = next_since(start.asked_at or self.now(), start.answers)
            if since is None:
                break
            try:
                page = await self._ask_for_page(RunKind.PASS, since, None, LIMITS[0])
            except SourceError as error:
                # What is refused or unreadable is so for the pass as well; no answer may be one the next time.
                self._starts += 1
                if type(error) is SourceUnavailable and self._starts <= _STARTS_MOST:
                    raise
                break
            start.take(since, page, find_dates(_decode_sound(page.records), updated_at=self.settings.updated_at))
        return start

    async def _begin(self, start: _Start, page: Page) -> None:
        """Store when the feed was first asked for; before it, what was found to be dated later than that."""
        state = await self.state()
        asked_at = start.asked_at or page.asked_at
        boundary, number = (None, None) if start.asked_at is None else find_boundary(start.asked_at, start.answers)
        if number is not None:
            known = start.pages[number]
            asked_at = known.asked_at  # what it shows was there
            if state.shape is None:
                state = await self._learn(state, page if page.records else known)
            # All of it was there: no date of it is news.
            reading = replace(self._reading(RunKind.PASS, state, _EVER_AFTER), boundary=_EVER_AFTER)
            await self._commit(state, known, reading)
        await self.store.begin_feed(state.id, asked_at, boundary)
        await self.reload()

    async def _ask_for_page(
        self,
        kind: RunKind,
        since: datetime | None,
        cursor: str | None,
        limit: int,
        between_tries: BetweenTries = nullcontext,
    ) -> Page:
        """Return a page without what is never stored."""
        state = await self.state()
        self._check_drop(state)
        beside = self._listing_profile.beside_cursor
        if cursor is not None and beside is not Beside.FILTERS:
            page = await self._ask(kind, since, cursor, limit, between_tries, beside=beside)
            await self._check_alone(state, page, since)
        else:
            try:
                page = await self._ask(kind, since, cursor, limit, between_tries)
            except CursorExpired as error:
                page = await self._ask_alone(kind, since, cursor, limit, refused=error)
        self._given[kind] = page.next_cursor, anyio.current_time()
        return page if self.erasure is None else replace(page, records=self.erasure.page(page.records))

    async def _ask(
        self,
        kind: RunKind,
        since: datetime | None,
        cursor: str | None,
        limit: int,
        between_tries: BetweenTries = nullcontext,
        *,
        beside: Beside = Beside.FILTERS,
    ) -> Page:
        """Ask for a page with the filters of its list; or by the cursor alone."""
        filters = beside is Beside.FILTERS
        return await self.source.read_page(
            self.feed.resource,
            cursor=cursor,
            updated_since=since if filters else None,
            limit=None if beside is Beside.NOTHING else limit,
            query=self.settings.query if filters else {},
            expand=self.settings.expand if filters else (),
            urgency=_URGENCY[kind],
            between_tries=between_tries,
        )

    async def _ask_alone(
        self, kind: RunKind, since: datetime | None, cursor: str | None, limit: int, *, refused: CursorExpired
    ) -> Page:
        """Return the page of a cursor that was refused as soon as it was given, where it is shown alone.

        Raises:
            CursorExpired: It is not, or shows another list.
        """
        has_filters = since is not None or self.settings.query or self.settings.expand
        given, at = self._given.get(kind, (None, 0.0))
        now = anyio.current_time()
        is_new = cursor == given and now - at < _JUST_GIVEN.total_seconds() and now >= self._alone_again_at
        if cursor is None or not (refused.is_refusal and is_new):
            raise refused
        company = (Beside.LIMIT, Beside.NOTHING) if has_filters else (Beside.NOTHING,)
        found = await try_alone(partial(self._ask, kind, since), cursor, limit, company)
        if found is None:
            self._alone_again_at = now + _ALONE_PAUSE.total_seconds()
            raise refused
        page, beside = found
        state = await self.state()
        await self._check_alone(state, page, since)
        await self._adopt(state, *self._listing_profile.turn_beside_cursor(beside))
        return page

    async def _check_alone(self, state: FeedState, page: Page, since: datetime | None) -> None:
        """Refuse a page that was asked for by its cursor alone, where the API has forgotten the filter meanwhile.

        Raises:
            CursorExpired: It shows records from before ``updated_since``.
        """
        sampler = self._sampler
        if sampler is None or since is None:
            return
        if any(updated < to_micros(since) for updated in sampler.updated(page.records)):
            self._alone_again_at = anyio.current_time() + _ALONE_PAUSE.total_seconds()
            if self._listing_profile.beside_cursor is not Beside.FILTERS:
                await self._adopt(state, *self._listing_profile.turn_beside_cursor(Beside.FILTERS))
            raise CursorExpired(
                f"GET {self.resource.path}: the cursor is refused beside updated_since, and alone it shows records"
                " from before"
            )

    def _check_drop(self, state: FeedState) -> None:
        """Refuse to take away what was learned to tell records apart, or to date them.

        Raises:
            SchemaMismatch: ``drop`` would.
        """
        shape, settings = state.shape, self.settings
        if shape is None or self.erasure is None:
            return
        for place in (*(settings.key or shape.key), settings.updated_at or shape.updated_at, shape.created_at):
            if place is not None and (taken := find_taken(settings.drop, place)) is not None:
                raise SchemaMismatch(
                    f'resource "{self.feed.resource}": records are told apart or dated by {place}, got'
                    f' drop = ["{taken}"]; remove it in [resources.{self.feed.resource}]'
                )

    def _tell_changes(self, page: Page, page_diff: PageDiff) -> None:
        if not page_diff.changes:
            return
        dates = [each.modified_at for each in page_diff.changes if each.made_at is not None]
        self.telemetry.emit(
            ChangesStored(
                self.feed,
                Counter(each.kind for each in page_diff.changes),
                tuple(max(page.answered_at - at, timedelta(0)) for at in dates if at is not None),
                max(self.now() - page.received_at, timedelta(0)),
            )
        )

    async def look_up(self, body: bytes, urgency: Urgency = Urgency.DETAIL) -> bool | None:
        """Ask for a stored shipment by itself; return whether it is there, None where the answer does not tell."""
        key = self.detector.identify(body)
        try:
            raw = await self.source.read_shipment(str(key.id), urgency=urgency)
        except (PageUnreadable, SchemaMismatch):
            return None
        if raw is None:
            return False
        return True if self.detector.shows(raw, key) else None

    def doubt_key(self, walk: Walk) -> SchemaMismatch:
        """Return the error of a learned key that seems to stand for different records."""
        self._is_key_doubted = True
        return SchemaMismatch(
            f'resource "{self.feed.resource}": {walk.collisions} of {walk.records} records came twice with different'
            f" content under one key, so {self._name_key()} does not tell them apart; set key in"
            f" [resources.{self.feed.resource}]"
        )

    @asynccontextmanager
    async def ending(self, report: RunReport) -> AsyncIterator[tuple[Statement, ...]]:
        """Let one run end at a time, and store in the body that it did; yield the gap that it ends, if it is complete.

        What is not stored is not stated: the next run does it.
        """
        async with self._end:
            if report.run.problem:
                yield ()
                return
            state = await self.reload()
            yield self._find_gap(state, report.walk)
            self._blind, self._is_gap_told = None, False
            read_at = report.walk.silences.heard
            self._read_at = max((at for at in (self._read_at, read_at) if at is not None), default=None)

    def _find_gap(self, state: FeedState, walk: Walk) -> tuple[Statement, ...]:
        """Return what is to be stated where a complete run ends a time in which nothing was seen."""
        last = max((run.asked_at for run in (state.poll, state.full) if run is not None), default=None)
        if last is None or self._read_at is None or self._is_gap_told:
            return ()
        ended_at = walk.silences.find_long(self._read_at, self._is_blind)
        if ended_at is None:
            return ()
        reason = self._blind or GapReason.DOWN
        return (gap(self.feed, self.now(), began_at=min(last, ended_at), ended_at=ended_at, reason=reason),)

    def _is_blind(self, since: timedelta, until: timedelta) -> bool:
        """Return whether dockbell was blind where nothing was read between two times of the steady clock."""
        began = due = self.now() - (self.steady() - since)
        for _ in range(_INTERVALS_MOST):
            due = self._next_time(self.settings.schedule, due)
        return until - since > due - began + _GRACE

    async def _hear(self, walk: Walk, page: Page) -> None:
        """Take in when a page was answered."""
        now = self.steady()
        self._timeline.look(self.now(), now)
        walk.silences.hear(now, page.asked_at, page.answered_at)
        if self._read_at is None:  # since the process began: of what another has read the service's clock tells
            state = await self.state()
            read = [run.read_until for run in (state.poll, state.full) if run is not None]
            if state.full is not None:
                self._passed_at = now - max(page.answered_at - state.full.read_until, timedelta(0))
            if read:
                self._read_at = now - max(page.answered_at - max(read), timedelta(0))

    def age(self, noted: datetime) -> timedelta:
        """Return how long ago our clock showed a time, whatever it was set to meanwhile."""
        self._timeline.look(self.now(), self.steady())
        return self._timeline.age(noted)

    def knows(self, noted: datetime) -> bool:
        """Return whether a time of our clock is of this process, so that :meth:`age` is right."""
        return self._timeline.knows(noted)

    def age_of_suspicion(self, noted: datetime) -> timedelta:
        """Return how long ago a pass suspected an absence; of one of an earlier process, how long ago at the least."""
        if self.knows(noted):
            return self.age(noted)
        return timedelta(0) if self._passed_at is None else self.steady() - self._passed_at

    @property
    def found_aside(self) -> datetime | None:
        """The oldest timestamp that other runs than polls met unseen since :meth:`take_found_aside`."""
        return self._found_aside

    def take_found_aside(self) -> datetime | None:
        """Return the oldest timestamp that other runs than polls met unseen since this was asked, as if polls had."""
        oldest, self._found_aside = self._found_aside, None
        return oldest

    def blame(self, error: DockbellError) -> None:
        """Remember why nothing could be seen."""
        if isinstance(error, StoreError):
            self._blind = GapReason.STORE_UNAVAILABLE
        else:
            self._blind = GapReason.REFUSED if isinstance(error, SourceRefused) else GapReason.UNAVAILABLE

    async def _observe(
        self, kind: RunKind, page: Page, committed: Committed, state: FeedState, *, is_first: bool
    ) -> None:
        """Take in how the listing behaves, and tell where it no longer does as it did."""
        assert self._sampler is not None
        dates = committed.page_diff.dates
        before = None if is_first else self._heads.get(kind)
        sighting = Sighting(self._sampler, list(dates), list(dates.values()), kind is not RunKind.PASS, before)
        self._heads[kind] = sighting.head
        await self._adopt(state, *self._listing_profile.observe(page, sighting))

    async def _adopt(self, state: FeedState, listing_profile: ListingProfile, drifts: Sequence[str]) -> None:
        if listing_profile is not self._listing_profile:
            self._listing_profile = listing_profile
            await self.store.save_listing_profile(state.id, listing_profile.to_json())
        for words in drifts:
            self.telemetry.emit(HabitChanged(self.feed, words))

    def _name_key(self) -> str:
        shape = None if self._state is None else self._state.shape
        return "the learned key" if shape is None else " with ".join(shape.key)

    def _announce(self, now: datetime, page_diff: PageDiff) -> Statement | None:
        """Return what is to be stated with a page: the drift that it shows for the first time."""
        drift = page_diff.drift
        if drift is None:
            return None
        count, paths = page_diff.drifted, sorted(drift.paths)
        return held(self.feed, now, reason=HoldReason.DRIFT, count=count, since=now, paths=paths)

    def _reading(self, kind: RunKind, state: FeedState, first_asked_at: datetime | None = None) -> ReadContext:
        first_asked_at = first_asked_at or state.first_asked_at
        assert first_asked_at is not None
        baseline = state.passes == 0
        # Once snapshots were published, what they state is known to others: from then on a difference is a change.
        is_emitting = self.is_provisional and state.emitted is not None
        provisional = self.is_withholding and not is_emitting
        poll = state.poll
        if self.resource.polled:
            # What the feed showed before it was read differently, these polls have not covered.
            unknown = state.progress.watermark is None or state.rebaselining
            covered = None if unknown else covered_until(state.progress)
        else:
            covered = None if state.full is None else state.full.asked_at
        proven = state.progress.watermark
        if poll is not None and proven is not None:
            proven = min(proven, poll.asked_at)
        waits = kind is RunKind.POLL or covered is None or baseline or not self.resource.polled
        return ReadContext(
            Via.FIRST_PASS if kind is RunKind.PASS and baseline else _VIA[kind],
            first_asked_at,
            boundary=state.boundary,
            baseline=baseline,
            settling=state.passes == 1,
            emit=self.settings.first_pass == "emit" and not (state.rebaselining or is_emitting),
            provisional=provisional,
            rebaselining=state.rebaselining,
            last_poll=None if poll is None or poll.since is None or proven is None else (poll.since, proven),
            last_pass=None if state.full is None else state.full.asked_at,
            is_pass_whole=state.full is not None and state.full.tally.repeated == 0 and not state.held,
            skew=None if self._listing_profile.skew is None else timedelta(seconds=self._listing_profile.skew),
            precision=self.precision,
            covered_until=covered,
            polled_from=None if waits or covered is None else covered - self.lookback,
            stale_window=timedelta(0) if provisional else self.settings.stale_window,
            drift=state.drift,
        )

    async def _learn(self, state: FeedState, page: Page) -> FeedState:
        try:
            shape = learn_shape(
                self.resource.singular,
                _decode_sound(page.records),
                key=self.settings.key,
                updated_at=self.settings.updated_at,
            )
        except ShapeUnknown as error:
            raise SchemaMismatch(
                f'resource "{self.feed.resource}": {error}; set key in [resources.{self.feed.resource}]'
            ) from error
        await self.store.save_shape(state.id, shape, proven=self.settings.key is not None)
        await self.store.save_read_settings(state.id, self._sign(shape))
        return await self.reload()

    async def _learn_times(self, state: FeedState, page: Page) -> FeedState:
        """Take in where the records are dated, if a page shows it and none before did.

        What is stored was compared with the timestamp as content. Both sides of a comparison are brought to the form of
        today, so that this makes no change of any record.
        """
        shape = state.shape
        assert shape is not None
        if self.settings.updated_at or shape.updated_at:
            return state
        learned = learn_times(shape, page.records)
        if learned == shape:
            return state
        await self.store.save_shape(state.id, learned, proven=False)
        await self.store.save_read_settings(state.id, self._sign(learned))
        self.telemetry.emit(HabitChanged(self.feed, f"records are dated by {learned.updated_at}"))
        return await self.reload()

    def _use(self, shape: Shape) -> None:
        settings = self.settings
        updated_at = settings.updated_at or shape.updated_at
        self._sampler = Sampler(key=settings.key or shape.key, updated_at=updated_at, created_at=shape.created_at)
        self._judge = ChangeDetector(
            self.feed,
            key=settings.key or shape.key,
            updated_at=updated_at,
            created_at=shape.created_at,
            # What is dropped is ignored too: what is stored may still hold it.
            canon=Canon(ignore=(*settings.ignore, *settings.drop), unordered=settings.unordered, updated_at=updated_at),
            learned=settings.key is None,
            detail=settings.detail,
            touch=settings.touch,
            clean=None if self.erasure is None else self.erasure.record,
        )


def choose_rest(failures: int, every: timedelta | None) -> timedelta:
    """Return for how long an agent rests that has failed so often in a row.

    Args:
        failures: How often, at least once.
        every: The interval of its feed; None where a crontab line says when.
    """
    most = PROBE_PAUSE if every is None else min(PROBE_PAUSE, every * _REST_INTERVALS)
    return min(_REST_FIRST * (1 << min(failures - 1, 10)), most)


def _decode_sound(records: Sequence[bytes]) -> list[JSON]:
    """Return the records that can be read; the judge puts the others in quarantine."""
    documents = []
    for raw in records:
        with suppress(ValueError):
            documents.append(decode(raw))
    return documents
