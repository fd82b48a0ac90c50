"""What the status page shows of the last hours, kept in memory as it happens, minute by minute.

Each feed, source and sink has a few rings of fixed length: what they hold grows with their number, never with time or
traffic. A restart forgets it, but for what the stored runs tell (:meth:`Recent.recall`).

Minutes are numbered by a clock that nobody sets. Our own may be set back or ahead: then only what is returned moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from dockbell.core.model import Feed, OutcomeKind, RunKind, Urgency
from dockbell.telemetry import (
    AgentFails,
    ChangesStored,
    DeliverySettled,
    Fact,
    FeedFails,
    PageRead,
    RequestSent,
    RunEnded,
    StoreFails,
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
"""A service's window that ends later than it was said to by less is the same one."""
_SLEEPLESS: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while the machine sleeps, where there is such a clock."""
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
    """What a feed was like lately.

    Attributes:
        end: When the last of the steps ends: it is the running one.
        freshness: How old, in seconds, what was known of the feed was at its worst in each step; None before it was
            read completely for the first time.
        kept: Runs of the last hour that asked in time.
        late: Those that asked later than the schedule says.
        delay: From the record's own timestamp until the change was stored, of the last hour's changes; None where
            there were none.
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
    """What a source's budget was used for lately.

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
    """What a sink was like lately.

    Attributes:
        end: When the last of the steps ends: it is the running one.
        delivered: Events that its receiver took in each step.
        delay: From when an event was stored until it was taken, of the last hour's; None where there were none.
    """

    end: datetime
    delivered: tuple[float, ...]
    delay: Delay | None


class Recent:
    """Keeps it; :meth:`hear` is a listener of :class:`dockbell.telemetry.Telemetry`.

    Args:
        now: Our clock.
        steady: Seconds of a clock that nobody sets, from any moment on.
    """

    def __init__(
        self, now: Callable[[], datetime], steady: Callable[[], float] = lambda: time.clock_gettime(_SLEEPLESS)
    ) -> None:
        self._now = now
        self._steady = steady
        self._began = now() - timedelta(seconds=steady())
        self._feeds: dict[Feed, _Feed] = {}
        self._sources: dict[str, _Source] = {}
        self._sinks: dict[str, _Sink] = {}
        self._hearers: Mapping[type[Fact], Callable[..., None]] = {
            DeliverySettled: self._hear_delivery,
            RequestSent: self._hear_request,
            PageRead: self._hear_page,
            RunEnded: self._hear_run,
            ChangesStored: self._hear_changes,
            FeedFails: self._hear_failure,
            AgentFails: self._hear_error,
            StoreFails: lambda _: self.forget_progress(list(self._feeds)),
        }

    def hear(self, fact: Fact) -> None:
        """Take in a fact."""
        if (hearer := self._hearers.get(type(fact))) is not None:
            hearer(fact)

    def recall(
        self,
        feed: Feed,
        runs: Iterable[tuple[datetime, datetime]],
        *,
        records: int | None = None,
        changed_at: datetime | None = None,
    ) -> None:
        """Take in what is stored of a feed from before the start.

        Args:
            feed: The feed.
            runs: Its complete polls and passes, oldest first: when they began and ended, by our clock.
            records: How many its last complete pass had.
            changed_at: When a change of it was stored last.
        """
        known, now, here = self._feed(feed), self._now(), self._time()
        for began_at, ended_at in runs:
            # What was stored before our clock was set back may seem to be ahead.
            known.complete(here - max(now - began_at, _NONE), here - max(now - ended_at, _NONE))
        known.records = records
        known.changed_at = None if changed_at is None else here - max(now - changed_at, _NONE)

    def keep(self, feeds: Iterable[Feed], sinks: Iterable[str]) -> None:
        """Forget all but these, and the sources of these feeds."""
        feeds, sinks = set(feeds), set(sinks)
        sources = {feed.source for feed in feeds}
        self._feeds = {feed: each for feed, each in self._feeds.items() if feed in feeds}
        self._sources = {name: each for name, each in self._sources.items() if name in sources}
        self._sinks = {name: each for name, each in self._sinks.items() if name in sinks}

    def forget_progress(self, feeds: Iterable[Feed]) -> None:
        """Forget how far the runs of these have come: they were cut short, and begin again."""
        for feed in feeds:
            self._feed(feed).running.clear()

    def feed(self, feed: Feed, *, stored: int | None = None) -> FeedLately:
        """Return what a feed was like; ``stored`` is how many of its records are, for the progress of a first pass."""
        return self._feed(feed).look(self._time(), self._find_shift(), stored)

    def budget(self, source: str) -> BudgetLately:
        """Return what a source's budget was used for."""
        return self._source(source).look(self._time(), self._find_shift())

    def sink(self, sink: str) -> SinkLately:
        """Return what a sink was like."""
        return self._sink(sink).look(self._time(), self._find_shift())

    def _time(self) -> datetime:
        """Return what our clock would show if nobody had set it since the start."""
        return self._began + timedelta(seconds=self._steady())

    def _find_shift(self) -> timedelta:
        """Return how far our clock was set ahead since the start, in whole seconds."""
        return timedelta(seconds=round((self._now() - self._time()).total_seconds()))

    def _feed(self, feed: Feed) -> _Feed:
        return self._feeds.get(feed) or self._feeds.setdefault(feed, _Feed())

    def _source(self, source: str) -> _Source:
        return self._sources.get(source) or self._sources.setdefault(source, _Source())

    def _sink(self, sink: str) -> _Sink:
        return self._sinks.get(sink) or self._sinks.setdefault(sink, _Sink())

    # Facts ------------------------------------------------------------------------------------------------------------

    def _hear_delivery(self, fact: DeliverySettled) -> None:
        if fact.outcome.kind is OutcomeKind.DELIVERED and not fact.delivery.state_only:
            minute = _minute(self._time())
            sink = self._sinks.get(fact.sink) or self._sink(fact.sink)
            sink.delivered.add(minute)
            if fact.waited is not None:
                sink.delays.add(minute, fact.waited.total_seconds())

    def _hear_request(self, fact: RequestSent) -> None:
        self._source(fact.source).ask(fact, self._time())

    def _hear_page(self, fact: PageRead) -> None:
        self._feed(fact.feed).read_page(fact, self._time())

    def _hear_run(self, fact: RunEnded) -> None:
        age = None if fact.asked_at is None else max(self._now() - (fact.sent_at or fact.asked_at), _NONE)
        self._feed(fact.feed).end_run(fact, self._time(), age)

    def _hear_changes(self, fact: ChangesStored) -> None:
        feed, now = self._feed(fact.feed), self._time()
        feed.changed_at = now
        for age in fact.ages:
            feed.delays.add(_minute(now), (age + fact.took).total_seconds())

    def _hear_failure(self, fact: FeedFails) -> None:
        self.forget_progress([fact.feed])

    def _hear_error(self, fact: AgentFails) -> None:
        self.forget_progress([feed for feed in self._feeds if fact.agent == str(feed)])


