"""A full outbox delivered to a broker and to a receiver, by the relay and the sinks, beside bare loops."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from dockbell.app import assemble
from dockbell.config import Config
from dockbell.core.model import Fate
from dockbell.core.publishing.signature import mint
from dockbell.telemetry import DeliverySettled, Fact, Telemetry
from tests.bench import bare_delivery
from tests.bench.processes import Cost, Meter, run_alone, serving
from tests.bench.reading import fill, make_config
from tests.bench.servers import serve_receiver, serve_sandbox
from tests.bench.table import BARE, print_costs
from tests.brokers import make_broker, started

_LANES: Final = (1, 4, 16)


def deliver(sink: Mapping[str, Any], path: Path) -> Cost:
    """Deliver everything that the outbox holds to a new sink."""
    nowhere = "http://127.0.0.1:1"  # nothing is read
    return anyio.run(_deliver, make_config(nowhere, path, sinks={"bench": {"start": "beginning", **sink}}))


async def _deliver(config: Config) -> Cost:
    sizes: list[int] = []
    all_settled = anyio.Event()

    def count(fact: Fact) -> None:
        if isinstance(fact, DeliverySettled):
            assert fact.outcome.fate is Fate.DELIVERED, fact
            sizes.append(len(fact.delivery.event.body) + len(fact.delivery.state or b""))
            if len(sizes) == owed:
                all_settled.set()

    async with assemble(config, Telemetry(count)) as agents, anyio.create_task_group() as group:
        owed = sum((await agents.store.last_sequences()).values())
        relay = agents.relays["bench"]
        meter = Meter()
        group.start_soon(relay.run)
        await all_settled.wait()
        cost = meter.read(owed, size=sum(sizes) // owed)
        relay.stop()
    return cost


def measure_delivery(events: int, rounds: int) -> None:
    """Print what delivering costs."""
    costs: dict[str, list[Cost]] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        with serving(serve_sandbox, events) as url:
            run_alone(fill, url, folder / "full.db")
        with started(make_broker(folder)) as broker, serving(serve_receiver) as hook:
            publish = partial(bare_delivery.publish, broker.host, broker.port)
            mqtt = {"type": "mqtt", "url": broker.url}
            measurements: dict[str, Callable[[Path], Cost]] = {
                f"MQTT, {BARE}": partial(publish, states=False),
                "MQTT, dockbell": partial(deliver, mqtt | {"state_topic": ""}),
                f"MQTT with retained state, {BARE}": partial(publish, states=True),
                "MQTT with retained state, dockbell": partial(deliver, mqtt),
            }
            webhook = {"type": "webhook", "url": hook, "secret": mint(bare_delivery.SECRET)}
            for lanes in _LANES:
                measurements[f"webhooks, lanes: {lanes}, {BARE}"] = partial(bare_delivery.post, hook, lanes=lanes)
                measurements[f"webhooks, lanes: {lanes}, dockbell"] = partial(deliver, webhook | {"lanes": lanes})
            for _ in range(rounds):
                for what, measure in measurements.items():
                    path = shutil.copy(folder / "full.db", folder / "copy.db")
                    costs.setdefault(what, []).append(run_alone(measure, Path(path)))
    print_costs(
        f"{events:,} events",
        (
            ("events/s", lambda cost: cost.count / cost.wall, ",.0f"),
            ("bytes/event", lambda cost: cost.size, ",.0f"),
            ("CPU/event, µs", lambda cost: 1_000_000 * cost.cpu / cost.count, ",.0f"),
        ),
        costs,
    )
