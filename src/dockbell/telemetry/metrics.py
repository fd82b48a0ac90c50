"""Counters and histograms of what happens, fed by the facts, in the words of Prometheus.

Base units, names that end with them and counters with ``_total``; labels are names of the configuration and words of
ours, never keys, addresses or the texts of errors, so that their number is bounded whatever the API says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

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
    HabitChanged,
    NamedEventUnanswered,
    PageRead,
    RequestSent,
    RunEnded,
    SinkFails,
    SinkOverrun,
    SourceWaits,
    Stated,
    StoreFails,
)

_REQUEST: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_RUN: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_AGE: Final = (1, 2.5, 5, 10, 15, 20, 30, 45, 60, 120, 300, 600, 1800, 3600, 21_600, 86_400)
"""Half of the changes are a few seconds old at the defaults, and as old as an interval at the most."""
_DELIVERY: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 86_400)

_CODES: Final = range(100, 600)
_COUNTED: Final = (ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED, ChangeKind.RESTORED)


@dataclass(frozen=True, slots=True)
class Description:
    """What a metric is, for the documentation.

    Attributes:
        name: As it is scraped.
        kind: Its type.
        labels: The names of its labels.
        help: What it says.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


class Metrics:
    """Counts what it hears; :meth:`hear` is a listener of :class:`dockbell.telemetry.Telemetry`.

    Attributes:
        registry: What it has counted, and what the process uses.
        descriptions: Every metric of it, but for those of the process.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they double what is scraped, and the start of the process says the same
        self.registry = CollectorRegistry()
        self.descriptions: list[Description] = []
        self._feeds: set[Feed] = set()
        self._sinks: dict[str, _SinkCounters] = {}
        self._labelled: list[tuple[Counter | Histogram, tuple[str, ...]]] = []
        ProcessCollector(registry=self.registry)
        feed, run = ("source", "resource"), ("source", "resource", "kind")

        self._requests = self._count(
            "requests",
            "Requests to the API, by urgency and status code; code none: no answer.",
            "source",
            "kind",
            "code",
        )
        self._request_seconds = self._time("request_duration", "Round trips of requests.", _REQUEST, "source")
        self._retries = self._count("request_retries", "Requests that failed and were asked again.", "source")
        self._pages = self._count("pages", "Pages that were read and stored.", *run)
        self._records = self._count("records_read", "Records that runs have read, changed or not.", *run)
        self._runs = self._count("runs", "Polls and passes that ended, complete or incomplete.", *run, "outcome")
        self._run_seconds = self._time("run_duration", "How long polls and passes took.", _RUN, *run)
        self._late_runs = self._count("runs_late", "Runs that asked later than the schedule says.", *feed)
        self._changes = self._count("changes", "Changes of records that were stored.", *feed, "change")
        self._fetch = self._time(
            "change_fetch_delay",
            "From a changed record's own timestamp until the answer that showed the change.",
            _AGE,
            *feed,
        )
        self._commit = self._time(
            "change_commit_delay", "From a changed record's own timestamp until the change was stored.", _AGE, *feed
        )
        self._tallies = {
            "missed": self._count("changes_missed", "Changes that polls should have shown before they did.", *feed),
            "silent": self._count("changes_silent", "Changes that did not move their record's timestamp.", *feed),
            "held": self._count("readings_held", "Readings held because they were older than what is stored.", *feed),
            "drifted": self._count(
                "readings_drifted", "Readings held because many records differ by the same fields.", *feed
            ),
            "bad": self._count("records_bad", "Readings that could not be told apart or read.", *feed),
            "repeated": self._count("records_repeated", "Records that a run showed more than once.", *feed),
        }
        self._statements = self._count(
            "statements", "What was stated about feeds: reconciled, gap, rebaselined, held.", *feed, "kind"
        )
        self._habits = self._count("api_habits_changed", "Times that the API began to behave otherwise.", *feed)
        self._unnamed = self._count(
            "named_events_unanswered", "Changes of which a named event's condition was neither true nor false.", *feed
        )
        self._unnamed_in_time = self._count(
            "named_event_timeouts", "Named events published because their condition took too long to judge.", *feed
        )
        self._attempts = self._count(
            "delivery_attempts", "Attempts to deliver an event, by their fate.", "sink", "fate"
        )
        self._delivery = self._time(
            "delivery_delay", "From when an event was stored until the receiver took it.", _DELIVERY, "sink"
        )
        self._arrival = self._time(
            "change_delivery_delay",
            "From a changed record's own timestamp until the receiver took the change's event.",
            _AGE,
            "sink",
        )
        self._dead = self._count("dead_letters", "Events that became dead letters.", "sink")
        self._taken_back = self._count(
            "dead_letters_taken_back", "Dead letters owed again: the receiver refuses whatever it is offered.", "sink"
        )
        self._failures = self._count(
            "sink_failures", "Times that a sink could not reach its receiver, or was refused by it.", "sink"
        )
        self._overruns = self._count("sink_overruns", "Times that a sink lost events it was owed for too long.", "sink")
        self._sifted = self._count(
            "events_sifted", "Events of records that a sink's filters let through or hold back.", "sink", "verdict"
        )
        self._unanswered = self._count(
            "filter_unanswered", "Events of which a sink's condition was neither true nor false.", "sink"
        )
        self._unanswered_in_time = self._count(
            "filter_timeouts", "Events let through because a sink's condition took too long to judge.", "sink"
        )
        self._outages = self._count("store_outages", "Times that the store could not be written.")
        self._errors = self._count("agent_errors", "Errors that nobody foresaw; the agent began again.")

        self._hearers: Mapping[type[Fact], Callable[..., None]] = {
            DeliverySettled: self._hear_delivery,
            RequestSent: self._hear_request,
            SourceWaits: lambda fact: self._retries.labels(fact.source).inc(),
            PageRead: lambda fact: self._pages.labels(*self._feed(fact.feed), fact.kind).inc(),
            RunEnded: self._hear_run,
            ChangesStored: self._hear_changes,
            Stated: lambda fact: self._statements.labels(*self._feed(fact.statement.feed), fact.statement.kind).inc(),
            HabitChanged: lambda fact: self._habits.labels(*self._feed(fact.feed)).inc(),
            NamedEventUnanswered: self._hear_unnamed,
            EventDied: lambda fact: self._add(self._dead, fact.sink),
            EventsTakenBack: lambda fact: self._add(self._taken_back, fact.sink, fact.count),
            SinkFails: lambda fact: self._add(self._failures, fact.sink),
            SinkOverrun: lambda fact: self._add(self._overruns, fact.sink),
            EventsSifted: self._hear_sifted,
            FilterUnanswered: self._hear_unanswered,
            StoreFails: lambda _: self._outages.inc(),
            AgentFails: lambda _: self._errors.inc(),
        }

    def hear(self, fact: Fact) -> None:
        """Count a fact."""
        if (hearer := self._hearers.get(type(fact))) is not None:
            hearer(fact)

    def expect(self, feeds: Iterable[Feed], sinks: Iterable[str]) -> None:
        """Begin to count for these at 0, so that the first of anything is seen to be one; forget all others."""
        feeds, sinks = set(feeds), set(sinks)
        if feeds == self._feeds and sinks == self._sinks.keys():
            return
        for feed in self._feeds - feeds:
            self._forget({"source": feed.source, "resource": feed.resource})
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

    # Facts ------------------------------------------------------------------------------------------------------------

    def _hear_delivery(self, fact: DeliverySettled) -> None:
        counters = self._sinks.get(fact.sink) or self._sink(fact.sink)
        kind = fact.outcome.kind
        counters.attempts[kind]()
        if kind is not OutcomeKind.DELIVERED or fact.delivery.state_only:
            return
        if fact.waited is not None:
            counters.delay(fact.waited.total_seconds())
        if fact.age is not None:
            counters.arrival(fact.age.total_seconds())

    def _hear_request(self, fact: RequestSent) -> None:
        status = fact.status
        code = "none" if status is None else str(status) if status in _CODES else "other"
        self._requests.labels(fact.source, fact.urgency, code).inc()
        self._request_seconds.labels(fact.source).observe(fact.round_trip.total_seconds())

    def _hear_run(self, fact: RunEnded) -> None:
        feed = self._feed(fact.feed)
        self._runs.labels(*feed, fact.kind, "incomplete" if fact.problem else "complete").inc()
        self._run_seconds.labels(*feed, fact.kind).observe(fact.elapsed.total_seconds())
        self._records.labels(*feed, fact.kind).inc(fact.records)
        if fact.late:
            self._late_runs.labels(*feed).inc()
        for name, counter in self._tallies.items():
            if count := getattr(fact.tally, name):
                counter.labels(*feed).inc(count)

    def _hear_changes(self, fact: ChangesStored) -> None:
        feed, took = self._feed(fact.feed), fact.took.total_seconds()
        for kind, count in fact.kinds.items():
            self._changes.labels(*feed, kind).inc(count)
        fetch, commit = self._fetch.labels(*feed), self._commit.labels(*feed)
        for age in fact.ages:
            seconds = age.total_seconds()
            fetch.observe(seconds)
            commit.observe(seconds + took)

    def _hear_sifted(self, fact: EventsSifted) -> None:
        self._sink(fact.sink)
        self._sifted.labels(fact.sink, "passed").inc(fact.passed)
        self._sifted.labels(fact.sink, "held_back").inc(fact.held_back)

    def _hear_unnamed(self, fact: NamedEventUnanswered) -> None:
        counter = self._unnamed_in_time if fact.answer == Answer.COSTLY else self._unnamed
        counter.labels(*self._feed(fact.feed)).inc(fact.count)

    def _hear_unanswered(self, fact: FilterUnanswered) -> None:
        self._add(self._unanswered_in_time if fact.answer == Answer.COSTLY else self._unanswered, fact.sink, fact.count)

    # What there is ----------------------------------------------------------------------------------------------------

    def _count(self, name: str, text: str, *labels: str) -> Counter:
        counter = Counter(name, text, labels, namespace="dockbell", registry=self.registry)
        self.descriptions.append(Description(f"dockbell_{name}_total", "counter", labels, text))
        self._labelled.append((counter, labels))
        return counter

    def _time(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        histogram = Histogram(
            name, text, labels, namespace="dockbell", unit="seconds", buckets=buckets, registry=self.registry
        )
        self.descriptions.append(Description(f"dockbell_{name}_seconds", "histogram", labels, text))
        self._labelled.append((histogram, labels))
        return histogram

    def _add(self, counter: Counter, sink: str, number: int = 1) -> None:
        self._sink(sink)
        counter.labels(sink).inc(number)

    def _sink(self, sink: str) -> _SinkCounters:
        """Return the counters of a sink; where it is told of for the first time, all of them begin."""
        counters = self._sinks.get(sink)
        if counters is None:
            for counter in (self._dead, self._taken_back, self._failures, self._overruns):
                counter.labels(sink)
            for counter in (self._unanswered, self._unanswered_in_time):
                counter.labels(sink)
            for verdict in ("passed", "held_back"):
                self._sifted.labels(sink, verdict)
            attempts = {kind: self._attempts.labels(sink, kind).inc for kind in OutcomeKind}
            counters = self._sinks[sink] = _SinkCounters(
                attempts, self._delivery.labels(sink).observe, self._arrival.labels(sink).observe
            )
        return counters

    def _feed(self, feed: Feed) -> tuple[str, str]:
        """Return the labels of a feed; where it is told of for the first time, all its counters begin."""
        name = feed.source, feed.resource
        if feed not in self._feeds:
            self._feeds.add(feed)
            self._begin_feed(feed, name)
        return name

    def _begin_feed(self, feed: Feed, name: tuple[str, str]) -> None:
        for counter in (
            self._late_runs,
            self._habits,
            self._unnamed,
            self._unnamed_in_time,
            *self._tallies.values(),
        ):
            counter.labels(*name)
        for histogram in (self._fetch, self._commit):
            histogram.labels(*name)
        for change in _COUNTED:
            self._changes.labels(*name, change)
        for kind in StatementKind:
            self._statements.labels(*name, kind)
        for run in (RunKind.POLL, RunKind.PASS):
            for outcome in ("complete", "incomplete"):
                self._runs.labels(*name, run, outcome)
        self._retries.labels(feed.source)
        for urgency in Urgency:
            self._requests.labels(feed.source, urgency, "200")

    def _forget(self, labels: dict[str, str]) -> None:
        for metric, names in self._labelled:
            if labels.keys() <= set(names):
                metric.remove_by_labels(labels)


@dataclass(frozen=True, slots=True)
class _SinkCounters:
    """The counters of one sink, looked up once: they are asked for with every delivery."""

    attempts: Mapping[OutcomeKind, Callable[[], None]]
    delay: Callable[[float], None]
    arrival: Callable[[float], None]
