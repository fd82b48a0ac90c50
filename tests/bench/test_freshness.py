from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.freshness import LOADS

ROOT = Path(__file__).parents[2]


@pytest.mark.acceptance
def test_the_daemon_tells_each_change_once_and_its_figures_are_printed() -> None:
    # A bound on the delay is not asserted yet: --at-most 3 would be one.
    command = [sys.executable, "-m", "tests.bench", "freshness", "--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()]
    cells = {name: values for name, *values in lines}
    for name in ("shipments", "packages", "items", "stock", "warehouses", "all"):
        rate, changes, events, still_open, *seconds, ratio = map(float, cells[name])
        assert min(rate, changes, events, *seconds, ratio) > 0, name
        assert not still_open, name
    assert [cells[name] for name in ("answers 429", "lost", "invented")] == [["0"], ["0"], ["0"]]
    assert float(*cells["requests/minute of a key"]) > 0


def test_a_flip_has_figures_before_it_while_it_is_learned_and_after() -> None:
    spans = list(LOADS["flip"].spans(600, 1800))
    assert [(span.name, span.start, span.end) for span in spans] == [
        ("before the flip", 600, 900),
        ("learning again", 900, 1500),
        ("after the flip", 1500, 2400),
    ]
    assert spans[0].rates["stock"] < spans[1].rates["stock"]


def test_the_other_user_of_a_key_leaves_less_for_the_floor() -> None:
    alone, shared = (LOADS[load].floor(LOADS["lists"].rates) for load in ("lists", "foreign"))
    assert shared.mean == pytest.approx(alone.mean * 270 / 150, rel=0.01)
