"""Divides the requests of a source over its feeds, by what their runs find and cost (docs/how-to/tune-freshness.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from typing import Final

from dockbell.core.model import Feed
from dockbell.core.planning.division import Division, Planned, divide, is_news, settle
from dockbell.core.planning.spreading import page_pace
from dockbell.core.planning.supply import SPAN, Background, BackgroundKind, Supply
from dockbell.core.running.budget import Load
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.schedule import Clocks
from dockbell.errors import StoreError
from dockbell.ports import Alarm
from dockbell.telemetry import IntervalPlanned, Telemetry

_EVERY: Final = timedelta(seconds=10)
_EVERY_MOST: Final = timedelta(minutes=5)
_EVERY_PART: Final = 2
"""A key is planned every ten seconds; where its shortest interval is above 20 s, twice in it: only runs bring news."""
_SAVE_EVERY: Final = timedelta(minutes=1)
_SAVE_AFTER_RUNS: Final = 10
"""A crash loses what so many runs taught, or those of a minute: that does not move an interval far."""
_HALF_LIFE: Final = timedelta(minutes=10)
"""The planner counts what it learned of unplanned requests half as much after this time."""
_SHRINK: Final = 0.8
_RECOVERY: Final = timedelta(minutes=5)
"""After a pause that the API asked for the budget is smaller by a fifth; half of that is given back in this time."""
_CAUTION_LEAST: Final = 0.01
_RECONCILE_PART: Final = 0.2
_PAGE_EVERY_MOST: Final = timedelta(seconds=5)
"""A cursor is not kept for longer than this, because nothing says how long the API knows it."""


class Planner:
    """Sets the intervals of the feeds of one source, which has an API key of its own.

    Attributes:
        division: The last one; None before the first.
    """

    def __init__(
        self,
        feeds: Callable[[], Collection[TrackedFeed]],
        read_load: Callable[[], Load],
        *,
        telemetry: Telemetry,
        clocks: Clocks,
    ) -> None:
        self.division: Division | None = None
        self._feeds = feeds
        self._read_load = read_load
        self._telemetry = telemetry
        self._clocks = clocks
        self._at: timedelta | None = None  # of the last division, by the steady clock
        self._load: Load | None = None
        self._beside = 0.0  # requests a second
        self._caution = 0.0  # the part by which the budget is smaller after pauses
        self._told: dict[Feed, timedelta] = {}
        self._saved_at: dict[Feed, timedelta] = {}  # when the plan was stored, or else first seen, by the steady clock

    async def run(self, alarm: Alarm) -> None:
        while True:
            try:
                await self.plan()
            except Exception as error:  # noqa: BLE001  # whatever it is, the feeds are read on as it was decided last
                self._telemetry.emit_failure("planner", error)
            alarm.ring_in(self._find_rest())
            await alarm.wait()

    def _find_rest(self) -> timedelta:
        intervals = () if self.division is None else self.division.intervals.values()
        return max(_EVERY, min(min(intervals, default=_EVERY) / _EVERY_PART, _EVERY_MOST))

    async def plan(self) -> None:
        """Divide anew, and have the feeds follow."""
        feeds = {feed.feed: feed for feed in self._feeds()}
        states = {name: await feed.state() for name, feed in feeds.items()}
        baselines = {name for name, state in states.items() if not state.passes or state.rebaselining}
        is_first_pass = any(feeds[name].schedule.is_passing for name in baselines)
        supply = self._find_supply(feeds.values(), is_first_pass=is_first_pass)
        demands = []
        for name, feed in feeds.items():
            every = feed.schedule.interval
            if every is not None and (feed.resource.polled or name not in baselines):
                demands.append(feed.workload.demand(states[name], feed.profile.lookback, every))
        current = {} if self.division is None else self.division.intervals
        self.division = settle(divide(supply.available, demands), current)
        for planned in self.division.feeds:
            await self._follow(feeds[planned.demand.feed], planned)
        for name, feed in feeds.items():
            feed.schedule.page_every = timedelta(0) if name in baselines else self._find_page_every(feed, supply)

    async def _follow(self, feed: TrackedFeed, planned: Planned) -> None:
        """Have a feed follow what was decided, tell of it where it is news, and store it."""
        if planned.interval != feed.schedule.interval:
            feed.schedule.set_interval(planned.interval)
        feed.workload.decide(planned)
        if is_news(planned.interval, self._told.get(feed.feed)):
            self._told[feed.feed] = planned.interval
            self._telemetry.emit(IntervalPlanned(feed.feed, planned.interval, planned.reason, planned.requests * 60))
        await self._save(feed, planned.interval)

    async def _save(self, feed: TrackedFeed, interval: timedelta) -> None:
        """Store what was learned of a feed, now and then, and a new interval at once."""
        now, plan, saved = self._clocks.steady(), feed.workload.plan, feed.workload.saved
        saved_at = self._saved_at.setdefault(feed.feed, now)
        save_every = max(_SAVE_EVERY, _SAVE_AFTER_RUNS * interval)
        if plan.every != saved.every or (plan != saved and now - saved_at >= save_every):
            with suppress(StoreError):  # the agents of the feed report it; the next division stores it
                await feed.store.save_plan(plan.to_json())
                feed.workload.saved, self._saved_at[feed.feed] = plan, now

    def _find_supply(self, feeds: Collection[TrackedFeed], *, is_first_pass: bool) -> Supply:
        now, load = self._clocks.steady(), self._read_load()
        if self._at is not None and self._load is not None and now > self._at:
            passed = now - self._at
            left = 0.5 ** (passed / _HALF_LIFE)
            self._beside = self._beside * left + (load.beside - self._load.beside) / passed.total_seconds() * (1 - left)
            self._caution *= 0.5 ** (passed / _RECOVERY)
            if self._caution < _CAUTION_LEAST:
                self._caution = 0.0
            if load.pauses > self._load.pauses:
                self._caution = 1 - (1 - self._caution) * _SHRINK
        self._at, self._load = now, load
        background = [
            Background(feed.feed, BackgroundKind.RECONCILE, _RECONCILE_PART * load.allowed / SPAN.total_seconds())
            for feed in feeds
            if feed.schedule.is_passing and (feed.resource.polled or feed.schedule.interval is None)
        ]
        if feeds:
            background.append(Background(next(iter(feeds)).feed, BackgroundKind.DETAIL, self._beside))
        return Supply(
            limit=max(1, int(load.limit * (1 - self._caution))),
            allowed=max(1, int(load.allowed * (1 - self._caution))),
            foreign=load.foreign,
            background=tuple(background),
            is_first_pass=is_first_pass,
        )

    def _find_page_every(self, feed: TrackedFeed, supply: Supply) -> timedelta:
        """Return how far apart the pages of a pass are asked for: it takes most of its interval.

        Reconciles share a fifth of the budget. A cursor is not kept for long.
        """
        if feed.resource.polled:
            reconciling = sum(each.schedule.is_passing for each in self._feeds() if each.resource.polled)
            every = timedelta(seconds=max(1, reconciling) / (_RECONCILE_PART * max(supply.total, supply.available)))
            if (life := feed.schedule.cursor_life) is not None:
                every = min(every, page_pace(feed.workload.pages, life, life))
        elif (pages := feed.workload.plan.cost.mean) is None or feed.schedule.interval is None:
            return timedelta(0)
        else:
            every = page_pace(pages, feed.schedule.interval, feed.schedule.cursor_life)
        return min(every, _PAGE_EVERY_MOST)
