"""Brokers that are reached by WebSockets, with and without TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dockbell.core.model import OutcomeKind
from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.telemetry import SinkConnected
from tests.brokers import Mosquitto, Subscriber, accepts, find_free_port, wait_until
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.mqtt.conftest import make_sink, needs_mosquitto, open_mosquitto

pytestmark = [needs_mosquitto, pytest.mark.usefixtures("quick_backoff")]


@contextmanager
def open_web_broker(folder: Path, *lines: str) -> Iterator[tuple[Mosquitto, int]]:
    """Run Mosquitto, and return it with the port at which it takes WebSockets; the lines are about that port."""
    port = find_free_port()
    with open_mosquitto(folder, f"listener {port} 127.0.0.1", "protocol websockets", *lines) as broker:
        wait_until(lambda: accepts("127.0.0.1", port), "mosquitto takes no WebSockets")
        yield broker, port


async def test_events_and_states_arrive_by_websockets_as_they_do_without(tmp_path: Path) -> None:
    facts = Facts()
    with (
        open_web_broker(tmp_path, "max_inflight_messages 1000", "max_queued_messages 0") as (broker, port),
        Subscriber(broker, "dockbell/event/#") as subscriber,
    ):
        async with running(make_sink(f"ws://127.0.0.1:{port}", facts, in_flight=200)) as run:
            run.deliver(*(make_delivery(number, state=b"{}") for number in range(500)))
            await run.until_settled(500)
        await subscriber.until(lambda received: len(received) == 500)
        with Subscriber(broker, "dockbell/state/#") as states:
            await states.until(lambda received: len(received) == 500)
    assert run.fates == [OutcomeKind.DELIVERED] * 500
    assert len(facts.of(SinkConnected)) == 1


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_an_event_larger_than_what_a_socket_takes_at_once_arrives_whole(
    tmp_path: Path, certificate: Path, scheme: str
) -> None:
    large = make_delivery(1, body=b"x" * 3_000_000)
    is_secure = scheme == "wss"
    lines = (f"certfile {certificate}", f"keyfile {certificate}") if is_secure else ()
    trust: dict[str, Any] = {"ca_file": str(certificate)} if is_secure else {}
    with open_web_broker(tmp_path, *lines) as (broker, port), Subscriber(broker, "dockbell/event/#") as subscriber:
        async with running(make_sink(f"{scheme}://localhost:{port}", **trust)) as run:
            run.deliver(large, make_delivery(2))
            await run.until_settled(2)
        received = await subscriber.until(lambda all_: len(all_) == 2)
    assert run.fates == [OutcomeKind.DELIVERED] * 2
    assert received[0].payload == large.event.body


async def test_a_broker_that_was_away_gets_what_waits(tmp_path: Path) -> None:
    with open_web_broker(tmp_path) as (broker, port):
        async with running(make_sink(f"ws://127.0.0.1:{port}")) as run:
            run.deliver(make_delivery(1))
            await run.until_settled(1)
            broker.stop()
            run.deliver(make_delivery(2))
            broker.start()
            await run.until_settled(2)
    assert run.fates == [OutcomeKind.DELIVERED] * 2


async def test_with_tls_the_certificate_is_checked(tmp_path: Path, certificate: Path) -> None:
    with open_web_broker(tmp_path, f"certfile {certificate}", f"keyfile {certificate}") as (_, port):
        url = f"wss://127.0.0.1:{port}/mqtt"
        told = await make_sink(url, ca_file=str(certificate)).probe()
        assert told == f"127.0.0.1:{port}, MQTT 5 over WebSockets, 20 in flight"
        with pytest.raises(SinkRejected, match=r"certificate not accepted, self.signed certificate"):
            await make_sink(url).probe()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho does not close the socket itself
async def test_a_broker_that_takes_no_websockets_at_this_port_is_told_so(tmp_path: Path) -> None:
    told = "the server does not accept MQTT over WebSockets at /mqtt; correct the port or the path of url"
    with open_mosquitto(tmp_path) as broker, pytest.raises(SinkUnavailable, match=told):
        await make_sink(f"ws://127.0.0.1:{broker.port}").probe()
