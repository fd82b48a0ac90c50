from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.bench import bare_reading
from tests.bench.processes import Cost, run_alone, serving
from tests.bench.reading import poll, read_all, read_cycle
from tests.bench.servers import serve_restless, serve_sandbox

Measure = Callable[[str, Path], Cost]

_CHANGES: Final = "cycle with changes"
EXPECTED: Final[Mapping[str, tuple[Measure, Measure, float]]] = {
    "first read": (bare_reading.read_first, read_all, 0.65),
    "unchanged pass": (bare_reading.read_again, read_all, 0.75),
    "idle cycle": (bare_reading.read_cycle, read_cycle, 1.5),
    "idle polls": (bare_reading.poll, poll, 0.62),
    _CHANGES: (bare_reading.read_changing_cycle, read_cycle, 0.65),
}
"""The bare loop, dockbell, and how much CPU the first takes of what the second does (docs/benchmarks.md)."""
LOST_MOST: Final = 1 / 3


def test_reading_has_not_become_slower_by_a_third_against_the_bare_loop(tmp_path: Path) -> None:
    best = dict.fromkeys(EXPECTED, 0.0)
    with serving(serve_sandbox, 20_000) as quiet, serving(serve_restless, 20_000) as restless:
        for number in range(5):  # other programs take turns with these: the least disturbed round counts
            folder = tmp_path / str(number)
            folder.mkdir()
            for name, (bare, dockbell, _) in EXPECTED.items():
                url = restless if name == _CHANGES else quiet
                costs = [run_alone(measure, url, folder / measure.__module__) for measure in (bare, dockbell)]
                best[name] = max(best[name], costs[0].cpu / costs[0].pages / (costs[1].cpu / costs[1].pages))
            print({name: round(share, 2) for name, share in best.items()})
            if all(best[name] >= share * (1 - LOST_MOST) for name, (_, _, share) in EXPECTED.items()):
                return
    pytest.fail(f"CPU of the bare loop as a share of dockbell's: {best}")
