from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.running.backoff import delay

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("attempt", "longest"), [(1, 2), (2, 4), (3, 8), (5, 32), (6, 60), (10_000_000, 60)])
def test_waits_double_up_to_the_cap(attempt: int, longest: int) -> None:
    assert delay(attempt, base=SECOND, cap=MINUTE, jitter=0.0) == SECOND
    assert delay(attempt, base=SECOND, cap=MINUTE, jitter=1.0) == longest * SECOND
    assert delay(attempt, base=SECOND, cap=MINUTE, jitter=0.5) == (1 + longest) / 2 * SECOND


durations = st.timedeltas(min_value=timedelta(milliseconds=1), max_value=timedelta(days=10_000))


@given(st.integers(min_value=1), durations, durations, st.floats(0, 1))
def test_no_wait_leaves_its_bounds(attempt: int, base: timedelta, cap: timedelta, jitter: float) -> None:
    assert min(base, cap) <= delay(attempt, base=base, cap=cap, jitter=jitter) <= cap
