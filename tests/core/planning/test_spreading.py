"""When polls and the pages of a pass are due."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.planning.spreading import count_from, page_pace, page_wait

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)


def test_the_pages_of_a_pass_are_spread_over_its_interval() -> None:
    assert page_pace(4, MINUTE) == 15 * SECOND


def test_a_pass_of_unknown_length_is_read_as_one_page() -> None:
    assert page_pace(0, MINUTE) == MINUTE


def test_a_pass_is_over_before_its_cursors_are_refused() -> None:
    assert 10 * page_pace(10, 10 * MINUTE, cursor_life=4 * MINUTE) == 2 * MINUTE
    assert 10 * page_pace(10, MINUTE, cursor_life=4 * MINUTE) == MINUTE


@given(st.integers(1, 5000), st.lists(st.integers(0, 500), min_size=1, max_size=50))
def test_pages_are_asked_for_by_the_second_and_none_is_late_for_it(pace: int, took: list[int]) -> None:
    now = timedelta(0)
    for number, each in enumerate(took):
        due = number * pace * SECOND / 1000
        wait = page_wait(due, now)
        assert wait == timedelta(0) or wait > SECOND  # it wakes up for the pages of a second together
        assert due - SECOND <= now + wait <= max(now, due)
        now += wait + each * SECOND / 1000


# Intervals -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 900), min_size=1, max_size=50))
def test_runs_that_are_less_than_an_interval_late_are_on_average_as_frequent_as_planned(delays: list[int]) -> None:
    due = last = timedelta(0)
    for delay in delays:
        last = due + delay * SECOND / 1000
        due = count_from(due, last, SECOND) + SECOND
    assert last - delays[-1] * SECOND / 1000 == (len(delays) - 1) * SECOND


def test_of_a_long_delay_one_interval_or_a_few_seconds_are_made_up_for() -> None:
    assert count_from(timedelta(0), MINUTE, SECOND) == MINUTE - SECOND
    assert count_from(timedelta(0), 60 * MINUTE, 24 * 60 * MINUTE) == 60 * MINUTE - 5 * SECOND
