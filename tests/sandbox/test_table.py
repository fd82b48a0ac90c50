from __future__ import annotations

import json
from bisect import bisect_left
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dockbell.sandbox.table import RESOURCES, Replica, Row, Table

ITEMS = RESOURCES["items"]
numbers = st.integers(0, 9)


def make(number: int, stamp: int, status: str, sku: str) -> Row:
    return Row(number, f"itm_{number + 1}", stamp, status, (sku, None), b"{}")


rows = st.builds(make, numbers, st.integers(0, 5), st.sampled_from(ITEMS.statuses), st.sampled_from("ab"))


class TableAgainstRecount(RuleBasedStateMachine):
    """Whatever is put and dropped, each index says what counting the rows anew says."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(ITEMS)

    @rule(row=rows)
    def put(self, row: Row) -> None:
        self.table.write({row.number: row})

    @rule(number=numbers)
    def drop(self, number: int) -> None:
        self.table.write({number: None})

    @invariant()
    def indexes_are_true(self) -> None:
        anew = Table(ITEMS, self.table.rows.values())
        for status in (None, *ITEMS.statuses):
            for changed in (False, True):
                places = self.table.places(changed=changed, status=status)
                assert places == anew.places(changed=changed, status=status) == sorted(places)
                terms = self.table.places(changed=changed, status=status, terms={"sku": "a"})
                assert terms == [place for place in places if self.table.rows[place[-1]].terms[0] == "a"]
        for sku in "ab":
            assert self.table.linked("sku", sku) == anew.linked("sku", sku)


TestTableAgainstRecount = TableAgainstRecount.TestCase


@given(st.lists(rows, unique_by=lambda row: row.number))
def test_a_time_is_found_before_the_first_change_at_it(given_rows: list[Row]) -> None:
    places = Table(ITEMS, given_rows).places(changed=True)
    found = [place[-1] for place in places[bisect_left(places, (3,)) :]]
    assert sorted(found) == sorted(row.number for row in given_rows if row.stamp >= 3)


def test_a_record_is_found_only_by_its_exact_id() -> None:
    table = Table(ITEMS, [make(6, 1, "active", "a")])
    assert table.find("itm_7") is not None
    for identity in ("itm_8", "itm_07", "7", "itm_", "itm_\u0667", "shp_7", "itm_-7", "itm_" + "9" * 5000):
        assert table.find(identity) is None


@given(st.lists(rows, unique_by=lambda row: row.number), st.dictionaries(numbers, st.none() | st.integers(0, 5)))
def test_many_writes_at_a_time_are_as_one_after_the_other(
    given_rows: list[Row], changes: dict[int, int | None]
) -> None:
    writes = {
        number: None if stamp is None else make(number, stamp, "active", "a") for number, stamp in changes.items()
    }
    one, many = Table(ITEMS, given_rows), Table(ITEMS, given_rows)
    one.write(writes)
    with patch("dockbell.sandbox.table._REBUILD_FROM", 0):
        many.write(writes)
    assert one.rows == many.rows
    for changed in (False, True):
        assert one.places(changed=changed) == many.places(changed=changed)
    assert one.linked("sku", "a") == many.linked("sku", "a")


def test_an_integer_is_an_id_without_its_prefix() -> None:
    table = Table(ITEMS, [make(6, 1, "active", "a")])
    assert table.find(7) == table.find("itm_7") == make(6, 1, "active", "a")
    assert table.find(6) is None


if TYPE_CHECKING:
    from tests.sandbox.conftest import Build, Clock, Open

STOCK = RESOURCES["stock"]


def row(number: int, stamp: int) -> Row:
    return Row(number, f"stk_{number + 1}", stamp, None, (None,), b"{}")


writes = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans()), max_size=20)


@given(writes, st.integers(0, 20))
def test_a_record_s_states_come_in_their_order_and_the_last_one_stays(
    given_writes: list[tuple[int, int, bool]], until: int
) -> None:
    replica = Replica({"stock": Table(STOCK)})
    last: dict[int, Row] = {}
    for stamp, (visible, number, deleted) in enumerate(given_writes):
        state = None if deleted else row(number, stamp)
        replica.put(visible, "stock", number, state)
        last.pop(number, None)
        if state:
            last[number] = state
    stamps: dict[int, int] = {}
    for now in range(until):
        for number, shown in replica.at(now)["stock"].rows.items():
            assert shown.stamp >= stamps.get(number, 0)
            assert given_writes[shown.stamp][0] <= now
            stamps[number] = shown.stamp
    assert replica.at(1000)["stock"].rows == last


async def levels(client: httpx.AsyncClient) -> dict[str, Any]:
    page = (await client.get("/v1/stock?limit=200")).json()
    return {level["id"]: level for level in page["stock"]}


async def test_one_of_the_replicas_is_behind_with_deletions_and_creations(opened: Open, clock: Clock) -> None:
    sandbox, client = await opened(requests_per_minute=0, replicas=3, replica_lag=10.0)
    old = {identity: json.loads(body) for identity, body in sandbox.records("stock").items()}
    sandbox.edit("stock", 5)
    sandbox.delete("stock", identity="stk_9")
    clock.turn(4)
    new = {identity: json.loads(body) for identity, body in sandbox.records("stock").items()}
    assert [await levels(client) == state for state in (new, new, old, new, new, old)] == [True] * 6
    clock.turn(6.1)
    assert [await levels(client) == new for _ in range(3)] == [True] * 3


async def test_a_new_shipment_is_unknown_to_the_replica_that_lags(opened: Open, clock: Clock) -> None:
    _, client = await opened(replicas=2, replica_lag=10.0)
    path = f"/v1/shipments/{(await client.post('/v1/sales-orders', json={})).json()['shipment_id']}"
    assert [(await client.get(path)).status_code for _ in range(4)] == [200, 404, 200, 404]
    clock.turn(11)
    assert [(await client.get(path)).status_code for _ in range(2)] == [200, 200]


@pytest.mark.parametrize(("kind", "place"), [("pass", 0), ("poll", 1), ("single", 2)])
async def test_the_replica_that_lags_can_answer_all_requests_of_a_kind(opened: Open, kind: str, place: int) -> None:
    sandbox, client = await opened(requests_per_minute=0, replicas=2, replica_lag=10.0, replica_for=kind)
    paths = ("/v1/shipments?limit=200", "/v1/shipments?limit=200&updated_since=2020-01-01", "/v1/shipments/shp_1")
    before = [(await client.get(path)).text for path in paths]
    sandbox.delete("shipments")
    for _ in range(2):
        after = [(await client.get(path)).text for path in paths]
        assert [one == other for one, other in zip(before, after, strict=True)] == [n == place for n in range(3)]


async def test_replicas_come_and_go_while_it_runs(opened: Open, clock: Clock) -> None:
    sandbox, client = await opened(requests_per_minute=0)
    sandbox.edit("stock")
    sandbox.set(replicas=2, replica_lag=10.0)
    before = await levels(client)
    sandbox.edit("stock")
    clock.turn(1)
    assert len([None for _ in range(4) if await levels(client) == before]) == 2
    sandbox.set(replicas=1)
    assert before not in [await levels(client) for _ in range(4)]


async def test_a_lag_comes_on_top_of_late_visibility(opened: Open, clock: Clock) -> None:
    sandbox, client = await opened(requests_per_minute=0, late_visibility=5.0)
    before = await levels(client)
    sandbox.edit("stock")
    sandbox.set(replicas=2, replica_lag=10.0)
    clock.turn(6)
    assert sorted([await levels(client) == before for _ in range(2)]) == [False, True]
    clock.turn(10)
    assert before not in [await levels(client) for _ in range(2)]


async def test_only_a_share_of_the_business_steps_is_late(opened: Open, clock: Clock) -> None:
    sandbox, client = await opened(requests_per_minute=0, late_visibility=60.0, late_share=0.5)
    for number in range(1, 41):
        sandbox.edit("stock", identity=f"stk_{number}")
    clock.turn(1)
    shown = await levels(client)
    late = [name for name, body in sandbox.records("stock").items() if shown[name] != json.loads(body)]
    assert 10 < len(late) < 30
    clock.turn(60)
    shown = await levels(client)
    assert shown == {name: json.loads(body) for name, body in sandbox.records("stock").items()}


async def test_a_late_change_holds_back_the_next_one_of_its_record(opened: Open, clock: Clock) -> None:
    sandbox, client = await opened(requests_per_minute=0, late_visibility=60.0)
    before = await levels(client)
    sandbox.edit("stock")
    sandbox.set(late_share=0.0)
    sandbox.edit("stock")
    sandbox.edit("stock", identity="stk_2")
    clock.turn(1)
    shown = await levels(client)
    assert (shown["stk_1"] == before["stk_1"], shown["stk_2"] == before["stk_2"]) == (True, False)
    clock.turn(60)
    assert (await levels(client))["stk_1"] == json.loads(sandbox.records("stock")["stk_1"])


async def test_late_visibility_can_begin_and_end_while_it_runs(opened: Open, clock: Clock) -> None:
    sandbox, client = await opened(requests_per_minute=0)
    sandbox.edit("stock")
    sandbox.set(late_visibility=60.0)
    before = await levels(client)
    sandbox.edit("stock")
    clock.turn(1)
    assert await levels(client) == before
    clock.turn(60)
    sandbox.set(late_visibility=0.0)
    sandbox.edit("stock", identity="stk_2")
    clock.turn(0.001)
    assert await levels(client) == {name: json.loads(body) for name, body in sandbox.records("stock").items()}


@pytest.mark.parametrize("options", [{"replicas": 2}, {"late_visibility": 1.0}])
def test_the_true_records_do_not_wait(build: Build, options: dict[str, Any]) -> None:
    sandbox, plain = build(**options), build()
    sandbox.step(100)
    plain.step(100)
    assert sandbox.records("stock") == plain.records("stock")
