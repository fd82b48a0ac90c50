from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.sinks.mqtt import connecting
from dockbell.sinks.mqtt.connection import Connection
from dockbell.telemetry import SinkConnected, SinkFails
from tests.brokers import Amqtt, Subscriber, started
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.mqtt.conftest import STATUS, Records, make_sink, needs_mosquitto, open_mosquitto, until
from tests.sinks.mqtt.handmade import CONNACK, V3, V5, HandMade, listening, packet

OLD = "MQTT 3.1.1 without reason codes: publications that the broker's rules deny count as delivered, 20 in flight"


@pytest.fixture(scope="module")
def amqtt() -> Iterator[Amqtt]:
    """A real broker that speaks 3.1.1 only."""
    with started(Amqtt()) as broker:
        assert isinstance(broker, Amqtt)
        yield broker


@pytest.mark.usefixtures("quick_sentinel")
async def test_a_real_broker_of_3_1_1_gets_events_states_and_status(
    amqtt: Amqtt, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It misreads the CONNECT of 5 that has a will, and waits for more.
    monkeypatch.setattr(connecting, "_CONNECT_LIMIT", timedelta(milliseconds=500))
    facts, records = Facts(), Records()
    records.fill(3)
    sink = make_sink(amqtt.url, facts, expiry=timedelta(hours=1))
    sink.attach(records)
    assert await sink.probe() == f"127.0.0.1:{amqtt.port}, {OLD}"
    with Subscriber(amqtt, "dockbell/#", version=4) as subscriber:
        async with running(sink) as run:
            await until(lambda: len(subscriber.retained()) == 5)  # three states, the status, the sentinel
            run.deliver(make_delivery(7, state=b"{}"))
            assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
        await subscriber.until(lambda received: b'"online": false' in received[-1].payload)
    assert subscriber.topics[0] == STATUS
    assert "dockbell/event/main/shipments/shp_7/updated" in subscriber.topics
    assert records.states().items() <= subscriber.retained().items()
    assert facts.of(SinkConnected)[0] == f"sink floor: connected, 127.0.0.1:{amqtt.port}, {OLD}"
    again = make_sink(amqtt.url, facts)
    again.attach(records)
    async with running(again):
        await until(lambda: len(records.read) == 2)
    assert records.read == ["", "3/0"]
    assert not facts.of(SinkFails)


async def test_a_broker_of_5_is_spoken_to_in_5() -> None:
    async with listening(HandMade()) as broker:
        assert "MQTT 5, 20 in flight" in await make_sink(broker.url).probe()
        assert broker.levels == [V5]


@pytest.mark.parametrize(
    "refusal",
    [
        packet(CONNACK, b"\0\1"),  # as 3.1.1 says it
        packet(CONNACK, b"\0\x84\0"),  # as 5 says it
        packet(CONNACK, b"\0\0"),  # it has not noticed
        b"",
    ],
)
async def test_3_1_1_is_spoken_with_a_broker_that_does_not_speak_5(refusal: bytes) -> None:
    async with listening(HandMade(version=V3, refuses=refusal)) as broker:
        assert OLD in await make_sink(broker.url).probe()
        assert broker.levels == ([V5, V3] if refusal else [V5, V3, V5, V3])  # silence is asked for the reason once more


@needs_mosquitto
async def test_a_broker_that_hangs_during_the_greeting_is_spoken_to_in_5_when_it_wakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_CONNECT_LIMIT", timedelta(milliseconds=300))
    levels, real_connect = [], connecting.connect
    with open_mosquitto(tmp_path) as broker:

        async def connect(login: connecting.Login, wake: Callable[[], None]) -> Connection:
            levels.append(login.protocol)
            if login.protocol == "3.1.1":
                broker.signal(signal.SIGCONT)
                monkeypatch.setattr(connecting, "_CONNECT_LIMIT", timedelta(seconds=10))
            return await real_connect(login, wake)

        monkeypatch.setattr(connecting, "connect", connect)
        broker.signal(signal.SIGSTOP)
        assert "MQTT 5" in await make_sink(broker.url).probe()
    assert levels == ["5", "3.1.1", "5"]


async def test_a_broker_that_closes_the_first_connection_is_spoken_to_in_5() -> None:
    async with listening(HandMade(version=None, rude=1)) as broker:
        assert "MQTT 5" in await make_sink(broker.url).probe()
        assert broker.levels == [V5, V3, V5]


@pytest.mark.parametrize(("wanted", "version"), [("5", V3), ("3.1.1", V5)])
async def test_a_version_that_is_configured_is_the_only_one(wanted: str, version: int) -> None:
    async with listening(HandMade(version=version, refuses=packet(CONNACK, b"\0\1"))) as broker:
        with pytest.raises(
            (SinkRejected, SinkUnavailable), match=r"unsupported protocol version|not answer in MQTT 3.1.1"
        ):
            await make_sink(broker.url, protocol=wanted).probe()
        assert len(broker.levels) == 1


async def test_what_a_broker_of_3_1_1_refuses_is_told() -> None:
    broker = HandMade(version=6, refuses=packet(CONNACK, b"\0\5"))
    async with listening(broker):
        with pytest.raises(SinkRejected, match=r"refused by the broker, not authorized \(0x87\)"):
            await make_sink(broker.url).probe()
    assert broker.levels == [V5, V3]


@pytest.mark.usefixtures("quick_backoff")
async def test_what_worked_is_remembered_and_5_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts()
    async with listening(HandMade(version=V3)) as broker, running(make_sink(broker.url, facts)):
        for connections in (1, 2):
            await facts.until(SinkConnected, connections)
            broker.drop()
        await facts.until(SinkConnected, 3)
        assert broker.levels == [V5, V3, V3, V3]
        monkeypatch.setattr(connecting, "_clock", lambda: anyio.current_time() + 3601)
        broker.version = V5
        broker.drop()
        await facts.until(SinkConnected, 4)
        assert broker.levels[4:] == [V5]
        assert "MQTT 5" in facts.of(SinkConnected)[-1]


@pytest.mark.usefixtures("quick_backoff")
async def test_a_broker_that_speaks_5_and_closes_connections_for_a_while_is_not_taken_for_an_old_one() -> None:
    facts = Facts()
    async with listening(HandMade()) as broker, running(make_sink(broker.url, facts)) as run:
        await facts.until(SinkConnected, 1)
        broker.version, broker.refuses = 0, b""
        broker.drop()
        await facts.until(SinkFails, 4)
        broker.version = V5
        run.deliver(make_delivery())
        await run.until_settled(1)
        assert set(broker.levels) == {V5}


@pytest.mark.usefixtures("quick_backoff")
async def test_a_broker_that_was_replaced_by_an_old_one_is_spoken_to_in_3_1_1_at_last() -> None:
    facts = Facts()
    async with listening(HandMade(refuses=b"")) as broker, running(make_sink(broker.url, facts)) as run:
        await facts.until(SinkConnected, 1)
        broker.version = V3
        broker.drop()
        run.deliver(make_delivery())
        await run.until_settled(1)
        assert broker.levels == [V5] * 6 + [V3, V5, V3]


@pytest.mark.usefixtures("quick_backoff")
async def test_a_broker_that_no_longer_speaks_3_1_1_is_asked_for_5_again() -> None:
    facts = Facts()
    async with listening(HandMade(version=V3)) as broker, running(make_sink(broker.url, facts)) as run:
        await facts.until(SinkConnected, 1)
        broker.version = V5
        broker.refuses = packet(CONNACK, b"\0\1")
        broker.drop()
        run.deliver(make_delivery())
        await run.until_settled(1)
        assert broker.levels == [V5, V3, V3, V5]
