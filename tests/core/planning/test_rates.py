from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.planning.costs import RUNS, Cost, pass_cost, poll_cost
from dockbell.core.planning.rates import HALF_LIFE, Lead, Rate, estimate_changes, teaches

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def changes_of(random: Random, rate: float, span: float) -> int:
    """Return a random number of changes, as they come independently of each other."""
    return sum(1 for _ in _times(random, rate, span))


def _times(random: Random, rate: float, span: float) -> Iterator[float]:
    at = random.expovariate(rate)
    while at < span:
        yield at
        at += random.expovariate(rate)


def learn(random: Random, rate: float, interval: timedelta, runs: int, learned: Rate | None = None) -> Rate:
    learned = learned or Rate()
    now = learned.at or NOW
    for _ in range(runs):
        now += interval
        learned = learned.add(changes_of(random, rate, interval.total_seconds()), interval, now)
    return learned


# Rates ---------------------------------------------------------------------------------------------------------------


def test_a_rate_is_assumed_until_a_run_has_taught_it() -> None:
    assert Rate().is_assumed
    assert Rate().per_second == 0.05
    assert not Rate().add(0, MINUTE, NOW).is_assumed


@pytest.mark.parametrize(("rate", "interval"), [(0.01, MINUTE), (0.5, 4 * SECOND), (2.0, MINUTE)])
def test_a_rate_is_learned_without_bias(rate: float, interval: timedelta) -> None:
    random = Random(1)

    learned = [learn(random, rate, interval, runs=HALF_LIFE * 10 // interval).per_second for _ in range(60)]

    assert mean(learned) == pytest.approx(rate, rel=0.06)


@pytest.mark.parametrize("changes", [1, 50, 400, 1500])
def test_a_pass_is_corrected_for_changes_that_it_cannot_see(changes: int) -> None:
    """Of the changes of one record, a pass over 500 sees the last."""
    random = Random(2)
    seen = [len({random.randrange(500) for _ in range(changes)}) for _ in range(200)]

    assert mean(estimate_changes(each, 500) for each in seen) == pytest.approx(changes, rel=0.02)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_pass_stands_for_as_many_changes_as_it_shows_at_the_least(changed: int, records: int) -> None:
    assert estimate_changes(changed, records) >= changed * 0.9
    assert estimate_changes(changed, records) <= estimate_changes(changed + 1, records)


def test_what_was_learned_counts_half_after_ten_minutes() -> None:
    learned = Rate(100, 1000, NOW).add(0, SECOND, NOW + HALF_LIFE)

    assert (learned.changes, learned.seconds) == (50, 501)


def test_a_new_rate_is_believed_within_ten_minutes() -> None:
    random = Random(3)
    before = learn(random, 0.4, MINUTE, runs=60)

    after = learn(random, 4.0, MINUTE, runs=10, learned=before)

    assert before.per_second == pytest.approx(0.4, rel=0.2)
    assert after.per_second > 2.0


def test_a_long_silence_leaves_a_guess_that_the_next_runs_correct() -> None:
    learned = Rate(2000, 1000, NOW).add(0, SECOND, NOW + 10_000 * DAY)

    assert learned.seconds == pytest.approx(11)
    assert learned.per_second == pytest.approx(20 / 11)


def test_a_feed_that_never_changes_is_taken_for_one_that_changes_once_a_day() -> None:
    learned = Rate()
    for day in range(30):
        learned = learned.add(0, DAY, NOW + day * DAY)

    assert learned.per_second == 1 / 86400


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.timedeltas(-DAY, 10 * DAY), st.timedeltas(-DAY, 1000 * DAY)), max_size=20)
)
def test_a_rate_stays_a_rate_whatever_is_added(runs: list[tuple[float, timedelta, timedelta]]) -> None:
    learned, now = Rate(), NOW
    for changes, span, passed in runs:
        now += passed
        learned = learned.add(changes, span, now)

    assert 1 / 86400 <= learned.per_second < float("inf")
    assert learned.seconds >= 9.99


@given(st.floats(0, 1e6), st.timedeltas(SECOND, DAY))
def test_a_rate_survives_a_restart(changes: float, span: timedelta) -> None:
    learned = Rate().add(changes, span, NOW)

    stored = Rate.from_json(learned.to_json())

    assert stored.at == NOW
    assert stored.per_second == pytest.approx(learned.per_second, rel=0.01, abs=1e-5)
    assert Rate.from_json(Rate().to_json()) == Rate()


@pytest.mark.parametrize(
    ("span", "interval", "is_baseline", "expected"),
    [
        (15 * SECOND, 15 * SECOND, False, True),
        (4 * MINUTE, SECOND, False, True),  # waited for its turn
        (6 * MINUTE, SECOND, False, False),
        (30 * MINUTE, 15 * MINUTE, False, True),
        (46 * MINUTE, 15 * MINUTE, False, False),
        (15 * SECOND, 15 * SECOND, True, False),
    ],
)
def test_outages_and_baselines_teach_nothing(
    span: timedelta, interval: timedelta, *, is_baseline: bool, expected: bool
) -> None:
    assert teaches(span, interval, is_baseline=is_baseline) is expected


# Costs ---------------------------------------------------------------------------------------------------------------


def test_a_run_costs_the_mean_of_the_last_ones() -> None:
    cost = Cost()
    assert cost.mean is None

    for requests in [250, *[1] * 10, *[3] * 10]:
        cost = cost.add(requests)

    assert len(cost.runs) == RUNS
    assert cost.mean == 2.0
    assert Cost.from_json(cost.to_json()) == cost
    assert Cost.from_json(Cost().to_json()) == Cost()


@pytest.mark.parametrize(
    ("rate", "interval", "requests"),
    [(1.5, 15, 1), (2.5, 19, 1), (2.5, 20, 2), (10, 10, 4), (0.001, 60, 1)],
)
def test_a_poll_costs_more_when_its_window_fills_a_page(rate: float, interval: int, requests: int) -> None:
    assert poll_cost(rate, MINUTE, interval * SECOND) == requests


@pytest.mark.parametrize(("records", "requests"), [(0, 1), (200, 1), (201, 2), (50_000, 250)])
def test_a_pass_costs_its_pages(records: int, requests: int) -> None:
    assert pass_cost(records) == requests


def test_what_a_signal_showed_first_counts_less_as_time_goes_by() -> None:
    lead = Lead().add(8, NOW).add(1, NOW + HALF_LIFE)
    assert lead.changes == pytest.approx(5)
    assert Lead.from_json(lead.to_json()) == lead
    assert Lead.from_json("") == Lead()


def test_a_rate_is_restored_by_what_a_signal_showed_first() -> None:
    rate = Rate().add(3, timedelta(seconds=90), NOW)
    assert rate.restore(10).changes == rate.changes + 10
    assert rate.restore(10).seconds == rate.seconds
    assert Rate().restore(10) == Rate()
    assert rate.restore(-1e9).changes == 0
