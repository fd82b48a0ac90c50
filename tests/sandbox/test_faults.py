from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import anyio
import httpx
import msgspec
import pytest

from dockbell.sandbox import SandboxOptions, serve
from dockbell.sandbox.faults import BAD_BODIES, HEAVY, ODD, OF_LISTINGS, UNREADABLE

if TYPE_CHECKING:
    from tests.sandbox.conftest import Build, Open

KEY = {"Authorization": "Bearer sandbox"}


async def test_a_share_of_the_answers_are_server_errors(opened: Open) -> None:
    _, client = await opened(requests_per_minute=0, error_rate=0.5)
    statuses = Counter([(await client.get("/v1/warehouses?limit=1")).status_code for _ in range(400)])
    assert set(statuses) == {200, 500, 502, 503, 504}
    assert 150 < statuses[200] < 250


async def test_server_errors_are_json_and_count(opened: Open) -> None:
    _, client = await opened(error_rate=1.0)
    response = await client.get("/v1/stock")
    assert response.status_code >= 500
    assert response.json()["error"]["code"]
    assert response.headers["x-ratelimit-remaining"] == "299"


async def test_the_sandbox_itself_never_fails_on_purpose(opened: Open) -> None:
    _, client = await opened(error_rate=1.0)
    assert (await client.get("/sandbox/changes")).status_code == 200


async def test_the_same_seed_fails_the_same_requests(opened: Open) -> None:
    seen = []
    for _ in range(2):
        _, client = await opened(requests_per_minute=0, error_rate=0.5)
        seen.append([(await client.get("/v1/warehouses")).status_code for _ in range(20)])
    assert seen[0] == seen[1]


async def test_each_answer_takes_as_long_as_asked(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("dockbell.sandbox.faults.anyio.sleep", sleep)
    _, client = await opened(latency=1.5)
    await client.get("/v1/stock")
    await client.get("/sandbox/changes")
    assert slept == [1.5]


async def test_connections_break_before_or_within_the_answer(build: Build) -> None:
    sandbox = build(requests_per_minute=0, reset_rate=1.0)
    broken = Counter[str]()
    async with serve(sandbox) as url, httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False) as client:
        for _ in range(40):
            with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)) as error:
                await client.get("/v1/stock")
            broken["within" if "complete message body" in str(error.value) else "before"] += 1
        assert (await client.get("/sandbox/changes")).status_code == 200
    assert set(broken) == {"before", "within"}


async def test_an_order_whose_answer_breaks_off_may_have_been_taken(build: Build) -> None:
    sandbox = build(reset_rate=1.0, orders_per_minute=0)
    async with serve(sandbox) as url, httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False) as client:
        while not sandbox.changes():
            with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
                await client.post("/v1/sales-orders", json={})


async def test_without_a_connection_a_break_is_an_exception(opened: Open) -> None:
    _, client = await opened(requests_per_minute=0, reset_rate=1.0)
    for _ in range(20):
        with pytest.raises(ConnectionResetError, match="the sandbox hung up"):
            await client.get("/v1/stock")


async def test_a_share_of_the_answers_has_a_bad_body_besides_the_errors(opened: Open) -> None:
    _, client = await opened(requests_per_minute=0, error_rate=0.3, bad_body_rate=0.3, bad_body="empty")
    answers = [await client.get("/v1/warehouses?limit=1") for _ in range(400)]
    seen = Counter("error" if answer.status_code >= 500 else "good" if answer.content else "bad" for answer in answers)
    assert all(80 < seen[kind] < 200 for kind in ("error", "bad", "good"))


async def test_a_bad_body_counts(opened: Open) -> None:
    _, client = await opened(bad_body_rate=1.0, bad_body="html")
    assert (await client.get("/v1/stock")).headers["x-ratelimit-remaining"] == "299"
    assert (await client.get("/sandbox/changes")).json()["changes"] == []


async def test_faults_can_be_for_one_resource(opened: Open) -> None:
    _, client = await opened(error_rate=1.0, fault_resource="shipments")
    for path, status in (("shipments", 500), ("shipments/shp_1", 500), ("stock", 200), ("nothing", 404)):
        response = await client.get(f"/v1/{path}")
        assert response.status_code // 100 == status // 100


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422, 429, 500, 502, 503, 504])
async def test_errors_can_have_one_status(opened: Open, status: int) -> None:
    _, client = await opened(error_rate=1.0, error_with=status)
    response = await client.get("/v1/stock")
    assert response.status_code == status
    assert response.json()["error"]["code"]


