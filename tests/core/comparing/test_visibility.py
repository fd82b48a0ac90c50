"""When a change became visible: exact where the record says it, evenly spread where nothing does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.visibility import estimate_last_look, estimate_visible_at, find_place

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
UNITS = st.sampled_from([timedelta(0), timedelta(microseconds=1), timedelta(milliseconds=1), SECOND, 60 * SECOND])
MOMENTS = st.floats(-100, 100).map(lambda seconds: NOON + timedelta(seconds=seconds))


@given(st.none() | MOMENTS, MOMENTS, st.none() | MOMENTS, UNITS, st.floats(0, 1, exclude_max=True))
def test_a_change_is_visible_neither_before_the_reading_without_it_nor_after_the_one_with_it(
    since: datetime | None, until: datetime, date: datetime | None, precision: timedelta, place: float
) -> None:
    found = estimate_visible_at(since, until, date=date, precision=precision, place=place)
    if found is None:
        assert since is None
        assert date is None or date > until
        return
    assert found <= until
    assert since is None or found >= min(since, until)
    if date is not None and date <= until and (since is None or since <= date):
        assert date <= found <= date + precision


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("precision", [None, timedelta(0), SECOND])
def test_the_mean_of_many_estimates_is_that_of_the_true_delays(seed: int, precision: timedelta | None) -> None:
    """``precision`` of the timestamps; None: records have none."""
    random, interval, count, true, estimated = Random(seed), 10.0, 2000, 0.0, 0.0
    for number in range(count):
        place = random.random() * interval
        at, until = NOON + place * SECOND, NOON + interval * SECOND
        date = None if precision is None else at if not precision else at.replace(microsecond=0)
        found = estimate_visible_at(
            NOON, until, date=date, precision=precision or timedelta(0), place=find_place(f"key{number % 97}", number)
        )
        assert found is not None
        true += (until - at) / SECOND
        estimated += (until - found) / SECOND
    assert estimated / count == pytest.approx(true / count, abs=0.5 if precision is None else 0.05)


@pytest.mark.parametrize("keys", [1, 100])
def test_places_fill_their_span_evenly(keys: int) -> None:
    places = sorted(find_place(f"key{number % keys}", number // keys + 1) for number in range(1000))
    quarters = [sum(quarter <= 4 * place < quarter + 1 for place in places) for quarter in range(4)]
    assert all(count == pytest.approx(250, abs=30) for count in quarters)
    assert find_place("a", 1) == find_place("a", 1) != find_place("b", 1)


def test_a_record_whose_clock_is_wrong_or_whose_replica_lags_is_as_likely_at_any_moment() -> None:
    until = NOON + 10 * SECOND
    for date in (NOON - 30 * SECOND, NOON + 30 * SECOND):
        found = estimate_visible_at(NOON, until, date=date, precision=SECOND, place=0.5)
        assert found == NOON + 5 * SECOND


def test_without_an_earlier_reading_the_timestamp_alone_tells() -> None:
    assert estimate_visible_at(None, NOON, date=NOON - SECOND / 2, precision=SECOND, place=0.7) == NOON - SECOND / 2
    assert estimate_visible_at(None, NOON, date=None, precision=SECOND, place=0.7) is None


@pytest.mark.parametrize(
    ("last", "began", "page", "expected"),
    [(0, 100, 100, 0), (0, 100, 190, 90), (0, 100, 250, 100), (100, 0, 0, 100)],
    ids=["the first page", "a later page", "a longer pass than before", "our clock or theirs was set back"],
)
def test_a_page_was_last_looked_at_by_the_pass_before(last: float, began: float, page: float, expected: float) -> None:
    at = [NOON + seconds * SECOND for seconds in (last, began, page)]
    assert estimate_last_look(*at) == NOON + expected * SECOND


@pytest.mark.parametrize("seed", range(3))
def test_delays_of_passes_that_fill_their_interval_have_the_true_mean_and_p99(seed: int) -> None:
    """Records without timestamps: each is read once in 100 s, by one of ten pages that are as far apart as can be."""
    random, true, estimated = Random(seed), [], []
    for number in range(3000):
        page_at = 10 * random.randrange(10)  # within each pass
        made_at = 100 * random.random() + page_at  # between the page of the first pass and that of the second
        began = [NOON, NOON + 100 * SECOND]
        read_at = began[1] + page_at * SECOND
        since = estimate_last_look(began[0], began[1], read_at)
        place = find_place(f"key{number % 500}", number // 500)
        visible_at = estimate_visible_at(since, read_at, date=None, precision=SECOND, place=place)
        assert visible_at is not None
        true.append((read_at - NOON) / SECOND - made_at)
        estimated.append((read_at - visible_at) / SECOND)
    assert sum(estimated) / sum(true) == pytest.approx(1, rel=0.05)
    assert sorted(estimated)[2970] == pytest.approx(sorted(true)[2970], rel=0.02)
