from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.sandbox import Sandbox, SandboxOptions
from dockbell.sandbox.form import TICKS, format_micros, from_micros, to_micros, write_stamp
from dockbell.sandbox.table import RESOURCES

if TYPE_CHECKING:
    from tests.sandbox.conftest import Build, Clock, Open


def stamps(sandbox: Sandbox, resource: str = "stock") -> list[Any]:
    return [json.loads(body)["updated_at"] for body in sandbox.records(resource).values()]


@pytest.mark.parametrize("precision", ["us", "ms", "s", "min"])
@pytest.mark.parametrize("form", ["iso", "epoch"])
async def test_what_was_changed_since_its_timestamp_is_found_by_it(
    opened: Open, clock: Clock, precision: str, form: str
) -> None:
    """``updated_since`` compares what the record says, cut as it is."""
    sandbox, client = await opened(timestamp_precision=precision, timestamp_form=form)
    clock.turn(30.123456)
    sandbox.edit("items")
    cut = {"us": "30.123456", "ms": "30.123", "s": "30", "min": "00"}[precision]
    path = f"/v1/items?status=all&updated_since=2026-11-21T02:30:{cut}Z"
    assert [item["id"] for item in (await client.get(path)).json()["items"]] == ["itm_1"]
    after = {"us": "30.123457", "ms": "30.124", "s": "30.1", "min": "00.1"}[precision]
    path = f"/v1/items?status=all&updated_since=2026-11-21T02:30:{after}Z"
    assert (await client.get(path)).json()["items"] == []


def test_the_form_may_change_for_what_is_written_from_then_on(build: Build) -> None:
    sandbox = build()
    sandbox.set(timestamp_form="epoch", timestamp_precision="s")
    sandbox.edit("items", identity="itm_2")
    assert [stamp for stamp in stamps(sandbox, "items") if not isinstance(stamp, str)] == [1795228200]


def test_timestamps_can_be_ahead_of_the_clock_or_behind(build: Build) -> None:
    sandbox = build()
    for skew, stamp in ((90.0, "2026-11-21T02:31:30"), (-90.0, "2026-11-21T02:28:30")):
        sandbox.set(timestamp_skew=skew)
        sandbox.edit("items")
        last = sandbox.changes()[-1]
        assert last.after
        assert json.loads(last.after)["updated_at"].startswith(stamp)
        assert last.at.isoformat().startswith("2026-11-21T02:30:00")


def test_a_share_of_the_records_is_dated_in_the_future_from_the_start(build: Build) -> None:
    future = [stamp.startswith("2099-") for stamp in stamps(build(records=1000, future_share=0.2))]
    assert 0.1 < sum(future) / len(future) < 0.3


def test_what_is_dated_2099_can_be_edited_with_its_true_date(build: Build) -> None:
    sandbox = build()
    sandbox.set(future_share=1.0)
    sandbox.edit("shipments")
    sandbox.set(future_share=0.0)
    sandbox.edit("shipments")
    said = [json.loads(change.after or b"{}")["updated_at"][:4] for change in sandbox.changes()]
    assert said == ["2099", "2026"]


def test_the_clock_of_the_activity_does_not_follow_dates_in_the_future(build: Build) -> None:
    sandbox = build(future_share=1.0)
    sandbox.step(50)
    assert {change.at.year for change in sandbox.changes()} == {2026}


def test_a_share_of_the_updates_is_silent(build: Build) -> None:
    sandbox = build(silent_share=0.5)
    sandbox.step(400)
    updates = [change for change in sandbox.changes() if change.kind == "updated"]
    silent = [
        change
        for change in updates
        if json.loads(change.before or b"{}")["updated_at"] == json.loads(change.after or b"{}")["updated_at"]
    ]
    assert 0.3 < len(silent) / len(updates) < 0.7
    assert all(change.before != change.after for change in silent)


async def test_a_silent_change_is_not_met_by_updated_since(opened: Open) -> None:
    sandbox, client = await opened(silent_share=1.0)
    sandbox.edit("items")
    assert (await client.get("/v1/items?status=all&updated_since=2026-11-21")).json()["items"] == []


@pytest.mark.parametrize("options", [{"timestamp_field": ""}, {"stock_key": "composite"}, {"id_form": "integer"}])
def test_activity_goes_on_whatever_the_form(build: Build, options: dict[str, Any]) -> None:
    sandbox = build(**options)
    sandbox.deploy("customs_code", dated=True)
    sandbox.edit("stock", 5)
    sandbox.step(500)
    for change in sandbox.changes():
        if change.after and not options.get("timestamp_field", "x"):
            assert "updated_at" not in json.loads(change.after)
        elif change.after:
            assert datetime.fromisoformat(json.loads(change.after)["updated_at"]) == change.at


