from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.seen_rows import SeenRows


@given(st.integers(0, 300), st.lists(st.integers(1, 400)))
def test_seen_rows_are_a_set_of_the_rows_that_there_were(last: int, rows: list[int]) -> None:
    seen = SeenRows(last)
    seen.add(rows)
    expected = {row for row in rows if row <= last}
    assert seen.count == len(expected)
    assert seen.find_unseen(range(1, 401)) == [row for row in range(1, last + 1) if row not in expected]


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
    assert again.find_unseen(range(1, 401)) == [row for row in range(1, most + 1) if row not in rows]


@given(st.integers(0, 300), st.lists(st.integers(1, 300)), st.integers(1, 300), st.integers(0, 100))
def test_rows_that_follow_upon_each_other_are_added_like_others(
    last: int, before: list[int], first: int, count: int
) -> None:
    rows = range(first, first + count)
    seen = SeenRows(last)
    seen.add(before)
    assert seen.add(rows) == [row for row in rows if row in before and row <= last]
    expected = {row for row in [*before, *rows] if row <= last}
    assert seen.count == len(expected)
    assert seen.find_unseen(range(1, 401)) == [row for row in range(1, last + 1) if row not in expected]
