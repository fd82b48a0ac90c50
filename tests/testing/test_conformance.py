"""The conformance suite finds what it is there to find: sinks that break their promises, each in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.config import SinkSettings
from dockbell.core.model import DELIVERED, Delivery, Outcome
from dockbell.telemetry import Telemetry
from dockbell.testing import Arrival, Receiver, open_rig, until

TOOK: list[Arrival] = []
"""What the receiver that the sinks share took."""


class FakeSettings(SinkSettings):
    type: Literal["fake"]


class FakeReceiver(Receiver):
    """Takes what sinks put into ``TOOK``."""

    def __init__(self) -> None:
        super().__init__()
        TOOK.clear()
        self.arrivals.took = TOOK

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"type": "fake"}

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


class FakeSink:
    """Keeps every promise."""

    Settings: ClassVar = FakeSettings
    keeps_state = False
    window = 4

    def __init__(self, name: str, settings: FakeSettings, telemetry: Telemetry) -> None:
        self.name = name

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        async for delivery in deliveries:
            self.deliver(delivery, settle)

    def deliver(self, delivery: Delivery, settle: Callable[[Delivery, Outcome], None]) -> None:
        TOOK.append(Arrival.read(delivery.event.body))
        settle(delivery, DELIVERED)

    async def probe(self) -> str:
        return "here"


class Twice(FakeSink):
    def deliver(self, delivery: Delivery, settle: Callable[[Delivery, Outcome], None]) -> None:
        super().deliver(delivery, settle)
        if delivery.event.sequence == 3:
            settle(delivery, DELIVERED)


class Careless(FakeSink):
    def deliver(self, delivery: Delivery, settle: Callable[[Delivery, Outcome], None]) -> None:
        if delivery.event.sequence != 3:
            super().deliver(delivery, settle)


class Blind(FakeSink):
    def deliver(self, delivery: Delivery, settle: Callable[[Delivery, Outcome], None]) -> None:
        if delivery.event.sequence == 3:
            settle(delivery, DELIVERED)
        else:
            super().deliver(delivery, settle)


class Late(FakeSink):
    def deliver(self, delivery: Delivery, settle: Callable[[Delivery, Outcome], None]) -> None:
        settle(delivery, DELIVERED)
        TOOK.insert(0, Arrival.read(delivery.event.body))


class Liar(FakeSink):
    def deliver(self, delivery: Delivery, settle: Callable[[Delivery, Outcome], None]) -> None:
        TOOK.append(Arrival.read(delivery.event.body.replace(b'"via":"poll"', b'"via":"pole"')))
        settle(delivery, DELIVERED)


class Fragile(FakeSink):
    def deliver(self, delivery: Delivery, settle: Callable[[Delivery, Outcome], None]) -> None:
        if delivery.event.sequence == 3 and delivery.event.id not in {each.id for each in TOOK}:
            TOOK.append(Arrival.read(delivery.event.body))
            raise ConnectionError("lost")
        super().deliver(delivery, settle)


class Hasty(FakeSink):
    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        self.deliver(await deliveries.receive(), settle)


async def try_out(kind: type[FakeSink], folder: Path) -> None:
    """Deliver four events of two keys, and check what must hold."""
    async with open_rig(folder, kind, FakeReceiver()) as rig:
        await rig.outbox.change("a", "b")
        await rig.outbox.change("a", "b")
        async with rig.living() as life:
            await until(lambda: len(life.handed) >= 3, "something is handed over")
            await anyio.wait_all_tasks_blocked()
        await rig.assert_sound()
        assert len(rig.firsts) == 4, "not all has arrived"


async def test_a_sink_that_keeps_every_promise_passes(tmp_path: Path) -> None:
    await try_out(FakeSink, tmp_path)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (Twice, "was settled twice"),
        (Careless, "without having settled 1 deliveries"),
        (Blind, "not all has arrived"),
        (Late, "came out of order"),
        (Liar, "pole"),
        (Fragile, "an error left the sink"),
        (Hasty, "the sink ended before its stream did"),
    ],
)
async def test_a_sink_that_breaks_a_promise_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[FakeSink], fault: str
) -> None:
    monkeypatch.setattr("dockbell.testing.rig._PATIENCE", 3.0)
    with pytest.raises((AssertionError, ExceptionGroup)) as caught:
        await try_out(kind, tmp_path)
    error: BaseException = caught.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert fault in str(error)