@pytest.mark.parametrize(
    ("form", "shown"), [("null", None), ("date", "2025-09-05"), ("ctime", "Fri Sep  5 06:20:22 2025")]
)
async def test_records_can_get_a_real_timestamp_with_their_next_change(
    opened: Open, form: str, shown: str | None
) -> None:
    sandbox, client = await opened(timestamp_form=form)
    sandbox.set(timestamp_form="iso")
    sandbox.edit("stock")
    first, second = (await client.get("/v1/stock?limit=2")).json()["stock"]
    assert first["updated_at"] == "2026-11-21T02:30:00.000000Z"
    assert second["updated_at"] == shown


async def test_created_at_can_go_by_the_clock_of_the_timestamp(opened: Open) -> None:
    """It stays what it was first, also when the record is changed, deleted and brought back."""
    options: dict[str, Any] = {"timestamp_offset": "none", "timestamp_skew": -3600.0, "timestamp_precision": "s"}
    sandbox, client = await opened(created_at="as_timestamp", **options)
    path = f"/v1/shipments/{(await client.post('/v1/sales-orders', json={})).json()['shipment_id']}"
    identity = path.rpartition("/")[2]
    assert (await client.get(path)).json()["created_at"] == "2026-11-21T01:30:00"
    sandbox.edit("shipments", identity=identity)
    sandbox.delete("shipments", identity=identity)
    sandbox.restore()
    sandbox.step(300)
    records = [json.loads(body) for body in sandbox.records("shipments").values()]
    assert [each["created_at"] for each in records if each["id"] == identity] == ["2026-11-21T01:30:00"]
    assert all(len(each["created_at"]) == len("2026-11-21T01:30:00") for each in records)
    assert {change.kind for change in sandbox.changes()} >= {"created", "updated", "deleted", "restored"}


def test_created_at_can_be_missing(build: Build) -> None:
    sandbox = build(created_at="missing")
    sandbox.step(100)
    assert not any(b'"created_at"' in body for name in RESOURCES for body in sandbox.records(name).values())


MOMENT = to_micros(datetime(2026, 11, 21, 22, 45, 30, 123456, tzinfo=UTC))
moments = st.integers(0, to_micros(datetime(2200, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "2026-11-21T22:45:30.123456Z"),
        ({"timestamp_precision": "ms"}, "2026-11-21T22:45:30.123Z"),
        ({"timestamp_precision": "s"}, "2026-11-21T22:45:30Z"),
        ({"timestamp_precision": "min"}, "2026-11-21T22:45:00Z"),
        ({"timestamp_offset": "+00:00"}, "2026-11-21T22:45:30.123456+00:00"),
        ({"timestamp_offset": "+02:00"}, "2026-11-22T00:45:30.123456+02:00"),
        ({"timestamp_offset": "-09:30", "timestamp_precision": "s"}, "2026-11-21T13:15:30-09:30"),
        ({"timestamp_offset": "none", "timestamp_precision": "ms"}, "2026-11-21T22:45:30.123"),
        ({"timestamp_form": "date"}, "2026-11-21"),
        ({"timestamp_form": "date", "timestamp_offset": "+02:00"}, "2026-11-22"),
        ({"timestamp_form": "ctime"}, "Sat Nov 21 22:45:30 2026"),
        ({"timestamp_form": "null"}, None),
        ({"timestamp_form": "epoch"}, MOMENT),
        ({"timestamp_form": "epoch", "timestamp_precision": "ms"}, MOMENT // 1000),
        ({"timestamp_form": "epoch", "timestamp_precision": "s"}, MOMENT // 1_000_000),
        ({"timestamp_form": "epoch", "timestamp_precision": "min"}, MOMENT // 60_000_000 * 60),
    ],
)
def test_a_timestamp_is_written_in_the_chosen_form(options: dict[str, Any], text: str | int | None) -> None:
    chosen = SandboxOptions(**options)
    assert write_stamp(MOMENT - MOMENT % TICKS[chosen.timestamp_precision], chosen) == text


@given(moments, st.sampled_from(["Z", "+00:00", "+02:00", "-09:30"]))
def test_every_offset_means_the_same_time(micros: int, offset: Any) -> None:
    text = write_stamp(micros, SandboxOptions(timestamp_offset=offset))
    assert isinstance(text, str)
    assert datetime.fromisoformat(text) == from_micros(micros)


@given(moments)
def test_the_default_form_is_the_one_of_all_other_times(micros: int) -> None:
    assert write_stamp(micros, SandboxOptions()) == format_micros(micros)
    assert to_micros(from_micros(micros)) == micros
    assert from_micros(micros + 1) - from_micros(micros) == timedelta(microseconds=1)
