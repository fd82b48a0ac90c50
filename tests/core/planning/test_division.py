from __future__ import annotations

from datetime import timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.config.resources import BUILT_IN
from dockbell.core.model import Feed, RunKind
from dockbell.core.planning.demand import Demand
from dockbell.core.planning.division import Division, Reason, divide, is_news, settle, solve_unbounded
from dockbell.core.planning.supply import Background, BackgroundKind, Supply

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

spans = st.floats(0.5, 7200).map(lambda seconds: timedelta(seconds=seconds))
budgets = st.floats(0.01, 100)


@st.composite
def auto_demands(draw: st.DrawFn, name: str = "stock") -> Demand:
    least, most = sorted([draw(spans), draw(spans)])
    return Demand(
        feed=Feed("main", name),
        kind=RunKind.PASS,
        rate=draw(st.floats(1 / 86400, 50)),
        cost=draw(st.floats(1, 500)),
        weight=draw(st.floats(0.01, 100)),
        least=least,
        most=most,
    )


@st.composite
def demand_lists(draw: st.DrawFn, *, fixed: bool = True) -> list[Demand]:
    demands = [draw(auto_demands(f"feed{number}")) for number in range(draw(st.integers(1, 7)))]
    return [replace(each, most=None) if fixed and draw(st.booleans()) else each for each in demands]


def demand(name: str, rate: float = 1.0, cost: float = 1.0, **given: object) -> Demand:
    kind = RunKind.PASS if name in ("stock", "warehouses") else RunKind.POLL
    bounds = {"most": BUILT_IN[name].at_most, **given}
    return Demand(feed=Feed("main", name), kind=kind, rate=rate, cost=cost, **bounds)  # type: ignore[arg-type]


def interval(division: Division, name: str) -> timedelta:
    return division.intervals[Feed("main", name)]


def reasons(division: Division) -> list[Reason]:
    return [each.reason for each in division.feeds]


# The law, by example -------------------------------------------------------------------------------------------------


def test_a_feed_that_changes_four_times_as_often_is_read_twice_as_often() -> None:
    division = divide(0.5, [demand("shipments", rate=4.0), demand("packages", rate=1.0)])

    assert interval(division, "packages") / interval(division, "shipments") == pytest.approx(2)
    assert division.used == pytest.approx(0.5)
    assert reasons(division) == [Reason.CHANGES, Reason.CHANGES]


def test_all_feeds_are_read_as_often_as_they_may_be_while_the_requests_suffice() -> None:
    division = divide(3.0, [demand("shipments"), demand("packages", least=5 * SECOND), demand("items", most=None)])

    assert list(division.intervals.values()) == [SECOND, 5 * SECOND, SECOND]
    assert reasons(division) == [Reason.LEAST, Reason.LEAST, Reason.CONFIGURED]
    assert division.price == 0
    assert division.fits


def test_auto_takes_what_a_fixed_interval_leaves() -> None:
    division = divide(1.0, [demand("shipments", rate=9.0, most=None, least=2 * SECOND), demand("stock", cost=50)])

    assert interval(division, "shipments") == 2 * SECOND
    assert interval(division, "stock").total_seconds() == pytest.approx(100)
    assert division.fits


def test_a_fixed_interval_is_stretched_when_auto_has_no_more_to_give_back() -> None:
    demands = [demand("shipments", most=None), demand("packages", most=None, rate=4.0), demand("stock", cost=450)]

    division = divide(1.1, demands)

    assert reasons(division) == [Reason.STRETCHED, Reason.STRETCHED, Reason.MOST]
    assert interval(division, "shipments") / interval(division, "packages") == pytest.approx(2)
    assert not division.fits


def test_promises_that_cannot_be_kept_are_exceeded_by_one_factor() -> None:
    division = divide(1.0, [demand("shipments", most=2 * SECOND), demand("stock", cost=100, most=40 * SECOND)])

    assert division.factor == pytest.approx(3)
    assert list(division.intervals.values()) == [6 * SECOND, 120 * SECOND]
    assert reasons(division) == [Reason.EXCEEDED, Reason.EXCEEDED]
    assert not division.fits


@pytest.mark.parametrize(
    "given", [{"rate": 0.0}, {"cost": 0.0}, {"weight": 0.0}, {"least": timedelta(0)}, {"most": timedelta(0)}]
)
def test_a_demand_that_has_no_interval_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"main/stock: .* must"):
        demand("stock", **given)