@pytest.mark.parametrize(("kind", "hit"), [("poll", [1]), ("pass", [0]), ("single", [2]), ("all", [0, 1, 2, 3])])
async def test_faults_can_be_for_one_kind_of_requests(opened: Open, kind: str, hit: list[int]) -> None:
    _, client = await opened(error_rate=1.0, fault_kind=kind)
    requests = [
        client.build_request("GET", "/v1/shipments?limit=1"),
        client.build_request("GET", "/v1/shipments?limit=1&updated_since=2026-11-21"),
        client.build_request("GET", "/v1/shipments/shp_1"),
        client.build_request("POST", "/v1/sales-orders", json={}),
    ]
    statuses = [(await client.send(request)).status_code for request in requests]
    assert [number for number, status in enumerate(statuses) if status >= 500] == hit


async def test_faults_can_be_for_the_pages_that_show_a_record(opened: Open) -> None:
    _, client = await opened(error_rate=1.0, error_with=500, fault_record="shipments/shp_9")
    paths = ("?limit=8", "?limit=9", "?status=none", "/shp_9", "/shp_8")
    statuses = [(await client.get(f"/v1/shipments{path}")).status_code for path in paths]
    assert statuses == [200, 500, 400, 500, 200]
    assert (await client.get("/v1/packages?limit=200")).status_code == 200


async def test_an_order_shows_no_record_and_is_taken_once(opened: Open) -> None:
    sandbox, client = await opened(error_rate=1.0, fault_record="shipments/shp_9")
    assert (await client.post("/v1/sales-orders", json={})).status_code == 201
    assert len([change for change in sandbox.changes() if change.kind == "created"]) == 1


@pytest.mark.parametrize("fault", [{"error_rate": 1.0}, {"bad_body_rate": 1.0, "bad_body": "html"}])
async def test_the_third_page_dies_once(opened: Open, fault: dict[str, Any]) -> None:
    _, client = await opened(fault_resource="stock", fault_skip=2, fault_most=1, **fault)
    died = []
    for _ in range(5):
        await client.get("/v1/items")
        response = await client.get("/v1/stock")
        died.append(response.status_code != 200 or response.text.startswith("<"))
    assert died == [False, False, True, False, False]


async def test_faults_can_begin_and_end_while_it_runs(opened: Open) -> None:
    sandbox, client = await opened()
    sandbox.set(error_rate=1.0)
    assert (await client.get("/v1/stock")).status_code >= 500
    sandbox.set(error_rate=0.0)
    assert (await client.get("/v1/stock")).status_code == 200


if TYPE_CHECKING:
    from tests.sandbox.conftest import Build, Open

NAMES = get_args(get_type_hints(SandboxOptions)["bad_body"])


