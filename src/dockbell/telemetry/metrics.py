"""Counters and histograms of what happens, fed by the facts, in the words of Prometheus.

Base units, names that end with them and counters with ``_total``; labels are names of the configuration and words of
ours, never keys, addresses or the texts of errors, so that their number is bounded whatever the API says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.process_collector import ProcessCollector

from dockbell.config import Answer
from dockbell.core.model import ChangeKind, Feed, OutcomeKind, RunKind, StatementKind, Urgency
from dockbell.telemetry import (
    AgentFails,
    ChangesStored,
    DeliverySettled,
    EventDied,
    EventsSifted,
    EventsTakenBack,
    Fact,
    FilterUnanswered,
    ListingChanged,
    NamedEventUnanswered,
    PageRead,
    RequestSent,
    RunEnded,
    SinkFails,
    SinkOverrun,
    SourceFails,
    SourcesClaimed,
    SourcesHandedOver,
    SourceWaits,
    Stated,
    StoreFails,
)

_REQUEST: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_RUN: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_AGE: Final = (0.5, 1, 2.5, 5, 10, 15, 20, 30, 45, 60, 120, 300, 600, 900, 1800, 3600, 21_600, 86_400)
"""Changes are as old as half the interval in the mean, which is from a second to the default ``at_most`` of stock."""
_DELIVERY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 86_400)

_CODES: Final = range(100, 600)
_COUNTED: Final = (ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED, ChangeKind.RESTORED)

_FEED: Final = ("source", "resource")
_RUNS: Final = ("source", "resource", "kind")
_SINK: Final = ("sink",)
_COUNTERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "requests": ("Requests to the API, by urgency and status code; code none: no answer.", ("source", "kind", "code")),
    "request_retries": ("Requests that failed and were sent again.", ("source",)),
    "source_failures": ("Times that a source stopped answering.", ("source",)),
    "pages": ("Pages read and stored.", _RUNS),
    "records_read": ("Records read by runs, changed or not.", _RUNS),
    "runs": ("Polls and passes that ended, complete or incomplete.", (*_RUNS, "outcome")),
    "runs_late": ("Runs that sent their request later than scheduled, or got no answer.", _FEED),
    "changes": ("Stored changes of records.", (*_FEED, "change")),
    "changes_missed": ("Changes that polls should have shown earlier.", _FEED),
    "changes_silent": ("Changes that did not move their record's timestamp.", _FEED),
    "readings_held": ("Readings held because they were older than the stored records.", _FEED),
    "readings_drifted": ("Readings held because many records differ in the same fields.", _FEED),
    "records_bad": ("Readings that dockbell could not read or tell apart.", _FEED),
    "records_repeated": ("Records that a run showed more than once.", _FEED),
    "statements": ("Statements about feeds: reconciled, gap, rebaselined, held.", (*_FEED, "kind")),
    "api_habits_changed": ("Detected changes in how the API behaves.", _FEED),
    "named_events_unanswered": ("Changes for which the condition of a named event was neither true nor false.", _FEED),
    "named_event_timeouts": ("Named events published because their condition took too long to evaluate.", _FEED),
    "delivery_attempts": ("Attempts to deliver an event, by outcome.", ("sink", "fate")),
    "dead_letters": ("Events that became dead letters.", _SINK),
    "dead_letters_taken_back": ("Dead letters that are owed again because the receiver refuses everything.", _SINK),
    "sink_failures": ("Times that a sink could not reach its receiver, or that the receiver refused it.", _SINK),
    "sink_overruns": ("Times that a sink lost events because they were owed for too long.", _SINK),
    "events_sifted": ("Events of records that a sink's filters let through or hold back.", ("sink", "verdict")),
    "filter_unanswered": ("Events for which a sink's condition was neither true nor false.", _SINK),
    "filter_timeouts": ("Events let through because a sink's condition took too long to evaluate.", _SINK),
    "store_outages": ("Times that dockbell could not write to the store.", ()),
    "sources_claimed": ("Shared sources that this process has taken.", ()),
    "sources_taken_over": ("Sources that this process has taken over from processes that died.", ()),
    "sources_handed_over": ("Sources that this process has handed over to others.", ()),
    "agent_errors": ("Unexpected errors of agents; each agent restarted.", ()),
}
"""What each of them says, and its labels, by its name without ``dockbell_`` and ``_total``."""
_HISTOGRAMS: Final[Mapping[str, tuple[str, tuple[str, ...], Sequence[float]]]] = {
    "request_duration": ("Round-trip times of requests.", ("source",), _REQUEST),
    "run_duration": ("Durations of polls and passes.", _RUNS, _RUN),
    "change_fetch_delay": (
        "Time from when a change became visible in the API until the answer that showed it.",
        _FEED,
        _AGE,
    ),
    "change_commit_delay": ("Time from when a change became visible in the API until it was stored.", _FEED, _AGE),
    "delivery_delay": ("Time from when an event was stored until the receiver took it.", _SINK, _DELIVERY),
    "change_delivery_delay": (
        "Time from when a change became visible in the API until the receiver took its event.",
        (*_FEED, *_SINK),
        _AGE,
    ),
}
"""The same, and its buckets, without ``_seconds``."""
_TALLIES: Final = {
    "missed": "changes_missed",
    "silent": "changes_silent",
    "held": "readings_held",
    "drifted": "readings_drifted",
    "bad": "records_bad",
    "repeated": "records_repeated",
}
"""The counters of a run's tally, by its fields."""


