"""Where the first pass begins on the records' own clock; the listing here is a list of dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.reading.anchor import Short, find_boundary, next_since

S0 = datetime(2026, 11, 21, 12, 0, 0, 400_000, tzinfo=UTC)


def ago(**span: float) -> datetime:
    return S0 - timedelta(**span)


def search(dates: list[datetime], *, page_most: int = 200) -> tuple[datetime | None, list[datetime], int]:
    """Return the boundary, the dates that are stored for it, and how many requests it took."""
    answers: list[Short] = []
    while (since := next_since(S0, answers)) is not None:
        found = sorted(date for date in dates if date >= since)
        answers.append(Short(since, len(found) <= page_most, found[:page_most]))
    boundary, number = find_boundary(S0, answers)
    return boundary, [] if number is None else list(answers[number].dates), len(answers)


@pytest.mark.parametrize(
    ("dates", "boundary", "requests"),
    [
        ([ago(days=3), ago(seconds=5)], ago(seconds=5), 1),
        ([ago(days=3), ago(minutes=5)], ago(minutes=5), 2),
        ([ago(hours=2, seconds=1)], ago(hours=2, seconds=1), 3),  # local time
        ([ago(days=3)], ago(days=3), 4),
        ([ago(days=4000)], ago(days=4000), 6),
        ([], None, 6),
        ([ago(hours=2), ago(hours=-70_000)], ago(hours=2), 3),  # one date of a far future says nothing
    ],
)
def test_the_boundary_is_the_newest_date(dates: list[datetime], boundary: datetime | None, requests: int) -> None:
    assert search(dates)[::2] == (boundary, requests)


def test_where_all_dates_are_in_the_future_the_shortest_span_will_do() -> None:
    boundary, stored, _ = search([ago(hours=-8), ago(hours=-7)])
    assert (boundary, len(stored)) == (datetime(2026, 11, 21, 11, 59, tzinfo=UTC), 2)


def test_where_more_is_dated_in_the_future_than_a_page_holds_nothing_is_known() -> None:
    assert search([ago(hours=-8)] * 5, page_most=3)[:2] == (None, [])


def test_a_bulk_change_behind_which_nothing_is_dated_bounds_it_by_a_second() -> None:
    boundary, stored, requests = search([ago(hours=2)] * 300)
    assert boundary is not None
    assert timedelta(0) < boundary - ago(hours=2) <= timedelta(seconds=2)
    assert (stored, requests < 24) == ([], True)


def test_an_answer_that_is_empty_though_there_is_more_is_outvoted() -> None:
    lie = Short(ago(minutes=1), is_whole=True, dates=[])
    cut = Short(ago(hours=1), is_whole=False, dates=[ago(seconds=20)])
    assert next_since(S0, [lie]) == datetime(2026, 11, 21, 11, tzinfo=UTC)
    following = next_since(S0, [lie, cut])
    assert following is not None
    assert following > ago(seconds=20)


@given(st.lists(st.integers(-100_000, 3_000_000), max_size=12), st.integers(1, 5))
def test_all_that_is_dated_at_or_after_the_boundary_is_stored(ages: list[int], page_most: int) -> None:
    dates = [ago(seconds=age) for age in ages]
    boundary, stored, requests = search(dates, page_most=page_most)
    assert requests <= 24
    if boundary is not None:
        assert boundary <= S0
        assert sorted(date for date in dates if date >= boundary) == [date for date in stored if date >= boundary]
