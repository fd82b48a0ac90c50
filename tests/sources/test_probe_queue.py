"""What an account asks an API that answers nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest
import respx

from dockbell.core.running.circuit_breaker import FAILURES_MOST
from dockbell.errors import SourceRefused, SourceUnavailable
from dockbell.sources import InventoryClient
from dockbell.sources.probe_queue import FIRST_PATIENCE
from dockbell.telemetry import Fact, SourceAnswers, SourceFails


@pytest.fixture(scope="module")
def anyio_backend(skipping_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return skipping_backend


async def fail(client: InventoryClient, resource: str) -> None:
    with pytest.raises(SourceUnavailable):
        await client.read_page(resource)


async def test_what_waits_goes_at_once_when_a_probe_is_answered(
    api: respx.MockRouter, client: InventoryClient, facts: list[Fact]
) -> None:
    resources, ended = ("shipments", "packages", "items", "stock"), dict[str, float]()
    told: dict[str, list[float]] = {}
    times: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        times.append(anyio.current_time())
        if anyio.current_time() - began < 12:
            return httpx.Response(503)
        return httpx.Response(200, json={request.url.path.rpartition("/")[2]: []})

    api.get(path__startswith="/v1/").side_effect = answer
    began = anyio.current_time()

    async def read(resource: str) -> None:
        while resource not in ended:
            try:
                await client.read_page(resource)
                ended[resource] = anyio.current_time()
            except SourceUnavailable:
                told.setdefault(resource, []).append(anyio.current_time() - began)

    async with anyio.create_task_group() as group:
        for resource in resources:
            group.start_soon(read, resource)

    assert told.keys() == ended.keys() == {*resources}
    assert max(each[0] for each in told.values()) < FIRST_PATIENCE.total_seconds() + 1, (
        "each is told at once, and waits then"
    )
    assert {len(each) for each in told.values()} == {1}
    assert max(ended.values()) - min(ended.values()) < 0.1
    failures, answers = [time for time in times if time - began < 12], [time for time in times if time - began >= 12]
    assert len(failures) <= FAILURES_MOST + 4, "one from each that was under way, then probes after 1, 2 and 4 s"
    assert len(answers) == len(resources)
    assert [type(fact) for fact in facts if isinstance(fact, SourceFails | SourceAnswers)] == [
        SourceFails,
        SourceAnswers,
    ]


async def test_a_request_is_given_up_after_half_a_minute_and_says_what_failed(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    route = api.get(path__startswith="/v1/").respond(503)
    await fail(client, "stock")
    began, before = anyio.current_time(), route.call_count
    messages = []

    async def give_up(resource: str) -> None:
        with pytest.raises(SourceUnavailable) as caught:
            await client.read_page(resource)
        messages.append(str(caught.value))

    async with anyio.create_task_group() as group:
        for resource in ("stock", "items", "shipments"):
            group.start_soon(give_up, resource)

    assert anyio.current_time() - began <= 31
    assert route.call_count - before <= 5 + 2, "probes, and the first requests of two collections"
    not_sent = [message for message in messages if message.startswith("not sent: ")]
    assert not_sent
    assert all(re.fullmatch(r"not sent: GET /v1/\w+: HTTP 503", message) for message in not_sent), not_sent


async def test_what_can_be_done_without_is_not_sent_while_nothing_is_answered(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    api.get("/v1/shipments").respond(503)
    single = api.get("/v1/shipments/7").respond(503)
    await fail(client, "shipments")
    with pytest.raises(SourceUnavailable, match="HTTP 503"):
        await client.read_shipment("7", patient=False)

    with pytest.raises(SourceUnavailable, match="not sent"):
        await client.read_shipment("7", patient=False)

    assert single.call_count == 1


@pytest.mark.parametrize("answer", [httpx.Response(401), httpx.Response(400), httpx.Response(200, text="<html>")])
async def test_any_answer_counts_as_one(api: respx.MockRouter, client: InventoryClient, answer: httpx.Response) -> None:
    """An API that answers and refuses, or answers nonsense, is no API that is down."""
    api.get("/v1/stock").respond(503)
    await fail(client, "stock")
    api.get("/v1/items").side_effect = [answer] * 4

    with pytest.raises((SourceRefused, SourceUnavailable)):
        await client.read_page("items")

    began = anyio.current_time()
    route = api.get("/v1/stock")
    route.side_effect = [httpx.Response(200, json={"stock": []})]
    await client.read_page("stock")
    assert anyio.current_time() == began


async def test_an_order_that_was_not_sent_was_certainly_not_created(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    api.get("/v1/stock").respond(503)
    orders = api.post("/v1/sales-orders").respond(503)
    await fail(client, "stock")
    with pytest.raises(SourceUnavailable, match="the API may have created the order"):
        await client.create_sales_order({"sku": "A"})  # the first request to a collection is sent

    async with anyio.create_task_group() as group:
        for _ in range(8):  # which take turns with the probes
            group.start_soon(fail, client, "stock")
        await anyio.lowlevel.checkpoint()
        with pytest.raises(SourceUnavailable) as caught:
            await client.create_sales_order({"sku": "A"})

    assert orders.call_count == 1
    assert "not sent" in str(caught.value)
    assert "may have created" not in str(caught.value)


async def test_a_command_that_an_operator_waits_for_gives_up_at_once(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    api.get(path__startswith="/v1/").respond(503)
    client.give_up_at_once()
    began = anyio.current_time()
    for resource in ("stock", "items", "shipments", "stock"):
        await fail(client, resource)
    assert anyio.current_time() - began <= 16, "the tries of the first"
    assert api.calls.call_count == FAILURES_MOST + 2


async def test_answers_that_never_come_whole_are_an_outage(
    api: respx.MockRouter, client: InventoryClient, facts: list[Fact]
) -> None:
    """An API that closes each connection in the middle of its answer does not answer."""

    async def cut() -> AsyncIterator[bytes]:
        yield b'{"shipments": ['
        raise httpx.RemoteProtocolError("peer closed connection (received 15 bytes, expected 99)")

    route = api.get(path__startswith="/v1/").mock(side_effect=lambda _: httpx.Response(200, content=cut()))
    for resource in ("shipments", "stock", "items"):
        await fail(client, resource)
    told = [type(fact) for fact in facts if isinstance(fact, SourceFails | SourceAnswers)]
    assert told == [SourceFails]

    route.mock(side_effect=None, return_value=httpx.Response(200, json={"stock": [], "next_cursor": None}))
    await client.read_page("stock")
    assert isinstance([fact for fact in facts if isinstance(fact, SourceFails | SourceAnswers)][-1], SourceAnswers)
