"""The agents of one source: a source is loaded, works and ends by itself, whatever the others do."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack, closing
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from dockbell.app import opening
from dockbell.app.agent_task import AgentTask
from dockbell.app.next_time import next_time
from dockbell.app.scheduler import Alarm, Scheduler
from dockbell.config import ResourceSettings
from dockbell.config.tables import SourceSettings
from dockbell.core.model import Feed
from dockbell.detection.detail_fetcher import DetailFetcher
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.planner import Planner
from dockbell.detection.poller import Poller
from dockbell.detection.reconciler import Reconciler
from dockbell.detection.schedule import Clocks
from dockbell.detection.signal import Signal, find_signals
from dockbell.host import system
from dockbell.ports import Store
from dockbell.telemetry import Telemetry

if TYPE_CHECKING:
    from dockbell.sources import InventoryClient
    from dockbell.sources.key_budget import KeyBudget


_LEAD: Final = timedelta(seconds=2)
"""So long before it is due a source must work: to load it takes time."""


class FeedAgents(msgspec.Struct, frozen=True):
    """The agents of one feed, which share its state."""

    tracked: TrackedFeed
    reconciler: Reconciler
    poller: Poller | None = None  # None: the API does not show what was modified since a time
    detail_fetcher: DetailFetcher | None = None  # None: its records cannot be asked for one by one

    @classmethod
    def of(cls, tracked: TrackedFeed) -> FeedAgents:
        return cls(
            tracked,
            Reconciler(tracked),
            Poller(tracked) if tracked.resource.polled else None,
            DetailFetcher(tracked) if tracked.resource.addressable else None,
        )

    async def run(self, scheduler: Scheduler) -> None:
        """Let them work until cancelled."""
        with ExitStack() as stack:

            def alarm() -> Alarm:
                return stack.enter_context(closing(scheduler.alarm()))

            async with anyio.create_task_group() as group:
                if self.poller is not None:
                    group.start_soon(self.poller.run, alarm())
                    stack.enter_context(self.poller.trailing.working_in(group))
                if self.detail_fetcher is not None:
                    stack.enter_context(self.reconciler.absence_check.task.working_in(group))
                    stack.enter_context(self.detail_fetcher.task.working_in(group))
                await self.reconciler.run(alarm())


class KeyPlanning:
    """Divides the budget of one API key over the feeds of all sources that have it.

    Attributes:
        sources: Those that have the key.
        first: The name of the first of them.
        budget: Of the key.
        planner: Works from the first source that is started until the last is ended.
    """

    def __init__(self, budget: KeyBudget, *, first: str, telemetry: Telemetry) -> None:
        self.sources: list[SourceAgents] = []
        self.first = first
        self.budget = budget
        self.planner = Planner(
            lambda: [agents.tracked for source in self.sources for agents in source.feeds.values()],
            lambda: budget.load,
            telemetry=telemetry,
            clocks=Clocks(opening.now, system.elapsed),
        )
        self._task: AgentTask | None = None

    def start(self, group: TaskGroup, scheduler: Scheduler) -> None:
        """Let the planner work, if it does not yet."""
        if self._task is None:
            self._task = AgentTask(group, partial(self._plan, scheduler))

    async def end_idle(self) -> None:
        """End the planner where no feed is left whose agents work."""
        if self._task is not None and not any(source.is_working for source in self.sources):
            task, self._task = self._task, None
            await task.end()

    async def _plan(self, scheduler: Scheduler) -> None:
        with closing(scheduler.alarm()) as alarm:
            await self.planner.run(alarm)


class SourceAgents:
    """One source: its client and, as they are loaded, the agents of its feeds.

    To take it from another process is to :meth:`load` and :meth:`start` it, to hand it over is to :meth:`end` it:
    opening a feed in the store takes the feed's lease, and every commit names it.

    Attributes:
        settings: How the API is reached, without what is said of single resources.
        client: Asks the API; it is closed after the end of the source.
        wanted: The configured feeds, and how each is read.
        feeds: The agents of the feeds that are loaded.
        due_at: When it may be due, by the steady clock; None where nothing tells, so that it is loaded at once.
        planning: Divides the budget of its API key; shared by all sources with this key.
        due_in: Of a source that another process had: when it may be due, see :class:`~dockbell.ports.Claim`.
    """

    def __init__(
        self,
        settings: SourceSettings,
        client: InventoryClient,
        planning: KeyPlanning,
        *,
        name: str,
        store: Store,
        telemetry: Telemetry,
        due_in: timedelta | None = None,
    ) -> None:
        self.settings = settings
        self.client = client
        self.wanted: dict[Feed, ResourceSettings] = {}
        self.feeds: dict[Feed, FeedAgents] = {}
        self._name = name
        self._store = store
        self._telemetry = telemetry
        self._tasks: dict[Feed, AgentTask] = {}
        self.planning = planning
        planning.sources.append(self)
        self.due_at = None if due_in is None else system.elapsed() + due_in
        self._signals: dict[Signal, AgentTask] = {}

    @property
    def is_working(self) -> bool:
        return bool(self._tasks)

    @property
    def is_started(self) -> bool:
        """Whether the agents of all wanted feeds work; a paused source has none."""
        return self.settings.paused or self.wanted.keys() <= self._tasks.keys()

    @property
    def due_in(self) -> timedelta:
        """After which time it must work; zero where nothing tells, negative where it should work already."""
        return timedelta(0) if self.due_at is None else self.due_at - system.elapsed() - _LEAD

    @property
    def is_due(self) -> bool:
        """Whether it is due, or nearly, by what another process has done with it."""
        return self.due_at is not None and self.due_in <= timedelta(0)

    async def load(self) -> None:
        """Make the agents of the wanted feeds that are not loaded, each as soon as its state is read.

        A paused source has none: no request is made, and what is owed of its events is delivered without them.

        Raises:
            StoreError: The store cannot be read or written; what is loaded stays, and the rest can be loaded again.
        """
        for feed, settings in self.wanted.items():
            if feed in self.feeds or self.settings.paused:
                continue
            tracked = TrackedFeed(
                feed,
                settings,
                name=self._name,
                source=self.client,
                base_url=self.settings.base_url,
                store=self._store,
                telemetry=self._telemetry,
                now=opening.now,
                steady=system.elapsed,
                next_time=next_time,
            )
            await tracked.state()
            self.feeds[feed] = FeedAgents.of(tracked)

    def start(self, group: TaskGroup, scheduler: Scheduler) -> None:
        """Let the agents that are loaded work, those that do not yet."""
        for feed, agents in self.feeds.items():
            if feed not in self._tasks:
                self._tasks[feed] = AgentTask(group, partial(agents.run, scheduler))
        known = {signal.pair for signal in self._signals}
        for signal in find_signals({feed.resource: agents.tracked for feed, agents in self.feeds.items()}):
            if signal.pair not in known:
                signal.attach()
                self._signals[signal] = AgentTask(group, signal.run)
        if self._tasks:
            self.planning.start(group, scheduler)

    async def end(self, feeds: Collection[Feed] | None = None) -> None:
        """End the work of some feeds, of all by default, and forget their agents; the client stays open."""
        ending = [feed for feed in self.feeds if feeds is None or feed in feeds]
        resources = {feed.resource for feed in ending}
        for signal in [each for each in self._signals if {each.pair.carrier, each.pair.target} & resources]:
            await self._signals.pop(signal).end()
            signal.detach()
        async with anyio.create_task_group() as group:
            for feed in ending:
                if feed in self._tasks:
                    group.start_soon(self._tasks.pop(feed).end)
        for feed in ending:
            del self.feeds[feed]
        await self.planning.end_idle()

    async def leave(self) -> None:
        """Close the client after the end of the source, which has no part in the plan any more."""
        self.planning.sources.remove(self)
        await self.client.aclose()
