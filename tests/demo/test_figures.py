from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dockbell.demo.figures import Figures, Requests, Spread


def test_a_spread_names_mean_median_and_tail() -> None:
    assert Spread.of(range(1, 101)) == Spread(100, 50.5, 51, 95, 100)
    assert Spread.of([3.0]) == Spread(1, 3.0, 3.0, 3.0, 3.0)
    assert Spread.of([]).count == 0


@given(st.lists(st.floats(0, 1000), min_size=1))
def test_the_parts_of_a_spread_are_in_order(delays: list[float]) -> None:
    spread = Spread.of(delays)
    assert min(delays) <= spread.median <= spread.p95 <= spread.longest == max(delays)


def test_requests_are_counted_for_a_minute_and_refusals_for_ever() -> None:
    requests = Requests()
    for second in range(120):
        requests.add(second, 429 if second == 3 else 200)
    assert (requests.total, requests.busiest, requests.refused) == (120, 60, 1)
    assert requests.within_a_minute(150) == 29
    assert requests.within_a_minute(300) == 0


def test_deletions_are_kept_apart_from_other_delays() -> None:
    figures = Figures(("mqtt",))
    figures.add_delay(0, "shipments", 1.0, deletion=False)
    figures.add_delay(1, "stock", 3.0, deletion=False)
    figures.add_delay(2, "stock", 20.0, deletion=True)
    assert figures.delays().mean == 2.0
    assert figures.delays("stock").mean == 3.0
    assert figures.delays(deletions=True).mean == 20.0
    assert figures.delays("items").count == 0
    assert figures.recent_delays(2).mean == 2.0
    assert figures.recent_delays(60.5).mean == 3.0
    assert figures.recent_delays(61.5).count == 0
