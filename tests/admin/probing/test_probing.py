from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from dockbell.admin.probing import REQUESTS, Report, State, probe
from dockbell.config import validate
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.sinks import load_sink_type
from dockbell.sources import InventoryClient
from tests.admin.probing.odd import said

ALL = ("shipments", "packages", "items", "stock", "warehouses")


def count(sandbox: Sandbox) -> list[str]:
    """Return the paths of the requests that reach a sandbox, as they come."""
    paths: list[str] = []
    app = sandbox.app

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        await app(scope, receive, send)

    sandbox.app = counting
    return paths


@asynccontextmanager
async def reached(url: str, key: str = "sandbox") -> AsyncIterator[Any]:
    """Give what probes an address."""
    config = validate(
        {"sources": {"main": {"base_url": url, "api_key": key}}}, lambda kind: load_sink_type(kind).Settings
    )

    async def run(resources: Sequence[str], requests: int) -> Report:
        feeds = [each for each in config.feeds() if each.resource in resources]
        apart = timedelta(milliseconds=50)
        return await probe("main", config.sources["main"], feeds, client, requests=requests, apart=apart)

    async with InventoryClient.from_settings("main", config.sources["main"]) as client:
        yield run


async def look_at(*resources: str, requests: int = REQUESTS, key: str = "sandbox", **options: Any) -> Report:
    """Probe a sandbox with these options."""
    sandbox = Sandbox(SandboxOptions(**{"records": 700} | options))
    paths = count(sandbox)
    async with serve(sandbox) as url, reached(url, key) as run:
        report: Report = await run(resources or ALL, requests)
    assert len(paths) == report.sent <= requests
    return report


def found(report: Report, resource: str, *whats: str) -> list[str]:
    return [said(report, what, f"main/{resource}").found for what in whats]


async def test_the_default_deployment_is_measured_whole_within_the_default_requests() -> None:
    report = await look_at(records=1500)
    assert not report.fails
    assert not [each for each in report.findings if "requests are used" in each.evidence and each.what != "third page"]
    assert found(report, "shipments", "key", "updated_at", "updated_since", "bound", "precision of since") == [
        "/id",
        "/updated_at",
        "honoured",
        "inclusive",
        "1 µs",
    ]
    assert found(report, "items", "status=all", "expand=stock") == ["shows more", "accepted"]
    assert found(report, "stock", "cursor", "order when reread", "page size") == ["keyset (a hint)", "same", "200"]
    assert found(report, "shipments", "unknown shipment", "end of list") == ["HTTP 404", "next_cursor is null"]
    assert said(report, "budget").found == "300 requests per window"
    assert said(report, "other users").found == "0 requests"
    assert said(report, "clock").found == "matches the local clock"


async def test_the_advice_for_the_default_deployment_is_a_configuration() -> None:
    table = tomllib.loads((await look_at()).toml)
    config = validate(table, lambda kind: load_sink_type(kind).Settings)
    assert [each.resource for each in config.feeds()] == [*ALL]
    assert all(each.settings.key == ("/id",) for each in config.feeds())
    assert all(each.settings.updated_at == "/updated_at" for each in config.feeds())


@pytest.mark.parametrize("requests", [1, 2, 7, 23])
async def test_the_requests_are_never_exceeded(requests: int) -> None:
    report = await look_at(requests=requests)
    assert report.sent == requests
    assert "all" in said(report, "stopped").evidence


async def test_failing_answers_count_in_the_requests() -> None:
    assert (await look_at(requests=9, error_rate=1.0)).sent <= 9


async def test_a_composite_key_is_found() -> None:
    report = await look_at("stock", stock_key="composite")
    assert found(report, "stock", "key") == ["/sku + /warehouse_id"]


async def test_a_deployment_without_timestamps_is_measured() -> None:
    report = await look_at("shipments", timestamp_field="")
    assert found(report, "shipments", "updated_at", "updated_since") == ["none", "honoured"]
    assert not report.fails


async def test_offset_cursors_are_hinted_at() -> None:
    report = await look_at("stock", cursors="offset")
    finding = said(report, "cursor", "main/stock")
    assert (finding.found, finding.state) == ("offset (a hint)", State.NOTE)


@pytest.mark.parametrize("end", ["null", "absent", "empty"])
async def test_the_end_of_the_list_is_told(end: str) -> None:
    assert found(await look_at("warehouses", end_of_list=end), "warehouses", "end of list") == [f"next_cursor is {end}"]


async def test_another_envelope_and_other_names_are_found() -> None:
    report = await look_at("items", envelope="records", id_field="uuid", timestamp_field="modified_at")
    assert found(report, "items", "reading", "key", "updated_at") == ['records in "records"', "/uuid", "/modified_at"]


async def test_a_key_that_is_not_accepted_stops_at_once() -> None:
    report = await look_at(key="wrong")
    assert (report.sent, report.fails, report.toml) == (1, True, "")
    assert "does not accept the key" in said(report, "stopped").evidence
    assert "wrong" not in str(report)