def test_no_budget_is_refused() -> None:
    with pytest.raises(ValueError, match=r"budget: 0\.0 requests a second; must be above zero"):
        divide(0.0, [])


def test_nothing_is_divided_over_no_feeds() -> None:
    assert divide(1.0, []).feeds == ()


# The law, by property ------------------------------------------------------------------------------------------------


@given(budgets, demand_lists())
def test_the_budget_is_never_exceeded(budget: float, demands: list[Demand]) -> None:
    assert divide(budget, demands).used <= budget * (1 + 1e-9)


@given(budgets, demand_lists())
def test_the_bounds_are_kept_and_no_feed_starves(budget: float, demands: list[Demand]) -> None:
    division = divide(budget, demands)

    for each in division.feeds:
        most = each.demand.most or max(HOUR, each.demand.least * 10)
        assert each.demand.least <= each.interval <= most * division.factor + SECOND / 1000
    assert (division.factor > 1) is (Reason.EXCEEDED in reasons(division))


@given(budgets, demand_lists(fixed=False))
def test_no_request_is_left_over_while_it_could_save_delay(budget: float, demands: list[Demand]) -> None:
    division = divide(budget, demands)

    if Reason.CHANGES in reasons(division) or division.factor > 1:
        assert division.used == pytest.approx(budget, rel=1e-4)
    else:
        assert set(reasons(division)) <= {Reason.LEAST, Reason.MOST}


@given(budgets, demand_lists(fixed=False))
def test_no_neighbour_is_better(budget: float, demands: list[Demand]) -> None:
    """Shifting a hundredth of the budget from one feed to another saves no delay."""
    division = divide(budget, demands)
    if division.factor > 1:
        return

    for giver, taker in permutations(division.feeds, 2):
        given, taken = giver.requests - budget / 100, taker.requests + budget / 100
        if given * 86400 <= giver.demand.cost:
            continue
        longer = timedelta(seconds=giver.demand.cost / given)
        shorter = timedelta(seconds=taker.demand.cost / taken)
        assert giver.demand.most is not None
        if longer <= giver.demand.most and shorter >= taker.demand.least:
            moved = replace(giver, interval=longer).delay + replace(taker, interval=shorter).delay
            assert moved >= (giver.delay + taker.delay) * (1 - 1e-6)


@given(budgets, demand_lists(), st.floats(1, 100))
def test_a_feed_of_more_weight_is_never_read_less_often(budget: float, demands: list[Demand], factor: float) -> None:
    heavier = [replace(demands[0], weight=demands[0].weight * factor), *demands[1:]]

    before, after = divide(budget, demands).feeds, divide(budget, heavier).feeds

    assert after[0].interval <= before[0].interval * (1 + 1e-9) + SECOND / 1000
    for earlier, later in zip(before[1:], after[1:], strict=True):
        assert later.interval >= earlier.interval * (1 - 1e-9) - SECOND / 1000


@given(budgets, demand_lists(), st.floats(1, 10))
def test_more_budget_makes_no_feed_slower(budget: float, demands: list[Demand], factor: float) -> None:
    less, more = divide(budget, demands), divide(budget * factor, demands)

    for slower, faster in zip(less.feeds, more.feeds, strict=True):
        assert faster.interval <= slower.interval * (1 + 1e-9) + SECOND / 1000


@given(budgets, demand_lists(), st.floats(0.1, 10))
def test_only_the_ratio_of_the_rates_counts(budget: float, demands: list[Demand], factor: float) -> None:
    scaled = divide(budget, [replace(each, rate=each.rate * factor) for each in demands])

    for one, other in zip(divide(budget, demands).feeds, scaled.feeds, strict=True):
        assert other.interval.total_seconds() == pytest.approx(one.interval.total_seconds(), rel=1e-4, abs=1e-3)


@given(budgets, demand_lists(), st.floats(1, 10))
def test_a_service_as_many_times_slower_is_read_as_many_times_slower(
    budget: float, demands: list[Demand], factor: float
) -> None:
    demands = [each for each in demands if not each.is_fixed]
    slower = [
        replace(each, rate=each.rate / factor, least=each.least * factor, most=(each.most or HOUR) * factor)
        for each in demands
    ]
    for one, other in zip(divide(budget, demands).feeds, divide(budget / factor, slower).feeds, strict=True):
        assert other.interval.total_seconds() == pytest.approx(one.interval.total_seconds() * factor, rel=1e-3)