# All times from here on are of the clock that nobody sets; what is returned is shifted to ours.


class _Feed:
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
        first, _, began, _ = self.running.get(fact.kind) or (fact, fact, now, now)
        if fact.pages <= first.pages or fact.began_at != first.began_at:  # it has begun again
            first, began = fact, now
        self.running[fact.kind] = (first, fact, began, now)

    def end_run(self, fact: RunEnded, now: datetime, age: timedelta | None) -> None:
        """Take in that a run ended whose first request was sent so long ago; None where none was answered."""
        self.running.pop(fact.kind, None)
        if fact.late is not None:
            (self.late if fact.late else self.kept).add(_minute(now))
        if fact.problem or age is None or fact.kind is RunKind.TRAILING:
            return
        if fact.kind is RunKind.PASS:
            self.records = fact.records
        self.complete(now - age, now)

    def complete(self, began_at: datetime, ended_at: datetime) -> None:
        """Take in that all was known that there was at ``began_at``."""
        self._write(ended_at)
        self._known_at = max(self._known_at or began_at, began_at)
        self._write(ended_at)

    def look(self, now: datetime, shift: timedelta, stored: int | None) -> FeedLately:
        self._write(now)
        minute = _minute(now)
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
        """Write how old what was known has become in each step since this was done last."""
        minute = _minute(now)
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


class _Source:
    def __init__(self) -> None:
        self.counts = {urgency: Ring(STEPS, 0) for urgency in Urgency}
        self.others = Ring(STEPS, 0)
        self.left = Ring(STEPS)
        self._seconds = Ring(_MINUTE, 0)
        self._limit: int | None = None
        self._window: _Window | None = None
        self._foreign = 0  # of those of the window that are counted

    def ask(self, fact: RequestSent, now: datetime) -> None:
        minute = _minute(now)
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
        minute, window = _minute(now), self._window
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


class _Sink:
    def __init__(self) -> None:
        self.delivered = Ring(STEPS, 0)
        self.delays = Delays(_HOUR)

    def look(self, now: datetime, shift: timedelta) -> SinkLately:
        minute = _minute(now)
        return SinkLately(_end(minute) + shift, _counted(self.delivered, minute), self.delays.read(minute))


def _minute(moment: datetime) -> int:
    return int(moment.timestamp()) // _MINUTE


def _end(minute: int) -> datetime:
    return datetime.fromtimestamp((minute + 1) * _MINUTE, UTC)


def _counted(ring: Ring, step: int) -> tuple[float, ...]:
    return tuple(count or 0 for count in ring.read(step))


def _total(ring: Ring, step: int) -> int:
    return int(sum(_counted(ring, step)))
