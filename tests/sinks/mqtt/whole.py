"""Store, relay, sink and real Mosquitto."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from dockbell.core.model import Feed
from dockbell.delivery.relay import Relay
from dockbell.sinks.mqtt import MqttSettings, MqttSink
from dockbell.telemetry import EventDied, StateRepaired
from dockbell.testing.outbox import SHIPMENTS, STOCK, Outbox, open_outbox
from tests.brokers import Mosquitto, Subscriber, started
from tests.sinks.conftest import Facts

STATE = "dockbell/state/"
SENTINEL = "dockbell/positions/dockbell-floor"


@dataclass
class Whole:
    """Everything from the store to the broker."""

    outbox: Outbox
    broker: Mosquitto
    facts: Facts = field(default_factory=Facts)

    @asynccontextmanager
    async def relaying(
        self, *, feeds: Callable[[], Collection[Feed]] | None = None, **settings: Any
    ) -> AsyncIterator[None]:
        """Deliver what is in the outbox, and what comes into it."""
        model = MqttSettings(type="mqtt", **{"url": self.broker.url, "start": "beginning", **settings})
        sink = MqttSink("floor", model, self.facts.telemetry)
        clock = lambda: datetime.now(UTC)  # noqa: E731
        store, telemetry = self.outbox.store, self.facts.telemetry
        relay = Relay(sink, model, store=store, telemetry=telemetry, now=clock, feeds=feeds)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay.run)
            yield
            relay.stop()

    async def settled(self) -> None:
        """Wait until nothing is owed."""
        with anyio.fail_after(20):
            while True:
                positions, blocked = await self.outbox.store.sink("floor").load_queue()
                if not blocked and positions == self.outbox.store.outbox.ends:
                    return
                await anyio.sleep(0.02)

    async def mirrored(self, *but: str) -> None:
        """Wait until the broker retains what is stored, and nothing of the keys that are named."""
        store = self.outbox.store
        records = [kept for feed in (SHIPMENTS, STOCK) for kept in (await store.read_stored(feed, 0, 100_000))[0]]
        expected = {f"{STATE}{kept.feed}/{kept.key}": kept.body for kept in records if kept.key not in but}
        with Subscriber(self.broker, STATE + "#", qos=0) as subscriber:  # whatever may be queued for one
            await subscriber.until(lambda _: subscriber.retained() == expected)

    async def marked(self) -> None:
        """Wait until the sentinel says that everything is settled."""
        ends = self.outbox.store.outbox.ends
        with Subscriber(self.broker, SENTINEL) as subscriber:
            text = str(ends[SHIPMENTS])
            await subscriber.until(
                lambda received: received and f'"{SHIPMENTS}": [1, {text}]' in received[-1].payload.decode()
            )

    @property
    def dead(self) -> list[str]:
        """The keys whose events are dead letters."""
        return [fact.key for fact in self.facts.told if isinstance(fact, EventDied)]

    def repaired(self) -> list[str]:
        """What was told of states that were published again."""
        return [text for text in self.facts.of(StateRepaired) if "states again" in text]


def keys(*numbers: int) -> list[str]:
    """Return the keys of so many records."""
    return [f"shp_{number}" for number in range(*numbers)]


@asynccontextmanager
async def opened(folder: Path, *lines: str) -> AsyncIterator[Whole]:
    """Run a broker with more lines of configuration, and open the store of a folder."""
    with started(Mosquitto(folder, lines)) as broker:
        assert isinstance(broker, Mosquitto)
        async with open_outbox(folder, "floor") as outbox:
            yield Whole(outbox, broker)


def persistent(folder: Path) -> tuple[str, ...]:
    """Return lines that let the broker keep what it retains in a folder."""
    (folder / "kept").mkdir()
    return "persistence true", f"persistence_location {folder}/kept/", "autosave_interval 0"
