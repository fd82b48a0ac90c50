from __future__ import annotations

from datetime import timedelta

from dockbell.admin.tally import FeedTally, SinkTally, Tally
from dockbell.core.model import DELIVERED, Delivery, Event, Feed, Outcome, OutcomeKind, RunKind
from dockbell.telemetry import DeliverySettled, EventDied, FeedFails, RunEnded, SinkFails, Stopping

FEED = Feed("main", "items")
DELIVERY = Delivery(Event(FEED, 1, "a", "evt_1", "dockbell.item.created", "created", 1, b"{}"))


def test_the_runs_of_a_feed_add_up() -> None:
    tally = Tally([FEED], [])
    for kind, problem in ((RunKind.PASS, ""), (RunKind.POLL, "HTTP 503")):
        tally.hear(RunEnded(FEED, kind, 2, 300, 5, timedelta(seconds=1), problem))
    assert tally.feeds == {FEED: FeedTally(["pass", "poll"], 4, 600, 10, "HTTP 503")}


def test_a_feed_that_cannot_be_read_has_its_reason() -> None:
    tally = Tally([FEED], [])
    tally.hear(FeedFails(FEED, "the API does not accept the key"))
    assert tally.feeds[FEED].problem == "the API does not accept the key"


def test_the_deliveries_of_a_sink_add_up() -> None:
    tally = Tally([], ["erp", "idle"])
    tally.hear(Stopping())
    tally.hear(SinkFails("erp", "connection refused", timedelta(seconds=1)))
    assert tally.sinks["erp"].problem == "connection refused"
    for outcome in (DELIVERED, DELIVERED, Outcome(OutcomeKind.REFUSED, "HTTP 400")):
        tally.hear(DeliverySettled("erp", DELIVERY, outcome))
    tally.hear(EventDied("erp", FEED, "a", 1, "HTTP 400"))
    assert tally.sinks == {"erp": SinkTally(2, 1, 1, "HTTP 400"), "idle": SinkTally()}
