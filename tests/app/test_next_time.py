from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from dockbell.app.next_time import next_time

SATURDAY: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("every", "due"),
    [
        (timedelta(hours=24), SATURDAY + timedelta(hours=24)),
        ("30 6 * * mon-fri", datetime(2026, 11, 23, 6, 30, tzinfo=UTC)),
        ("0 12 * * sat", datetime(2026, 11, 28, 12, tzinfo=UTC)),
    ],
)
def test_the_next_time_counts_from_the_last(every: timedelta | str, due: datetime) -> None:
    assert next_time(every, SATURDAY) == due


@pytest.mark.parametrize("before", [timedelta(microseconds=1), timedelta(seconds=0.4), timedelta(seconds=1)])
def test_a_crontab_time_just_after_the_last_run_is_not_skipped(before: timedelta) -> None:
    assert next_time("0 * * * *", SATURDAY - before) == SATURDAY