async def test_nobody_there_is_said_after_two_tries() -> None:
    async with reached("http://127.0.0.1:9") as run:
        report = await run(ALL, 40)
    assert (report.sent, report.fails, report.toml) == (2, True, "")
    assert "cannot connect to 127.0.0.1:9" in said(report, "stopped").evidence


async def test_a_small_budget_of_the_key_is_not_used_up() -> None:
    report = await look_at(requests_per_minute=20)
    assert report.sent == 18
    assert "for the key's other users" in said(report, "stopped").evidence
    assert tomllib.loads(report.toml)["sources"]["main"]["requests_per_minute"] == 20


# What the sandbox can do besides ------------------------------------------------------------------------------------


async def test_naive_timestamps_are_told() -> None:
    report = await look_at("shipments", timestamp_offset="none", timestamp_precision="s")
    evidence = said(report, "updated_at", "main/shipments").evidence
    assert evidence.endswith("no zone, to the s")
    assert found(report, "shipments", "updated_since") == ["honoured"]


async def test_epochs_are_told() -> None:
    report = await look_at("items", timestamp_form="epoch", timestamp_precision="ms")
    assert said(report, "updated_at", "main/items").evidence.endswith("epoch, to the ms")


async def test_shuffled_arrays_become_unordered() -> None:
    report = await look_at("shipments", shuffle_arrays=True, shuffle_members=True)
    table = tomllib.loads(report.toml)["sources"]["main"]["resources"]["shipments"]
    assert table["unordered"]
    assert table["ignore"] == []


async def test_an_order_that_is_made_anew_each_time_is_told() -> None:
    report = await look_at("warehouses", order="random", warehouses=15)
    assert found(report, "warehouses", "order", "order when reread") == ["none", "different"]


async def test_pages_smaller_than_asked_are_told() -> None:
    assert found(await look_at("stock", page_cap=50), "stock", "page size") == ["50"]


async def test_missing_headers_are_told() -> None:
    report = await look_at("warehouses", date="missing", rate_headers="missing")
    assert (said(report, "clock").found, said(report, "budget").found) == ("no Date", "unknown")


async def test_a_clock_that_is_off_is_told() -> None:
    assert said(await look_at("warehouses", date_skew=600.0), "clock").found.endswith(" ahead of the local clock")


async def test_etags_and_gzip_are_told() -> None:
    report = await look_at("warehouses", etag="weak", gzip=True)
    assert found(report, "warehouses", "ETag") == ["304 when unchanged"]
    assert said(report, "gzip").found == "yes"


@pytest.mark.parametrize(
    ("form", "told"), [("json", "HTTP 404"), ("html", "HTTP 404"), ("410", "HTTP 410"), ("null", "HTTP 200")]
)
async def test_the_answer_to_an_unknown_shipment_is_told(form: str, told: str) -> None:
    assert found(await look_at("shipments", unknown_shipment=form), "shipments", "unknown shipment") == [told]


async def probe_moving(*, edited: int, **options: Any) -> Report:
    """Probe a sandbox whose stock changes after its first page was read."""
    sandbox = Sandbox(SandboxOptions(**{"items": 100, "stock": 180, "warehouses": 3} | options))
    app = sandbox.app
    is_over = False

    async def changing(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal is_over
        if scope["path"] == "/v1/warehouses" and not is_over:
            is_over = True
            sandbox.edit("stock", edited)
        await app(scope, receive, send)

    sandbox.app = changing
    async with serve(sandbox) as url, reached(url) as run:
        report: Report = await run(("items", "stock", "warehouses"), REQUESTS)
        return report


async def test_items_that_move_with_their_stock_are_a_signal() -> None:
    report = await probe_moving(edited=80, bump_share=1.0)
    signal = said(report, "signal", "main/stock")
    assert (signal.found, signal.state) == ("items", State.OK)
    assert signal.evidence.startswith("updated_at of items changed with 80 of 80 changes of stock, and with 0 of ")
    assert tomllib.loads(report.toml)["sources"]["main"]["resources"]["stock"]["signal"] == "items"


@pytest.mark.parametrize("share", [0.0, 0.5])
async def test_items_that_do_not_move_with_all_of_their_stock_are_none(share: float) -> None:
    report = await probe_moving(edited=80, bump_share=share)
    assert said(report, "signal", "main/stock").found == "none"
    assert "signal" not in tomllib.loads(report.toml)["sources"]["main"]["resources"]["stock"]


async def test_a_few_changes_tell_nothing_of_a_signal() -> None:
    report = await probe_moving(edited=10, bump_share=1.0)
    signal = said(report, "signal", "main/stock")
    assert (signal.found, signal.state) == ("unknown", State.UNTOLD)
    assert "50 changes are needed" in signal.evidence
