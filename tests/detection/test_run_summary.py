"""What a run found: when its key is doubted, and when its order, and how its records are dated."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.page_diff import PageDiff
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import ClockSource, Page, RunKind
from dockbell.core.moment import to_micros
from dockbell.detection.run_summary import RunSummary
from dockbell.ports import Committed, Tally
from tests.fakes import NOON

HOURS = st.sampled_from([None, -30, -1, 0, 1, 23, 24, 25, 30])
"""How far a record's date lies ahead of the answer."""


@pytest.mark.parametrize(
    ("collisions", "records", "ends", "proves"),
    [(0, 1, False, True), (1, 1, False, False), (3, 4, False, False), (4, 16, False, False), (5, 16, True, False)],
)
def test_more_than_three_collisions_and_a_quarter_of_the_records_end_a_run_and_one_proves_no_key(
    collisions: int, records: int, *, ends: bool, proves: bool
) -> None:
    summary = RunSummary(RunKind.PASS, SeenRows(0), collisions=collisions, records=records)
    assert (summary.is_colliding, summary.is_unambiguous) == (ends, proves)


@pytest.mark.parametrize(("repeated", "unsteady"), [(1, False), (2, True)])
def test_a_pass_that_shows_more_than_one_record_in_a_hundred_twice_has_no_order(
    repeated: int, *, unsteady: bool
) -> None:
    summary = RunSummary(RunKind.PASS, SeenRows(0), records=101, tally=Tally(repeated=repeated))
    assert summary.is_unsteady is unsteady


@given(pages=st.lists(st.lists(HOURS, max_size=6), min_size=1, max_size=3))
def test_dates_up_to_a_day_ahead_are_counted_and_the_newest_is_one_that_is_not_ahead(
    pages: list[list[int | None]],
) -> None:
    summary = RunSummary(RunKind.PASS, SeenRows(0))
    for number, hours in enumerate(pages):
        keys = [f"{number}-{place}" for place in range(len(hours))]
        dates = [None if each is None else to_micros(NOON + timedelta(hours=each)) for each in hours]
        page = Page((), None, "stock", NOON, ClockSource.DATE, NOON, NOON)
        summary.count(page, Committed(PageDiff(dates=dict(zip(keys, dates, strict=True))), 0))
    ahead = [each for hours in pages for each in hours if each is not None and 0 < each <= 24]
    past = [each for hours in pages for each in hours if each is not None and each <= 0]
    assert summary.ahead == len(ahead)
    assert summary.latest_ahead == (NOON + timedelta(hours=max(ahead)) if ahead else None)
    assert summary.newest == (NOON + timedelta(hours=max(past)) if past else None)
    assert summary.lag == (-timedelta(hours=max(past)) if past else None)
