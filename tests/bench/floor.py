"""The least mean delay that a budget of requests allows, with all rates known and nothing else to read.

A change waits half the interval of its feed in the mean, and the whole of it at most. The sum of all waits is least,
within the budget, where each interval is √(cost · μ / rate) for the same μ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final, NamedTuple

INTERVAL_LEAST: Final = 1.0
"""Seconds: nothing is read more often."""

_NEARLY_ALL: Final = 0.99
_ROUNDS: Final = 200


class Demand(NamedTuple):
    """How often a feed changes, and what a reading of it costs."""

    rate: float  # changes a second
    cost: int  # requests: one for a poll, the pages for a pass


@dataclass(frozen=True, slots=True)
class Floor:
    """The intervals, in seconds, that make the mean delay least, and the delays that these make."""

    intervals: Mapping[str, float]
    mean: float
    p99: float

    def of(self, feed: str) -> tuple[float, float]:
        """Return mean and p99 of the changes of one feed: they are spread evenly over its interval."""
        return self.intervals[feed] / 2, self.intervals[feed] * _NEARLY_ALL


def find_floor(demands: Mapping[str, Demand], budget: float) -> Floor:
    """Return the floor for a budget in requests a second; every rate is above 0."""

    def divide(mu: float) -> dict[str, float]:
        return {feed: max(INTERVAL_LEAST, sqrt(cost * mu / rate)) for feed, (rate, cost) in demands.items()}

    def fits(mu: float) -> bool:
        return sum(demands[feed].cost / interval for feed, interval in divide(mu).items()) <= budget

    intervals = divide(_find_least(fits))
    total = sum(demand.rate for demand in demands.values())

    def holds_nearly_all(delay: float) -> bool:
        held = sum(demand.rate * min(1.0, delay / intervals[feed]) for feed, demand in demands.items())
        return held >= _NEARLY_ALL * total

    mean = sum(demand.rate * intervals[feed] / 2 for feed, demand in demands.items()) / total
    return Floor(intervals, mean, _find_least(holds_nearly_all))


def _find_least(is_enough: Callable[[float], bool]) -> float:
    """Return the least number from 0 on that is enough; so is every larger one."""
    low, high = 0.0, 1.0
    while not is_enough(high):
        high *= 2
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
