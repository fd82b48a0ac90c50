from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from dockbell.sandbox import LoggedChange, Sandbox

if TYPE_CHECKING:
    from tests.sandbox.conftest import Build, Clock, Open

RESOURCES = ("shipments", "packages", "items", "stock", "warehouses")


def snapshot(sandbox: Sandbox) -> dict[str, dict[str, bytes]]:
    return {resource: sandbox.records(resource) for resource in RESOURCES}


def replay(state: dict[str, dict[str, bytes]], changes: list[LoggedChange]) -> dict[str, dict[str, bytes]]:
    """Apply logged changes, checking that each begins where the last one ended."""
    for change in changes:
        records = state[change.resource]
        assert records.get(change.identity) == change.before
        assert (change.before is None) == (change.kind in ("created", "restored"))
        assert (change.after is None) == (change.kind == "deleted")
        if change.after is None:
            del records[change.identity]
        else:
            assert change.before != change.after
            records[change.identity] = change.after
    return state


def test_the_same_seed_makes_the_same_records_and_the_same_activity(build: Build, clock: Clock) -> None:
    one, same = build(seed=7), build(seed=7)
    assert snapshot(one) == snapshot(same)
    one.step(200)
    same.step(200)
    assert one.changes() == same.changes()


def test_another_seed_makes_other_records(build: Build) -> None:
    assert snapshot(build(seed=7)) != snapshot(build(seed=8))


def test_seeded_records_do_not_depend_on_the_day(build: Build, clock: Clock) -> None:
    one = snapshot(build())
    clock.turn(86_400)
    assert snapshot(build()) == one


@pytest.mark.parametrize("options", [{"records": 15}, {"records": 300}, {"stock_key": "composite"}, {"stock": 0}])
def test_the_log_leads_from_the_first_records_to_the_present_ones(build: Build, options: dict[str, Any]) -> None:
    sandbox = build(**options)
    first = snapshot(sandbox)
    sandbox.step(3000)
    assert replay(first, sandbox.changes()) == snapshot(sandbox)


def test_sequences_have_no_gap_and_times_of_a_record_only_go_up(build: Build) -> None:
    sandbox = build(records=15)
    sandbox.step(500)
    changes = sandbox.changes()
    assert [change.sequence for change in changes] == list(range(1, len(changes) + 1))
    last: dict[tuple[str, str], LoggedChange] = {}
    for change in changes:
        before = last.get((change.resource, change.identity))
        assert before is None or before.at < change.at
        last[change.resource, change.identity] = change


def test_a_record_carries_the_time_of_its_change(build: Build, clock: Clock) -> None:
    sandbox = build()
    sandbox.step(50)
    clock.turn(5.25)
    sandbox.step(50)
    for change in sandbox.changes():
        if change.after:
            assert datetime.fromisoformat(json.loads(change.after)["updated_at"]) == change.at
    assert clock.now in [change.at for change in sandbox.changes()]


def test_times_go_up_even_when_the_clock_goes_back(build: Build, clock: Clock) -> None:
    sandbox = build()
    sandbox.step()
    clock.turn(-3600)
    sandbox.step(20)
    times = [change.at for change in sandbox.changes()]
    assert times == sorted(times)


def test_changes_after_a_sequence_are_read_and_forgotten_ones_are_told(build: Build) -> None:
    sandbox = build(keep_changes=50)
    sandbox.step(30)
    last = sandbox.changes()[-1].sequence
    assert [change.sequence for change in sandbox.changes(after=last - 2)] == [last - 1, last]
    assert sandbox.changes(after=last) == sandbox.changes(after=last + 10) == []
    sandbox.step(100)
    with pytest.raises(LookupError, match=r"changes after 0 are no longer kept; ask more often or set keep_changes"):
        sandbox.changes()


def test_a_composite_stock_level_has_no_id(build: Build) -> None:
    levels = build(stock_key="composite").records("stock")
    for identity, body in levels.items():
        level = json.loads(body)
        assert "id" not in level
        assert identity == f"{level['sku']},{level['warehouse_id']}"


def test_field_names_can_be_chosen(build: Build) -> None:
    sandbox = build(id_field="uuid", timestamp_field="modified")
    identity, body = next(iter(sandbox.records("shipments").items()))
    record = json.loads(body)
    assert record["uuid"] == identity
    assert "modified" in record
    assert not {"id", "updated_at"} & record.keys()


@pytest.mark.parametrize("none", [None, ""])
def test_records_can_go_without_a_timestamp(build: Build, none: str | None) -> None:
    sandbox = build(timestamp_field=none)
    sandbox.step(50)
    assert not any(b"updated_at" in body for body in sandbox.records("stock").values())


def find_bumped(sandbox: Sandbox) -> tuple[set[str], set[str]]:
    """Return the items of the stock levels that have changed, and the items whose timestamp moved."""
    changes = sandbox.changes()
    levels = {json.loads(each.after or each.before or b"")["item_id"] for each in changes if each.resource == "stock"}
    return levels, {each.identity for each in changes if each.resource == "items"}


def test_by_default_an_item_rests_when_its_stock_moves(build: Build) -> None:
    sandbox = build()
    sandbox.edit("stock", 20)
    assert find_bumped(sandbox)[1] == set()


def test_an_item_may_be_bumped_when_its_stock_moves(build: Build) -> None:
    sandbox = build(bump_share=1.0)
    sandbox.edit("stock", 20)
    levels, bumped = find_bumped(sandbox)
    assert bumped == levels
    change = next(each for each in sandbox.changes() if each.resource == "items")
    before, after = json.loads(change.before or b""), json.loads(change.after or b"")
    assert {name for name in after if after[name] != before[name]} == {"updated_at"}


def test_a_part_of_the_items_may_be_bumped(build: Build) -> None:
    sandbox = build(records=1500, bump_share=0.5)
    sandbox.edit("stock", 400)
    levels, bumped = find_bumped(sandbox)
    assert 0.2 < len(bumped) / len(levels) < 0.9


def test_items_may_be_bumped_so_often_and_then_no_more(build: Build) -> None:
    sandbox = build(bump_share=1.0, bump_most=3)
    sandbox.edit("stock", 20)
    assert len(find_bumped(sandbox)[1]) == 3
    assert sandbox.options.bump_most == 0


def test_the_log_leads_to_the_present_records_where_owners_are_bumped(build: Build) -> None:
    sandbox = build(bump_share=0.7)
    first = snapshot(sandbox)
    sandbox.step(3000)
    assert replay(first, sandbox.changes()) == snapshot(sandbox)


async def test_embedded_records_may_be_behind_their_own_listing(opened: Open, clock: Clock) -> None:
    sandbox, client = await opened(embed_lag=20.0)

    async def read(path: str) -> list[Any]:
        found: list[Any] = (await client.get(path)).json()[path.split("/")[2].partition("?")[0]]
        return found

    (item,) = await read("/v1/items?limit=1&expand=stock&status=all")
    level = item["stock"][0]
    sandbox.edit("stock", identity=level["id"])
    (shown,) = [each for each in await read("/v1/stock?limit=200") if each["id"] == level["id"]]
    assert shown != level
    (item,) = await read("/v1/items?limit=1&expand=stock&status=all")
    assert item["stock"][0] == level
    clock.turn(20)
    (item,) = await read("/v1/items?limit=1&expand=stock&status=all")
    assert item["stock"][0] == shown
