"""Delays in buckets, and how they compare with the plan."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.delays import (
    QUARTER,
    MeasuredDelays,
    Reading,
    begin_of_quarter,
    find_bucket,
    find_share_within,
    find_slow,
    merge,
    split,
    summarise,
)
from dockbell.core.model import Feed
from tests.fakes import NOON

STOCK = Feed("main", "stock")
SECOND = timedelta(seconds=1)
SECONDS = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=300)


@given(SECONDS)
def test_what_delays_come_to_is_true_to_a_twentieth(seconds: list[float]) -> None:
    delay = summarise(Counter(map(find_bucket, seconds)))
    assert delay is not None
    ordered = sorted(seconds)
    assert delay.count == len(seconds)
    assert delay.mean / SECOND == pytest.approx(sum(seconds) / len(seconds), rel=0.05)
    assert delay.p50 / SECOND == pytest.approx(ordered[(len(ordered) + 1) // 2 - 1], rel=0.05)
    assert delay.p50 <= delay.p99


@given(SECONDS, SECONDS)
def test_merged_delays_are_those_that_were_counted_together(some: list[float], others: list[float]) -> None:
    apart = [measure(NOON, *some), measure(NOON + QUARTER, *others)]
    assert merge(apart) == summarise(Counter(map(find_bucket, some + others)))


def test_no_delays_come_to_nothing() -> None:
    assert (summarise({}), merge([]), Reading.of([])) == (None, None, None)


@pytest.mark.parametrize(("minutes", "expected"), [(0, 0), (14.99, 0), (15, 15), (59, 45)])
def test_quarters_begin_with_those_of_the_hour(minutes: float, expected: float) -> None:
    assert begin_of_quarter(NOON + timedelta(minutes=minutes)) == NOON + timedelta(minutes=expected)


def measure(began_at: datetime, *seconds: float, waited: float = 0, predicted: float | None = None) -> MeasuredDelays:
    """Return delays of a quarter; each waited as long in the outbox, and was predicted to wait as long."""
    return MeasuredDelays(
        STOCK,
        "erp",
        began_at,
        Counter(map(find_bucket, seconds)),
        waited * SECOND * len(seconds),
        None if predicted is None else predicted * SECOND * len(seconds),
    )


def measure_hour(*means: float, count: int = 10, **told: float) -> list[MeasuredDelays]:
    """Return the delays of the quarters before noon, the last one last."""
    return [measure(NOON - number * QUARTER, *[mean] * count, **told) for number, mean in enumerate(means[::-1], 1)]


def test_what_changes_wait_in_the_outbox_is_no_part_of_their_reading() -> None:
    reading = Reading.of([measure(NOON, 10, 10, waited=4, predicted=6)])
    assert reading is not None
    assert reading.measured / SECOND == pytest.approx(6, rel=0.05)
    assert reading.predicted == 6 * SECOND
    assert not reading.is_slow


def test_a_feed_is_slow_that_was_slower_than_predicted_for_an_hour() -> None:
    slow = find_slow(measure_hour(16, 17, 16, 20, predicted=10), NOON + 10 * SECOND)
    assert slow is not None
    assert slow.predicted == 10 * SECOND
    assert slow.measured / SECOND == pytest.approx(17.25, rel=0.05)


@pytest.mark.parametrize(
    "told",
    [
        measure_hour(16, 16, 14, 16, predicted=10),
        measure_hour(16, 16, 16, predicted=10),
        measure_hour(16, 16, 16, 16, predicted=10, count=4),
        measure_hour(16, 16, 16, 16, predicted=10, waited=5),
        measure_hour(1.4, 1.4, 1.4, 1.4, predicted=0.5),
        measure_hour(16, 16, 16, 16),
    ],
    ids=[
        "one quarter was as predicted",
        "for less than an hour",
        "too few changes",
        "a sink was slow",
        "by less than a second",
        "nothing was predicted",
    ],
)
def test_a_feed_is_not_slow(told: list[MeasuredDelays]) -> None:
    assert find_slow(told, NOON) is None


def test_the_running_quarter_does_not_count_and_what_is_older_than_an_hour_neither() -> None:
    hour = measure_hour(16, 16, 16, 16, predicted=10)
    assert find_slow([*hour, measure(NOON, *[1] * 10, predicted=10)], NOON + 5 * SECOND) is not None
    assert find_slow(hour, NOON + QUARTER) is None


@given(SECONDS, st.floats(0.001, 1e6))
def test_the_share_within_a_time_is_true_to_a_bucket(seconds: list[float], most: float) -> None:
    share = find_share_within(Counter(map(find_bucket, seconds)), timedelta(seconds=most))
    assert share is not None
    least, highest = (sum(each <= most * factor for each in seconds) / len(seconds) for factor in (1 / 1.11, 1.11))
    assert least <= share <= highest


def test_without_delays_there_is_no_share() -> None:
    assert find_share_within({}, SECOND) is None


def test_delays_are_split_by_steps_of_which_the_last_ends_with_a_quarter() -> None:
    hour = 4 * QUARTER
    measured = [MeasuredDelays(STOCK, "erp", NOON - number * QUARTER, {1: 1}) for number in range(10)]
    steps = split(measured, NOON, hour, 2)
    assert [[(NOON - each.began_at) // QUARTER for each in step] for step in steps] == [[4, 5, 6, 7], [0, 1, 2, 3]]
