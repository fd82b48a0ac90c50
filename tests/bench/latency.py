"""How long after its commit a change is delivered, while a hundred records a second change."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from dockbell.app.agents import assemble
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import ClockSource, Feed, OutcomeKind, Page, Via
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.signature import mint
from dockbell.telemetry import DeliverySettled, Fact, Telemetry
from tests.bench import bare_delivery
from tests.bench.processes import run_alone, serving
from tests.bench.reading import make_config
from tests.bench.servers import serve_receiver
from tests.bench.table import print_table
from tests.brokers import make_broker, started

_FEED: Final = Feed("main", "shipments")
_RATE: Final = 100


def measure_latency(seconds: int) -> None:
    """Print how fresh events are, per kind of sink."""
    rows = []
    with TemporaryDirectory() as name, serving(serve_receiver) as hook:
        folder = Path(name)
        with started(make_broker(folder)) as broker:
            sinks = {
                "MQTT, with retained state": {"type": "mqtt", "url": broker.url},
                "webhook": {"type": "webhook", "url": hook, "secret": mint(bare_delivery.SECRET)},
            }
            for number, (what, sink) in enumerate(sinks.items()):
                waits = run_alone(wait_for, sink, folder / f"{number}.db", seconds)
                shares = quantiles(waits, n=100)
                rows.append((what, f"{len(waits):,}", *(f"{1000 * shares[each - 1]:.1f}" for each in (50, 90, 99))))
    print_table((f"{_RATE} events/s", "events", "p50, ms", "p90, ms", "p99, ms"), *rows)


def wait_for(sink: Mapping[str, Any], path: Path, seconds: int) -> list[float]:
    """Commit one changed record every ten milliseconds; return the seconds from each commit to its acknowledgement."""
    return anyio.run(_wait_for, sink, path, seconds)


async def _wait_for(sink: Mapping[str, Any], path: Path, seconds: int) -> list[float]:
    committed: dict[int, float] = {}
    settled: dict[int, float] = {}

    def hear(fact: Fact) -> None:
        if isinstance(fact, DeliverySettled):
            assert fact.outcome.kind is OutcomeKind.DELIVERED, fact
            settled[fact.delivery.event.sequence] = time.perf_counter()

    config = make_config("http://127.0.0.1:1", path, sinks={"bench": {"start": "beginning", **sink}})
    detector = ChangeDetector(_FEED, key=("/id",), updated_at=None, created_at=None, canon=Canon())
    async with assemble(config, Telemetry(hear)) as agents, anyio.create_task_group() as group:
        composer = Composer(_FEED, name="bench", singular="shipment", epoch=agents.store.epoch)
        state = await agents.store.feed(_FEED).open()
        relay = agents.relays["bench"]
        group.start_soon(relay.run)
        began = time.perf_counter()
        for number in range(1, seconds * _RATE + 1):
            await anyio.sleep(max(0.0, began + number / _RATE - time.perf_counter()))
            now = datetime.now(UTC)
            record = json.dumps({"id": f"shp_{number % 1000}", "n": number, "note": "x" * 600}).encode()
            page = Page((record,), None, "shipments", now, ClockSource.DATE, now, now)
            detect = partial(detector.detect, page, ReadContext(Via.POLL, now))
            await agents.store.feed(state.feed).commit_page(detect, composer, via=Via.POLL)
            committed[number] = time.perf_counter()
        with anyio.fail_after(30):
            while len(settled) < len(committed):  # noqa: ASYNC110  # the relay tells nobody when it has nothing to do
                await anyio.sleep(0.01)
        relay.stop()
    # One may be acknowledged before the thread that committed it has told the event loop.
    return [max(0.0, settled[number] - at) for number, at in committed.items()]
