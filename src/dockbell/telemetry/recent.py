"""Measurements of the last four hours for the status page, in memory, minute by minute.

Each feed, source and sink has a few rings of fixed length (:mod:`dockbell.telemetry.series`), so that memory grows
neither with time nor with traffic. A restart loses them, but for what the stored runs tell (:meth:`Recent.recall`).

Minutes are numbered by a clock that is never set. When our own clock is set, only the returned times move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from dockbell.core.model import Feed, OutcomeKind
from dockbell.host.system import elapsed
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
from dockbell.telemetry.series import (
    BudgetLately,
    FeedLately,
    FeedSeries,
    SinkLately,
    SinkSeries,
    SourceSeries,
    find_minute,
)

_NONE: Final = timedelta(0)


class Recent:
    """The measurements; :meth:`hear` is a listener of :class:`dockbell.telemetry.Telemetry`.

    ``steady`` returns the seconds of a clock that is never set, since some origin.
    """

    def __init__(
        self, now: Callable[[], datetime], steady: Callable[[], float] = lambda: elapsed().total_seconds()
    ) -> None:
        self._now = now
        self._steady = steady
        self._began = now() - timedelta(seconds=steady())
        self._feeds: defaultdict[Feed, FeedSeries] = defaultdict(FeedSeries)
        self._sources: defaultdict[str, SourceSeries] = defaultdict(SourceSeries)
        self._sinks: defaultdict[str, SinkSeries] = defaultdict(SinkSeries)
        self._hearers: Mapping[type[Fact], Callable[..., None]] = {
            DeliverySettled: self._hear_delivery,
            RequestSent: lambda fact: self._sources[fact.source].ask(fact, self._time()),
            PageRead: lambda fact: self._feeds[fact.feed].read_page(fact, self._time()),
            RunEnded: self._hear_run,
            ChangesStored: self._hear_changes,
            FeedFails: lambda fact: self.forget_progress([fact.feed]),
            AgentFails: lambda fact: self.forget_progress([feed for feed in self._feeds if fact.agent == str(feed)]),
            StoreFails: lambda _: self.forget_progress(list(self._feeds)),
        }

    def hear(self, fact: Fact) -> None:
        if (hearer := self._hearers.get(type(fact))) is not None:
            hearer(fact)

    def recall(self, feed: Feed, runs: Iterable[tuple[datetime, datetime]], *, records: int | None = None) -> None:
        """Record what is stored of a feed from before the start.

        ``runs`` are its complete polls and passes, oldest first: when they began and ended, by our clock. Its last
        complete pass had so many ``records``.
        """
        known, now, here = self._feeds[feed], self._now(), self._time()
        for began_at, ended_at in runs:
            # What was stored before our clock was set back may seem to be ahead.
            known.complete(here - max(now - began_at, _NONE), here - max(now - ended_at, _NONE))
        known.records = records

    def keep(self, feeds: Iterable[Feed], sinks: Iterable[str]) -> None:
        """Forget all but these, and the sources of these feeds."""
        feeds = set(feeds)
        for feed in self._feeds.keys() - feeds:
            del self._feeds[feed]
        for source in self._sources.keys() - {feed.source for feed in feeds}:
            del self._sources[source]
        for sink in self._sinks.keys() - set(sinks):
            del self._sinks[sink]

    def forget_progress(self, feeds: Iterable[Feed]) -> None:
        """Forget the progress of the runs of these feeds, which were interrupted and begin again."""
        for feed in feeds:
            self._feeds[feed].running.clear()

    def feed(self, feed: Feed, *, stored: int | None = None) -> FeedLately:
        """Return the measurements of a feed; ``stored`` records are the expected length of a first pass."""
        return self._feeds[feed].look(self._time(), self._find_shift(), stored)

    def budget(self, source: str) -> BudgetLately:
        return self._sources[source].look(self._time(), self._find_shift())

    def sink(self, sink: str) -> SinkLately:
        return self._sinks[sink].look(self._time(), self._find_shift())

    def _time(self) -> datetime:
        """Return what our clock would show if it had not been set since the start."""
        return self._began + timedelta(seconds=self._steady())

    def _find_shift(self) -> timedelta:
        """Return how far our clock was set ahead since the start, in whole seconds."""
        return timedelta(seconds=round((self._now() - self._time()).total_seconds()))

    def _hear_delivery(self, fact: DeliverySettled) -> None:
        if fact.outcome.kind is OutcomeKind.DELIVERED and not fact.delivery.state_only:
            minute = find_minute(self._time())
            sink = self._sinks[fact.sink]
            sink.delivered.add(minute)
            if fact.waited is not None:
                sink.delays.add(minute, fact.waited.total_seconds())

    def _hear_run(self, fact: RunEnded) -> None:
        age = None if fact.asked_at is None else max(self._now() - (fact.sent_at or fact.asked_at), _NONE)
        self._feeds[fact.feed].end_run(fact, self._time(), age)

    def _hear_changes(self, fact: ChangesStored) -> None:
        minute = find_minute(self._time())
        for age in fact.ages:
            self._feeds[fact.feed].delays.add(minute, (age + fact.took).total_seconds())
