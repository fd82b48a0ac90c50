from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import anyio
import httpx
import msgspec
import pytest

from dockbell.sandbox import SandboxOptions, serve
from dockbell.sandbox.bodies import BAD_BODIES, HEAVY, ODD, OF_LISTINGS, UNREADABLE

if TYPE_CHECKING:
    from tests.sandbox.conftest import Build, Open

KEY = {"Authorization": "Bearer sandbox"}
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
