"""Two clients with one id on one broker."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from dockbell.app import open_sink
from dockbell.config import Config, validate
from dockbell.core.model import Outcome, OutcomeKind
from dockbell.sinks.mqtt import MqttSettings, connecting
from dockbell.telemetry import SinkConnected, SinkFails
from tests.brokers import Subscriber
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.mqtt.conftest import make_sink, needs_mosquitto, open_mosquitto, until
from tests.sinks.mqtt.handmade import DISCONNECT, HandMade, listening, packet

CLOSED_WITH_A_REASON = packet(DISCONNECT, b"\x8e\0")


def configure(name: str, url: str) -> Config:
    """Return a configuration with one sink, all at its defaults."""
    tables = {
        "name": name,
        "sources": {"main": {"base_url": "https://example.com", "api_key": {"env": "NONE"}}},
        "sinks": {"floor": {"type": "mqtt", "url": url}},
    }
    return validate(tables, lambda _: MqttSettings, label="test")


async def test_another_client_with_our_id_is_told_and_left_alone_for_a_minute() -> None:
    facts = Facts()
    async with listening(HandMade()) as broker:
        async with running(make_sink(broker.url, facts)) as run:
            await until(lambda: broker.seen)
            broker.drop(CLOSED_WITH_A_REASON)
            await facts.until(SinkFails, 1)
            run.deliver(make_delivery())
            await anyio.sleep(0.2)
            assert not run.settled
        assert broker.connections == 1  # not even at the end is the other one thrown out
    (told,) = facts.of(SinkFails)
    reason = 'session taken over (0x8e), another client uses client_id "dockbell-floor"; give each client its own'
    assert told == f"sink floor: 127.0.0.1:{broker.port}: closed by the broker, {reason}; retrying in 60 s"
    ((_, outcome),) = run.settled
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert "session taken over" in outcome.reason


async def test_it_goes_on_when_the_other_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "_TAKEOVER_FIRST", timedelta(milliseconds=200))
    facts = Facts()
    async with listening(HandMade()) as broker, running(make_sink(broker.url, facts)) as run:
        await until(lambda: broker.seen)
        broker.drop(CLOSED_WITH_A_REASON)
        await facts.until(SinkFails, 1)
        run.deliver(make_delivery())
        assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]


@needs_mosquitto
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.usefixtures("quick_backoff")
async def test_two_sinks_with_one_id_make_no_war(tmp_path: Path, protocol: str) -> None:
    facts = Facts(), Facts()
    with open_mosquitto(tmp_path) as broker:
        sinks = [make_sink(broker.url, each, protocol=protocol) for each in facts]
        async with running(sinks[0]) as first, running(sinks[1]) as second:
            for number in range(30):
                first.deliver(make_delivery(number))
                second.deliver(make_delivery(number))
                await anyio.sleep(0.01)
            await until(
                lambda: any("give each client its own" in text for each in facts for text in each.of(SinkFails))
            )
            connections = [len(each.of(SinkConnected)) for each in facts]
            await anyio.sleep(0.5)
            assert sum(len(each.of(SinkConnected)) for each in facts) <= sum(connections) + 1
            fates = {outcome.kind for run in (first, second) for _, outcome in run.settled}
    assert fates == {OutcomeKind.DELIVERED}
    (told,) = (text for each in facts for text in each.of(SinkFails) if "give each client its own" in text)
    assert told.endswith("; give each client its own; retrying in 60 s")


@needs_mosquitto
async def test_dockbells_with_names_of_their_own_share_a_broker(tmp_path: Path) -> None:
    facts = Facts(), Facts()
    with open_mosquitto(tmp_path) as broker, Subscriber(broker, "dockbell/status/#") as subscriber:
        sinks = [
            open_sink(configure(name, broker.url), "floor", each.telemetry)
            for name, each in zip(("acme", "other"), facts, strict=True)
        ]
        async with running(sinks[0]), running(sinks[1]):
            await until(lambda: {*subscriber.topics} == {"dockbell/status/acme-floor", "dockbell/status/other-floor"})
    assert not [fact for each in facts for fact in each.of(SinkFails)]
