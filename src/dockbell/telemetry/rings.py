"""Rings of equal steps of time: what happened in each of the last so many, in a memory that does not grow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from math import ceil, exp, log
from typing import Final

_LEAST: Final = 0.001
_GROWTH: Final = log(1.1)
"""Each bucket is so much wider than the one before: what is read from them is true to a twentieth."""
_BUCKETS: Final = 240  # the last one begins after a hundred days
_HALF: Final = 0.5
_NEARLY_ALL: Final = 0.99


class Ring:
    """One number for each of the last steps; None, or 0 for what is counted, where nothing was written.

    Steps are numbered by who uses it, by a clock that nobody sets back: what falls behind by more than the length is
    left out.
    """

    def __init__(self, length: int, blank: float | None = None) -> None:
        self._length = length
        self._blank = blank
        self._values: list[float | None] = [blank] * length
        self._last = -1

    def add(self, step: int, number: float = 1) -> None:
        """Add to what was counted in a step."""
        if step == self._last or self._reach(step):
            self._values[step % self._length] = (self._values[step % self._length] or 0) + number

    def put(self, step: int, value: float) -> None:
        """Write what a step came to."""
        if self._reach(step):
            self._values[step % self._length] = value

    def lift(self, step: int, value: float) -> None:
        """Write the highest value of a step."""
        if self._reach(step):
            known = self._values[step % self._length]
            self._values[step % self._length] = value if known is None else max(known, value)

    def read(self, step: int) -> tuple[float | None, ...]:
        """Return what the steps came to, oldest first; the given one is the last, whatever is known of later ones."""
        self._reach(step)
        cut = (self._last + 1) % self._length
        values = (*self._values[cut:], *self._values[:cut])
        later = min(self._last - step, self._length)
        return (self._blank,) * later + values[: self._length - later]

    def _reach(self, step: int) -> bool:
        """Make room for a step; return whether it is within reach."""
        for each in range(max(self._last + 1, step - self._length + 1), step + 1):
            self._values[each % self._length] = self._blank
        self._last = max(self._last, step)
        return step > self._last - self._length


@dataclass(frozen=True, slots=True)
class Delay:
    """How long something took: half of it no longer than ``p50``, of a hundred all but one no longer than ``p99``."""

    p50: timedelta
    p99: timedelta
    count: int


class Delays:
    """How long things took that ended within the last steps, true to a twentieth."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._steps: dict[int, Counter[int]] = {}
        self._total: Counter[int] = Counter()
        self._last = -1
        self._step: Counter[int] = Counter()

    def add(self, step: int, seconds: float) -> None:
        """Take in what took so long and ended in a step."""
        bucket = 0 if seconds <= _LEAST else min(ceil(log(seconds / _LEAST) / _GROWTH), _BUCKETS)
        if step != self._last:
            self._reach(step)
        self._step[bucket] += 1
        self._total[bucket] += 1

    def read(self, step: int) -> Delay | None:
        """Return what it came to up to a step; None where nothing has ended."""
        self._reach(max(step, self._last))
        count = self._total.total()
        return Delay(self._find(count * _HALF), self._find(count * _NEARLY_ALL), count) if count else None

    def _reach(self, step: int) -> None:
        if step == self._last:
            return
        self._last = step
        for each in [each for each in self._steps if not step - self._length < each <= step]:
            self._total -= self._steps.pop(each)
        self._step = self._steps.setdefault(step, Counter())

    def _find(self, rank: float) -> timedelta:
        """Return what the bucket stands for that holds a rank: its middle."""
        for bucket in sorted(self._total):
            rank -= self._total[bucket]
            if rank <= 0:
                break
        return timedelta(seconds=_LEAST * exp((bucket - 0.5) * _GROWTH) if bucket else _LEAST)
