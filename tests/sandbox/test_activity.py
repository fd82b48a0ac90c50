from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from dockbell.sandbox import Sandbox

if TYPE_CHECKING:
    from tests.sandbox.conftest import Build


ALLOWED = {
    "shipments": {
        ("pending", "picking"),
        ("pending", "cancelled"),
        ("picking", "packed"),
        ("picking", "cancelled"),
        ("packed", "shipped"),
        ("shipped", "delivered"),
    },
    "packages": {
        ("packed", "shipped"),
        ("shipped", "in_transit"),
        ("shipped", "delivered"),
        ("in_transit", "in_transit"),
        ("in_transit", "delivered"),
    },
    "items": {("active", "inactive"), ("inactive", "active"), ("active", "active"), ("inactive", "inactive")},
}


def decode(sandbox: Sandbox, resource: str) -> list[Any]:
    return [json.loads(body) for body in sandbox.records(resource).values()]


@pytest.fixture
def lived(build: Build) -> Sandbox:
    """A sandbox that has made 6,000 changes."""
    sandbox = build(records=600)
    sandbox.step(6000)
    return sandbox


def test_states_follow_each_other_as_in_a_warehouse(lived: Sandbox) -> None:
    for change in lived.changes():
        if change.resource in ALLOWED and change.before and change.after:
            states = (json.loads(change.before)["status"], json.loads(change.after)["status"])
            assert states in ALLOWED[change.resource]


def test_everything_that_is_promised_happens(lived: Sandbox) -> None:
    seen = {(change.resource, change.kind) for change in lived.changes()}
    moving = {(resource, "updated") for resource in ("shipments", "packages", "items", "stock", "warehouses")}
    coming = {(resource, kind) for resource in ("shipments", "packages", "items") for kind in ("created", "deleted")}
    assert seen >= moving | coming
    assert any(kind == "restored" for _, kind in seen)
    statuses = {
        json.loads(change.after)["status"]
        for change in lived.changes()
        if change.resource == "shipments" and change.after
    }
    assert statuses == {"pending", "picking", "packed", "shipped", "delivered", "cancelled"}


def test_deletions_are_a_few_in_a_hundred_and_returns_are_rare(lived: Sandbox) -> None:
    kinds = Counter(change.kind for change in lived.changes())
    assert 0.01 < kinds["deleted"] / kinds.total() < 0.06
    assert 0 < kinds["restored"] < kinds["deleted"] / 2


def test_stock_always_adds_up(lived: Sandbox) -> None:
    for level in decode(lived, "stock"):
        assert 0 <= level["reserved"] <= level["on_hand"]
        assert level["available"] == level["on_hand"] - level["reserved"]
        assert sum(lot["quantity"] for lot in level["lots"]) == level["on_hand"]
        assert all(lot["quantity"] > 0 for lot in level["lots"])


def test_what_is_shipped_has_tracking_and_leaves_the_stock(build: Build) -> None:
    sandbox = build(items=1, stock=1, warehouses=1, shipments=0, packages=0)
    sandbox.step(400)
    shipped = [
        change
        for change in sandbox.changes()
        if change.resource == "shipments" and change.after and json.loads(change.after)["status"] == "shipped"
    ]
    assert shipped
    for change in shipped:
        together = [other for other in sandbox.changes() if other.at == change.at and other is not change]
        packages = [json.loads(other.after) for other in together if other.resource == "packages" and other.after]
        assert packages
        assert all(package["tracking_number"] for package in packages)
        for other in together:
            if other.resource == "stock" and other.before and other.after:
                assert json.loads(other.after)["on_hand"] <= json.loads(other.before)["on_hand"]


def test_packages_and_stock_never_outlive_what_they_belong_to(lived: Sandbox) -> None:
    shipments, items = lived.records("shipments"), lived.records("items")
    assert all(package["shipment_id"] in shipments for package in decode(lived, "packages"))
    assert all(level["item_id"] in items for level in decode(lived, "stock"))


@pytest.mark.parametrize("records", [2, 3, 5, 15])
def test_small_worlds_move_too(build: Build, records: int) -> None:
    sandbox = build(records=records)
    assert sandbox.step(300) >= 300


def test_a_step_is_never_cut_short_and_says_how_much_it_changed(build: Build) -> None:
    sandbox = build()
    made = sandbox.step(10)
    assert made >= 10
    assert len(sandbox.changes()) == made


class VirtualTime:
    """Stands in for anyio: time passes only by sleeping, and each second somebody may turn the rate."""

    def __init__(self, sandbox: Sandbox, rates: list[float]) -> None:
        self.now = 0.0
        self.made: list[int] = []
        self._sandbox = sandbox
        self._rates = rates

    def current_time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        while self.now >= len(self.made):
            self.made.append(len(self._sandbox.changes()))
            if len(self.made) > len(self._rates):
                raise TimeoutError
            self._sandbox.activity.rate = self._rates[len(self.made) - 1]


async def live(sandbox: Sandbox, rates: list[float], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Live a second at each rate; return how many changes were made in each."""
    time = VirtualTime(sandbox, rates)
    monkeypatch.setattr("dockbell.sandbox.activity.anyio", time)
    with pytest.raises(TimeoutError):
        await sandbox.live()
    return [after - before for before, after in pairwise(time.made)]


async def test_it_lives_at_the_asked_rate(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await live(build(), [10.0] * 300, monkeypatch)
    assert 2700 < sum(made) < 3300


async def test_without_a_rate_nothing_happens(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await live(build(), [0.0] * 10, monkeypatch) == [0] * 10


async def test_the_rate_can_be_turned_while_it_lives(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await live(build(), [0.0, 0.0, 200.0, 200.0, 0.0, 0.0], monkeypatch)
    assert made[:2] == [0, 0]
    assert made[2] > 100
    assert made[5] == 0


async def test_after_a_long_sleep_a_second_is_made_up_for_not_more(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = build(activity=20.0)
    time = VirtualTime(sandbox, [20.0] * 3610)
    monkeypatch.setattr("dockbell.sandbox.activity.anyio", time)
    asleep = time.sleep

    async def suspend_once(seconds: float) -> None:
        monkeypatch.setattr(time, "sleep", asleep)
        await asleep(seconds + 3600)

    monkeypatch.setattr(time, "sleep", suspend_once)
    with pytest.raises(TimeoutError):
        await sandbox.live()
    assert len(sandbox.changes()) < 20 * 15
