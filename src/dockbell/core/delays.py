"""Delays, counted in logarithmic buckets: cheap to add, exact to merge, and true to a twentieth when they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, exp, log
from typing import Final

import msgspec

from dockbell.core.model import Feed

QUARTER: Final = timedelta(minutes=15)
"""Measured delays are stored by quarters of an hour."""
HOUR: Final = timedelta(hours=1)

_LEAST: Final = 0.001
_GROWTH: Final = log(1.1)
"""Each bucket is so much wider than the one before: what is read from them is true to a twentieth."""
_BUCKETS: Final = 240  # the last one begins after a hundred days
_HALF: Final = 0.5
_NEARLY_ALL: Final = 0.99
_NONE: Final = timedelta(0)
_SLOW: Final = 1.5
_SLACK: Final = timedelta(seconds=1)
"""What a request and its commit take beside the wait, which is all that is predicted."""
_TOLD: Final = 5
"""The mean of fewer delays says little."""


class Delay(msgspec.Struct, frozen=True):
    """How long something took: half of it no longer than ``p50``, of a hundred all but one no longer than ``p99``."""

    p50: timedelta
    p99: timedelta
    mean: timedelta
    count: int


def find_bucket(seconds: float) -> int:
    """Return the bucket of what took so long."""
    return 0 if seconds <= _LEAST else min(ceil(log(seconds / _LEAST) / _GROWTH), _BUCKETS)


def summarise(buckets: Mapping[int, int]) -> Delay | None:
    """Return what counted delays come to; None where there are none."""
    count = sum(buckets.values())
    if not count:
        return None
    total = sum(_middle(bucket) * number for bucket, number in buckets.items())
    return Delay(
        _find_quantile(buckets, count * _HALF),
        _find_quantile(buckets, count * _NEARLY_ALL),
        timedelta(seconds=total / count),
        count,
    )


def _find_quantile(buckets: Mapping[int, int], rank: float) -> timedelta:
    """Return what the bucket stands for that holds a rank: its middle."""
    for bucket in sorted(buckets):
        rank -= buckets[bucket]
        if rank <= 0:
            break
    return timedelta(seconds=_middle(bucket))


def _middle(bucket: int) -> float:
    return _LEAST * exp((bucket - 0.5) * _GROWTH) if bucket else _LEAST


class MeasuredDelays(msgspec.Struct, frozen=True):
    """The delays of a feed's changes that reached a sink in a quarter of an hour, each from when it became visible."""

    feed: Feed
    sink: str
    began_at: datetime  # the quarter
    buckets: Mapping[int, int]  # how many delays are in each
    waited: timedelta = _NONE  # the sum of the parts that they waited in the outbox
    predicted: timedelta | None = None
    """The sum of the mean waits that the plan predicted when they came; None where a crontab line says when to read."""

    @property
    def count(self) -> int:
        return sum(self.buckets.values())


def find_share_within(buckets: Mapping[int, int], most: timedelta) -> float | None:
    """Return which share of delays was no longer than that, true to a bucket; None where there are none."""
    count, last = sum(buckets.values()), find_bucket(most.total_seconds())
    return sum(number for bucket, number in buckets.items() if bucket <= last) / count if count else None


def begin_of_quarter(at: datetime) -> datetime:
    return datetime.fromtimestamp(at.timestamp() // QUARTER.total_seconds() * QUARTER.total_seconds(), UTC)


def merge(measured: Iterable[MeasuredDelays]) -> Delay | None:
    """Return what delays come to, of whatever feeds, sinks and quarters."""
    return summarise(count_all(measured))


def split(
    measured: Iterable[MeasuredDelays], last: datetime, step: timedelta, count: int
) -> Sequence[Sequence[MeasuredDelays]]:
    """Return delays by so many steps of time, of which the quarter that began at ``last`` ends the last one."""
    steps: list[list[MeasuredDelays]] = [[] for _ in range(count)]
    for each in measured:
        place = count - 1 - (last - each.began_at) // step
        if 0 <= place < count:
            steps[place].append(each)
    return steps


def count_all(measured: Iterable[MeasuredDelays]) -> Mapping[int, int]:
    """Return how many delays are in each bucket, of whatever feeds, sinks and quarters."""
    total: Counter[int] = Counter()
    for each in measured:
        total.update(each.buckets)
    return total


class Reading(msgspec.Struct, frozen=True):
    """How long changes waited in the mean until they were stored, and how long the plan predicted that they wait."""

    measured: timedelta
    predicted: timedelta | None

    @classmethod
    def of(cls, measured: Iterable[MeasuredDelays]) -> Reading | None:
        """Return it for delays of one feed; None where there are none."""
        told = list(measured)
        whole = merge(told)
        if whole is None:
            return None
        waited = sum((each.waited for each in told), _NONE) / whole.count
        planned = [each for each in told if each.predicted is not None]
        count = sum(each.count for each in planned)
        predicted = sum((each.predicted or _NONE for each in planned), _NONE) / count if count else None
        return cls(max(whole.mean - waited, _NONE), predicted)

    @property
    def is_slow(self) -> bool:
        """Whether changes wait longer than half as long again as predicted."""
        return self.predicted is not None and self.measured > max(self.predicted * _SLOW, self.predicted + _SLACK)


def find_slow(measured: Iterable[MeasuredDelays], at: datetime) -> Reading | None:
    """Return how a feed was read in the last hour, where that was slower than predicted all the time; else None.

    Slow in each of the last four whole quarters: what an outage or a burst delayed comes in one of them.
    """
    told = list(measured)
    now = begin_of_quarter(at)
    quarters = [[each for each in told if each.began_at == now - number * QUARTER] for number in range(1, 5)]
    for quarter in quarters:
        reading = Reading.of(quarter)
        if reading is None or not reading.is_slow or sum(each.count for each in quarter) < _TOLD:
            return None
    return Reading.of(each for quarter in quarters for each in quarter)
