"""The series behind :mod:`dockbell.telemetry.recent`: rings of equal steps of time, in a memory that does not grow.

All times that go in are of a clock that is never set; times that come out are shifted to ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from dockbell.core.delays import Delay, find_bucket, summarise
from dockbell.core.model import RunKind, Urgency
from dockbell.telemetry import (
    PageRead,
    RequestSent,
    RunEnded,
)

STEP: Final = timedelta(minutes=1)
STEPS: Final = 240
"""How many steps are kept: four hours."""
OTHERS: Final = "others"
LEFT: Final = "left"
_MINUTE: Final = 60
_HOUR: Final = 60
_NONE: Final = timedelta(0)
_FIXED: Final = timedelta(seconds=2)
"""Two answers that differ by less about the end of the service's window mean the same window."""
_SHOWN_FIRST: Final = (RunKind.PASS, RunKind.TRAILING, RunKind.POLL)


class Ring:
    """One number for each of the last steps; None, or 0 for what is counted, where nothing was written.

    Its user numbers the steps by a clock that is never set back; what falls behind by more than the length is left out.
    """

    def __init__(self, length: int, blank: float | None = None) -> None:
        self._length = length
        self._blank = blank
        self._values: list[float | None] = [blank] * length
        self._last = -1

    def add(self, step: int, number: float = 1) -> None:
        if step == self._last or self._reach(step):
            self._values[step % self._length] = (self._values[step % self._length] or 0) + number

    def put(self, step: int, value: float) -> None:
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
        bucket = find_bucket(seconds)
        if step != self._last:
            self._reach(step)
        self._step[bucket] += 1
        self._total[bucket] += 1

    def read(self, step: int) -> Delay | None:
        """Return what it came to up to a step; None where nothing has ended."""
        self._reach(max(step, self._last))
        return summarise(self._total)

    def _reach(self, step: int) -> None:
        if step == self._last:
            return
        self._last = step
        for each in [each for each in self._steps if not step - self._length < each <= step]:
            self._total -= self._steps.pop(each)
        self._step = self._steps.setdefault(step, Counter())


class Progress(msgspec.Struct, frozen=True):
    kind: RunKind
    pages: int
    records: int
    expected: int | None  # how many records it will probably have; None where nothing tells
    began_at: datetime  # by our clock
    ends_at: datetime | None  # when it will probably have ended; None where nothing tells


class FeedLately(msgspec.Struct, frozen=True):
    end: datetime  # when the last of the steps ends: it is the running one
    freshness: tuple[float | None, ...]
    """The largest age, in seconds, of the last complete run in each step; None before the first such run."""
    kept: int  # runs of the last hour that asked in time
    late: int  # those that asked later than the schedule says
    delay: Delay | None
    """From when a change became visible until it was stored, within the last hour; None where there were none."""
    progress: Progress | None  # of the run that goes on; None where none does


class BudgetLately(msgspec.Struct, frozen=True):
    end: datetime
    kinds: Mapping[str, tuple[float, ...]]
    """Requests in each step, by urgency; those of ``others`` are what the service counted beside ours."""
    left: tuple[float | None, ...]
    """What the service said last in each step was left to all users of the key; None where it said nothing."""
    used: int  # our own requests within the last minute
    limit: int | None  # the most in a window, by what the service said last; None where it never said
    remaining: int | None  # how much of the service's window is left; None where it did not say, or the window is over


class SinkLately(msgspec.Struct, frozen=True):
    end: datetime
    delivered: tuple[float, ...]  # events that its receiver took in each step
    delay: Delay | None
    """From when an event was stored until it was taken, of the last hour's; None where there were none."""


