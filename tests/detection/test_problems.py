"""For how long an agent rests that has met a problem."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dockbell.detection.problems import choose_rest


@pytest.mark.parametrize(
    ("every", "rests"),
    [(15, [5, 10, 20, 40, 45, 45]), (1, [5, 10, 15, 15]), (300, [5, 10, 20, 40, 60, 60]), (None, [5, 10, 20, 40, 60])],
)
def test_an_agent_rests_short_after_one_failure_and_never_for_more_than_a_few_intervals(
    every: int | None, rests: list[float]
) -> None:
    interval = None if every is None else timedelta(seconds=every)
    assert [choose_rest(number, interval).total_seconds() for number in range(1, len(rests) + 1)] == rests
