from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import respx
from msgspec.structs import replace

from dockbell import InventoryClient, __version__
from dockbell.admin.probing import Line
from dockbell.config import Secret, SourceSettings
from dockbell.core.model import RESOURCES, ClockSource, Page, Urgency
from dockbell.core.reading.request import list_request
from dockbell.errors import (
    ConfigError,
    CursorExpired,
    PageUnreadable,
    RateLimited,
    SchemaMismatch,
    SourceError,
    SourceRefused,
    SourceUnavailable,
)
from dockbell.ports import Source
from dockbell.sources.request_queue import now
from dockbell.telemetry import Fact, RequestSent, SourceWaits, Telemetry

BASE = "https://api.example.com"
SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def anyio_backend(skipping_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return skipping_backend


def page_of(*records: Any, cursor: str | None = None, **headers: str) -> httpx.Response:
    return httpx.Response(
        200,
        json={"shipments": records, "next_cursor": cursor},
        headers={name.replace("_", "-"): text for name, text in headers.items()},
    )


def http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def keys_sent(route: respx.Route) -> list[str]:
    return [call.request.headers["authorization"] for call in route.calls]


def is_a_source(client: InventoryClient) -> Source:
    return client  # checked by mypy


def is_a_line(client: InventoryClient) -> Line:
    return client  # the same


# Reading -------------------------------------------------------------------------------------------------------------


async def test_every_request_carries_the_key_and_says_who_asks(api: respx.MockRouter, client: InventoryClient) -> None:
    route = api.get("/v1/shipments", params={"limit": "200"}).respond(json={"shipments": []})

    await client.read_page("shipments")

    headers = route.calls.last.request.headers
    assert headers["authorization"] == "Bearer KEY"
    assert headers["accept"] == "application/json"
    assert headers["accept-encoding"] == "gzip"
    assert headers["cache-control"] == "no-cache"
    assert headers["user-agent"] == f"dockbell/{__version__}"


async def test_who_asks_can_be_said_otherwise(api: respx.MockRouter) -> None:
    route = api.get("/v1/shipments").respond(json={"shipments": []})

    await InventoryClient(BASE, "KEY", user_agent="acme/7").read_page("shipments")

    assert route.calls.last.request.headers["user-agent"] == "acme/7"


async def test_pages_follow_the_cursor_to_the_end_with_the_same_question(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    route = api.get("/v1/shipments")
    route.side_effect = [page_of({"id": 1}, cursor="a"), page_of(cursor="b"), page_of({"id": 2})]
    since = datetime(2026, 11, 21, tzinfo=UTC)

    pages = [
        page
        async for page in client.pages(
            "shipments", updated_since=since, limit=1, query={"status": "shipped"}, expand=("packages",)
        )
    ]

    assert [page.records for page in pages] == [(b'{"id":1}',), (), (b'{"id":2}',)]
    asked = [dict(call.request.url.params) for call in route.calls]
    same = {"limit": "1", "updated_since": "2026-11-21T00:00:00Z", "status": "shipped", "expand": "packages"}
    assert asked == [same, same | {"cursor": "a"}, same | {"cursor": "b"}]


async def test_a_listing_that_never_ends_is_ended(api: respx.MockRouter, client: InventoryClient) -> None:
    route = api.get("/v1/shipments")
    route.side_effect = [page_of(cursor="a"), page_of(cursor="b"), page_of(cursor="a"), page_of()]

    with pytest.raises(SchemaMismatch, match='resource "shipments": the cursor of page 3 repeats an earlier one'):
        [page async for page in client.pages("shipments")]


async def test_records_are_decoded_exactly(api: respx.MockRouter, client: InventoryClient) -> None:
    api.get("/v1/items").respond(
        content=b'{"items": [{"price": 1.10, "count": 123456789012345678901}, {"price": 2}]}',
        content_type="application/json",
    )

    records = [record async for record in client.records("items", query={"status": "all"})]

    assert records == [{"price": Decimal("1.10"), "count": 123456789012345678901}, {"price": 2}]


async def test_a_record_that_cannot_be_decoded_is_a_mismatch(api: respx.MockRouter, client: InventoryClient) -> None:
    deep = b"[" * 300 + b"]" * 300
    api.get("/v1/items").respond(content=b'{"items": [{"deep": %b}]}' % deep, content_type="application/json")

    with pytest.raises(SchemaMismatch, match='resource "items": a record cannot be read: not usable JSON: nested'):
        [record async for record in client.records("items")]


async def test_the_field_of_the_records_is_learned_from_the_first_page_that_has_some(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    api.get("/v1/stock").side_effect = [
        httpx.Response(200, json={"warnings": [], "stock": []}),
        httpx.Response(200, json={"rows": [{"sku": "A"}], "next_cursor": None}),
        httpx.Response(200, json={"rows": [], "details": [{"code": 1}]}),
        *(httpx.Response(200, json={"details": []}) for _ in range(5)),
    ]

    assert [(await client.read_page("stock")).envelope for _ in range(3)] == ["stock", "rows", "rows"]
    with pytest.raises(SchemaMismatch, match='no array "rows", which earlier pages had'):
        await client.read_page("stock")


NO_PAGES = [{"data": None}, {"message": "hello"}, {}, [], {"shipments": None}]


@pytest.mark.parametrize("body", NO_PAGES)
async def test_an_answer_that_is_no_page_is_asked_for_again_at_once(
    api: respx.MockRouter, client: InventoryClient, facts: list[Fact], body: Any
) -> None:
    odd = httpx.Response(200, json=body)
    api.get("/v1/shipments").side_effect = [odd, odd, odd, page_of({"id": 1})]

    assert (await client.read_page("shipments")).records == (b'{"id":1}',)
    assert [type(fact) for fact in facts] == [RequestSent, SourceWaits] * 3 + [RequestSent]
    assert sum([fact.delay for fact in facts if isinstance(fact, SourceWaits)], timedelta()) < 5 * SECOND


async def test_an_answer_that_is_no_page_four_times_is_told(api: respx.MockRouter, client: InventoryClient) -> None:
    route = api.get("/v1/shipments").respond(json={"data": None})

    with pytest.raises(SchemaMismatch, match="no array of objects"):
        await client.read_page("shipments")

    assert route.call_count == 4


def list_of(name: str, *records: Any) -> httpx.Response:
    return httpx.Response(200, json={name: records, "next_cursor": None}, headers={"etag": f'"{name}"'})


RECORD = {"id": 1, "status": "open", "updated_at": "2026-11-21T02:30:00Z"}


@pytest.mark.parametrize("since", [None, datetime(2026, 11, 21, tzinfo=UTC)])
async def test_records_that_have_another_name_from_now_on_are_found_again(
    api: respx.MockRouter, client: InventoryClient, since: datetime | None
) -> None:
    """A poll that shows nothing does not tell the name, but the whole list does."""
    name = "shipments"

    def answer(request: httpx.Request) -> httpx.Response:
        return list_of(name, *([] if "updated_since" in request.url.params else [RECORD]))

    route = api.get("/v1/shipments")
    route.side_effect = answer
    await client.read_page("shipments")
    name = "data"
    page = await client.read_page("shipments", updated_since=since)
    assert (page.envelope, len(page.records)) == ("data", 0 if since else 1)
    assert route.call_count == 1 + 4 + 1 + 1
    name = "shipments"  # while a service is deployed, old and new answers come in turn
    assert (await client.read_page("shipments", updated_since=since)).envelope == "shipments"
    name = "data"
    assert (await client.read_page("shipments", updated_since=since)).envelope == "data"
    assert route.call_count == 1 + 4 + 1 + 1 + 2


@pytest.mark.parametrize(
    "body",
    [
        {"details": [{"code": "backend_down", "hint": "later"}]},
        {"details": []},
        {"data": [RECORD], "rows": [RECORD]},
        {"data": [{"id": 1}]},
        {"message": "backend down"},
    ],
)
async def test_what_does_not_look_like_the_records_known_is_no_new_name_of_theirs(
    api: respx.MockRouter, client: InventoryClient, body: Any
) -> None:
    route = api.get("/v1/shipments").mock(return_value=list_of("shipments", RECORD))
    await client.read_page("shipments")
    route.return_value = httpx.Response(200, json=body)
    for _ in range(2):
        with pytest.raises(SchemaMismatch, match='no array "shipments", which earlier pages had'):
            await client.read_page("shipments")
    route.return_value = list_of("shipments", RECORD)
    assert (await client.read_page("shipments")).envelope == "shipments"


async def test_a_shipment_is_read_as_it_is(api: respx.MockRouter, client: InventoryClient) -> None:
    route = api.get("/v1/shipments/a%2Fb").respond(content=b'{"id": 1.0}', content_type="application/json")

    assert await client.read_shipment("a/b", expand=("packages", "invoices")) == b'{"id": 1.0}'
    assert route.calls.last.request.url.params["expand"] == "packages,invoices"


@pytest.mark.parametrize("status", [404, 410])
async def test_a_shipment_that_is_gone_is_none(api: respx.MockRouter, client: InventoryClient, status: int) -> None:
    api.get("/v1/shipments/shp_1").respond(status)

    assert await client.read_shipment("shp_1") is None


@pytest.mark.parametrize(
    "trouble",
    [httpx.Response(503), httpx.Response(429), httpx.ReadError("reset"), httpx.Response(200, text="<html>")],
)
async def test_who_is_not_patient_asks_for_a_shipment_once(
    api: respx.MockRouter, client: InventoryClient, trouble: Any
) -> None:
    route = api.get("/v1/shipments/shp_1")
    route.side_effect = [trouble, httpx.Response(200, json={"id": "shp_1"})]

    with pytest.raises(SourceUnavailable):
        await client.read_shipment("shp_1", patient=False)

    assert route.call_count == 1
    assert await client.read_shipment("shp_1", patient=False) == b'{"id":"shp_1"}'


async def test_an_expired_cursor_is_told_at_once(api: respx.MockRouter, client: InventoryClient) -> None:
    route = api.get("/v1/shipments").respond(410, json={"error": "cursor too old"})

    with pytest.raises(CursorExpired, match='HTTP 410, "cursor too old"; the cursor has expired'):
        await client.read_page("shipments", cursor="abc")

    assert route.call_count == 1


async def test_what_the_api_would_not_accept_is_not_sent(api: respx.MockRouter, client: InventoryClient) -> None:
    with pytest.raises(ValueError, match="limit must be 1 to 200"):
        await client.read_page("shipments", limit=500)

    assert not api.calls


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_refused_and_not_followed(
    api: respx.MockRouter, client: InventoryClient, status: int
) -> None:
    elsewhere = respx.get("https://elsewhere.example.com/v1/shipments").respond(json={"shipments": []})
    api.get("/v1/shipments").respond(status, headers={"location": "https://elsewhere.example.com/v1/shipments"})

    with pytest.raises(
        SourceRefused, match=f"HTTP {status}, a redirect to elsewhere.example.com that dockbell does not follow"
    ):
        await client.read_page("shipments")

    assert not elsewhere.called


# Asking again --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        httpx.Response(503),
        httpx.ConnectError("refused"),
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("disconnected"),
    ],
)
async def test_what_passes_by_itself_is_asked_again(
    api: respx.MockRouter, client: InventoryClient, facts: list[Fact], trouble: Any
) -> None:
    route = api.get("/v1/shipments")
    route.side_effect = [trouble, trouble, page_of({"id": 1})]

    page = await client.read_page("shipments")

    assert page.records == (b'{"id":1}',)
    assert [type(fact) for fact in facts] == [RequestSent, SourceWaits, RequestSent, SourceWaits, RequestSent]


UNREADABLE = [
    httpx.Response(200, text="<html>", headers={"content-type": "text/html"}),
    httpx.Response(200, content=b'{"shipments": [{', headers={"content-type": "application/json"}),
    httpx.Response(200, content=b'{"shipments": [{"a": "b" c"}]}', headers={"content-type": "application/json"}),
    httpx.Response(200, content=b"", headers={"content-type": "application/json"}),
    httpx.Response(204),
]


@pytest.mark.parametrize("trouble", UNREADABLE)
async def test_an_unreadable_page_is_asked_for_once_more(
    api: respx.MockRouter, client: InventoryClient, facts: list[Fact], trouble: httpx.Response
) -> None:
    api.get("/v1/shipments").side_effect = [trouble, page_of({"id": 1})]

    assert (await client.read_page("shipments")).records == (b'{"id":1}',)
    assert [type(fact) for fact in facts] == [RequestSent, SourceWaits, RequestSent]


@pytest.mark.parametrize("trouble", UNREADABLE)
async def test_a_page_that_is_unreadable_twice_is_told(
    api: respx.MockRouter, client: InventoryClient, trouble: httpx.Response
) -> None:
    route = api.get("/v1/shipments")
    route.side_effect = [trouble, httpx.Response(503), trouble, page_of()]

    with pytest.raises(PageUnreadable):
        await client.read_page("shipments")

    assert route.call_count == 3


async def test_after_five_tries_with_growing_waits_the_last_error_is_raised(
    api: respx.MockRouter, client: InventoryClient, facts: list[Fact]
) -> None:
    route = api.get("/v1/shipments")
    route.side_effect = [*(httpx.Response(500) for _ in range(4)), httpx.Response(503, json={"error": "lunch"})]
    began = now()

    with pytest.raises(SourceUnavailable, match=r'^GET /v1/shipments: HTTP 503, "lunch"$'):
        await client.read_page("shipments")

    waits = [fact.delay for fact in facts if isinstance(fact, SourceWaits)]
    assert len(waits) == 4
    assert all(0.5 * SECOND <= wait <= 0.5 * 2**number * SECOND for number, wait in enumerate(waits, 1))
    assert sum(waits, timedelta()) <= now() - began < sum(waits, SECOND)


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_what_does_not_pass_by_itself_is_raised_at_once(
    api: respx.MockRouter, client: InventoryClient, status: int
) -> None:
    route = api.get("/v1/shipments").respond(status)

    with pytest.raises(SourceRefused):
        await client.read_page("shipments")

    assert route.call_count == 1


async def test_after_a_429_the_whole_key_waits_as_long_as_asked(api: respx.MockRouter, facts: list[Fact]) -> None:
    refused = anyio.Event()
    telemetry = Telemetry(facts.append, lambda fact: refused.set() if isinstance(fact, SourceWaits) else None)
    client = InventoryClient(BASE, "KEY", telemetry=telemetry)
    api.get("/v1/shipments").side_effect = [httpx.Response(429, headers={"retry-after": "20"}), page_of()]
    api.get("/v1/stock").respond(json={"stock": []})
    began, answered = now(), {}

    async def read(resource: str) -> None:
        await client.read_page(resource)
        answered[resource] = now() - began

    async with anyio.create_task_group() as group:
        group.start_soon(read, "shipments")
        with anyio.fail_after(5):
            await refused.wait()
        group.start_soon(read, "stock")

    assert 20 * SECOND <= answered["stock"] < 21 * SECOND
    assert 20 * SECOND <= answered["shipments"] < 21 * SECOND
    assert [str(fact) for fact in facts if isinstance(fact, SourceWaits)] == [
        "source main: GET /v1/shipments: HTTP 429, the key's budget is used up; retrying in 20 s"
    ]


async def test_without_a_wish_a_429_is_waited_for_until_the_reset(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    moment = datetime.now(UTC)
    reset = str(int(moment.timestamp()) + 30)
    told = {"x-ratelimit-limit": "300", "x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
    refusal = httpx.Response(429, headers=told | {"date": http_date(moment)})
    api.get("/v1/shipments").side_effect = [refusal, page_of()]
    began = now()

    await client.read_page("shipments")

    assert 30 * SECOND <= now() - began < 31 * SECOND


@pytest.mark.parametrize("wish", ["3600", "Fri, 01 Jan 2100 00:00:00 GMT"])
async def test_a_429_that_asks_for_an_hour_is_told_at_once_and_asked_again_every_five_minutes(
    api: respx.MockRouter, client: InventoryClient, wish: str
) -> None:
    route = api.get("/v1/shipments")
    refusal = httpx.Response(429, headers={"retry-after": wish})
    route.side_effect = [refusal, refusal, page_of(), page_of()]

    with pytest.raises(RateLimited) as caught:
        await client.read_page("shipments")
    assert (caught.value.retry_after or SECOND) >= 3600 * SECOND

    for requests in (1, 2):
        assert route.call_count == requests
        await anyio.sleep(100)
        with pytest.raises(
            RateLimited, match=r"GET /v1/shipments: not sent: the API asked dockbell to wait, \d+ s are left"
        ):
            await client.read_page("shipments")
        await anyio.sleep(200)
        with contextlib.suppress(RateLimited):
            await client.read_page("shipments")
    assert route.call_count == 3

    await client.read_page("shipments")


@pytest.mark.parametrize("wish", ["5", "120", "300", "86400", "Fri, 01 Jan 2100 00:00:00 GMT", None])
async def test_a_collection_that_is_always_limited_does_not_silence_the_others(
    api: respx.MockRouter, client: InventoryClient, wish: str | None
) -> None:
    headers = {} if wish is None else {"retry-after": wish}
    limited = api.get("/v1/stock").respond(429, headers=headers)
    others = [api.get(f"/v1/{name}").respond(json={name: []}) for name in ("shipments", "packages")]

    async def read_on(resource: str) -> None:
        while True:
            with contextlib.suppress(RateLimited):
                await client.read_page(resource)
            await anyio.sleep(15)

    with anyio.move_on_after(3600):
        async with anyio.create_task_group() as group:
            for resource in ("stock", "shipments", "packages"):
                group.start_soon(read_on, resource)

    assert limited.call_count <= (240 if wish is None else 720)
    assert all(route.call_count >= 3600 / 15 - 12 for route in others)


async def test_a_limit_of_the_whole_key_that_lasts_an_hour_costs_a_request_in_five_minutes(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    began = now()

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(429, headers={"retry-after": "86400"}) if now() - began < 3600 * SECOND else page_of()

    routes = [api.get(f"/v1/{name}").mock(side_effect=answer) for name in ("shipments", "packages", "items")]
    answered: list[timedelta] = []

    async def read_on(resource: str) -> None:
        while True:
            with contextlib.suppress(RateLimited, SchemaMismatch):
                await client.read_page(resource)
                answered.append(now() - began)
            await anyio.sleep(15)

    with anyio.move_on_after(3600 + 600):
        async with anyio.create_task_group() as group:
            for resource in ("shipments", "packages", "items"):
                group.start_soon(read_on, resource)

    refused = sum(call.response.status_code == 429 for route in routes for call in route.calls)
    assert refused <= 3 + 3600 / 300
    assert 3600 * SECOND <= min(answered) <= 3600 * SECOND + 330 * SECOND


async def test_who_is_cancelled_while_waiting_to_ask_again_leaves_the_client_usable(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    route = api.get("/v1/shipments")
    route.side_effect = [httpx.Response(503), page_of()]

    with anyio.move_on_after(0.2) as scope:
        await client.read_page("shipments")
    assert scope.cancelled_caught

    assert (await client.read_page("shipments")).records == ()


# The key -------------------------------------------------------------------------------------------------------------


def rotating(*keys: str) -> Callable[[], str]:
    remaining = iter(keys)
    return lambda: next(remaining)


async def test_after_a_401_the_key_is_read_again_and_the_new_one_tried(api: respx.MockRouter) -> None:
    route = api.get("/v1/shipments")
    route.side_effect = [page_of(), httpx.Response(401), page_of(), page_of()]
    client = InventoryClient(BASE, rotating("OLD", "NEW"))

    for _ in range(3):
        await client.read_page("shipments")

    assert keys_sent(route) == ["Bearer OLD", "Bearer OLD", "Bearer NEW", "Bearer NEW"]


async def test_a_key_that_is_refused_and_has_not_changed_is_not_tried_twice(api: respx.MockRouter) -> None:
    route = api.get("/v1/shipments").respond(401, json={"message": "bad key KEY given"})

    with pytest.raises(SourceRefused) as caught:
        await InventoryClient(BASE, lambda: "KEY").read_page("shipments")

    assert route.call_count == 1
    assert str(caught.value) == (
        'GET /v1/shipments: HTTP 401, "bad key *** given"; the API does not accept the key, check api_key'
    )


async def test_a_new_key_that_is_refused_too_is_an_error(api: respx.MockRouter) -> None:
    route = api.get("/v1/shipments").respond(401)

    with pytest.raises(SourceRefused, match="HTTP 401; the API does not accept the key"):
        await InventoryClient(BASE, rotating("OLD", "NEW")).read_page("shipments")

    assert keys_sent(route) == ["Bearer OLD", "Bearer NEW"]


async def test_of_many_that_are_refused_at_once_each_asks_again_with_the_one_new_key(api: respx.MockRouter) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        await anyio.sleep(0.1)
        return page_of() if request.headers["authorization"] == "Bearer NEW" else httpx.Response(401)

    api.get("/v1/shipments").side_effect = answer
    client = InventoryClient(BASE, rotating("OLD", "NEW"))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(client.read_page, "shipments")


@pytest.mark.parametrize("key", ["", " ", "clé", "two\nlines", "\x00"])
async def test_a_key_that_no_header_can_carry_is_refused_without_telling_it(api: respx.MockRouter, key: str) -> None:
    with pytest.raises(SourceRefused, match=r'^source "main": the API key is empty or not plain text; check api_key'):
        await InventoryClient(BASE, key).read_page("shipments")

    assert not api.calls


async def test_a_key_that_cannot_be_looked_up_is_refused_and_looked_up_again_next_time(api: respx.MockRouter) -> None:
    route = api.get("/v1/shipments").respond(json={"shipments": []})
    problems = [ConfigError("environment variable KEY is not set")]

    def reveal() -> str:
        if problems:
            raise problems.pop()
        return "KEY\n"

    client = InventoryClient(BASE, reveal, name="north")
    with pytest.raises(SourceRefused, match=r'^source "north": environment variable KEY is not set$'):
        await client.read_page("shipments")
    await client.read_page("shipments")

    assert keys_sent(route) == ["Bearer KEY"]


# The key is refused --------------------------------------------------------------------------------------------------


async def test_while_the_key_is_refused_one_request_a_minute_asks_whether_it_still_is(
    api: respx.MockRouter, client: InventoryClient, facts: list[Fact]
) -> None:
    routes = [api.get(f"/v1/{name}").respond(401) for name in RESOURCES]
    told = set()

    for _ in range(300):
        for name in RESOURCES:
            with pytest.raises(SourceRefused) as caught:
                await client.read_page(name)
            told.add(str(caught.value).partition(": ")[2])
        await anyio.sleep(1)

    assert sum(route.call_count for route in routes) == 6  # two at once: the second may have been another's refusal
    assert len(facts) == 6
    assert told == {"HTTP 401; the API does not accept the key, check api_key"}


async def test_a_key_that_was_replaced_is_used_at_once(api: respx.MockRouter) -> None:
    key = "OLD"
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["authorization"])
        return page_of() if key == "NEW" and asked[-1] == "Bearer NEW" else httpx.Response(401)

    api.get("/v1/shipments").side_effect = answer
    client = InventoryClient(BASE, lambda: key)
    with pytest.raises(SourceRefused):
        await client.read_page("shipments")
    with pytest.raises(SourceRefused):
        await client.read_page("shipments")
    key = "NEW"
    await client.read_page("shipments")
    await client.read_page("shipments")

    assert asked == ["Bearer OLD", "Bearer NEW", "Bearer NEW"]


async def test_who_comes_while_the_probe_is_under_way_waits_for_what_it_finds(api: respx.MockRouter) -> None:
    async def answer(_: httpx.Request) -> httpx.Response:
        await anyio.sleep(1)
        return page_of() if now() - began > 30 * SECOND else httpx.Response(401)

    route = api.get("/v1/shipments").mock(side_effect=answer)
    client = InventoryClient(BASE, "KEY")
    began = now()
    with pytest.raises(SourceRefused):
        await client.read_page("shipments")
    await anyio.sleep(60)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(client.read_page, "shipments")

    assert route.call_count == 6


async def test_a_probe_that_finds_the_key_refused_still_ends_the_waiting_of_all(api: respx.MockRouter) -> None:
    async def answer(_: httpx.Request) -> httpx.Response:
        await anyio.sleep(1)
        return httpx.Response(403)

    route = api.get("/v1/shipments").mock(side_effect=answer)
    client = InventoryClient(BASE, "KEY")
    refused: list[SourceRefused] = []

    async def read() -> None:
        try:
            await client.read_page("shipments")
        except SourceRefused as error:
            refused.append(error)

    await read()
    await anyio.sleep(60)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(read)

    assert (route.call_count, len(refused)) == (2, 6)


async def test_what_waited_for_its_turn_is_not_sent_with_a_key_that_was_refused_meanwhile(
    api: respx.MockRouter,
) -> None:
    async def answer(_: httpx.Request) -> httpx.Response:
        await anyio.sleep(5)
        return httpx.Response(401)

    route = api.get("/v1/shipments").mock(side_effect=answer)
    client = InventoryClient(BASE, "KEY", requests_per_minute=1, share=1)
    refused = 0

    async def read() -> None:
        nonlocal refused
        with pytest.raises(SourceRefused):
            await client.read_page("shipments")
        refused += 1

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(read)

    assert (route.call_count, refused) == (1, 3)


async def test_a_collection_that_is_forbidden_leaves_the_others_alone(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    forbidden = api.get("/v1/warehouses").respond(403)
    api.get("/v1/stock").respond(json={"stock": []})

    for _ in range(10):
        await client.read_page("stock")
        with pytest.raises(SourceRefused, match="GET /v1/warehouses: HTTP 403"):
            await client.read_page("warehouses")
        await anyio.sleep(5)

    assert forbidden.call_count == 1


async def test_an_order_that_is_forbidden_stops_nothing(api: respx.MockRouter, client: InventoryClient) -> None:
    api.post("/v1/sales-orders").side_effect = [httpx.Response(403), httpx.Response(201, json={})]
    api.get("/v1/stock").respond(json={"stock": []})

    with pytest.raises(SourceRefused):
        await client.create_sales_order({})
    await client.read_page("stock")

    assert await client.create_sales_order({}) == {}


# What is not sent again ----------------------------------------------------------------------------------------------


async def test_a_page_that_is_still_the_same_is_not_sent_again(api: respx.MockRouter, client: InventoryClient) -> None:
    moment = datetime.now(UTC)
    first = http_date(moment)
    route = api.get("/v1/stock")
    route.side_effect = [
        httpx.Response(
            200, content=b'{"rows": [{"a": 1.0}], "next_cursor": "x"}', headers={"etag": 'W/"1"', "date": first}
        ),
        httpx.Response(304, headers={"date": http_date(moment + SECOND)}),
        httpx.Response(200, json={"rows": []}),
        httpx.Response(200, json={"rows": []}),
    ]

    pages = [await client.read_page("stock") for _ in range(4)]

    assert [call.request.headers.get("if-none-match") for call in route.calls] == [None, 'W/"1"', 'W/"1"', None]
    assert [page.records for page in pages] == [(b'{"a": 1.0}',), (b'{"a": 1.0}',), (), ()]
    assert [page.next_cursor for page in pages] == ["x", "x", None, None]
    assert pages[1].received_at > pages[0].received_at


async def test_the_time_of_a_page_that_is_not_sent_again_is_that_of_the_new_answer(api: respx.MockRouter) -> None:
    client = InventoryClient(BASE, "KEY")
    began = datetime.now(UTC).replace(microsecond=0)
    api.get("/v1/stock").side_effect = [
        httpx.Response(200, json={"stock": []}, headers={"etag": '"1"', "date": http_date(began)}),
        httpx.Response(304, headers={"date": http_date(began - 10 * SECOND)}),
    ]

    pages = [await client.read_page("stock") for _ in range(2)]

    assert [page.answered_at for page in pages] == [began + SECOND, began - 9 * SECOND]


async def test_polls_are_not_remembered(api: respx.MockRouter, client: InventoryClient) -> None:
    route = api.get("/v1/shipments").respond(json={"shipments": []}, headers={"etag": '"1"'})

    for _ in range(2):
        await client.read_page("shipments", updated_since=datetime(2026, 11, 21, tzinfo=UTC))

    assert "if-none-match" not in route.calls.last.request.headers


async def test_unchanged_without_anything_remembered_is_an_error(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    api.get("/v1/stock").respond(304)

    with pytest.raises(SourceUnavailable, match=r"^GET /v1/stock: HTTP 304$"):
        await client.read_page("stock")


async def test_a_cursor_of_a_remembered_page_that_has_expired_is_not_given_again(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    route = api.get("/v1/stock")
    route.side_effect = [
        httpx.Response(200, json={"stock": [], "next_cursor": "x"}, headers={"etag": '"1"'}),
        httpx.Response(410),
        httpx.Response(200, json={"stock": []}),
    ]
    await client.read_page("stock")
    with pytest.raises(CursorExpired):
        await client.read_page("stock", cursor="x")

    await client.read_page("stock")

    assert "if-none-match" not in route.calls.last.request.headers


async def test_what_one_key_was_shown_is_not_taken_for_what_another_is(api: respx.MockRouter) -> None:
    route = api.get("/v1/stock")
    route.side_effect = [
        httpx.Response(200, json={"stock": []}, headers={"etag": '"1"'}),
        httpx.Response(401),
        httpx.Response(200, json={"stock": []}),
        httpx.Response(200, json={"stock": []}),
    ]
    client = InventoryClient(BASE, rotating("OLD", "NEW"))
    for _ in range(3):
        await client.read_page("stock")

    assert "if-none-match" not in route.calls.last.request.headers


# The clock -----------------------------------------------------------------------------------------------------------


async def test_a_date_that_nothing_supports_is_asked_for_again_before_it_is_believed(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    today = http_date(datetime.now(UTC))
    route = api.get("/v1/stock")
    route.side_effect = [
        httpx.Response(200, json={"stock": []}, headers={"date": date})
        for date in ("Thu, 01 Jan 2099 00:00:00 GMT", today, "Thu, 01 Jan 2099 00:00:00 GMT", today)
    ]

    pages = [await client.read_page("stock") for _ in range(3)]

    assert route.call_count == 4
    assert all(abs(page.asked_at - page.received_at) < 3 * SECOND for page in pages)
    assert {page.clock for page in pages} == {ClockSource.DATE}


async def test_a_date_that_nothing_supports_but_a_second_answer_repeats_is_the_clock_of_the_service(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    route = api.get("/v1/stock").respond(json={"stock": []}, headers={"date": "Thu, 01 Jan 2099 00:00:00 GMT"})

    page = await client.read_page("stock")

    assert (page.clock, page.asked_at.year, route.call_count) == (ClockSource.DATE, 2098, 2)


async def test_the_time_is_asked_for_again_only_once(api: respx.MockRouter, client: InventoryClient) -> None:
    years = iter(range(2050, 2090))
    route = api.get("/v1/stock")
    route.side_effect = lambda _: httpx.Response(
        200, json={"stock": []}, headers={"date": f"01 Jan {next(years)} 00:00:00 GMT"}
    )

    pages = [await client.read_page("stock") for _ in range(4)]

    assert {page.clock for page in pages} == {ClockSource.LOCAL}
    assert route.call_count == 5


# The budget ----------------------------------------------------------------------------------------------------------


async def test_no_more_than_the_share_is_asked_in_a_minute(api: respx.MockRouter) -> None:
    route = api.get("/v1/shipments").respond(json={"shipments": []})
    client = InventoryClient(BASE, "KEY", requests_per_minute=20, share=0.5)
    began = now()

    for _ in range(10):
        await client.read_page("shipments")
    assert now() - began < SECOND
    assert client.budget.used == 10

    await client.read_page("shipments")
    assert 60 * SECOND < now() - began < 63 * SECOND
    assert route.call_count == 11


async def test_what_the_api_says_remains_is_heeded_and_shown(api: respx.MockRouter, client: InventoryClient) -> None:
    moment = datetime.now(UTC)
    reset = str(int(moment.timestamp()) + 40)
    told = {"x_ratelimit_limit": "300", "x_ratelimit_remaining": "20", "x_ratelimit_reset": reset}
    api.get("/v1/shipments").mock(return_value=page_of(**told, date=http_date(moment)))
    began = now()

    await client.read_page("shipments")
    assert client.budget.remaining == 20
    assert client.budget.resets_in is not None
    assert 39 * SECOND < client.budget.resets_in <= 40 * SECOND

    await client.read_page("shipments")
    assert 39 * SECOND < now() - began < 41 * SECOND


async def test_polls_go_before_pass_pages(api: respx.MockRouter) -> None:
    api.get("/v1/shipments").respond(json={"shipments": []})
    client = InventoryClient(BASE, "KEY", requests_per_minute=3, share=1)
    order: list[Urgency] = []

    async def read(urgency: Urgency) -> None:
        await client.read_page("shipments", urgency=urgency)
        order.append(urgency)

    for _ in range(3):
        await client.read_page("shipments")
    async with anyio.create_task_group() as group:
        for urgency in (Urgency.PASS, Urgency.POLL, Urgency.OPERATOR):
            group.start_soon(read, urgency)
            await anyio.wait_all_tasks_blocked()

    assert order == [Urgency.OPERATOR, Urgency.POLL, Urgency.PASS]


async def test_each_request_is_told(api: respx.MockRouter, client: InventoryClient, facts: list[Fact]) -> None:
    api.get("/v1/stock").respond(
        json={"stock": []}, headers={"x-ratelimit-limit": "300", "x-ratelimit-remaining": "299"}
    )
    api.post("/v1/sales-orders").side_effect = httpx.ReadError("reset")

    await client.read_page("stock", urgency=Urgency.PASS)
    with pytest.raises(SourceError):
        await client.create_sales_order({})

    assert [str(fact).rpartition(" in ")[0] for fact in facts] == [
        "main: GET /v1/stock: HTTP 200",
        "main: POST /v1/sales-orders: no answer",
    ]
    assert isinstance(facts[0], RequestSent)
    assert (facts[0].urgency, facts[0].remaining) == (Urgency.PASS, 299)


# Orders --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "order"),
    [(b'{"id": "ord_1", "total": 1.50}', {"id": "ord_1", "total": Decimal("1.50")}), (b"", None), (b"made", "made")],
)
async def test_an_order_is_created_and_its_answer_returned(
    api: respx.MockRouter, client: InventoryClient, body: bytes, order: Any
) -> None:
    route = api.post("/v1/sales-orders").respond(201, content=body)

    assert await client.create_sales_order({"lines": [{"sku": "A", "quantity": 1}]}) == order

    request = route.calls.last.request
    assert json.loads(request.content) == {"lines": [{"sku": "A", "quantity": 1}]}
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == "Bearer KEY"


@pytest.mark.parametrize(
    "trouble", [httpx.Response(500), httpx.Response(503), httpx.ReadError("reset"), httpx.WriteError("reset")]
)
async def test_an_order_that_may_have_been_created_is_never_sent_again(
    api: respx.MockRouter, client: InventoryClient, trouble: Any
) -> None:
    route = api.post("/v1/sales-orders")
    route.side_effect = [trouble, httpx.Response(201, json={})]

    with pytest.raises(SourceUnavailable, match=r"; the API may have created the order: check before you order again$"):
        await client.create_sales_order({})

    assert route.call_count == 1


@pytest.mark.parametrize(
    "trouble", [httpx.Response(429), httpx.ConnectError("refused"), httpx.ConnectTimeout("timed out")]
)
async def test_an_order_that_was_certainly_not_created_is_sent_again(
    api: respx.MockRouter, client: InventoryClient, trouble: Any
) -> None:
    route = api.post("/v1/sales-orders")
    route.side_effect = [trouble, httpx.Response(201, json={"id": 1})]

    assert await client.create_sales_order({}) == {"id": 1}


@pytest.mark.parametrize("trouble", [httpx.Response(429), httpx.ConnectError("refused")])
async def test_an_order_that_never_gets_through_is_not_said_to_exist(
    api: respx.MockRouter, client: InventoryClient, trouble: Any
) -> None:
    route = api.post("/v1/sales-orders")
    route.side_effect = [trouble] * 5

    with pytest.raises(SourceUnavailable) as caught:
        await client.create_sales_order({})

    assert route.call_count == 5
    assert "may have created" not in str(caught.value)


async def test_a_refused_order_is_told_in_the_words_of_the_api(api: respx.MockRouter, client: InventoryClient) -> None:
    api.post("/v1/sales-orders").respond(422, json={"message": "no lines"})

    with pytest.raises(SourceRefused, match=r'^POST /v1/sales-orders: HTTP 422, "no lines"; '):
        await client.create_sales_order({})


async def test_an_order_refused_for_its_key_is_not_sent_again_but_the_next_has_the_new_key(
    api: respx.MockRouter,
) -> None:
    route = api.post("/v1/sales-orders")
    route.side_effect = [httpx.Response(401), httpx.Response(201, json={})]
    client = InventoryClient(BASE, rotating("OLD", "NEW"))

    with pytest.raises(SourceRefused):
        await client.create_sales_order({})
    await client.create_sales_order({})

    assert keys_sent(route) == ["Bearer OLD", "Bearer NEW"]


async def test_orders_wait_for_their_own_budget_and_count_in_both(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    told = {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "1"}
    api.post("/v1/sales-orders").respond(201, json={}, headers=told)
    api.get("/v1/stock").respond(json={"stock": []})
    began = now()

    for _ in range(9):
        await client.create_sales_order({})
    assert now() - began < SECOND
    assert client.budget.used == 9

    async with anyio.create_task_group() as group:
        group.start_soon(client.create_sales_order, {})
        await anyio.wait_all_tasks_blocked()
        await client.read_page("stock")
        assert now() - began < SECOND
    assert 60 * SECOND < now() - began < 63 * SECOND


# A request as it is --------------------------------------------------------------------------------------------------

SHIPMENTS = list_request("shipments")


async def test_a_request_as_it_is_goes_like_any_other_and_its_answer_comes_as_it_is(
    api: respx.MockRouter, client: InventoryClient, facts: list[Fact]
) -> None:
    route = api.get("/v1/shipments", params={"limit": "200"}).respond(html="<p>odd</p>", headers={"x-odd": "yes"})

    response = await client.ask(SHIPMENTS)

    assert (response.status, response.body, response.headers["x-odd"]) == (200, b"<p>odd</p>", "yes")
    headers = route.calls.last.request.headers
    assert (headers["authorization"], headers["user-agent"]) == ("Bearer KEY", f"dockbell/{__version__}")
    (fact,) = facts
    assert isinstance(fact, RequestSent)
    assert (fact.urgency, fact.status) == (Urgency.OPERATOR, 200)


@pytest.mark.parametrize("status", [401, 403, 429, 500])
async def test_a_request_as_it_is_is_sent_once_and_an_error_does_not_quote_the_key(
    api: respx.MockRouter, client: InventoryClient, facts: list[Fact], status: int
) -> None:
    route = api.get("/v1/shipments").respond(status, text="bad key KEY given")

    response = await client.ask(SHIPMENTS)

    assert (response.status, response.body) == (status, b"bad key *** given")
    assert (route.call_count, len(facts)) == (1, 1)


async def test_a_request_as_it_is_that_is_not_answered_is_not_sent_again(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    route = api.get("/v1/shipments")
    route.side_effect = httpx.ReadError

    with pytest.raises(SourceUnavailable, match=r"^GET /v1/shipments: connection lost"):
        await client.ask(SHIPMENTS)

    assert route.call_count == 1


async def test_a_request_as_it_is_is_sent_though_the_key_is_refused_and_changes_nothing_about_that(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    route = api.get("/v1/shipments").respond(401)
    with pytest.raises(SourceRefused):
        await client.read_page("shipments")
    route.respond(json={"shipments": []})

    assert (await client.ask(SHIPMENTS)).status == 200
    with pytest.raises(SourceRefused):
        await client.read_page("shipments")

    assert route.call_count == 2


async def test_nothing_is_concluded_from_a_refusal_of_a_request_as_it_is(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    route = api.get("/v1/shipments")
    route.side_effect = [httpx.Response(401), page_of()]

    assert (await client.ask(SHIPMENTS)).status == 401
    assert (await client.read_page("shipments")).records == ()


async def test_after_a_refusal_of_a_request_as_it_is_the_key_is_read_again(api: respx.MockRouter) -> None:
    route = api.get("/v1/shipments")
    route.side_effect = [httpx.Response(401), page_of(), page_of()]
    client = InventoryClient(BASE, rotating("OLD", "NEW"))

    for _ in range(3):
        await client.ask(SHIPMENTS)

    assert keys_sent(route) == ["Bearer OLD", "Bearer NEW", "Bearer NEW"]


async def test_a_request_as_it_is_needs_a_key(api: respx.MockRouter) -> None:
    with pytest.raises(SourceRefused, match=r'^source "north": the API key is empty'):
        await InventoryClient(BASE, "", name="north").ask(SHIPMENTS)

    assert not api.calls


async def test_a_request_as_it_is_asks_for_what_its_own_etag_says_and_not_for_what_is_remembered(
    api: respx.MockRouter, client: InventoryClient
) -> None:
    etag = '"réel"'.encode("latin-1")
    page = httpx.Response(200, json={"shipments": []}, headers=[(b"etag", etag)])
    route = api.get("/v1/shipments").mock(return_value=page)
    await client.read_page("shipments")

    first = await client.ask(SHIPMENTS)
    assert "if-none-match" not in route.calls.last.request.headers

    route.respond(304)
    again = await client.ask(replace(SHIPMENTS, etag=first.headers["etag"]))

    assert (again.status, again.body) == (304, b"")
    assert (b"if-none-match", etag) in route.calls.last.request.headers.raw


async def test_requests_as_they_are_keep_to_the_budget(api: respx.MockRouter) -> None:
    api.get("/v1/shipments").respond(json={"shipments": []})
    client = InventoryClient(BASE, "KEY", requests_per_minute=4, share=0.5)

    began = now()
    for _ in range(3):
        await client.ask(SHIPMENTS)

    assert 60 * SECOND < now() - began < 63 * SECOND


# Settings ------------------------------------------------------------------------------------------------------------


async def test_a_client_is_made_from_settings(api: respx.MockRouter, tmp_path: Path, facts: list[Fact]) -> None:
    route = api.get("/v1/shipments").respond(json={"shipments": []})
    (tmp_path / "key").write_text("FROM-FILE\n")
    settings = SourceSettings(
        base_url=BASE,
        api_key=Secret(file=str(tmp_path / "key")),
        requests_per_minute=100,
        share=0.5,
        user_agent="acme/7",
    )

    async with InventoryClient.from_settings("north", settings, Telemetry(facts.append)) as client:
        page: Page = await client.read_page("shipments")

    assert page.records == ()
    assert (client.name, client.budget.allowed, client.budget.limit) == ("north", 50, 100)
    assert keys_sent(route) == ["Bearer FROM-FILE"]
    assert route.calls.last.request.headers["user-agent"] == "acme/7"
    assert isinstance(facts[0], RequestSent)
    assert facts[0].source == "north"


def test_a_client_for_an_address_that_is_none_is_not_made() -> None:
    with pytest.raises(ConfigError, match="base_url"):
        InventoryClient("api.example.com", "KEY")
