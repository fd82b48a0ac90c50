"""The quality of service that events are published with; all else is published with QoS 1."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import pytest

from dockbell.core.model import OutcomeKind
from tests.brokers import Subscriber
from tests.sinks.conftest import make_delivery, running
from tests.sinks.mqtt.conftest import make_sink, needs_mosquitto, open_mosquitto

pytestmark = pytest.mark.usefixtures("quick_backoff")


@needs_mosquitto
@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_events_arrive_once_each_with_the_quality_that_is_asked_for(
    tmp_path: Path, qos: int, version: str
) -> None:
    with (
        open_mosquitto(tmp_path, "max_inflight_messages 1000", "max_queued_messages 0") as broker,
        Subscriber(broker, "dockbell/#", qos=2) as subscriber,
    ):
        async with running(make_sink(broker.url, qos=qos, protocol=version, in_flight=100)) as run:
            run.deliver(*(make_delivery(number, state=b"{}") for number in range(300)))
            await run.until_settled(300)
            await subscriber.until(lambda received: sum(is_event(each.topic) for each in received) == 300)
    assert run.fates == [OutcomeKind.DELIVERED] * 300
    assert {each.qos for each in subscriber.received if is_event(each.topic)} == {qos}
    assert {each.qos for each in subscriber.received if not is_event(each.topic)} == {1}
    events = [topic for topic in subscriber.topics if is_event(topic)]
    assert events == [f"dockbell/event/main/shipments/shp_{number}/updated" for number in range(300)]


def is_event(topic: str) -> bool:
    return topic.startswith("dockbell/event/")


@needs_mosquitto
async def test_with_qos_0_no_more_events_are_settled_than_the_network_takes(tmp_path: Path) -> None:
    with open_mosquitto(tmp_path) as broker:
        async with running(make_sink(broker.url, qos=0, state_topic="")) as run:
            run.deliver(make_delivery(0))
            await run.until_settled(1)
            broker.signal(signal.SIGSTOP)
            run.deliver(*(make_delivery(number, body=b"x" * 500_000) for number in range(1, 200)))
            settled = -1
            while settled != (settled := len(run.fates)):  # noqa: ASYNC110  # nothing tells that nothing comes
                await anyio.sleep(0.3)
            assert settled < 100
            broker.signal(signal.SIGCONT)
            await run.until_settled(200)
    assert run.fates == [OutcomeKind.DELIVERED] * 200
