from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from dockbell.sandbox import SandboxOptions
from dockbell.sandbox.catalog import RESOURCES
from dockbell.sandbox.ordering import arrange
from dockbell.sandbox.query import Query
from dockbell.sandbox.table import Row, Table

if TYPE_CHECKING:
    from tests.sandbox.conftest import Open, ReadAll


async def read(opened: Open, read_all: ReadAll, resource: str = "stock", **options: Any) -> list[Any]:
    """Return all records of a listing; the last three items were edited before."""
    sandbox, client = await opened(requests_per_minute=0, **options)
    for number in (3, 1, 2):
        sandbox.edit(resource, identity=f"{RESOURCES[resource].prefix}{number}")
    return await read_all(client, resource, limit=9)


def ids(records: list[Any]) -> list[str]:
    return [record["id"] for record in records]


async def test_lists_are_in_the_order_of_creation(opened: Open, read_all: ReadAll) -> None:
    found = ids(await read(opened, read_all))
    assert found == sorted(found, key=lambda identity: int(identity[4:]))


async def test_lists_can_be_in_the_order_of_the_last_change(opened: Open, read_all: ReadAll) -> None:
    found = await read(opened, read_all, order="updated_at")
    assert found == sorted(found, key=lambda record: record["updated_at"])
    assert ids(found)[-3:] == ["stk_3", "stk_1", "stk_2"]


@pytest.mark.parametrize("cursors", ["keyset", "offset"])
async def test_lists_can_be_in_the_order_of_ids_as_text(opened: Open, read_all: ReadAll, cursors: str) -> None:
    found = ids(await read(opened, read_all, order="id", cursors=cursors))
    assert found == sorted(found)
    assert found[:3] == ["stk_1", "stk_10", "stk_100"]


@pytest.mark.parametrize("options", [{}, {"id_form": "integer"}, {"stock_key": "composite"}])
async def test_stock_can_be_sorted_by_warehouse(opened: Open, read_all: ReadAll, options: dict[str, Any]) -> None:
    sandbox, client = await opened(requests_per_minute=0, order="warehouse", **options)
    found = [str(record["warehouse_id"]) for record in await read_all(client, "stock", limit=9)]
    assert len(found) == len(sandbox.records("stock"))
    assert found == sorted(found, key=lambda identity: int(identity.removeprefix("whs_")))
    assert len(await read_all(client, "warehouses")) == len(sandbox.records("warehouses"))


@pytest.mark.parametrize("order", ["creation", "updated_at", "id", "warehouse"])
async def test_every_order_can_be_the_other_way_round(opened: Open, read_all: ReadAll, order: str) -> None:
    upward = await read(opened, read_all, order=order)
    assert await read(opened, read_all, order=order, descending=True) == upward[::-1]


async def test_pages_can_be_shuffled_each_in_itself(opened: Open, read_all: ReadAll) -> None:
    plain = ids(await read(opened, read_all))
    found = ids(await read(opened, read_all, order="shuffled"))
    assert found != plain
    for start in range(0, len(plain), 9):
        assert sorted(found[start : start + 9]) == sorted(plain[start : start + 9])


async def test_the_whole_list_can_be_shuffled_for_every_request(opened: Open) -> None:
    _, client = await opened(order="random")
    pages = [ids((await client.get("/v1/stock?limit=200")).json()["stock"]) for _ in range(3)]
    assert len({tuple(page) for page in pages}) == 3
    assert len({frozenset(page) for page in pages}) == 1


async def test_a_walk_through_a_shuffled_list_misses_some_and_meets_others_twice(
    opened: Open, read_all: ReadAll
) -> None:
    found = ids(await read(opened, read_all, order="random"))
    assert len(set(found)) < len(found)


async def test_an_order_of_ids_holds_for_updated_since_too(opened: Open) -> None:
    sandbox, client = await opened(order="id")
    for number in (3, 10, 2):
        sandbox.edit("items", identity=f"itm_{number}")
    page = (await client.get("/v1/items?status=all&updated_since=2026-11-21T00:00:00Z")).json()
    assert ids(page["items"]) == ["itm_10", "itm_2", "itm_3"]


def test_a_sorted_order_is_remembered_until_something_changes() -> None:
    rows = [Row(number, f"stk_{number}", 1, None, (None,), json.dumps({}).encode()) for number in range(3)]
    table = Table(RESOURCES["stock"], rows)
    options = SandboxOptions(order="id")
    first = arrange(table, Query("stock", 1), options, Random(1)).places
    assert arrange(table, Query("stock", 1), options, Random(1)).places is first
    table.drop(0)
    assert [place[-1] for place in arrange(table, Query("stock", 1), options, Random(1)).places] == [1, 2]
