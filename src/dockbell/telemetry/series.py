"""The series behind :mod:`dockbell.telemetry.recent`: one object for each feed, source and sink, and what it returns.

All times that go in are of a clock that is never set; times that come out are shifted to ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from dockbell.core.model import RunKind, Urgency
from dockbell.telemetry import (
    PageRead,
    RequestSent,
    RunEnded,
)
from dockbell.telemetry.rings import Delay, Delays, Ring

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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come.

    Attributes:
        kind: Which kind of run.
        pages: Read so far.
        records: Read so far.
        expected: How many records it will probably have; None where nothing tells.
        began_at: By our clock.
        ends_at: When it will probably have ended; None where nothing tells.
    """

    kind: RunKind
    pages: int
    records: int
    expected: int | None
    began_at: datetime
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class FeedLately:
    """Recent measurements of a feed.

    Attributes:
        end: When the last of the steps ends: it is the running one.
        freshness: The largest age, in seconds, of the last complete run in each step; None before the first such run.
        kept: Runs of the last hour that asked in time.
        late: Those that asked later than the schedule says.
        delay: From the record's own timestamp until the change was stored, within the last hour; None where there were
            no changes.
        changed_at: When a change was stored last; None where that is not known.
        progress: Of the run that goes on; None where none does.
    """

    end: datetime
    freshness: tuple[float | None, ...]
    kept: int
    late: int
    delay: Delay | None
    changed_at: datetime | None
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class BudgetLately:
    """Recent measurements of a source's budget.

    Attributes:
        end: When the last of the steps ends: it is the running one.
        kinds: Requests in each step, by urgency; those of ``others`` are what the service counted beside ours.
        left: What the service said last in each step was left to all users of the key; None where it said nothing.
        used: Our own requests within the last minute.
        limit: The most in a window, by what the service said last; None where it never said.
        remaining: How much of the service's window is left; None where it did not say, or the window is over.
    """

    end: datetime
    kinds: Mapping[str, tuple[float, ...]]
    left: tuple[float | None, ...]
    used: int
    limit: int | None
    remaining: int | None


@dataclass(frozen=True, slots=True)
class SinkLately:
    """Recent measurements of a sink.

    Attributes:
        end: When the last of the steps ends: it is the running one.
        delivered: Events that its receiver took in each step.
        delay: From when an event was stored until it was taken, of the last hour's; None where there were none.
    """

    end: datetime
    delivered: tuple[float, ...]
    delay: Delay | None


class FeedSeries:
    """The measurements of one feed."""

    def __init__(self) -> None:
        self.freshness = Ring(STEPS)
        self.kept = Ring(_HOUR, 0)
        self.late = Ring(_HOUR, 0)
        self.delays = Delays(_HOUR)
        self.changed_at: datetime | None = None
        self.records: int | None = None
        self.running: dict[RunKind, tuple[PageRead, PageRead, datetime, datetime]] = {}
        self._known_at: datetime | None = None  # when the last complete run asked first
        self._written = 0  # the minute up to which freshness is written

    def read_page(self, fact: PageRead, now: datetime) -> None:
        """Record one page of a run."""
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
        """Return the measurements; ``shift`` is how far our clock was set ahead since the start."""
        self._write(now)
        minute = find_minute(now)
        return FeedLately(
            end=_end(minute) + shift,
            freshness=self.freshness.read(minute),
            kept=_total(self.kept, minute),
            late=_total(self.late, minute),
            delay=self.delays.read(minute),
            changed_at=None if self.changed_at is None else self.changed_at + shift,
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
    """The measurements of one source's budget."""

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
        """Return the measurements; ``shift`` is how far our clock was set ahead since the start."""
        minute, window = find_minute(now), self._window
        kinds = {str(urgency): _counted(ring, minute) for urgency, ring in self.counts.items()}
        kinds[OTHERS] = tuple(max(0, count) for count in _counted(self.others, minute))
        return BudgetLately(
            end=_end(minute) + shift,
            kinds=kinds,
            left=self.left.read(minute),
            used=_total(self._seconds, int(now.timestamp())),
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
    """The measurements of one sink."""

    def __init__(self) -> None:
        self.delivered = Ring(STEPS, 0)
        self.delays = Delays(_HOUR)

    def look(self, now: datetime, shift: timedelta) -> SinkLately:
        """Return the measurements; ``shift`` is how far our clock was set ahead since the start."""
        minute = find_minute(now)
        return SinkLately(_end(minute) + shift, _counted(self.delivered, minute), self.delays.read(minute))


def find_minute(moment: datetime) -> int:
    """Return the number of a moment's minute."""
    return int(moment.timestamp()) // _MINUTE


def _end(minute: int) -> datetime:
    return datetime.fromtimestamp((minute + 1) * _MINUTE, UTC)


def _counted(ring: Ring, step: int) -> tuple[float, ...]:
    return tuple(count or 0 for count in ring.read(step))


def _total(ring: Ring, step: int) -> int:
    return int(sum(_counted(ring, step)))
