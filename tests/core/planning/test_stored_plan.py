from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dockbell.config import ResourceSettings
from dockbell.core.model import Feed, RunKind
from dockbell.core.planning.costs import Cost
from dockbell.core.planning.demand import Demand
from dockbell.core.planning.division import Reason
from dockbell.core.planning.rates import Rate
from dockbell.core.planning.stored_plan import StoredPlan

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LEARNED = StoredPlan(Rate(30.0, 20.0, NOW), Cost((1, 2)), 7 * SECOND, Reason.CHANGES)


def ask(plan: StoredPlan, resource: str = "shipments", **settings: object) -> Demand:
    written = ResourceSettings(**settings)  # type: ignore[arg-type]
    return plan.make_demand(
        Feed("main", resource), written, records=50_000, lookback=timedelta(minutes=1), every=30 * SECOND
    )


@pytest.mark.parametrize("plan", [StoredPlan(), LEARNED, StoredPlan(cost=Cost((250,)))])
def test_what_is_stored_is_read_again(plan: StoredPlan) -> None:
    assert StoredPlan.from_json(plan.to_json()) == plan
    assert StoredPlan.from_json("") == StoredPlan()


@pytest.mark.parametrize("text", ["{", "[]", "7", "{}", '{"rate":"","cost":"","every":1,"reason":"BY_MOONLIGHT"}'])
def test_what_another_version_wrote_otherwise_is_nothing(text: str) -> None:
    assert StoredPlan.from_json(text) == StoredPlan()


def test_what_was_learned_is_asked_for() -> None:
    demand = ask(LEARNED, every="auto", at_most="1m", weight=2.0)
    assert (demand.rate, demand.cost, demand.weight) == (1.5, 1.5, 2.0)
    assert (demand.kind, demand.least, demand.most) == (RunKind.POLL, SECOND, timedelta(minutes=1))


def test_a_fixed_interval_is_the_least_and_no_longest_is_promised() -> None:
    demand = ask(LEARNED, every="15s")
    assert (demand.least, demand.most) == (15 * SECOND, None)


def test_a_promise_below_a_second_is_the_least_too() -> None:
    demand = ask(LEARNED, every="auto", at_most="500ms")
    assert demand.least == demand.most == timedelta(milliseconds=500)


def test_before_the_first_run_a_pass_costs_its_records_and_a_poll_its_window() -> None:
    assert ask(StoredPlan(), "stock", every="auto", at_most="15m").cost == 250
    busy = StoredPlan(Rate(30.0, 10.0, NOW))
    assert ask(busy, at_most="1m").cost == 2
    assert ask(StoredPlan(), at_most="1m").cost == 1
