"""What is counted for Prometheus, from the facts as they are told."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from dockbell.config import Answer
from dockbell.core.model import (
    DELIVERED,
    ChangeKind,
    Delivery,
    Event,
    Feed,
    Outcome,
    OutcomeKind,
    RunKind,
    Statement,
    StatementKind,
    Urgency,
)
from dockbell.ports import Tally
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
    SourceWaits,
    Started,
    Stated,
    StoreFails,
)
from dockbell.telemetry.metrics import DESCRIPTIONS, Metrics
from tests.fakes import NOON

FEED = Feed("main", "packages")
LABELS = {"source": "main", "resource": "packages"}
ERP = {"sink": "erp"}
EVENT = Event(FEED, 1, "a", "evt_1", "dockbell.package.created", "created", 1, b"{}")
SECOND = timedelta(seconds=1)


def count(name: str, *facts: Fact, **labels: str) -> float | None:
    """Return what a sample is after some facts."""
    metrics = Metrics()
    for fact in facts:
        metrics.hear(fact)
    return metrics.registry.get_sample_value(f"dockbell_{name}", labels)


def ask(status: int | None) -> RequestSent:
    return RequestSent("main", Urgency.POLL, "/v1/packages", status, SECOND, None)


@pytest.mark.parametrize(
    ("status", "code"), [(200, "200"), (304, "304"), (429, "429"), (None, "none"), (42, "other"), (999, "other")]
)
def test_requests_are_counted_by_urgency_and_code(status: int | None, code: str) -> None:
    assert count("requests_total", ask(status), ask(status), source="main", kind="poll", code=code) == 2


RUN = RunEnded(FEED, RunKind.POLL, 2, 30, 4, 2 * SECOND, "", NOON, late=True, tally=Tally(missed=3, silent=2, held=1))


@pytest.mark.parametrize(
    ("fact", "name", "labels", "value"),
    [
        (ask(200), "request_duration_seconds_sum", {"source": "main"}, 1),
        (SourceWaits("main", "no answer", SECOND), "request_retries_total", {"source": "main"}, 1),
        (SourceFails("main", "HTTP 503"), "source_failures_total", {"source": "main"}, 1),
        (PageRead(FEED, RunKind.PASS, NOON, 1, 9, 0), "pages_total", LABELS | {"kind": "pass"}, 1),
        (RUN, "records_read_total", LABELS | {"kind": "poll"}, 30),
        (RUN, "runs_total", LABELS | {"kind": "poll", "outcome": "complete"}, 1),
        (RUN, "run_duration_seconds_sum", LABELS | {"kind": "poll"}, 2),
        (RUN, "runs_late_total", LABELS, 1),
        (RUN, "changes_missed_total", LABELS, 3),
        (RUN, "changes_silent_total", LABELS, 2),
        (RUN, "readings_held_total", LABELS, 1),
        (
            RunEnded(FEED, RunKind.PASS, 0, 0, 0, SECOND, "no answer"),
            "runs_total",
            LABELS | {"kind": "pass", "outcome": "incomplete"},
            1,
        ),
        (
            Stated(Statement(FEED, StatementKind.GAP, NOON, {})),
            "statements_total",
            LABELS | {"kind": "gap"},
            1,
        ),
        (ListingChanged(FEED, "pages are smaller"), "api_habits_changed_total", LABELS, 1),
        (NamedEventUnanswered(FEED, "low", "no such key", 5), "named_events_unanswered_total", LABELS, 5),
        (EventDied("erp", FEED, "a", 1, "HTTP 400"), "dead_letters_total", ERP, 1),
        (EventsTakenBack("erp", 7), "dead_letters_taken_back_total", ERP, 7),
        (SinkFails("erp", "connection refused", SECOND), "sink_failures_total", ERP, 1),
        (SinkOverrun("erp", FEED, None), "sink_overruns_total", ERP, 1),
        (EventsSifted("erp", FEED, 3, 8), "events_sifted_total", ERP | {"verdict": "held_back"}, 8),
        (EventsSifted("erp", FEED, 3, 8), "events_sifted_total", ERP | {"verdict": "passed"}, 3),
        (FilterUnanswered("erp", Answer.MISSING, 6), "filter_unanswered_total", ERP, 6),
        (StoreFails("store: has no room"), "store_outages_total", {}, 1),
        (AgentFails("janitor", RuntimeError("oops")), "agent_errors_total", {}, 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fact_is_counted(fact: Fact, name: str, labels: dict[str, str], value: float) -> None:
    assert count(name, fact, **labels) == value


def test_changes_are_timed_from_when_they_were_visible_to_the_answer_and_to_the_store() -> None:
    fact = ChangesStored(FEED, {ChangeKind.UPDATED: 2, ChangeKind.CREATED: 1}, (4 * SECOND, 6 * SECOND), SECOND)
    assert count("changes_total", fact, **LABELS, change="updated") == 2
    assert count("change_fetch_delay_seconds_sum", fact, **LABELS) == 10
    assert count("change_commit_delay_seconds_sum", fact, **LABELS) == 12
    assert count("change_commit_delay_seconds_bucket", fact, **LABELS, le="5.0") == 1


def test_deliveries_are_counted_by_fate_and_timed_when_they_are_taken() -> None:
    facts = (
        DeliverySettled("erp", Delivery(EVENT), DELIVERED, SECOND, 7 * SECOND),
        DeliverySettled("erp", Delivery(EVENT), DELIVERED, 2 * SECOND),
        DeliverySettled("erp", Delivery(EVENT), DELIVERED),
        DeliverySettled("erp", Delivery(EVENT, state_only=True), DELIVERED, SECOND, SECOND),
        DeliverySettled("erp", Delivery(EVENT), Outcome(OutcomeKind.FAILED, "HTTP 500"), SECOND, SECOND),
    )
    assert count("delivery_attempts_total", *facts, sink="erp", fate="delivered") == 4
    assert count("delivery_attempts_total", *facts, sink="erp", fate="failed") == 1
    assert count("delivery_delay_seconds_count", *facts, sink="erp") == 2
    assert count("delivery_delay_seconds_sum", *facts, sink="erp") == 3
    assert count("change_delivery_delay_seconds_count", *facts, **LABELS, sink="erp") == 1
    assert count("change_delivery_delay_seconds_sum", *facts, **LABELS, sink="erp") == 7


def test_counters_begin_at_zero_for_what_is_configured() -> None:
    metrics = Metrics()
    metrics.expect([FEED], ["erp"])
    sample = metrics.registry.get_sample_value
    assert sample("dockbell_changes_total", LABELS | {"change": "deleted"}) == 0
    assert sample("dockbell_delivery_attempts_total", ERP | {"fate": "refused"}) == 0
    assert sample("dockbell_dead_letters_total", ERP) == 0


def test_what_has_left_the_configuration_is_no_longer_told_of() -> None:
    metrics, other = Metrics(), Feed("main", "stock")
    metrics.expect([FEED, other, Feed("old", "stock")], ["erp", "floor"])
    metrics.hear(DeliverySettled("erp", Delivery(EVENT), DELIVERED))
    metrics.expect([other], ["floor"])
    told = [sample for metric in metrics.registry.collect() for sample in metric.samples]
    labels = {value for sample in told for value in sample.labels.values()}
    assert not labels & {"packages", "erp", "old"}
    assert labels >= {"stock", "floor", "main"}
    metrics.hear(DeliverySettled("erp", Delivery(EVENT), DELIVERED))  # it comes back
    assert metrics.registry.get_sample_value("dockbell_delivery_attempts_total", ERP | {"fate": "delivered"}) == 1


def test_what_comes_back_begins_at_zero_and_counts_on() -> None:
    metrics = Metrics()
    delivery = DeliverySettled("erp", Delivery(EVENT), DELIVERED, SECOND, SECOND)
    facts = (delivery, SinkFails("erp", "refused", SECOND), RUN)
    samples = {
        "delivery_attempts_total": ERP | {"fate": "delivered"},
        "delivery_delay_seconds_count": ERP,
        "change_delivery_delay_seconds_count": LABELS | ERP,
        "sink_failures_total": ERP,
        "runs_total": LABELS | {"kind": "poll", "outcome": "complete"},
    }

    def read() -> list[float | None]:
        return [metrics.registry.get_sample_value(f"dockbell_{name}", labels) for name, labels in samples.items()]

    metrics.expect([FEED], ["erp"])
    for fact in facts:
        metrics.hear(fact)
    metrics.expect([], [])
    for fact in facts:  # late ones, of what was in flight
        metrics.hear(fact)
    metrics.expect([], [])
    assert read() == [None] * 5
    metrics.expect([FEED], ["erp"])
    assert read() == [0, 0, None, 0, 0]  # most of all pairs of feeds and sinks may never have a delivery
    for fact in facts:
        metrics.hear(fact)
    assert read() == [1] * 5
    metrics.expect([], ["erp"])
    metrics.hear(delivery)  # a late one, of a feed that has left
    metrics.expect([], ["erp"])
    assert read() == [2, 2, None, 1, None]


def test_other_facts_are_not_counted() -> None:
    assert count("agent_errors_total", Started("acme", 1, ())) == 0


def test_every_metric_is_described_as_it_is_scraped() -> None:
    metrics = Metrics()
    described = {each.name.removesuffix("_total") for each in DESCRIPTIONS}
    assert described == {each.name for each in metrics.registry.collect() if each.name.startswith("dockbell_")}
    assert all(each.help.endswith(".") for each in DESCRIPTIONS)


def test_counting_a_delivery_costs_next_to_nothing() -> None:
    metrics = Metrics()
    fact = DeliverySettled("erp", Delivery(EVENT), DELIVERED, SECOND, SECOND)
    best = min(_time(metrics, fact) for _ in range(20))
    assert best < 20e-6  # it takes about 2 µs; a look-up of labels with each would take 5 and more


def _time(metrics: Metrics, fact: Fact) -> float:
    began = time.perf_counter()
    for _ in range(500):
        metrics.hear(fact)
    return (time.perf_counter() - began) / 500
