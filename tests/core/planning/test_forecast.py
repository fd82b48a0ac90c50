from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.config.resources import BUILT_IN
from dockbell.core.model import Feed, RunKind
from dockbell.core.planning.demand import Demand
from dockbell.core.planning.division import divide
from dockbell.core.planning.forecast import Forecast, advise, explain, find_floor, forecast
from dockbell.core.planning.supply import Supply

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)

WORLDS = {
    "A": {"shipments": 1.5, "packages": 1.5, "items": 1.0, "stock": 0.9, "warehouses": 0.1},
    "B": {"shipments": 2.0, "packages": 0.7, "items": 0.25, "stock": 2.0, "warehouses": 0.05},
}


def demands(world: str) -> list[Demand]:
    return [demand(name, rate) for name, rate in WORLDS[world].items()]


def demand(name: str, rate: float = 1.0, *, cost: float | None = None, **bounds: timedelta | None) -> Demand:
    kind = RunKind.PASS if name in ("stock", "warehouses") else RunKind.POLL
    cost = cost or (250 if name == "stock" else 1)
    wanted = {"most": BUILT_IN.get(name, BUILT_IN["items"]).at_most, **bounds}
    return Demand(feed=Feed("main", name), kind=kind, rate=rate, cost=cost, **wanted)  # type: ignore[arg-type]


def in_seconds(predicted: Forecast) -> list[float]:
    return [predicted.mean.total_seconds(), predicted.p99.total_seconds()]


# Delays --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "allowed", "mean", "p99"),
    [("A", 300, 7.04, 59), ("A", 270, 7.83, 66), ("B", 300, 12.8, 55), ("B", 270, 14.3, 61)],
)
def test_the_floor_is_what_no_reading_with_so_many_requests_can_beat(
    world: str, allowed: int, mean: float, p99: float
) -> None:
    floor = in_seconds(find_floor(allowed / 60, demands(world)))

    assert floor == [pytest.approx(mean, rel=0.005), pytest.approx(p99, rel=0.01)]


@pytest.mark.parametrize("allowed", [300, 270])
@pytest.mark.parametrize("world", ["A", "B"])
def test_the_law_comes_within_a_twentieth_of_the_floor(world: str, allowed: int) -> None:
    division = divide(Supply(limit=300, allowed=allowed).available, demands(world))

    assert forecast(division).mean <= find_floor(allowed / 60, demands(world)).mean * 1.05


def test_a_change_waits_half_an_interval_and_what_reading_and_delivery_take() -> None:
    division = divide(10.0, [demand("items", least=20 * SECOND)])

    (feed,) = forecast(division, {Feed("main", "items"): SECOND}).feeds

    assert (feed.mean, feed.p99) == (11 * SECOND, 20.8 * SECOND)


def test_most_changes_may_be_early_and_the_last_of_a_hundred_late() -> None:
    """Of a feed with 2 % of the changes, half must be waited for."""
    division = divide(10.0, [demand("items", 0.98), demand("stock", 0.02, cost=1.0, least=100 * SECOND)])

    assert forecast(division).p99.total_seconds() == pytest.approx(50)


def test_nothing_is_predicted_of_no_feeds() -> None:
    assert in_seconds(forecast(divide(1.0, []))) == [0, 0]


@given(st.randoms(use_true_random=False), st.integers(1, 5))
def test_the_prediction_agrees_with_changes_made_at_random(random: Random, count: int) -> None:
    feeds = [demand(f"feed{number}", random.uniform(0.1, 2), cost=random.uniform(1, 50)) for number in range(count)]
    overheads = {each.feed: SECOND * random.uniform(0, 2) for each in feeds}
    predicted = forecast(divide(1.0, feeds), overheads)

    waits = []
    for each in predicted.feeds:
        slots = round(each.planned.demand.rate * 1000)
        waits += [(each.planned.interval * (slot + 0.5) / slots + each.overhead) for slot in range(slots)]

    waits.sort()
    assert sum(waits, timedelta()) / len(waits) / predicted.mean == pytest.approx(1, rel=0.01)
    assert waits[int(len(waits) * 0.99)] / predicted.p99 == pytest.approx(1, rel=0.05)


# Words ---------------------------------------------------------------------------------------------------------------


def test_it_says_which_interval_does_not_fit() -> None:
    feeds = [demand(name, most=None, least=15 * SECOND) for name in ("shipments", "packages", "items")]
    stock = demand("stock", cost=15.0, most=None, least=SECOND)

    advice = advise(divide(265 / 60, [*feeds, stock]))

    assert advice == 'needs 912 of 265 requests a minute: stock every 1s takes 900 (15 pages); set every = "auto"'


def test_it_says_which_promise_cannot_be_kept() -> None:
    advice = advise(divide(265 / 60, [demand("items"), demand("stock", cost=200.0, most=20 * SECOND)]))

    assert advice == "needs 601 of 265 requests a minute: stock at_most 20s takes 600 (200 pages); raise at_most"


def test_it_says_what_costs_most() -> None:
    advice = advise(divide(265 / 60, demands("A")))

    assert advice == "stock takes 212 of 265 requests a minute; a second API key would halve its delay"


def test_it_says_what_is_spare() -> None:
    advice = advise(divide(265 / 60, [demand("items", least=15 * SECOND)]))

    assert advice == "all feeds are read as often as allowed; 261 of 265 requests a minute are unused"


def test_it_says_what_it_decided_and_why() -> None:
    division = divide(265 / 60, demands("A"))

    assert explain(division.feeds[0]) == (
        "shipments every 3.5s, by its rate and cost: 90 changes and 17 requests a minute"
    )
    assert explain(division.feeds[3]) == (
        "stock every 1m11s, by its rate and cost: 54 changes and 212 requests a minute"
    )
    assert explain(divide(9.0, [demand("warehouses", 0.001, least=MINUTE)]).feeds[0]) == (
        "warehouses every 1m, its shortest interval: 0.06 changes and 1 requests a minute"
    )


def test_weight_moves_the_division_and_not_what_is_counted() -> None:
    plain = demands("A")
    weighted = [replace(each, weight=100.0) if each.kind is RunKind.PASS else each for each in plain]

    assert find_floor(5.0, weighted) == find_floor(5.0, plain)
    assert forecast(divide(4.8, weighted)).mean > forecast(divide(4.8, plain)).mean
