"""Deliveries to make, and a sink to run as the relay runs it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.streams.memory import MemoryObjectSendStream

from dockbell.core.model import Delivery, Event, Feed, Outcome, OutcomeKind
from dockbell.ports import Bell, Sink
from dockbell.telemetry import Fact, Telemetry
from tests.rabbitmq_server import RabbitMqServer


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[RabbitMqServer]:
    """Yield a RabbitMQ that runs, for all tests of one worker."""
    server = RabbitMqServer(tmp_path_factory.mktemp("rabbitmq"), certificate)
    server.start()
    yield server
    server.stop()


def make_delivery(
    number: int = 1,
    *,
    body: bytes | None = None,
    state: bytes | None = None,
    state_only: bool = False,
    replayed: bool = False,
) -> Delivery:
    """Return the delivery of an event of its own key."""
    key = f"shp_{number}"
    event = Event(
        feed=Feed("main", "shipments"),
        sequence=number,
        key=key,
        id=f"evt_{number}",
        type="dockbell.shipment.updated",
        change="updated",
        revision=1,
        body=json.dumps({"subject": key}).encode() if body is None else body,
    )
    return Delivery(event, state=state, state_only=state_only, replayed=replayed)


def make_statement(number: int = 1) -> Delivery:
    """Return the delivery of a statement about a feed."""
    body = json.dumps({"type": "dockbell.feed.gap", "data": {"statement": "gap"}}).encode()
    return Delivery(Event(Feed("main", "stock"), number, "", f"evt_{number}", "dockbell.feed.gap", "gap", 0, body))


class Facts:
    """A telemetry that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Fact] = []
        self.telemetry = Telemetry(self.told.append, lambda _: self._bell.ring())
        self._bell = Bell()

    def of(self, kind: type[Fact]) -> list[str]:
        """Return the log lines of the facts of one kind."""
        return [str(fact) for fact in self.told if isinstance(fact, kind)]

    async def until(self, kind: type[Fact], count: int) -> None:
        """Wait for so many facts of one kind."""
        with anyio.fail_after(15):
            while len(self.of(kind)) < count:
                await self._bell.wait(self._bell.rings)


@dataclass
class Run:
    """A sink that runs, and what it settled, in order."""

    send: MemoryObjectSendStream[Delivery]
    settled: list[tuple[Delivery, Outcome]] = field(default_factory=list)
    _bell: Bell = field(default_factory=Bell)

    def deliver(self, *deliveries: Delivery) -> None:
        """Hand deliveries over."""
        for delivery in deliveries:
            self.send.send_nowait(delivery)

    async def until_settled(self, count: int) -> list[Outcome]:
        """Return the outcomes once there are so many."""
        with anyio.fail_after(15):
            while len(self.settled) < count:
                await self._bell.wait(self._bell.rings)
        return [outcome for _, outcome in self.settled]

    @property
    def fates(self) -> list[OutcomeKind]:
        """What became of each, in the order of the events."""
        ordered = sorted(self.settled, key=lambda each: each[0].event.sequence)
        return [outcome.kind for _, outcome in ordered]

    def note(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle a delivery, for the first time."""
        assert not any(settled is delivery for settled, _ in self.settled)
        self.settled.append((delivery, outcome))
        self._bell.ring()


@asynccontextmanager
async def running(sink: Sink) -> AsyncIterator[Run]:
    """Run a sink; at the end of the block the stream ends, and so must the sink, within seconds."""
    send, receive = anyio.create_memory_object_stream[Delivery](10_000)
    async with send, receive, anyio.create_task_group() as tasks:
        run = Run(send)
        tasks.start_soon(sink.run, receive, run.note)
        yield run
        send.close()
        tasks.cancel_scope.deadline = anyio.current_time() + 15
    assert not tasks.cancel_scope.cancelled_caught, "the sink does not end"


async def publish(sink: Sink, *deliveries: Delivery) -> list[Outcome]:
    """Run a sink until it has settled some deliveries; return their outcomes, in the order of the settling."""
    async with running(sink) as run:
        run.deliver(*deliveries)
        return await run.until_settled(len(deliveries))
