"""How late records become visible after their own timestamps, and the lookback that follows from it.

A *sample* is a lower bound with proof: a completed run covered the timestamp and did not return the record. Time when
nothing was read proves nothing, so an outage is no lateness. What one run finds late is one *occasion*, as late as the
latest of it: the rows of a long transaction or of an import say once how late they were, however many they are.

The lookback is twice the lateness that all occasions stay within but one, or but one in 10,000; after a day each counts
half. So it takes two occasions to raise it, and a single outlier does not. A *miss*, a change that polls did not show
because it came later than they look back, doubles it at once; that too is halved after a day, so that an outlier that
was missed costs one doubling for one day, never a jump to the longest. A sample beyond the longest lookback says
nothing about which one to choose: trailing polls and passes meet what comes that late.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import floor, log2
from typing import Final

from dockbell.core.moment import from_micros, to_micros
from dockbell.core.reading.window import AUTO_LOOKBACK

MOST_LOOKBACK: Final = timedelta(minutes=15)
"""The longest lookback that is learned."""
HALF_LIFE: Final = timedelta(days=1)
"""After this time an occasion counts half, and half is left of what misses raised the lookback to."""

_FACTOR: Final = 2
_TAIL: Final = 1e-4
_BATCH: Final = 1000
_FORGOTTEN: Final = 0.01
_LEAST: Final = timedelta(seconds=1)
_STEP: Final = timedelta(seconds=10)
_NONE: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class Lateness:
    """What is known of the lateness of one feed's records; it begins with nothing."""

    at: datetime | None = None  # when the rest was true; weights and ``raised`` are halved every ``HALF_LIFE`` after
    late: tuple[tuple[int, float], ...] = ()
    """The weight of the occasions in each bucket: bucket n holds from √2ⁿ to √2ⁿ⁺¹ seconds."""
    on_time: float = 0.0  # the weight of the runs that met changes, and none late
    raised: timedelta = _NONE  # what misses raised the lookback to
    pending: int = field(default=0, compare=False)
    """Runs on time that are not counted yet. They are not stored and make no difference between two values, so that a
    feed is not written for every poll that finds nothing late."""

    def observe(self, samples: Sequence[timedelta], on_time: int, now: datetime) -> Lateness:
        """Return what is known after a run; equal to this where nothing is worth storing.

        ``samples``: how late changes were at least, each with proof; too short or too long ones count as on time.
        ``on_time``: how many changes of the run were not late, as far as can be proven.
        """
        occasion = max((sample for sample in samples if _LEAST <= sample <= MOST_LOOKBACK), default=None)
        if occasion is not None:
            known = self._age(now)
            weights = dict(known.late)
            weights[_bucket(occasion)] = weights.get(_bucket(occasion), 0.0) + 1
            return dataclasses.replace(known, late=tuple(sorted(weights.items())))
        # Runs on time matter only as what the late ones are compared with.
        if not self.late or not (samples or on_time):
            return self
        waiting = dataclasses.replace(self, pending=self.pending + 1)
        return waiting if waiting.pending < _BATCH else Lateness._age(waiting, now)

    def miss(self, lookback: timedelta, now: datetime) -> Lateness:
        """Return what is known after a run met changes that polls, with this lookback, had missed; once a run.

        It is no miss where the lateness exceeds ``MOST_LOOKBACK``: no lookback would have met it.
        """
        known = self._age(now)
        return dataclasses.replace(known, raised=max(known.raised, min(lookback * _FACTOR, MOST_LOOKBACK)))

    def quantile(self, now: datetime) -> timedelta:
        """Return the lateness that all occasions stay within but one, or but one in 10,000; zero where none is late."""
        if not self.late:
            return _NONE
        known = self._age(now)
        left = max(1.0, _TAIL * (known.on_time + sum(weight for _, weight in known.late)))
        for bucket, weight in reversed(known.late):
            left -= weight
            if left < 0:
                return timedelta(seconds=2 ** ((bucket + 1) / 2))
        return _NONE

    def lookback(self, now: datetime) -> timedelta:
        """Return how far polls should look back: whole steps of 10 s, so that one run and its repeat mostly agree."""
        raised = self._age(now).raised if self.raised else _NONE
        wanted = max(AUTO_LOOKBACK, self.quantile(now) * _FACTOR, raised)
        return min(-(-wanted // _STEP) * _STEP, MOST_LOOKBACK)

    def to_json(self) -> str:
        if self.at is None:
            return ""
        fields = [to_micros(self.at), self.late, self.on_time, self.raised.total_seconds()]
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Lateness:
        if not text:
            return cls()
        at, late, on_time, raised = json.loads(text)
        buckets = tuple((bucket, weight) for bucket, weight in late)
        return cls(from_micros(at), buckets, on_time, timedelta(seconds=raised))

    def _age(self, now: datetime) -> Lateness:
        """Return the same, as it counts now; a clock that went back ages nothing."""
        at = now if self.at is None else max(now, self.at)
        left = 1.0 if self.at is None else 0.5 ** ((at - self.at) / HALF_LIFE)
        aged = ((bucket, round(weight * left, 4)) for bucket, weight in self.late)
        return Lateness(
            at,
            tuple((bucket, weight) for bucket, weight in aged if weight > _FORGOTTEN),
            round(self.on_time * left + self.pending, 4),
            timedelta(seconds=round((self.raised * left).total_seconds(), 3)),
        )


def _bucket(sample: timedelta) -> int:
    return floor(2 * log2(sample.total_seconds()))