@given(budgets, demand_lists(fixed=False))
def test_nothing_is_better_than_the_law_without_bounds(budget: float, demands: list[Demand]) -> None:
    division = divide(budget, demands)

    assert solve_unbounded(budget, demands).delay <= division.delay * (1 + 1e-3)


# Settling ------------------------------------------------------------------------------------------------------------


def test_an_interval_that_is_nearly_as_good_is_kept() -> None:
    division = divide(1.0, [demand("shipments", rate=2.0), demand("packages", rate=2.1)])
    current = {Feed("main", "shipments"): 2.01 * SECOND, Feed("main", "packages"): 2.01 * SECOND}

    assert settle(division, current).intervals == current
    assert settle(division, {}) == division
    assert settle(division, {feed: each * 1.2 for feed, each in current.items()}) == division


def test_an_interval_that_the_user_chose_is_taken_at_once() -> None:
    division = divide(10.0, [demand("shipments", least=10 * SECOND)])

    assert settle(division, {Feed("main", "shipments"): 10.5 * SECOND}) == division


@given(budgets, demand_lists(), st.lists(st.floats(0.8, 1.25), min_size=7, max_size=7))
def test_settling_keeps_budget_and_bounds_and_nearly_the_delay(
    budget: float, demands: list[Demand], factors: list[float]
) -> None:
    division = divide(budget, demands)
    current = {each.demand.feed: each.interval * factor for each, factor in zip(division.feeds, factors, strict=False)}

    settled = settle(division, current)

    assert settled.used <= budget * (1 + 1e-9)
    assert settled.delay <= division.delay * 1.02
    assert settle(settled, settled.intervals) == settled
    for each, planned in zip(settled.feeds, division.feeds, strict=True):
        assert each.interval >= each.demand.least
        assert each.interval in (current[each.demand.feed], planned.interval)


@pytest.mark.parametrize(("told", "is_told"), [(None, True), (60, False), (75, False), (81, True), (47, True)])
def test_an_interval_is_told_when_it_has_moved_by_more_than_a_quarter(told: int | None, *, is_told: bool) -> None:
    assert is_news(MINUTE, None if told is None else told * SECOND) is is_told


# The supply ----------------------------------------------------------------------------------------------------------


def background(kind: BackgroundKind, requests: float) -> Background:
    return Background(Feed("main", "items"), kind, requests)


def test_a_little_is_left_free() -> None:
    assert Supply(limit=300, allowed=300).available == pytest.approx(300 / 61 * 0.98)


@pytest.mark.parametrize(("foreign", "left"), [(0.0, 270), (0.5, 270), (2.0, 180), (100.0, 0)])
def test_others_take_what_the_share_leaves_them_first(foreign: float, left: int) -> None:
    assert Supply(limit=300, allowed=270, foreign=foreign).total * 61 == pytest.approx(left)


def test_the_background_is_taken_off() -> None:
    supply = Supply(limit=610, allowed=610, background=(background(BackgroundKind.DETAIL, 1.5),))

    assert supply.available == pytest.approx(10 - 1.5 - 0.2)


def test_reconciles_have_to_do_with_a_fifth() -> None:
    supply = Supply(limit=610, allowed=610, background=(background(BackgroundKind.RECONCILE, 8.0),))

    assert supply.taken == pytest.approx(2)


def test_what_a_crontab_starts_is_spread_over_its_interval() -> None:
    assert Background.repeat(Feed("main", "stock"), BackgroundKind.CRON, 360, HOUR).requests == 0.1


def test_a_first_pass_has_what_the_other_feeds_leave() -> None:
    assert Supply(limit=610, allowed=610, is_first_pass=True).available == pytest.approx(9.8 * 0.3)


@pytest.mark.parametrize(("requests", "is_overdrawn"), [(9.2, False), (9.4, True)])
def test_a_background_that_leaves_the_feeds_less_than_a_twentieth_is_too_much(
    requests: float, is_overdrawn: bool
) -> None:
    supply = Supply(limit=610, allowed=610, background=(background(BackgroundKind.DETAIL, requests),))
    assert supply.is_overdrawn == is_overdrawn
    assert supply.available >= 0.5


@given(st.integers(1, 10_000), st.floats(0, 1000), st.floats(0, 1000))
def test_there_always_is_something_to_divide(allowed: int, foreign: float, requests: float) -> None:
    taken = (background(BackgroundKind.CRON, requests),)

    supply = Supply(limit=allowed, allowed=allowed, foreign=foreign, background=taken, is_first_pass=True)

    assert supply.available >= allowed / 61 / 20
