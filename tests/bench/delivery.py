"""A full outbox delivered to a broker and to a receiver, by the relay and the sinks, beside bare loops."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from dockbell.app.agents import assemble
from dockbell.config import Config
from dockbell.core.model import OutcomeKind
from dockbell.core.publishing.signature import mint
from dockbell.telemetry import DeliverySettled, Fact, Telemetry
from tests.bench import bare_delivery
from tests.bench.processes import Cost, Meter, run_alone, serving
from tests.bench.reading import fill, make_config
from tests.bench.servers import serve_receiver, serve_sandbox, serve_silence
from tests.bench.table import BARE, print_costs, print_table
from tests.brokers import make_broker, started

_LANES: Final = (1, 16, 64)
_ENDPOINTS: Final = 9


def deliver(sink: Mapping[str, Any], path: Path) -> Cost:
    """Deliver everything that the outbox holds to a new sink."""
    nowhere = "http://127.0.0.1:1"  # nothing is read
    return anyio.run(_deliver, make_config(nowhere, path, sinks={"bench": {"start": "beginning", **sink}}))


async def _deliver(config: Config) -> Cost:
    count_settled = size = 0
    all_settled = anyio.Event()

    def count(fact: Fact) -> None:
        nonlocal count_settled, size
        if isinstance(fact, DeliverySettled):
            assert fact.outcome.kind is OutcomeKind.DELIVERED, fact
            count_settled += 1
            size += len(fact.delivery.event.body) + len(fact.delivery.state or b"")
            if count_settled == owed:
                all_settled.set()

    async with assemble(config, Telemetry(count)) as agents, anyio.create_task_group() as group:
        owed = sum(agents.store.outbox.ends.values())
        relay = agents.relays["bench"]
        meter = Meter()
        group.start_soon(relay.run)
        await all_settled.wait()
        cost = meter.read(owed, size=size // owed)
        relay.stop()
    return cost


def deliver_to_all(hooks: Sequence[str], path: Path) -> Cost:
    """Deliver everything to several receivers at once, until all of them have it, but for a last one that is dead."""
    return anyio.run(_deliver_to_all, hooks, path)


async def _deliver_to_all(hooks: Sequence[str], path: Path) -> Cost:
    left = [0] * _ENDPOINTS
    done = anyio.Event()

    def count(fact: Fact) -> None:
        if isinstance(fact, DeliverySettled) and fact.outcome.kind is OutcomeKind.DELIVERED:
            left[int(fact.sink.removeprefix("hook"))] -= 1
            if not any(left):
                done.set()

    sinks = {
        f"hook{number}": {"type": "webhook", "url": url, "secret": mint(bare_delivery.SECRET), "start": "beginning"}
        for number, url in enumerate(hooks)
    }
    config = make_config("http://127.0.0.1:1", path, sinks=sinks)
    async with assemble(config, Telemetry(count)) as agents, anyio.create_task_group() as group:
        owed = sum(agents.store.outbox.ends.values())
        left[:] = [owed] * _ENDPOINTS
        meter = Meter()
        for relay in agents.relays.values():
            group.start_soon(relay.run)
        await done.wait()
        cost = meter.read(owed * _ENDPOINTS)
        group.cancel_scope.cancel()
    return cost


def measure_endpoints(events: int, rounds: int) -> None:
    """Print what nine receivers lose when a tenth is dead: nobody listens, or it takes requests and never answers."""
    costs: dict[str, list[Cost]] = {}
    with TemporaryDirectory() as name, serving(serve_receiver) as hook, serving(serve_silence) as silent:
        folder = Path(name)
        with serving(serve_sandbox, events) as url:
            run_alone(fill, url, folder / "full.db")
        alive = [hook] * _ENDPOINTS
        measurements = {
            f"nine webhooks, {BARE}": alive,  # they alone are what the others are held to
            "nine webhooks, and one where nobody listens": [*alive, "http://127.0.0.1:1/hook"],
            "nine webhooks, and one that never answers": [*alive, silent],
        }
        for _ in range(rounds):
            for what, hooks in measurements.items():
                path = shutil.copy(folder / "full.db", folder / "copy.db")
                costs.setdefault(what, []).append(run_alone(deliver_to_all, hooks, Path(path)))
    base = median(cost.wall for cost in costs[f"nine webhooks, {BARE}"])
    print_table(
        (f"{events:,} events to each", "events/s", "wall, s", "of nine alone"),
        *(
            (
                what.replace(f", {BARE}", " alone"),
                f"{median(cost.count / cost.wall for cost in each):,.0f}",
                f"{median(cost.wall for cost in each):.1f}",
                f"{base / median(cost.wall for cost in each):.0%}",
            )
            for what, each in costs.items()
        ),
    )


def measure_backlog(events: int) -> None:
    """Print how a long backlog is delivered to a broker, and how much memory that takes."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with serving(serve_sandbox, events) as url:
            run_alone(fill, url, folder / "full.db")
        with started(make_broker(folder)) as broker:
            cost = run_alone(deliver, {"type": "mqtt", "url": broker.url, "state_topic": ""}, folder / "full.db")
    print_table(
        (f"{events:,} events to MQTT", "events/s", "wall, s", "peak, MB"),
        ("dockbell", f"{cost.count / cost.wall:,.0f}", f"{cost.wall:.1f}", f"{cost.peak:.0f}"),
    )


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
