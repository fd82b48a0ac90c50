from __future__ import annotations

import pytest

from tests.bench.floor import Demand, find_floor
from tests.bench.freshness import LOADS


@pytest.mark.parametrize(
    ("load", "share", "mean", "p99"),
    [("lists", 1.0, 7.04, 59), ("lists", 0.9, 7.83, 66), ("stock", 1.0, 12.8, 55), ("stock", 0.9, 14.3, 61)],
)
def test_the_floor_is_what_it_was_computed_to_be(load: str, share: float, mean: float, p99: float) -> None:
    floor = find_floor(LOADS[load].demands(LOADS[load].rates), 300 * share / 60)
    assert floor.mean == pytest.approx(mean, rel=0.005)
    assert floor.p99 == pytest.approx(p99, rel=0.01)


def test_no_division_that_shifts_a_little_is_better() -> None:
    demands = {"shipments": Demand(3.0, 1), "items": Demand(0.5, 1), "stock": Demand(2.0, 50)}
    floor = find_floor(demands, 5.0)
    requests = {feed: demand.cost / floor.intervals[feed] for feed, demand in demands.items()}
    assert sum(requests.values()) == pytest.approx(5.0)
    for giver in demands:
        for taker in demands.keys() - {giver}:
            shifted = requests | {giver: requests[giver] - 0.02, taker: requests[taker] + 0.02}
            delays = [demands[feed].rate * demands[feed].cost / shifted[feed] / 2 for feed in demands]
            assert sum(delays) / 5.5 > floor.mean


def test_a_budget_for_more_than_everything_reads_each_feed_once_a_second() -> None:
    floor = find_floor({"shipments": Demand(3.0, 1), "stock": Demand(2.0, 5)}, 100.0)
    assert (floor.mean, floor.p99) == pytest.approx((0.5, 0.99))
    assert floor.of("stock") == (0.5, 0.99)