def strictly(raw: bytes) -> Any:
    """Return what JSON says, refusing names given twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            raise ValueError("twice")
        return members

    return json.loads(raw, object_pairs_hook=once)


def test_every_body_can_be_named() -> None:
    assert set(NAMES) - {"any"} == set(BAD_BODIES)
    assert len(BAD_BODIES) == sum(map(len, (UNREADABLE, HEAVY, OF_LISTINGS, ODD)))


@pytest.mark.parametrize("resource", ["stock", "warehouses", "shipments?status=cancelled&limit=1"])
@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_bad_body_comes_with_200_and_is_no_page(opened: Open, name: str, resource: str) -> None:
    _, client = await opened(bad_body_rate=1.0, bad_body=name)
    response = await client.get(f"/v1/{resource}")
    assert response.status_code == 200
    assert response.headers["content-type"] == ("text/html; charset=utf-8" if name == "html" else "application/json")
    match name:
        case "duplicate_members" | "duplicate_fields":
            with pytest.raises(ValueError, match="twice"):
                strictly(response.content)
        case "error_200":
            assert set(response.json()) == {"error"}
        case "null":
            assert response.json() is None
        case "deep":
            with pytest.raises(RecursionError):
                json.loads(response.content)
        case _:
            with pytest.raises(ValueError, match=r"."):
                msgspec.json.decode(response.content)


async def test_any_body_is_one_that_is_no_page(opened: Open) -> None:
    _, client = await opened(requests_per_minute=0, bad_body_rate=1.0)
    bodies = {(await client.get("/v1/warehouses")).content for _ in range(120)}
    assert len(bodies) == len(UNREADABLE)


@pytest.mark.parametrize("wrapper", ["", "data"])
@pytest.mark.parametrize(
    ("end", "shown"), [("null", {"next_cursor": None}), ("empty", {"next_cursor": ""}), ("absent", {})]
)
async def test_a_listing_is_cut_short_once(opened: Open, wrapper: str, end: Any, shown: dict[str, Any]) -> None:
    """The page looks like the last one, and is not."""
    sandbox, client = await opened(end_of_list=end, wrapper=wrapper)

    async def read() -> Any:
        page = (await client.get("/v1/stock?limit=10")).json()
        return page[wrapper] if wrapper else page

    right = await read()
    sandbox.set(bad_body_rate=1.0, bad_body="cut_list", fault_most=1)
    assert await read() == {"stock": right["stock"][:5]} | shown
    assert await read() == right


async def test_an_empty_listing_comes_once_and_not_where_it_would_be_empty_anyway(opened: Open) -> None:
    sandbox, client = await opened(bad_body_rate=1.0, bad_body="empty_list", fault_most=1)
    assert (await client.get("/v1/items?sku=none")).json() == {"items": [], "next_cursor": None}
    assert (await client.get("/v1/shipments/shp_1")).json()["lines"]
    assert (await client.get("/v1/items?limit=0")).status_code == 400
    assert sandbox.options.fault_most == 1
    assert (await client.get("/v1/items")).json() == {"items": [], "next_cursor": None}
    assert sandbox.options.fault_most == 0
    assert len((await client.get("/v1/items")).json()["items"]) == 25


async def test_a_full_page_says_that_the_list_ends_where_it_does_not(opened: Open) -> None:
    sandbox, client = await opened(warehouses=12)
    first, last = (await client.get("/v1/warehouses?limit=10")).json(), (await client.get("/v1/warehouses")).json()
    assert first["next_cursor"]
    sandbox.set(bad_body_rate=1.0, bad_body="full_list", fault_most=1)
    assert (await client.get("/v1/warehouses")).json() == last
    assert sandbox.options.fault_most == 1
    assert (await client.get("/v1/warehouses?limit=10")).json() == first | {"next_cursor": None}
    assert sandbox.options.fault_most == 0


async def test_null_can_stand_in_place_of_the_records(opened: Open) -> None:
    _, client = await opened(bad_body_rate=1.0, bad_body="null_list", envelope="data")
    assert (await client.get("/v1/stock")).json() == {"data": None, "next_cursor": None}


async def test_one_page_can_show_a_record_twice(opened: Open) -> None:
    sandbox, client = await opened()
    right = (await client.get("/v1/stock?limit=3")).json()
    sandbox.set(bad_body_rate=1.0, bad_body="doubled_list", fault_most=1)
    one, two, three, again = (await client.get("/v1/stock?limit=3")).json()["stock"]
    assert [one, two, three] == right["stock"]
    assert (again["id"], again["note"]) == (one["id"], "again")
    assert (await client.get("/v1/stock?limit=3")).json() == right


async def test_sound_json_can_be_sent_oddly(opened: Open) -> None:
    sandbox, client = await opened()
    right = await client.get("/v1/stock")
    sandbox.set(bad_body_rate=1.0, bad_body="byte_order_mark")
    marked = await client.get("/v1/stock")
    assert marked.content == b"\xef\xbb\xbf" + right.content
    sandbox.set(bad_body="mislabelled")
    mislabelled = await client.get("/v1/stock")
    assert (mislabelled.content, mislabelled.headers["content-type"]) == (right.content, "text/html; charset=utf-8")
    sandbox.set(bad_body="message")
    assert list((await client.get("/v1/stock")).json()) == ["message"]


async def test_a_bomb_is_small_until_it_is_opened(build: Build) -> None:
    sandbox = build(bad_body_rate=1.0, bad_body="gzip_bomb")
    async with (
        serve(sandbox) as url,
        httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False) as client,
        client.stream("GET", "/v1/stock") as response,
    ):
        assert int(response.headers["content-length"]) < 2_000_000
        unpacked = 0
        async for chunk in response.aiter_bytes():
            unpacked += len(chunk)
            if unpacked > 20_000_000:
                break
        assert unpacked > 20_000_000


@pytest.mark.parametrize(("name", "least"), [("endless", 5_000_000), ("drip", 3)])
async def test_a_body_without_end_comes_until_the_client_goes(build: Build, name: str, least: int) -> None:
    sandbox = build(bad_body_rate=1.0, bad_body=name, fault_most=1)
    async with serve(sandbox) as url, httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False) as client:
        with anyio.fail_after(20):
            async with client.stream("GET", "/v1/stock") as response:
                read = 0
                async for chunk in response.aiter_bytes():
                    read += len(chunk)
                    if read >= least:
                        break
            assert (await client.get("/v1/stock")).status_code == 200


async def test_in_process_a_body_without_end_can_be_left(opened: Open) -> None:
    _, client = await opened(bad_body_rate=1.0, bad_body="drip")
    with anyio.move_on_after(0.05) as scope:
        await client.get("/v1/stock")
    assert scope.cancelled_caught