class FeedSeries:
    """The measurements of one feed; ``shift`` is how far our clock was set ahead since the start, also below."""

    def __init__(self) -> None:
        self.freshness = Ring(STEPS)
        self.kept = Ring(_HOUR, 0)
        self.late = Ring(_HOUR, 0)
        self.delays = Delays(_HOUR)
        self.records: int | None = None
        self.running: dict[RunKind, tuple[PageRead, PageRead, datetime, datetime]] = {}
        self._known_at: datetime | None = None  # when the last complete run asked first
        self._written = 0  # the minute up to which freshness is written

    def read_page(self, fact: PageRead, now: datetime) -> None:
        first, _, began, _ = self.running.get(fact.kind) or (fact, fact, now, now)
        if fact.pages <= first.pages or fact.began_at != first.began_at:  # it has begun again
            first, began = fact, now
        self.running[fact.kind] = (first, fact, began, now)

    def end_run(self, fact: RunEnded, now: datetime, age: timedelta | None) -> None:
        """Record the end of a run; ``age`` is the time since its first request, None where none was answered."""
        self.running.pop(fact.kind, None)
        if fact.late is not None:
            (self.late if fact.late else self.kept).add(find_minute(now))
        if fact.problem or age is None or fact.kind is RunKind.TRAILING:
            return
        if fact.kind is RunKind.PASS:
            self.records = fact.records
        self.complete(now - age, now)

    def complete(self, began_at: datetime, ended_at: datetime) -> None:
        """Record a complete run, which has read everything as of ``began_at``."""
        self._write(ended_at)
        self._known_at = max(self._known_at or began_at, began_at)
        self._write(ended_at)

    def look(self, now: datetime, shift: timedelta, stored: int | None) -> FeedLately:
        self._write(now)
        minute = find_minute(now)
        return FeedLately(
            end=_end(minute) + shift,
            freshness=self.freshness.read(minute),
            kept=int(sum(_counted(self.kept, minute))),
            late=int(sum(_counted(self.late, minute))),
            delay=self.delays.read(minute),
            progress=self._look_ahead(shift, stored),
        )

    def _write(self, now: datetime) -> None:
        """Write the age of the last complete run into each step since the last call."""
        minute = find_minute(now)
        if self._known_at is not None:
            for each in range(max(self._written, minute - STEPS + 1), minute):
                self.freshness.lift(each, max((_end(each) - self._known_at).total_seconds(), 0))
            self.freshness.lift(minute, max((now - self._known_at).total_seconds(), 0))
        self._written = minute

    def _look_ahead(self, shift: timedelta, stored: int | None) -> Progress | None:
        for kind in _SHOWN_FIRST:
            if kind in self.running:
                first, last, first_at, last_at = self.running[kind]
                expected = (self.records or stored) if kind is RunKind.PASS else None
                progress = Progress(kind, last.pages, last.records, expected, last.began_at, None)
                read = last.records - first.records
                if expected is None or read <= 0 or last.records >= expected:
                    return progress
                left = (last_at - first_at) * (expected - last.records) / read
                return replace(progress, ends_at=last_at + left + shift)
        return None


class SourceSeries:
    def __init__(self) -> None:
        self.counts = {urgency: Ring(STEPS, 0) for urgency in Urgency}
        self.others = Ring(STEPS, 0)
        self.left = Ring(STEPS)
        self._seconds = Ring(_MINUTE, 0)
        self._limit: int | None = None
        self._window: _Window | None = None
        self._foreign = 0  # of those of the window that are counted

    def ask(self, fact: RequestSent, now: datetime) -> None:
        """Record one request, and what the service said of its window."""
        minute = find_minute(now)
        self.counts[fact.urgency].add(minute)
        self._seconds.add(int(now.timestamp()))
        window = self._window
        if window is not None:
            window.answers += 1
        if fact.remaining is None or fact.limit is None or fact.resets_in is None or fact.method != "GET":
            return  # what it says of orders is another budget's
        ends_at = now + fact.resets_in
        if window is None or ends_at > window.ends_at + _FIXED:
            # One that ends ever later is no window but the last minute: there only steps tell of others.
            used, begin = fact.limit - fact.remaining, 0
            if window is None:
                begin = used - 1
            elif now < window.ends_at - _FIXED:
                begin = used - 1 - max(0, window.remaining - fact.remaining - 1)
            window = self._window = _Window(ends_at, begin, 1, fact.remaining)
            self._foreign = 0
        window.remaining = fact.remaining
        foreign = max(0, fact.limit - fact.remaining - window.begin - window.answers)
        self.others.add(minute, foreign - self._foreign)
        self._foreign = foreign
        self.left.put(minute, fact.remaining)
        self._limit = fact.limit

    def look(self, now: datetime, shift: timedelta) -> BudgetLately:
        minute, window = find_minute(now), self._window
        kinds = {str(urgency): _counted(ring, minute) for urgency, ring in self.counts.items()}
        kinds[OTHERS] = tuple(max(0, count) for count in _counted(self.others, minute))
        return BudgetLately(
            end=_end(minute) + shift,
            kinds=kinds,
            left=self.left.read(minute),
            used=int(sum(_counted(self._seconds, int(now.timestamp())))),
            limit=self._limit,
            remaining=None if window is None or window.ends_at <= now else window.remaining,
        )


@dataclass(slots=True)
class _Window:
    """The span in which the service counts: what it had counted when we looked first, and our answers since."""

    ends_at: datetime
    begin: int
    answers: int
    remaining: int


class SinkSeries:
    def __init__(self) -> None:
        self.delivered = Ring(STEPS, 0)
        self.delays = Delays(_HOUR)

    def look(self, now: datetime, shift: timedelta) -> SinkLately:
        minute = find_minute(now)
        return SinkLately(_end(minute) + shift, _counted(self.delivered, minute), self.delays.read(minute))


def find_minute(moment: datetime) -> int:
    return int(moment.timestamp()) // _MINUTE


def _end(minute: int) -> datetime:
    return datetime.fromtimestamp((minute + 1) * _MINUTE, UTC)


def _counted(ring: Ring, step: int) -> tuple[float, ...]:
    return tuple(count or 0 for count in ring.read(step))
