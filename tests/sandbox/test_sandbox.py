from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from dockbell.errors import ConfigError
from dockbell.sandbox import Sandbox, SandboxOptions, serve
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


# Served over a real connection ---------------------------------------------------------------------------------------


KEY = {"Authorization": "Bearer sandbox"}


async def test_it_answers_over_a_real_connection(build: Build) -> None:
    sandbox = build()
    async with serve(sandbox) as url, httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False) as client:
        response = await client.get("/v1/shipments?limit=200&expand=packages,line_items,invoices")
        assert len(response.json()["shipments"]) == len(sandbox.records("shipments"))
        assert response.headers.get_list("date") == ["Sat, 21 Nov 2026 02:30:00 GMT"]
        assert response.headers["x-ratelimit-remaining"] == "299"
        created = await client.post("/v1/sales-orders", json={})
        assert created.json()["shipment_id"] in sandbox.records("shipments")
        assert (await client.head("/v1/stock")).status_code == 405


async def test_it_lives_while_it_is_served() -> None:
    sandbox = Sandbox(SandboxOptions(records=15, activity=500.0))
    async with serve(sandbox) as url, httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False) as client:
        with anyio.fail_after(10):
            while not (await client.get("/sandbox/changes")).json()["changes"]:
                pass


async def test_leaving_frees_the_port_and_leaves_signals_alone(build: Build) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with anyio.fail_after(10):
        async with serve(build()) as url:
            assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
            port = httpx.URL(url).port
            assert port
        async with serve(build(), port=port) as again:
            assert again == url


async def test_leaving_does_not_wait_for_idle_connections(build: Build) -> None:
    async with httpx.AsyncClient(headers=KEY, trust_env=False) as client:
        with anyio.fail_after(5):
            async with serve(build()) as url:
                assert (await client.get(f"{url}/v1/stock")).status_code == 200


async def test_an_error_inside_comes_out_as_itself(build: Build) -> None:
    with anyio.fail_after(10), pytest.raises(ExceptionGroup) as caught:
        async with serve(build()):
            raise LookupError
    assert caught.group_contains(LookupError)


async def test_cancelling_stops_it(build: Build) -> None:
    with anyio.move_on_after(0.3) as scope:
        async with serve(build()) as url:
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    with pytest.raises(httpx.ConnectError):
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.get(url)


async def test_a_port_in_use_is_an_error_before_anything_starts(build: Build) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        async with serve(build(), port=taken.getsockname()[1]):
            pass


async def test_small_answers_are_not_held_back_by_the_network(build: Build) -> None:
    """Header and body are two writes: without TCP_NODELAY the second waits 40 ms for the first's acknowledgement."""
    async with serve(build()) as url, httpx.AsyncClient(base_url=url, headers=KEY, trust_env=False) as client:
        times = []
        for _ in range(20):
            started = anyio.current_time()
            await client.get("/v1/warehouses?limit=1")
            times.append(anyio.current_time() - started)
    assert min(times[1:]) < 0.03


def test_importing_the_package_loads_no_server() -> None:
    code = "import sys, json, dockbell.sandbox; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    assert not {"starlette", "uvicorn", "anyio", "asyncio"} & set(modules)
