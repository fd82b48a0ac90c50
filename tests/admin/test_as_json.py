from __future__ import annotations

import pytest

from dockbell.admin.as_json import find_condition
from dockbell.core.moment import write_moment
from dockbell.ports import Condition, Found, SinkState
from tests.fakes import NOON


@pytest.mark.parametrize(
    ("found", "blocked", "paused", "word"),
    [
        (None, 0, "", "unknown"),
        (Condition.UNKNOWN, 3, "", "unknown"),
        (Condition.CONNECTED, 0, "", "connected"),
        (Condition.CONNECTED, 1, "", "waiting"),
        (Condition.DOWN, 1, "", "down"),
        (Condition.DOWN, 1, "moving house", "paused"),
        (None, 0, "moving house", "paused"),
    ],
)
def test_a_sink_is_described_in_one_word(found: Condition | None, blocked: int, paused: str, word: str) -> None:
    state = SinkState(
        "erp", 0, blocked, 0, None, "", paused=paused, found=None if found is None else Found(found, NOON)
    )
    assert find_condition(state) == word


def test_times_are_written_as_in_events() -> None:
    assert (write_moment(NOON), write_moment(None)) == ("2026-11-21T12:00:00.000Z", None)
