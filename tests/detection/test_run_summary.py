"""What a run found: when its key is doubted, and when its order."""

from __future__ import annotations

import pytest

from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import RunKind
from dockbell.detection.run_summary import RunSummary
from dockbell.ports import Tally


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
