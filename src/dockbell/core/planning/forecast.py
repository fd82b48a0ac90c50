"""What delay a division comes to, how far that is from the best, and what would help: in numbers and in words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from dockbell.config.values import format_duration
from dockbell.core.model import Feed, RunKind
from dockbell.core.planning.demand import Demand
from dockbell.core.planning.division import Division, Planned, Reason, solve_unbounded

_MOST: Final = 0.99
_MINUTE: Final = 60
_NEGLIGIBLE: Final = 1e-4
_FEW: Final = 10  # numbers below are not rounded to whole ones
_SECOND: Final = timedelta(seconds=1)
_NONE: Final = timedelta(0)


def predict_wait(interval: timedelta) -> timedelta:
    """Return how long changes wait for the next reading in the mean."""
    return interval / 2


class FeedForecast(msgspec.Struct, frozen=True):
    """How long the changes of one feed wait: anything up to its interval, and what reading and delivery take."""

    planned: Planned
    overhead: timedelta = _NONE

    @property
    def mean(self) -> timedelta:
        return predict_wait(self.planned.interval) + self.overhead

    @property
    def p99(self) -> timedelta:
        return self.planned.interval * _MOST + self.overhead


class Forecast(msgspec.Struct, frozen=True):
    """How long the changes of all feeds wait: each counts the same, whatever its weight."""

    feeds: tuple[FeedForecast, ...]

    @property
    def mean(self) -> timedelta:
        total = sum(each.planned.demand.rate for each in self.feeds)
        waits = (each.mean * each.planned.demand.rate for each in self.feeds)
        return sum(waits, _NONE) / total if self.feeds else _NONE

    @property
    def p99(self) -> timedelta:
        """Within this time are 99 of 100 changes delivered."""
        waits = [_Wait.of(each) for each in self.feeds]
        ends = sorted(end for wait in waits for end in (wait.first, wait.last))
        if not ends:
            return _NONE
        wanted = _MOST * sum(wait.rate for wait in waits)
        # What is delivered grows evenly between two ends.
        place = min(bisect_left(ends, wanted, lo=1, key=lambda age: _delivered(waits, age)), len(ends) - 1)
        before, after = ends[place - 1], ends[place]
        low, high = _delivered(waits, before), _delivered(waits, after)
        part = min(1.0, (wanted - low) / (high - low)) if high > low else 1.0
        return timedelta(seconds=before + (after - before) * part)


class _Wait(NamedTuple):
    rate: float
    first: float  # the youngest change that can have been delivered, in seconds
    last: float  # the oldest that can be missing

    @classmethod
    def of(cls, feed: FeedForecast) -> _Wait:
        first = feed.overhead.total_seconds()
        return cls(feed.planned.demand.rate, first, first + feed.planned.interval.total_seconds())


def _delivered(waits: Sequence[_Wait], age: float) -> float:
    """Return how many changes a second are delivered within this age."""
    return sum(each.rate * min(1.0, max(0.0, age - each.first) / (each.last - each.first)) for each in waits)


def forecast(division: Division, overheads: Mapping[Feed, timedelta] | None = None) -> Forecast:
    """Return the delays of a division; ``overheads``: what reading and delivery of a feed take, where it is known."""
    known = overheads or {}
    return Forecast(tuple(FeedForecast(each, known.get(each.demand.feed, _NONE)) for each in division.feeds))


def find_floor(budget: float, demands: Iterable[Demand]) -> Forecast:
    """Return the least delay that any intervals have which take so many requests a second."""
    return forecast(solve_unbounded(budget, [replace(each, weight=1.0) for each in demands]))


def explain(planned: Planned) -> str:
    """Return in a line what was decided of a feed, and why."""
    changes, requests = per_minute(planned.demand.rate), per_minute(planned.requests)
    every = f"{planned.demand.feed.resource} every {in_words(planned.interval)}"
    return f"{every}, {planned.reason}: {changes} changes and {requests} requests a minute"


def advise(division: Division) -> str:
    """Return in a line what would help most, or what is spare."""
    budget = f"{per_minute(division.budget)} requests a minute"
    demands = [each.demand for each in division.feeds]
    if not division.fits:
        return f"needs {per_minute(sum(map(_asked, demands)))} of {budget}: {_blame(max(demands, key=_asked))}"
    by_law = [each for each in division.feeds if each.reason is Reason.CHANGES]
    if not by_law:
        spare = per_minute(division.budget - division.used)
        return f"all feeds are read as often as allowed; {spare} of {budget} are unused"
    largest = max(by_law, key=lambda each: each.requests)
    cost = f"{largest.demand.feed.resource} takes {per_minute(largest.requests)} of {budget}"
    return f"{cost}; a second API key would halve its delay"


def _asked(demand: Demand) -> float:
    """Return the requests a second at which a feed has what its user wants of it."""
    return demand.cost / (demand.most or demand.least).total_seconds()


def _blame(demand: Demand) -> str:
    wanted, remedy = ("every", 'set every = "auto"') if demand.is_fixed else ("at_most", "raise at_most")
    asks = f"{demand.feed.resource} {wanted} {in_words(demand.most or demand.least)}"
    pages = f" ({demand.cost:.0f} pages)" if demand.kind is RunKind.PASS else ""
    return f"{asks} takes {per_minute(_asked(demand))}{pages}; {remedy}"


def per_minute(per_second: float) -> str:
    """Return a rate as words give it: requests or changes a minute."""
    count = per_second * _MINUTE
    if count < _NEGLIGIBLE:
        return "0"
    return f"{count:.0f}" if count >= _FEW else f"{count:.2g}"


def in_words(interval: timedelta) -> str:
    """Return an interval or a delay as words give it: whole seconds, or two figures below ten."""
    if interval < _SECOND * _FEW:
        return f"{interval / _SECOND:.2g}s"
    return format_duration(round(interval / _SECOND) * _SECOND)
