"""Whether the budget of each source suffices for its feeds, and with what delay; with other settings too.

The plan is that of a steady day: first passes are over, others take of the key what ``share`` leaves them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from dockbell.admin.delays import FeedDelays, load_delays
from dockbell.admin.plan_options import Setup
from dockbell.admin.status import find_lookback, has_dates
from dockbell.config import FeedSettings, ResourceSettings, SourceSettings, format_duration
from dockbell.core.delays import Delay, summarise
from dockbell.core.model import RESOURCES, ClockSource, Feed
from dockbell.core.planning.costs import Cost, pass_cost, poll_cost
from dockbell.core.planning.demand import Demand
from dockbell.core.planning.division import Division, Planned, divide
from dockbell.core.planning.forecast import FeedForecast, Forecast, advise, explain, find_floor, forecast, per_minute
from dockbell.core.planning.rates import Rate
from dockbell.core.planning.stored_plan import StoredPlan
from dockbell.core.planning.supply import Background, BackgroundKind, Supply
from dockbell.core.reading.window import choose_lookback, trailing_every, trailing_lookback
from dockbell.core.running.budget import Budget
from dockbell.ports import FeedState, ReadStore

NextTime = Callable[[timedelta | str, datetime], datetime]

_ASSUMED_RECORDS: Final = {"warehouses": 100}
_ASSUMED_MANY: Final = 10_000
_ROUNDS: Final = 5  # the cost of a poll that was never made depends on its interval, which depends on the cost
_TIMES: Final = 20  # of a crontab line, to know how often it comes
_REMEDIES: Final = {
    BackgroundKind.DETAIL: "remove detail",
    BackgroundKind.TRAILING: "shorten lookback",
    BackgroundKind.RECONCILE: "raise reconcile",
    BackgroundKind.CONFIRM: "raise confirm_after",
    BackgroundKind.CRON: "run cron less often",
}


class Origin(StrEnum):
    """Where a figure is from."""

    LEARNED = "learned"  # by the runs of the daemon
    COUNTED = "counted"  # of the stored records
    GIVEN = "given"
    ASSUMED = "assumed"


# What is known -------------------------------------------------------------------------------------------------------


class FeedFacts(msgspec.Struct, frozen=True):
    """What is known of a feed."""

    plan: StoredPlan
    records: int
    records_from: Origin
    lookback: timedelta
    is_rate_given: bool = False
    delays: FeedDelays = msgspec.field(default_factory=FeedDelays)  # as they were measured in the last hour
    is_dated: bool = True  # its records have timestamps; else these are estimates

    @property
    def changes_from(self) -> Origin:
        """Where the rate of its changes is from."""
        if self.is_rate_given:
            return Origin.GIVEN
        return Origin.ASSUMED if self.plan.rate.is_assumed else Origin.LEARNED


async def load_facts(
    read_store: ReadStore, feeds: Iterable[FeedSettings], at: datetime, *, sinks: Collection[str] = ()
) -> dict[Feed, FeedFacts]:
    """Return what the store holds of the configured feeds, and assumptions where it holds nothing.

    ``sinks``: those whose deliveries count as measured.
    """
    delays = (await load_delays(read_store, sinks, at)).feeds
    states = {state.feed: state for state in await read_store.load_feeds()}
    counts = await read_store.count_records()
    found = assume_facts(feeds)
    for each in feeds:
        feed = Feed(each.source, each.resource)
        if (state := states.get(feed)) is not None:
            facts = _count(found[feed], state, counts.get(feed, 0))
            lookback = find_lookback(each.settings, state, at)
            found[feed] = replace(
                facts,
                plan=StoredPlan.from_json(state.plan),
                lookback=lookback,
                delays=delays.get(feed, FeedDelays()),
                is_dated=has_dates(each.settings, state),
            )
    return found


def assume_facts(feeds: Iterable[FeedSettings]) -> dict[Feed, FeedFacts]:
    """Return what is assumed of feeds that no store knows."""
    return {
        Feed(each.source, each.resource): FeedFacts(
            StoredPlan(),
            _ASSUMED_RECORDS.get(each.resource, _ASSUMED_MANY),
            Origin.ASSUMED,
            choose_lookback(each.settings.lookback, ClockSource.DATE),
        )
        for each in feeds
    }


def _count(facts: FeedFacts, state: FeedState, count: int) -> FeedFacts:
    """Take in how many records there are; before the first pass is over there may be more than are stored."""
    if state.full is not None:
        return replace(facts, records=state.full.records, records_from=Origin.COUNTED)
    return replace(facts, records=max(count, facts.records))


def give_facts(
    facts: Mapping[Feed, FeedFacts], records: Mapping[Feed, int], changes: Mapping[Feed, float], at: datetime
) -> dict[Feed, FeedFacts]:
    """Return the facts with what the user says instead; ``changes`` a second.

    Costs that were learned with another number of records, or with other changes, count no more.
    """
    given = dict(facts)
    for feed, count in records.items():
        plan = given[feed].plan
        plan = plan if RESOURCES[feed.resource].polled else replace(plan, cost=Cost())
        given[feed] = replace(given[feed], plan=plan, records=count, records_from=Origin.GIVEN)
    for feed, rate in changes.items():
        plan = replace(given[feed].plan, rate=Rate(rate, 1.0, at))
        plan = replace(plan, cost=Cost()) if RESOURCES[feed.resource].polled else plan
        given[feed] = replace(given[feed], plan=plan, is_rate_given=True)
    return given


# The plan ------------------------------------------------------------------------------------------------------------


class FeedPlan(msgspec.Struct, frozen=True):
    """How one feed is read."""

    settings: ResourceSettings
    facts: FeedFacts
    demand: Demand
    planned: Planned | None  # None: a crontab line says when
    requests: float  # a second

    @property
    def feed(self) -> Feed:
        return self.demand.feed

    @property
    def every(self) -> str:
        """When it is read as configured: ``auto ≤ 15m``, ``30s``, ``cron 0 6 * * *``."""
        schedule = self.settings.schedule
        if isinstance(schedule, str):
            return f"cron {schedule}"
        return f"{'auto ≤ ' if self.settings.is_auto else ''}{format_duration(schedule)}"

    @property
    def cost_from(self) -> Origin:
        """Where the requests of a run are from."""
        if self.facts.plan.cost.mean is not None:
            return Origin.LEARNED
        return self.facts.changes_from if RESOURCES[self.feed.resource].polled else self.facts.records_from

    @property
    def delay(self) -> FeedForecast | None:
        """How long its changes wait until they are read; None where a crontab line says when."""
        return None if self.planned is None else FeedForecast(self.planned)


class SourcePlan(msgspec.Struct, frozen=True):
    """How the requests of one source are divided, or of all sources that have its API key."""

    sources: tuple[str, ...]
    settings: SourceSettings
    supply: Supply
    division: Division
    feeds: tuple[FeedPlan, ...]

    @property
    def source(self) -> str:
        return ", ".join(self.sources)

    @property
    def delay(self) -> Forecast:
        """How long the changes of all its feeds wait; those that a crontab line reads are left out."""
        return forecast(self.division)

    @property
    def measured(self) -> Delay | None:
        """How long changes of all its feeds took to reach a sink in the last hour; None where there were none."""
        return summarise(sum((Counter(each.facts.delays.buckets) for each in self.feeds), Counter()))

    @property
    def floor(self) -> Forecast:
        """The least delay that any intervals would have for as many requests."""
        return find_floor(self.division.budget, [each.demand for each in self.division.feeds])

    @property
    def spare(self) -> float:
        """Requests a second that nothing is planned for."""
        return 0.0 if self.supply.is_overdrawn else max(0.0, self.division.budget - self.division.used)

    @property
    def advice(self) -> str:
        """In a line, what would help."""
        return self.reason or advise(self.division)

    @property
    def reason(self) -> str:
        """Why it cannot be met, and what to do; empty where it can."""
        if not self.division.fits:
            return advise(self.division)
        if self.supply.is_overdrawn:
            return _blame(self.supply)
        return ""

    def explain(self) -> Iterator[str]:
        """Yield a line for each feed, with its interval and the reason of that."""
        return map(explain, self.division.feeds)


def make_plan(
    setup: Setup, facts: Mapping[Feed, FeedFacts], *, at: datetime, next_time: NextTime
) -> tuple[SourcePlan, ...]:
    """Return the plan of each source, or of all that have one API key.

    ``next_time`` returns the next time of a crontab line after a given time.
    """
    known: defaultdict[str, list[FeedSettings]] = defaultdict(list)
    for each in setup.feeds:
        known[each.source].append(each)
    plans = []
    for names in setup.group_by_key():
        feeds = [each for name in names for each in known[name]]
        plans.append(_plan_sources(names, setup.sources[names[0]], feeds, facts, at=at, next_time=next_time))
    return tuple(plans)


def _plan_sources(
    names: tuple[str, ...],
    settings: SourceSettings,
    feeds: Sequence[FeedSettings],
    facts: Mapping[Feed, FeedFacts],
    *,
    at: datetime,
    next_time: NextTime,
) -> SourcePlan:
    known = {Feed(each.source, each.resource): each.settings for each in feeds}
    every = {
        feed: _find_cron_interval(each.schedule, at, next_time) if isinstance(each.schedule, str) else each.schedule
        for feed, each in known.items()
    }
    load = Budget(settings.requests_per_minute, settings.share).load(timedelta(0))
    for _ in range(_ROUNDS):
        demands = {
            feed: facts[feed].plan.make_demand(
                feed, each, records=facts[feed].records, lookback=facts[feed].lookback, every=every[feed]
            )
            for feed, each in known.items()
        }
        background = [
            task
            for feed, each in known.items()
            for task in _find_background(demands[feed], each, facts[feed], every[feed])
        ]
        supply = Supply(limit=load.limit, allowed=load.allowed, background=tuple(background))
        division = divide(supply.available, [demands[feed] for feed, each in known.items() if each.cron is None])
        if every == (every := every | division.intervals):
            break
    planned = {each.demand.feed: each for each in division.feeds}
    plans = [
        FeedPlan(each, facts[feed], demands[feed], planned.get(feed), demands[feed].cost / every[feed].total_seconds())
        for feed, each in known.items()
    ]
    return SourcePlan(names, settings, supply, division, tuple(plans))


def _find_cron_interval(cron: str, at: datetime, next_time: NextTime) -> timedelta:
    """Return how far apart the times of a crontab line are, in the mean."""
    first = last = next_time(cron, at)
    for _ in range(_TIMES):
        last = next_time(cron, last)
    return (last - first) / _TIMES


def _find_background(
    demand: Demand, settings: ResourceSettings, facts: FeedFacts, every: timedelta
) -> Iterator[Background]:
    """Yield what is read of a feed besides the planned runs."""
    feed = demand.feed
    if settings.cron is not None:
        yield Background.repeat(feed, BackgroundKind.CRON, demand.cost, every)
    if settings.detail:
        yield Background(feed, BackgroundKind.DETAIL, demand.rate)
    if RESOURCES[feed.resource].polled:
        trailing = poll_cost(demand.rate, trailing_lookback(facts.lookback), timedelta(0))
        yield Background.repeat(feed, BackgroundKind.TRAILING, trailing, trailing_every(every))
        if settings.reconcile is not None:
            yield Background.repeat(feed, BackgroundKind.RECONCILE, pass_cost(facts.records), settings.reconcile)


def _blame(supply: Supply) -> str:
    dear = max(supply.background, key=lambda each: each.requests)
    takes = f"{dear.kind} of {dear.feed.resource} takes {per_minute(dear.requests)}"
    needs = f"needs {per_minute(supply.taken)} of {per_minute(supply.total)} requests a minute for background work"
    return f"{needs}: {takes}; {_REMEDIES[dear.kind]}"
