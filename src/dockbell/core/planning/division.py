"""The law: how the requests of a key are divided over its feeds.

A change waits until the first reading that begins after it: half an interval in the mean. With λ changes a second of
weight w, and c requests a run, the intervals T that make Σ w λ T / 2 least, while Σ c / T stays within the budget, are

    T = √(c μ / (w λ)), kept between the feed's least and its most interval.

So a feed that changes four times as often is read twice as often, and so is one that costs a fourth. μ, the *price* of
a request, is what makes the sum meet the budget. The sum falls as μ rises, in a curve that bends only where a feed
meets a bound; between two bends the root is exact.

Fixed intervals (``every = "15s"``) come first and are kept exactly, while the other feeds give back as far as their
promises allow; beyond that they are stretched by the same law. Where not even the promises can be kept (``at_most``),
all of them are exceeded by one factor. So all feeds are read, whatever is asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from math import ceil, inf, sqrt
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from dockbell.core.model import Feed
from dockbell.core.planning.demand import Demand

# A fixed interval that the requests do not suffice for is stretched this far before promises to other feeds are broken.
_STRETCH: Final = 10
_STRETCHED_LEAST: Final = timedelta(hours=1)
_STEADY: Final = 0.1
_WORSE: Final = 1.01
_NEWS: Final = 0.25
_MICROSECOND: Final = 1e-6


class Reason(StrEnum):
    """Why a feed has its interval."""

    CONFIGURED = "as configured"
    STRETCHED = "longer than configured: the budget does not allow more"
    CHANGES = "by its rate and cost"
    LEAST = "its shortest interval"
    MOST = "its longest interval"
    EXCEEDED = "beyond its longest interval: the budget does not allow more"

    @property
    def is_short(self) -> bool:
        return self in (Reason.STRETCHED, Reason.EXCEEDED)


class Planned(msgspec.Struct, frozen=True):
    """The interval of one feed, from the start of a run to the start of the next."""

    demand: Demand
    interval: timedelta
    reason: Reason

    @property
    def requests(self) -> float:
        """Requests a second."""
        return self.demand.cost / self.interval.total_seconds()

    @property
    def delay(self) -> float:
        """What the law makes least: the seconds that the changes of a second wait in all, weighted."""
        return self.demand.weight * self.demand.rate * self.interval.total_seconds() / 2


class Division(msgspec.Struct, frozen=True):
    """The intervals of all feeds of a key."""

    budget: float  # requests a second
    feeds: tuple[Planned, ...]
    price: float = 0.0
    """μ: one request a second more would save half of it in ``delay``; 0: none."""
    factor: float = 1.0  # how far the longest intervals are exceeded, above 1 where the promises cannot be kept

    @property
    def used(self) -> float:
        """Requests a second; never more than the budget."""
        return sum(each.requests for each in self.feeds)

    @property
    def delay(self) -> float:
        return sum(each.delay for each in self.feeds)

    @property
    def fits(self) -> bool:
        """Whether all that was asked for is kept: fixed intervals and promises."""
        return not any(each.reason.is_short for each in self.feeds)

    @property
    def intervals(self) -> dict[Feed, timedelta]:
        return {each.demand.feed: each.interval for each in self.feeds}


def divide(budget: float, demands: Iterable[Demand]) -> Division:
    """Return the intervals by the law; ``budget``: requests a second, above zero."""
    if budget <= 0:
        raise ValueError(f"budget: {budget} requests a second; must be above zero")
    terms = [_Term.of(each) for each in demands]
    fixed, free = [each for each in terms if each.demand.is_fixed], [each for each in terms if not each.demand.is_fixed]
    configured = sum(each.cost / each.least for each in fixed)
    stretched = sum(each.cost / each.most for each in fixed)
    promised = sum(each.cost / each.most for each in free)
    if configured + promised <= budget:
        scale = _find_scale(budget - configured, free)
        feeds = tuple(_plan(each, 0.0 if each.demand.is_fixed else scale) for each in terms)
    elif stretched + promised <= budget:
        scale = _find_scale(budget - promised, fixed)
        feeds = tuple(_plan(each, scale if each.demand.is_fixed else inf) for each in terms)
    else:
        factor = (stretched + promised) / budget
        exceeded = (Planned(each.demand, _to_interval(each.most * factor), Reason.EXCEEDED) for each in terms)
        return Division(budget, tuple(exceeded), price=inf, factor=factor)
    return Division(budget, feeds, price=scale**2)


def settle(division: Division, current: Mapping[Feed, timedelta]) -> Division:
    """Return the division to act on: feeds keep their current intervals while these are as good.

    An interval within a tenth of the planned one stays, as long as all together stay within the budget and cost little
    delay: what is learned is never quite still, and the best is flat.
    """
    kept = replace(division, feeds=tuple(_keep(each, current.get(each.demand.feed)) for each in division.feeds))
    if kept.used > division.budget:
        pairs = zip(kept.feeds, division.feeds, strict=True)
        kept = replace(division, feeds=tuple(max(pair, key=lambda each: each.interval) for pair in pairs))
    return kept if kept.delay <= division.delay * _WORSE else division


def is_news(interval: timedelta, told: timedelta | None) -> bool:
    """Return whether an interval differs from what was last told of it by more than a quarter."""
    return told is None or abs(interval - told) > told * _NEWS


def solve_unbounded(budget: float, demands: Sequence[Demand]) -> Division:
    """Return what the law would give if there were no bounds: no other reading has less delay."""
    terms = [_Term.of(each) for each in demands]
    scale = sum(each.cost / each.slope for each in terms) / budget
    feeds = (Planned(each.demand, _to_interval(each.slope * scale), Reason.CHANGES) for each in terms)
    return Division(budget, tuple(feeds), price=scale**2)


class _Term(NamedTuple):
    """A demand in seconds."""

    demand: Demand
    slope: float  # the interval by the law, for each √μ
    cost: float
    least: float
    most: float

    @classmethod
    def of(cls, demand: Demand) -> _Term:
        most = max(demand.least * _STRETCH, _STRETCHED_LEAST) if demand.most is None else demand.most
        slope = sqrt(demand.cost / (demand.weight * demand.rate))
        return cls(demand, slope, demand.cost, demand.least.total_seconds(), most.total_seconds())

    def at(self, scale: float) -> float:
        return min(max(self.slope * scale, self.least), self.most)


def _find_scale(budget: float, terms: Sequence[_Term]) -> float:
    """Return the √μ at which the terms take the budget; zero where they take less at their least intervals.

    At their most intervals they must not take more than the budget.
    """

    def used(scale: float) -> float:
        return sum([each.cost / each.at(scale) for each in terms])

    if used(0.0) <= budget:
        return 0.0
    bends = sorted({bound / each.slope for each in terms for bound in (each.least, each.most)})
    place = min(bisect_left(bends, -budget, key=lambda scale: -used(scale)), len(bends) - 1)
    before, after = bends[max(place - 1, 0)], bends[place]
    # Between two bends each term either is at a bound or follows the law, of which √μ can be taken out.
    free = [each for each in terms if each.least / each.slope < after and each.most / each.slope > before]
    bound = used(before) - sum([each.cost / each.at(before) for each in free])
    return sum([each.cost / each.slope for each in free]) / (budget - bound) if free else after


def _plan(term: _Term, scale: float) -> Planned:
    demand, seconds = term.demand, term.at(scale)
    if seconds == term.least:
        return Planned(demand, demand.least, Reason.CONFIGURED if demand.is_fixed else Reason.LEAST)
    if demand.most is None:
        return Planned(demand, _to_interval(seconds), Reason.STRETCHED)
    if seconds == term.most:
        return Planned(demand, demand.most, Reason.MOST)
    return Planned(demand, min(_to_interval(seconds), demand.most), Reason.CHANGES)


def _keep(planned: Planned, current: timedelta | None) -> Planned:
    demand = planned.demand
    if current is None or planned.reason not in (Reason.CHANGES, Reason.STRETCHED):
        return planned
    is_allowed = demand.least <= current and (demand.most is None or current <= demand.most)
    is_near = abs(planned.interval - current) <= current * _STEADY
    return replace(planned, interval=current) if is_allowed and is_near else planned


def _to_interval(seconds: float) -> timedelta:
    """Return whole microseconds, rounded up: the budget is not exceeded by what is cut off."""
    return timedelta(microseconds=ceil(seconds / _MICROSECOND))
