from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dockbell.errors import ConfigError
from dockbell.sandbox.table import RESOURCES

if TYPE_CHECKING:
    from tests.sandbox.conftest import Build, Open, ReadAll


@pytest.mark.parametrize("resource", RESOURCES)
def test_an_edit_changes_one_field_and_the_timestamp(build: Build, resource: str) -> None:
    sandbox = build()
    assert sandbox.edit(resource, 2) == 2
    for change in sandbox.changes():
        before, after = json.loads(change.before or b""), json.loads(change.after or b"")
        differing = {name for name in after if before[name] != after[name]}
        assert len(differing - {"updated_at"}) == 1
        assert after["updated_at"] == "2026-11-21T02:30:00.000000Z"
        assert change.kind == "updated"


def test_a_touch_moves_the_timestamp_alone(build: Build) -> None:
    sandbox = build()
    assert sandbox.touch("items", 2) == 2
    assert sandbox.touch("items", identity="itm_5") == 1
    for change in sandbox.changes():
        before, after = json.loads(change.before or b""), json.loads(change.after or b"")
        assert {name for name in after if before[name] != after[name]} == {"updated_at"}
        assert change.kind == "updated"
    assert [change.identity for change in sandbox.changes()] == ["itm_1", "itm_2", "itm_5"]


def test_thousands_of_records_change_on_one_tick(build: Build) -> None:
    sandbox = build(stock=5000, items=2500, warehouses=2, shipments=0, packages=0)
    assert sandbox.edit("stock", 5000) == 5000
    assert {json.loads(body)["updated_at"] for body in sandbox.records("stock").values()} == {
        "2026-11-21T02:30:00.000000Z"
    }
    assert len({change.at for change in sandbox.changes()}) == 1


async def test_what_changed_in_bulk_is_found_by_updated_since(opened: Open, read_all: ReadAll) -> None:
    sandbox, client = await opened(records=8000, shipments=2500, requests_per_minute=0)
    sandbox.edit("shipments", 2400)
    found = await read_all(client, "shipments", limit=200, updated_since="2026-11-21T02:30:00Z")
    assert len({record["id"] for record in found}) == 2400


def test_warehouses_can_be_deleted_and_brought_back_and_orders_still_come(build: Build) -> None:
    sandbox = build(records=1500)
    before = sandbox.records("warehouses")
    assert sandbox.delete("warehouses", len(before)) == len(before)
    assert sandbox.records("warehouses") == {}
    sandbox.step(50)
    while len(sandbox.records("warehouses")) < len(before):
        assert sandbox.restore()
    assert set(sandbox.records("warehouses")) == set(before)


def test_where_nothing_was_deleted_nothing_comes_back(build: Build) -> None:
    assert build().restore() == 0


def test_an_order_comes_where_there_is_no_warehouse(build: Build) -> None:
    sandbox = build(stock=0, shipments=0, packages=0)
    sandbox.delete("warehouses", 100)
    order = sandbox.activity.orders.place({})
    assert json.loads(sandbox.records("shipments")[order["shipment_id"]])["warehouse_id"] == "whs_1"


def test_an_unknown_record_cannot_be_edited(build: Build) -> None:
    with pytest.raises(LookupError, match="there is no 'stk_0' in stock"):
        build().edit("stock", identity="stk_0")


@pytest.mark.parametrize("dated", [True, False])
def test_a_deploy_gives_every_record_a_field_and_those_to_come(build: Build, dated: bool) -> None:
    sandbox = build()
    before = {name: sandbox.records(name) for name in RESOURCES}
    assert sandbox.deploy("customs_code", "x", dated=dated) == 300
    for name, records in before.items():
        for identity, body in sandbox.records(name).items():
            old, new = json.loads(records[identity]), json.loads(body)
            assert (new.pop("customs_code"), new.pop("updated_at") == old.pop("updated_at")) == ("x", not dated)
            assert new == old
    sandbox.step(300)
    for name in RESOURCES:
        assert all(json.loads(body)["customs_code"] == "x" for body in sandbox.records(name).values())


async def test_a_deploy_with_dates_is_found_by_updated_since(opened: Open) -> None:
    sandbox, client = await opened()
    path = "/v1/items?status=all&limit=200&updated_since=2026-11-21"
    sandbox.deploy("one")
    assert (await client.get(path)).json()["items"] == []
    sandbox.deploy("two", dated=True)
    assert len((await client.get(path)).json()["items"]) == len(sandbox.records("items"))


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [("sku", 1, "have a field 'sku' of their own"), ("new", {}, "must not be an object"), ("new", [1], "or an array")],
)
def test_a_deploy_that_cannot_be_is_refused(build: Build, field: str, value: Any, told: str) -> None:
    sandbox = build()
    with pytest.raises(ConfigError, match=told):
        sandbox.deploy(field, value)
    assert not sandbox.changes()
