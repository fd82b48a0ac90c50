from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.reading.lateness import HALF_LIFE, MOST_LOOKBACK, Lateness
from dockbell.core.reading.window import AUTO_LOOKBACK

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)

durations = st.integers(0, 2_000_000).map(lambda millis: timedelta(milliseconds=millis))
moments = st.integers(0, 40 * 86_400).map(lambda seconds: NOON + timedelta(seconds=seconds))
observations = st.tuples(st.lists(durations, max_size=3), st.integers(0, 3), moments)
Runs: TypeAlias = list[tuple[list[timedelta], int, datetime]]


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def observe(*samples: float, times: int = 2) -> Lateness:
    known = Lateness()
    for _ in range(times):
        known = known.observe([seconds(sample) for sample in samples], 0, NOON)
    return known


def test_without_lateness_the_lookback_is_the_least() -> None:
    assert Lateness().lookback(NOON) == AUTO_LOOKBACK


def test_runs_on_time_leave_nothing_to_store() -> None:
    known = Lateness()
    assert known.observe([], 200, NOON) is known
    assert known.to_json() == ""


def test_two_occasions_of_lateness_raise_the_lookback_to_twice_as_much() -> None:
    lookback = observe(80).lookback(NOON)
    assert seconds(160) <= lookback <= seconds(240)


def test_one_outlier_alone_does_not_raise_it() -> None:
    assert observe(800, times=1).lookback(NOON) == AUTO_LOOKBACK


def test_what_one_run_finds_late_is_one_occasion_however_many_they_are() -> None:
    many = Lateness().observe([seconds(400)] * 50_000, 0, NOON)
    assert many == Lateness().observe([seconds(400)], 0, NOON)


def test_an_import_dated_three_days_back_changes_nothing() -> None:
    assert Lateness().observe([3 * DAY] * 1000, 0, NOON) == Lateness()


def test_a_part_of_a_second_is_no_lateness() -> None:
    assert observe(0.5) == Lateness()


def test_lateness_is_forgotten_slowly() -> None:
    known = observe(80, times=20)
    assert known.lookback(NOON + DAY) == known.lookback(NOON)
    assert known.lookback(NOON + 30 * DAY) == AUTO_LOOKBACK


def test_lateness_that_comes_back_every_day_is_not_forgotten() -> None:
    known = Lateness()
    for day in range(10):
        known = known.observe([seconds(300)], 0, NOON + day * HALF_LIFE)
    assert known.lookback(NOON + 9.9 * HALF_LIFE) >= seconds(600)


def test_one_in_ten_thousand_runs_may_be_later() -> None:
    known = observe(300)
    for _ in range(30_000):
        known = known.observe([], 5, NOON)
    assert known.lookback(NOON) == AUTO_LOOKBACK


def test_runs_on_time_are_stored_in_batches_only() -> None:
    known = observe(80)
    texts = set()
    for _ in range(2_500):
        known = known.observe([], 5, NOON)
        texts.add(known.to_json())
    assert len(texts) == 3


def test_runs_without_changes_are_not_counted() -> None:
    known = observe(80)
    assert known.observe([], 0, NOON) is known


def test_a_miss_doubles_the_lookback_in_use_at_once() -> None:
    known = Lateness().miss(seconds(60), NOON)
    assert known.lookback(NOON) == seconds(120)
    assert known.miss(seconds(120), NOON).lookback(NOON) == seconds(240)


def test_one_miss_costs_one_doubling_for_one_day() -> None:
    known = Lateness().miss(seconds(60), NOON)
    assert known.lookback(NOON + DAY / 2) == seconds(90)
    assert known.lookback(NOON + DAY) == AUTO_LOOKBACK


def test_misses_raise_the_lookback_to_the_longest_and_wear_off_from_there() -> None:
    known = Lateness()
    for _ in range(10):
        known = known.miss(known.lookback(NOON), NOON)
    assert known.lookback(NOON) == MOST_LOOKBACK
    assert known.lookback(NOON + DAY) == MOST_LOOKBACK / 2


def test_a_miss_never_lowers_what_an_earlier_one_raised() -> None:
    assert Lateness().miss(seconds(200), NOON).miss(seconds(60), NOON).lookback(NOON) == seconds(400)


@given(st.lists(observations, max_size=20), moments)
def test_the_lookback_stays_between_its_bounds(runs: Runs, now: datetime) -> None:
    known = Lateness()
    for samples, on_time, at in runs:
        known = known.observe(samples, on_time, at)
        known = known.miss(known.lookback(at), at) if len(samples) == 3 else known
        assert AUTO_LOOKBACK <= known.lookback(now) <= MOST_LOOKBACK


@given(st.integers(30, 450))
def test_it_stays_above_twice_the_lateness_that_returns(late: int) -> None:
    assert observe(late).lookback(NOON) >= seconds(2 * late)
    assert seconds(late) <= observe(late).quantile(NOON) <= seconds(late * 1.5)


@given(st.lists(observations, max_size=20), moments)
def test_what_is_stored_says_the_same(runs: Runs, now: datetime) -> None:
    known = Lateness()
    for samples, on_time, at in runs:
        known = known.observe(samples, on_time, at)
        known = known.miss(known.lookback(at), at) if len(samples) == 3 else known
    stored = Lateness.from_json(known.to_json())
    assert stored == known
    assert stored.lookback(now) == known.lookback(now)
    assert len(known.to_json()) < 500


def test_a_clock_that_goes_back_ages_nothing() -> None:
    known = observe(80)
    assert known.lookback(NOON - DAY) == known.lookback(NOON)
    assert known.observe([seconds(80)], 0, NOON - DAY) == known.observe([seconds(80)], 0, NOON)