class Description(msgspec.Struct, frozen=True):
    """What a metric is, for the documentation."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


DESCRIPTIONS: Final = (
    *(Description(f"dockbell_{name}_total", "counter", labels, text) for name, (text, labels) in _COUNTERS.items()),
    *(
        Description(f"dockbell_{name}_seconds", "histogram", labels, text)
        for name, (text, labels, _) in _HISTOGRAMS.items()
    ),
)
"""Every metric of :class:`Metrics`, but for those of the process."""


class _SinkCounters(msgspec.Struct, frozen=True):
    """The counters of one sink, looked up once: they are asked for with every delivery."""

    attempts: Mapping[OutcomeKind, Callable[[], None]]
    delay: Callable[[float], None]
    arrivals: dict[Feed, Callable[[float], None]] = msgspec.field(default_factory=dict)  # of feeds that had deliveries


class Metrics:
    """Counts facts; :meth:`hear` is a listener of :class:`dockbell.telemetry.Telemetry`.

    Attributes:
        registry: What it has counted, and what the process uses.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they double what is scraped, and the start of the process says the same
        self.registry = CollectorRegistry()
        self._feeds: set[Feed] = set()
        self._sinks: dict[str, _SinkCounters] = {}
        ProcessCollector(registry=self.registry)
        given: Any = {"namespace": "dockbell", "registry": self.registry}
        self._counters = {name: Counter(name, text, labels, **given) for name, (text, labels) in _COUNTERS.items()}
        self._histograms = {
            name: Histogram(name, text, labels, unit="seconds", buckets=buckets, **given)
            for name, (text, labels, buckets) in _HISTOGRAMS.items()
        }
        self._hearers: Mapping[type[Fact], Callable[..., None]] = {
            DeliverySettled: self._hear_delivery,
            RequestSent: self._hear_request,
            SourceWaits: lambda fact: self._counters["request_retries"].labels(fact.source).inc(),
            SourceFails: lambda fact: self._counters["source_failures"].labels(fact.source).inc(),
            PageRead: lambda fact: self._counters["pages"].labels(*self._feed(fact.feed), fact.kind).inc(),
            RunEnded: self._hear_run,
            ChangesStored: self._hear_changes,
            Stated: self._hear_statement,
            ListingChanged: lambda fact: self._counters["api_habits_changed"].labels(*self._feed(fact.feed)).inc(),
            NamedEventUnanswered: self._hear_unnamed,
            EventDied: lambda fact: self._add("dead_letters", fact.sink),
            EventsTakenBack: lambda fact: self._add("dead_letters_taken_back", fact.sink, fact.count),
            SinkFails: lambda fact: self._add("sink_failures", fact.sink),
            SinkOverrun: lambda fact: self._add("sink_overruns", fact.sink),
            EventsSifted: self._hear_sifted,
            FilterUnanswered: self._hear_unanswered,
            StoreFails: lambda _: self._counters["store_outages"].inc(),
            SourcesClaimed: self._hear_claimed,
            SourcesHandedOver: lambda fact: self._counters["sources_handed_over"].inc(fact.count),
            AgentFails: lambda _: self._counters["agent_errors"].inc(),
        }

    def hear(self, fact: Fact) -> None:
        if (hearer := self._hearers.get(type(fact))) is not None:
            hearer(fact)

    def expect(self, feeds: Iterable[Feed], sinks: Iterable[str]) -> None:
        """Begin to count for these at 0, so that the first of anything is seen to be one; forget all others."""
        feeds, sinks = set(feeds), set(sinks)
        if feeds == self._feeds and sinks == self._sinks.keys():
            return
        for feed in self._feeds - feeds:
            self._forget({"source": feed.source, "resource": feed.resource})
            for counters in self._sinks.values():
                counters.arrivals.pop(feed, None)
        for source in {feed.source for feed in self._feeds} - {feed.source for feed in feeds}:
            self._forget({"source": source})
        for sink in self._sinks.keys() - sinks:
            self._forget({"sink": sink})
            del self._sinks[sink]
        self._feeds &= feeds
        for feed in sorted(feeds):
            self._feed(feed)
        for sink in sorted(sinks):
            self._sink(sink)

    def _hear_delivery(self, fact: DeliverySettled) -> None:
        counters = self._sinks.get(fact.sink) or self._sink(fact.sink)
        kind = fact.outcome.kind
        counters.attempts[kind]()
        if kind is not OutcomeKind.DELIVERED or fact.delivery.state_only:
            return
        if fact.waited is not None:
            counters.delay(fact.waited.total_seconds())
        if fact.age is not None:
            feed = fact.delivery.event.feed
            arrive = counters.arrivals.get(feed)
            if arrive is None:
                arrival = self._histograms["change_delivery_delay"].labels(*self._feed(feed), fact.sink)
                arrive = counters.arrivals[feed] = arrival.observe
            arrive(fact.age.total_seconds())

    def _hear_request(self, fact: RequestSent) -> None:
        status = fact.status
        code = "none" if status is None else str(status) if status in _CODES else "other"
        self._counters["requests"].labels(fact.source, fact.urgency, code).inc()
        self._histograms["request_duration"].labels(fact.source).observe(fact.round_trip.total_seconds())

    def _hear_claimed(self, fact: SourcesClaimed) -> None:
        self._counters["sources_claimed"].inc(fact.count)
        self._counters["sources_taken_over"].inc(fact.taken_over)

    def _hear_run(self, fact: RunEnded) -> None:
        feed, counters = self._feed(fact.feed), self._counters
        counters["runs"].labels(*feed, fact.kind, "incomplete" if fact.problem else "complete").inc()
        self._histograms["run_duration"].labels(*feed, fact.kind).observe(fact.elapsed.total_seconds())
        counters["records_read"].labels(*feed, fact.kind).inc(fact.records)
        if fact.late:
            counters["runs_late"].labels(*feed).inc()
        for member, name in _TALLIES.items():
            if count := getattr(fact.tally, member):
                counters[name].labels(*feed).inc(count)

    def _hear_changes(self, fact: ChangesStored) -> None:
        feed, took = self._feed(fact.feed), fact.took.total_seconds()
        for kind, count in fact.kinds.items():
            self._counters["changes"].labels(*feed, kind).inc(count)
        fetch, commit = (self._histograms[f"change_{step}_delay"].labels(*feed) for step in ("fetch", "commit"))
        for age in fact.ages:
            seconds = age.total_seconds()
            fetch.observe(seconds)
            commit.observe(seconds + took)

    def _hear_statement(self, fact: Stated) -> None:
        self._counters["statements"].labels(*self._feed(fact.statement.feed), fact.statement.kind).inc()

    def _hear_sifted(self, fact: EventsSifted) -> None:
        self._sink(fact.sink)
        self._counters["events_sifted"].labels(fact.sink, "passed").inc(fact.passed)
        self._counters["events_sifted"].labels(fact.sink, "held_back").inc(fact.held_back)

    def _hear_unnamed(self, fact: NamedEventUnanswered) -> None:
        name = "named_event_timeouts" if fact.answer == Answer.COSTLY else "named_events_unanswered"
        self._counters[name].labels(*self._feed(fact.feed)).inc(fact.count)

    def _hear_unanswered(self, fact: FilterUnanswered) -> None:
        name = "filter_timeouts" if fact.answer == Answer.COSTLY else "filter_unanswered"
        self._add(name, fact.sink, fact.count)

    def _add(self, name: str, sink: str, number: int = 1) -> None:
        self._sink(sink)
        self._counters[name].labels(sink).inc(number)

    def _sink(self, sink: str) -> _SinkCounters:
        """Return the counters of a sink; where it is told of for the first time, all of them begin."""
        counters = self._sinks.get(sink)
        if counters is None:
            self._begin(_SINK, sink)
            for verdict in ("passed", "held_back"):
                self._counters["events_sifted"].labels(sink, verdict)
            attempts = {kind: self._counters["delivery_attempts"].labels(sink, kind).inc for kind in OutcomeKind}
            counters = self._sinks[sink] = _SinkCounters(
                attempts, self._histograms["delivery_delay"].labels(sink).observe
            )
        return counters

    def _feed(self, feed: Feed) -> tuple[str, str]:
        """Return the labels of a feed; where it is told of for the first time, all its counters begin."""
        name = feed.source, feed.resource
        if feed not in self._feeds:
            self._feeds.add(feed)
            self._begin(_FEED, *name)
            for change in _COUNTED:
                self._counters["changes"].labels(*name, change)
            for kind in StatementKind:
                self._counters["statements"].labels(*name, kind)
            for run in (RunKind.POLL, RunKind.PASS):
                for outcome in ("complete", "incomplete"):
                    self._counters["runs"].labels(*name, run, outcome)
            self._begin(("source",), feed.source)
            for urgency in Urgency:
                self._counters["requests"].labels(feed.source, urgency, "200")
        return name

    def _begin(self, labels: tuple[str, ...], *values: str) -> None:
        """Begin the metrics that have exactly these labels."""
        for name, counter in self._counters.items():
            if _COUNTERS[name][1] == labels:
                counter.labels(*values)
        for name, histogram in self._histograms.items():
            if _HISTOGRAMS[name][1] == labels:
                histogram.labels(*values)

    def _forget(self, labels: dict[str, str]) -> None:
        for name, counter in self._counters.items():
            if labels.keys() <= set(_COUNTERS[name][1]):
                counter.remove_by_labels(labels)
        for name, histogram in self._histograms.items():
            if labels.keys() <= set(_HISTOGRAMS[name][1]):
                histogram.remove_by_labels(labels)
