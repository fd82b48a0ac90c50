from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.absence import Absence, Census, SeenRows, allowance, judge_absence


@pytest.mark.parametrize(
    ("stored", "allowed"),
    [(1, 2), (3, 2), (15, 7), (40, 20), (200, 20), (600, 60), (20_000, 2000)],
)
def test_a_feed_may_lose_a_tenth_a_day_and_a_small_one_half(stored: int, allowed: int) -> None:
    assert allowance(stored) == allowed


@pytest.mark.parametrize(
    ("census", "verdict"),
    [
        (Census(stored=600, absent=0, shown=600, deleted_lately=0), Absence.NONE),
        (Census(stored=600, absent=60, shown=540, deleted_lately=0), Absence.SUSPECTED),
        (Census(stored=600, absent=400, shown=200, deleted_lately=0), Absence.HELD_MANY),
        (Census(stored=15, absent=14, shown=1, deleted_lately=0), Absence.HELD_MANY),
        (Census(stored=540, absent=1, shown=539, deleted_lately=60), Absence.HELD_MANY),
        (Census(stored=1, absent=1, shown=0, deleted_lately=0), Absence.HELD_EMPTY),
        (Census(stored=0, absent=0, shown=0, deleted_lately=0), Absence.NONE),
    ],
)
def test_absence_is_suspected_or_held(census: Census, verdict: Absence) -> None:
    assert judge_absence(census) is verdict
    assert verdict.held == verdict.name.startswith("HELD")


@given(st.integers(0, 300), st.lists(st.integers(1, 400)))
def test_seen_rows_are_a_set_of_the_rows_that_there_were(last: int, rows: list[int]) -> None:
    seen = SeenRows(last)
    seen.add(rows)
    expected = {row for row in rows if row <= last}
    assert seen.count == len(expected)
    assert {row for row in range(1, 401) if row in seen} == expected


@given(st.integers(0, 300), st.integers(0, 300), st.lists(st.integers(1, 400)))
def test_seen_rows_outlive_a_crash_and_grow(last: int, later: int, rows: list[int]) -> None:
    seen = SeenRows(last)
    seen.add(rows)
    again = SeenRows.from_bytes(seen.to_bytes())
    assert (again.last_row, again.count) == (last, seen.count)
    again.grow(later)
    again.add(rows)
    most = max(last, later)
    assert again.last_row == most
    assert {row for row in range(1, 401) if row in again} == {row for row in rows if row <= most}
