"""What ``/metrics`` says of how everything stands; what is counted has tests of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dockbell.core.delays import QUARTER, MeasuredDelays, find_bucket
from dockbell.core.model import RunKind, Urgency
from dockbell.core.planning.division import Reason
from dockbell.core.planning.stored_plan import StoredPlan
from dockbell.core.reading.window import Progress
from dockbell.errors import StoreError
from dockbell.ports import Condition, Found, RunRecord
from dockbell.telemetry import PageRead, RequestSent, SinkFails, Telemetry
from dockbell.web import metrics
from dockbell.web.metrics import describe_metrics
from tests.fakes import NOON, Ear
from tests.web.sites import Served, configure, serve

STOCK = {"source": "main", "resource": "stock"}
TABLES = {"resources": {"stock": {"every": "5m"}}, "sinks": {"erp": {"type": "stdout"}}}


class Scraper:
    """Scrapes a site, whose clock stands at noon."""

    def __init__(self, site: Served, telemetry: Telemetry) -> None:
        self.site = site
        self.telemetry = telemetry

    async def find(self, name: str, **labels: str) -> list[float]:
        """Return the samples of this name that have these labels."""
        response = await self.site.client.get("/metrics")
        assert response.status_code == 200
        return [
            sample.value
            for family in text_string_to_metric_families(response.text)
            for sample in family.samples
            if sample.name == f"dockbell_{name}" and labels.items() <= sample.labels.items()
        ]


@pytest.fixture
async def scraper(tmp_path: Path) -> AsyncIterator[Scraper]:
    """Return a scraper of a site of one feed and one sink."""
    telemetry = Ear().telemetry
    async with serve(tmp_path, telemetry=telemetry, tables=TABLES) as site:
        yield Scraper(site, telemetry)


async def test_a_feed_that_was_never_read_has_no_freshness(scraper: Scraper) -> None:
    assert await scraper.find("feed_freshness_seconds") == []
    assert await scraper.find("feed_records", **STOCK) == [0]
    assert await scraper.find("feed_silence", **STOCK, kind="blind") == [1]


async def test_a_feed_is_as_fresh_as_its_last_complete_run(scraper: Scraper) -> None:
    filled = await scraper.site.fill("a", "b", resource="stock")
    asked_at, ended_at = NOON - timedelta(seconds=70), NOON - timedelta(seconds=40)
    await scraper.site.store.feed(filled.state.feed).close_run(
        RunRecord(RunKind.PASS, asked_at, None, ended_at, pages=1, records=2, events=0)
    )
    assert await scraper.find("feed_freshness_seconds", **STOCK) == [70]
    assert await scraper.find("feed_read_timestamp_seconds", **STOCK) == [ended_at.timestamp()]
    assert await scraper.find("feed_read_due_timestamp_seconds", **STOCK) == [ended_at.timestamp() + 3 * 300 + 60]
    assert await scraper.find("feed_records", **STOCK) == [2]
    assert await scraper.find("feed_last_sequence", **STOCK) == [2]
    assert await scraper.find("feed_silence", **STOCK) == [0, 0, 0]


async def test_the_predicted_delay_and_whether_changes_wait_longer_for_an_hour_are_told(scraper: Scraper) -> None:
    filled = await scraper.site.fill("a", resource="stock")
    assert await scraper.find("feed_predicted_delay_seconds", **STOCK) == [150]
    assert await scraper.find("feed_slower_than_planned", **STOCK) == [0]
    slow = {find_bucket(300): 10}
    await scraper.site.store.health.note_delays(
        [
            MeasuredDelays(filled.feed, "erp", NOON - number * QUARTER, slow, predicted=timedelta(minutes=25))
            for number in range(1, 5)
        ]
    )
    assert await scraper.find("feed_slower_than_planned", **STOCK) == [1]


async def test_a_freshness_goal_and_the_share_that_met_it_are_told_where_there_is_one(scraper: Scraper) -> None:
    filled = await scraper.site.fill("a", resource="stock")
    assert await scraper.find("feed_freshness_goal_seconds", **STOCK) == []
    scraper.site.config = configure({}, **TABLES | {"resources": {"stock": {"every": "5m", "freshness_goal": "30s"}}})
    assert await scraper.find("feed_freshness_goal_seconds", **STOCK) == [30]
    assert await scraper.find("feed_freshness_goal_met_ratio", **STOCK) == []
    buckets = {find_bucket(4): 3, find_bucket(40): 1}
    await scraper.site.store.health.note_delays([MeasuredDelays(filled.feed, "erp", NOON, buckets)])
    assert await scraper.find("feed_freshness_goal_met_ratio", **STOCK) == [0.75]


@pytest.mark.parametrize(("reason", "is_short"), [(Reason.CONFIGURED, 0), (Reason.STRETCHED, 1)])
async def test_a_feed_tells_its_interval_and_whether_the_requests_suffice(
    scraper: Scraper, reason: Reason, is_short: int
) -> None:
    filled = await scraper.site.fill("a", resource="stock")
    assert await scraper.find("feed_interval_seconds", **STOCK) == [300]
    assert await scraper.find("feed_requests_short", **STOCK) == [0]
    plan = StoredPlan(every=timedelta(seconds=420), reason=reason)
    await scraper.site.store.feed(filled.state.feed).save_plan(plan.to_json())
    assert await scraper.find("feed_interval_seconds", **STOCK) == [420]
    assert await scraper.find("feed_requests_short", **STOCK) == [is_short]


@pytest.mark.parametrize("ahead", [-3600, 3600])
async def test_a_service_s_wrong_clock_makes_a_feed_no_fresher_and_no_older(scraper: Scraper, ahead: int) -> None:
    filled = await scraper.site.fill("a", resource="stock")
    sent_at, asked_at = NOON - timedelta(seconds=70), NOON + timedelta(seconds=ahead - 70)
    run = RunRecord(RunKind.POLL, asked_at, NOON, NOON, pages=1, records=1, events=0, sent_at=sent_at)
    await scraper.site.store.feed(filled.state.feed).close_run(run, Progress(asked_at))
    assert await scraper.find("feed_freshness_seconds", **STOCK) == [70]
    assert await scraper.find("feed_watermark_timestamp_seconds", **STOCK) == [sent_at.timestamp()]


async def test_a_sink_tells_what_it_owes_and_how_its_receiver_was_found(scraper: Scraper) -> None:
    await scraper.site.store.sink("erp").enroll("now")
    filled = await scraper.site.fill("a", "b", resource="stock")
    await scraper.site.store.sink("erp").enroll("beginning")
    assert filled.feed.resource == "stock"
    await scraper.site.store.health.note_conditions(
        {"erp": Found(Condition.DOWN, NOON - timedelta(hours=1), "refused")}
    )
    assert await scraper.find("sink_owed_events", sink="erp") == [2]
    assert await scraper.find("sink_oldest_owed_age_seconds", sink="erp") == [0]
    assert await scraper.find("sink_condition", sink="erp", condition="down") == [1]
    assert await scraper.find("sink_condition", sink="erp", condition="connected") == [0]
    assert await scraper.find("hindrances", about="sink") == [1]


async def test_the_budget_is_told_before_and_after_the_first_request(scraper: Scraper) -> None:
    limit, allowed = await scraper.find("budget_limit_requests"), await scraper.find("budget_allowed_requests")
    assert (limit, allowed) == ([300], [270])
    assert await scraper.find("budget_remaining_requests") == []
    scraper.telemetry.emit(
        RequestSent("main", Urgency.PASS, "/v1/stock", 200, timedelta(), 99, limit=100, resets_in=timedelta(seconds=30))
    )
    assert await scraper.find("budget_limit_requests") == [100]
    assert await scraper.find("budget_remaining_requests") == [99]
    assert await scraper.find("budget_used_requests") == [1]


async def test_a_pass_tells_how_far_it_has_come_where_its_end_is_known(scraper: Scraper) -> None:
    filled = await scraper.site.fill(resource="stock")
    assert await scraper.find("feed_pass_progress_ratio") == []
    scraper.site.recent.recall(filled.feed, [], records=200)
    scraper.telemetry.emit(PageRead(filled.feed, RunKind.PASS, NOON, 1, 50, 0))
    assert await scraper.find("feed_pass_progress_ratio", **STOCK) == [0.25]


async def test_every_gauge_that_is_said_has_a_description(scraper: Scraper) -> None:
    described = {each.name: set(each.labels) for each in describe_metrics()}
    response = await scraper.site.client.get("/metrics")
    for family in text_string_to_metric_families(response.text):
        if family.type == "gauge" and family.name.startswith("dockbell_"):
            assert family.name in described
            assert all(sample.labels.keys() == described[family.name] for sample in family.samples)


async def test_whoever_accepts_openmetrics_gets_that(scraper: Scraper) -> None:
    client = scraper.site.client
    response = await client.get("/metrics", headers={"accept": "application/openmetrics-text;version=abc;q=1"})
    assert response.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert response.text.endswith("# EOF\n")
    response = await client.get("/metrics", headers={"accept": "text/html"})
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_what_was_counted_is_told_although_the_store_does_not_answer(
    scraper: Scraper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_PATIENCE", timedelta(seconds=0.05))
    monkeypatch.setattr(type(scraper.site.read_store), "find_last_changes", lambda _: anyio.sleep_forever())
    scraper.telemetry.emit(SinkFails("erp", "connection refused", timedelta(seconds=1)))
    assert await scraper.find("status_complete") == [0]
    assert await scraper.find("feed_records") == []
    assert await scraper.find("sink_failures_total", sink="erp") == [1]


async def test_a_store_that_fails_leaves_its_numbers_out(scraper: Scraper, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: object) -> None:
        raise StoreError("store: is damaged")

    monkeypatch.setattr(type(scraper.site.read_store), "load_feeds", fail)
    assert await scraper.find("status_complete") == [0]


async def test_the_store_and_its_disk_are_measured(scraper: Scraper) -> None:
    [used], [free] = await scraper.find("store_used_bytes"), await scraper.find("store_disk_free_bytes")
    [size] = await scraper.find("store_disk_size_bytes")
    assert 0 < used < free < size


async def test_a_store_that_cannot_be_written_is_told_of(scraper: Scraper, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise StoreError("store: has no room")

    assert await scraper.find("store_writable") == [1]
    monkeypatch.setattr(scraper.site.store.engine, "write", fail)
    assert await scraper.find("store_writable") == [0]
