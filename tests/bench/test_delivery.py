from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.bench import bare_delivery
from tests.bench.delivery import deliver
from tests.bench.processes import run_alone, serving
from tests.bench.reading import fill
from tests.bench.servers import serve_sandbox
from tests.brokers import Mosquitto, started
from tests.sinks.mqtt.conftest import needs_mosquitto

EXPECTED: Final = {False: 0.95, True: 0.75}
"""How much CPU the bare loop takes of what dockbell does, without and with retained state (docs/benchmarks.md)."""
LOST_MOST: Final = 1 / 3


@needs_mosquitto
def test_delivering_by_mqtt_has_not_become_slower_by_a_third_against_the_bare_loop(tmp_path: Path) -> None:
    best = dict.fromkeys(EXPECTED, 0.0)
    with serving(serve_sandbox, 3000) as url:
        run_alone(fill, url, tmp_path / "full.db")
    with started(Mosquitto(tmp_path)) as broker:
        publish = partial(bare_delivery.publish, broker.host, broker.port)
        for _ in range(5):  # other programs take turns with these: the least disturbed round counts
            for states in EXPECTED:
                sink = {"type": "mqtt", "url": broker.url} | ({} if states else {"state_topic": ""})
                measures = partial(publish, states=states), partial(deliver, sink)
                bare, dockbell = (
                    run_alone(measure, Path(shutil.copy(tmp_path / "full.db", tmp_path / "copy.db")))
                    for measure in measures
                )
                best[states] = max(best[states], bare.cpu / dockbell.cpu)
            print({"with state" if states else "alone": round(share, 2) for states, share in best.items()})
            if all(best[states] >= share * (1 - LOST_MOST) for states, share in EXPECTED.items()):
                return
    pytest.fail(f"CPU of the bare loop as a share of dockbell's: {best}")
