"""Every endpoint of the API, asked by the client, answered by the sandbox, over real connections."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from dockbell import InventoryClient
from dockbell.core.model import RESOURCES, ClockSource
from dockbell.core.moment import parse_moment
from dockbell.errors import CursorExpired, SourceRefused
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.telemetry import Fact, SourceWaits, Telemetry

PLENTY = 60_000
EVERYTHING = {"items": {"status": "all"}}
STILL = datetime.now(UTC).replace(second=20, microsecond=0)
"""Where a service's clock stands still: 40 s before its window ends, and close to the client's clock, which goes on."""


@asynccontextmanager
async def serving(now: datetime | None = None, **options: Any) -> AsyncIterator[tuple[str, Sandbox]]:
    """Serve a sandbox of a few records that counts no requests unless told to; ``now`` stops its clock."""
    settings = SandboxOptions(**({"records": 400, "requests_per_minute": 0} | options))
    sandbox = Sandbox(settings) if now is None else Sandbox(settings, now=lambda: now)
    async with serve(sandbox) as url:
        yield url, sandbox


@asynccontextmanager
async def talking(**options: Any) -> AsyncIterator[tuple[InventoryClient, Sandbox]]:
    """Connect a client that counts no requests with such a sandbox."""
    async with (
        serving(**options) as (url, sandbox),
        InventoryClient(url, "sandbox", requests_per_minute=PLENTY) as client,
    ):
        yield client, sandbox


async def read_all(client: InventoryClient, resource: str, **options: Any) -> list[dict[str, Any]]:
    return [record async for record in client.records(resource, **options)]


# The endpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [200, 7])
@pytest.mark.parametrize("resource", RESOURCES)
async def test_every_listing_is_read_whole(resource: str, limit: int) -> None:
    async with talking() as (client, sandbox):
        pages = [page async for page in client.pages(resource, limit=limit, query=EVERYTHING.get(resource))]

        records = [record for page in pages for record in page.records]
        assert {json.loads(record)["id"]: record for record in records} == sandbox.records(resource)
        assert all(len(page.records) == limit for page in pages[:-1])
        assert {page.envelope for page in pages} == {resource}
        assert {page.clock for page in pages} == {ClockSource.DATE}


@pytest.mark.parametrize(
    "options",
    [
        {"envelope": "data", "end_of_list": "absent"},
        {"envelope": "Stock levels", "end_of_list": "empty", "cursors": "offset"},
        {"stock_key": "composite", "timestamp_field": None},
    ],
)
async def test_a_listing_is_read_whole_however_the_service_tells_it(options: dict[str, Any]) -> None:
    async with talking(**options) as (client, sandbox):
        records = [record async for page in client.pages("stock", limit=11) for record in page.records]

        assert sorted(records) == sorted(sandbox.records("stock").values())


async def test_an_empty_listing_is_read() -> None:
    async with talking(shipments=0, packages=0) as (client, _):
        assert await read_all(client, "shipments") == []


@pytest.mark.parametrize("resource", ["shipments", "packages", "items"])
async def test_only_what_was_modified_since_is_read(resource: str) -> None:
    async with talking() as (client, sandbox):
        everything = [json.loads(record) for record in sandbox.records(resource).values()]
        times = sorted(moment for record in everything if (moment := parse_moment(record["updated_at"])) is not None)
        since = times[len(times) // 2]

        records = await read_all(
            client, resource, updated_since=since, query={"status": "all"} if resource == "items" else None
        )

        expected = {record["id"] for record in everything if (parse_moment(record["updated_at"]) or since) >= since}
        assert {record["id"] for record in records} == expected
        assert await read_all(client, resource, updated_since=datetime.now(UTC) + timedelta(hours=1)) == []


async def test_filters_reach_the_service() -> None:
    async with talking() as (client, sandbox):
        packages = [json.loads(record) for record in sandbox.records("packages").values()]
        tracked = next(package for package in packages if package["tracking_number"])
        item = json.loads(next(iter(sandbox.records("items").values())))

        by_number = await read_all(client, "packages", query={"tracking_number": tracked["tracking_number"]})
        by_sku = await read_all(client, "items", query={"sku": item["sku"], "status": "all"})
        by_status = await read_all(client, "shipments", query={"status": "pending"})

        assert tracked["id"] in {package["id"] for package in by_number}
        assert [found["id"] for found in by_sku] == [item["id"]]
        assert {shipment["status"] for shipment in by_status} == {"pending"}


@pytest.mark.parametrize(
    ("resource", "relation"), [("items", "stock"), ("shipments", "packages"), ("packages", "shipment")]
)
async def test_listings_embed_relations(resource: str, relation: str) -> None:
    async with talking() as (client, _):
        page = await client.read_page(resource, limit=3, expand=(relation,))

        assert all(relation in json.loads(record) for record in page.records)


async def test_a_shipment_is_read_alone_and_with_its_relations() -> None:
    async with talking() as (client, sandbox):
        shipment_id, stored = next(iter(sandbox.records("shipments").items()))

        assert await client.read_shipment(shipment_id) == stored
        expanded = await client.read_shipment(shipment_id, expand=("packages", "line_items", "invoices"))
        assert expanded is not None
        assert {"packages", "line_items", "invoices"} <= json.loads(expanded).keys()


@pytest.mark.parametrize("shipment_id", ["shp_none", "a/b?c", "..", " "])
async def test_a_shipment_that_is_not_there_is_none(shipment_id: str) -> None:
    async with talking() as (client, _):
        assert await client.read_shipment(shipment_id) is None


async def test_a_sales_order_becomes_a_shipment() -> None:
    async with talking() as (client, _):
        order = await client.create_sales_order({"reference": "PO-1", "lines": []})

        shipment = await client.read_shipment(order["shipment_id"])
        assert shipment is not None
        assert json.loads(shipment)["order_reference"] == "PO-1"


# The limits ----------------------------------------------------------------------------------------------------------


async def test_the_budget_follows_what_the_service_counts() -> None:
    async with serving(STILL, requests_per_minute=300) as (url, _), InventoryClient(url, "sandbox") as client:
        for _ in range(5):
            await client.read_page("stock")

        budget = client.budget
        assert (budget.used, budget.allowed, budget.limit, budget.remaining) == (5, 270, 300, 295)
        assert budget.resets_in is not None
        assert timedelta(seconds=35) < budget.resets_in <= timedelta(seconds=40)


async def test_a_client_that_believes_in_more_than_the_key_has_stops_before_the_service_stops_it() -> None:
    async with (
        serving(STILL, requests_per_minute=20) as (url, _),
        InventoryClient(url, "sandbox", requests_per_minute=PLENTY) as client,
        anyio.create_task_group() as group,
    ):
        for _ in range(19):
            await client.read_page("warehouses")
        group.start_soon(client.read_page, "warehouses")
        await anyio.wait_all_tasks_blocked()

        assert client.budget.used == 19
        group.cancel_scope.cancel()


async def test_orders_stop_at_the_share_of_ten_while_reading_goes_on() -> None:
    async with (
        serving(STILL, requests_per_minute=300, orders_per_minute=10) as (url, _),
        InventoryClient(url, "sandbox") as client,
        anyio.create_task_group() as group,
    ):
        for _ in range(9):
            await client.create_sales_order({})
        group.start_soon(client.create_sales_order, {})
        await anyio.wait_all_tasks_blocked()
        await client.read_page("warehouses")

        assert client.budget.used == 10
        group.cancel_scope.cancel()


async def test_a_429_is_waited_for_as_long_as_the_service_asks() -> None:
    refused = anyio.Event()
    facts: list[Fact] = []
    telemetry = Telemetry(facts.append, lambda fact: refused.set() if isinstance(fact, SourceWaits) else None)
    async with (
        serving(STILL, requests_per_minute=1) as (url, _),
        InventoryClient(url, "sandbox") as another,
        InventoryClient(url, "sandbox", telemetry=telemetry) as client,
        anyio.create_task_group() as group,
    ):
        await another.read_page("items")
        group.start_soon(client.read_page, "items")
        with anyio.fail_after(5):
            await refused.wait()
        group.cancel_scope.cancel()

    assert [str(fact) for fact in facts if isinstance(fact, SourceWaits)] == [
        "source main: GET /v1/items: HTTP 429, the key's budget is used up; retrying in 40 s"
    ]


# The errors ----------------------------------------------------------------------------------------------------------


async def test_a_key_that_is_not_known_is_refused() -> None:
    async with serving() as (url, _), InventoryClient(url, "wrong") as client:
        with pytest.raises(SourceRefused, match='HTTP 401, "the API key is not known"; the API does not accept'):
            await client.read_page("items")


async def test_a_filter_that_is_not_known_is_refused_in_the_words_of_the_service() -> None:
    async with talking() as (client, _):
        with pytest.raises(SourceRefused, match=r'GET /v1/items: HTTP 400, ".*status'):
            await client.read_page("items", query={"status": "sold"})


async def test_a_cursor_that_is_not_known_is_expired() -> None:
    async with talking() as (client, _):
        with pytest.raises(CursorExpired):
            await client.read_page("items", cursor="forged")


async def test_everything_is_read_though_some_answers_fail_and_connections_break() -> None:
    async with talking(error_rate=0.2, reset_rate=0.1) as (client, sandbox):
        records = [record async for page in client.pages("stock", limit=20) for record in page.records]

        assert sorted(records) == sorted(sandbox.records("stock").values())
