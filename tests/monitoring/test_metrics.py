"""The metrics of a real daemon, as Prometheus judges them."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from dockbell.web.metrics import describe_metrics
from tests.monitoring.conftest import SECRET, TOKEN, Scraped
from tests.monitoring.promtool import run_promtool

pytestmark = pytest.mark.acceptance


def test_promtool_has_nothing_to_say_against_them(scraped: Scraped) -> None:
    assert run_promtool("check", "metrics", text=scraped.text) == ""


def test_openmetrics_says_the_same(scraped: Scraped) -> None:
    parsed = text_string_to_metric_families(scraped.openmetrics)  # type: ignore[no-untyped-call]  # as it comes
    families = {family.name for family in parsed}
    described = {each.name.removesuffix("_total") for each in describe_metrics()}
    assert described <= families


def test_every_metric_that_is_described_is_there(scraped: Scraped) -> None:
    assert {each.name for each in describe_metrics()} <= scraped.names


def test_they_tell_what_happens(scraped: Scraped) -> None:
    feed = {"source": "main", "resource": "shipments"}
    assert scraped.find("dockbell_runs_total", **feed, kind="poll", outcome="complete") > 0
    assert scraped.find("dockbell_changes_total", **feed, change="updated") > 0
    assert 0 <= scraped.find("dockbell_feed_freshness_seconds", **feed) < 60
    assert scraped.find("dockbell_feed_stopped", **feed) == 0
    assert scraped.find("dockbell_delivery_attempts_total", sink="erp", fate="delivered") > 0
    assert scraped.find("dockbell_sink_condition", sink="erp", condition="connected") == 1
    assert scraped.find("dockbell_sink_condition", sink="away", condition="down") == 1
    assert scraped.find("dockbell_sink_oldest_owed_age_seconds", sink="away") > 0
    assert scraped.find("dockbell_budget_allowed_requests", source="main") == 5400
    assert scraped.find("dockbell_store_used_bytes") > 0
    assert scraped.find("dockbell_status_complete") == 1


def test_a_filter_that_swallows_everything_is_told_from_a_quiet_source(scraped: Scraped) -> None:
    assert scraped.find("dockbell_sink_silence", sink="swallowed", kind="filtered") == 1
    assert scraped.find("dockbell_sink_silence", sink="erp", kind="filtered") == 0
    assert scraped.find("dockbell_events_sifted_total", sink="swallowed", verdict="passed") == 0


def test_labels_are_names_of_the_configuration_and_words_of_ours(scraped: Scraped) -> None:
    own = {"main", "shipments", "stock", "erp", "away", "swallowed"}
    named = {
        value
        for sample in scraped.samples
        for label, value in sample.labels.items()
        if label in {"source", "resource", "sink"}
    }
    assert named == own


@pytest.mark.parametrize("secret", [TOKEN, SECRET, "127.0.0.1"])
def test_no_secret_and_no_address_is_among_them(scraped: Scraped, secret: str) -> None:
    assert secret not in scraped.text
