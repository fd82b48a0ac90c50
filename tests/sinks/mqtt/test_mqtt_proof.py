"""Store, relay, sink and real Mosquitto: whatever happens to it, nothing is lost, and what it retains is right."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from dockbell.config import Secret
from dockbell.sinks.mqtt import acknowledgements, connecting, connection
from dockbell.telemetry import SinkFails, SinkOmits
from dockbell.testing.outbox import STOCK
from tests.brokers import Mosquitto, Subscriber
from tests.sinks.mqtt.conftest import needs_mosquitto, until
from tests.sinks.mqtt.handmade import CONNACK, CONNECT, SUBACK, SUBSCRIBE, packet
from tests.sinks.mqtt.whole import keys, opened, persistent

pytestmark = [needs_mosquitto, pytest.mark.usefixtures("quick_backoff", "quick_sentinel")]

STATE = "dockbell/state/"


def kill(broker: Mosquitto) -> None:
    broker.signal(signal.SIGKILL)
    broker.stop()


async def test_a_broker_that_was_killed_and_came_back_with_older_state_gets_what_changed_since(tmp_path: Path) -> None:
    database, copy = tmp_path / "kept" / "mosquitto.db", tmp_path / "copy.db"
    async with opened(tmp_path, *persistent(tmp_path)) as whole, whole.relaying():
        await whole.outbox.change(*keys(50))
        await whole.settled()
        await whole.marked()
        whole.broker.signal(signal.SIGUSR1)  # write what is retained
        await until(lambda: database.exists() and b"shp_49" in database.read_bytes())
        shutil.copy(database, copy)
        await whole.outbox.change(*keys(40, 60))
        await whole.outbox.change("w_1", feed=STOCK)
        await whole.settled()
        await whole.marked()
        kill(whole.broker)
        shutil.copy(copy, database)
        whole.broker.start()
        await whole.mirrored()
        await until(lambda: any("published 21 states again" in text for text in whole.repaired()))
        assert not whole.dead


@pytest.mark.parametrize("disturbance", ["restart", "kill", "hang"])
async def test_whatever_happens_to_the_broker_while_much_changes(
    tmp_path: Path, disturbance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TICK", timedelta(milliseconds=20))
    monkeypatch.setattr(acknowledgements, "ANSWER_LIMIT", timedelta(milliseconds=200))
    monkeypatch.setattr(connecting, "_CONNECT_LIMIT", timedelta(milliseconds=300))
    async with opened(tmp_path) as whole, whole.relaying():
        for round_ in range(4):
            await whole.outbox.change(*keys(round_ * 10, round_ * 10 + 200))
            await anyio.sleep(0.02)  # somewhere in the middle
            if disturbance == "hang":
                whole.broker.signal(signal.SIGSTOP)
                await whole.facts.until(SinkFails, round_ + 1)
                whole.broker.signal(signal.SIGCONT)
            else:
                await to_thread.run_sync(kill if disturbance == "kill" else Mosquitto.stop, whole.broker)
                await to_thread.run_sync(whole.broker.start)
        await whole.settled()
        await whole.mirrored()
    assert not whole.dead


async def test_a_record_that_left_the_filter_is_retained_as_it_is_and_its_last_event_said_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as whole, whole.relaying(where="after.n < 2", on_leave="send"):
        with Subscriber(whole.broker, "dockbell/event/#") as subscriber:
            for _ in range(4):
                await whole.outbox.change("shp_1")
            await whole.settled()
            await whole.mirrored()
            await subscriber.until(lambda received: len(received) == 2)
            sent = [json.loads(publication.payload)["data"] for publication in subscriber.received]
    assert [(data["revision"], data["after"]["n"] < 2) for data in sent] == [(1, True), (2, False)]


async def test_one_event_that_the_rules_deny_is_dead_and_nothing_else(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic readwrite #\ntopic deny dockbell/event/main/shipments/shp_7/#\n")
    async with opened(tmp_path, f"acl_file {rules}") as whole, whole.relaying():
        with Subscriber(whole.broker, "dockbell/event/#") as subscriber:
            await whole.outbox.change(*keys(30))
            await whole.settled()
            await subscriber.until(lambda received: len(received) == 29)
        await whole.mirrored()
    assert whole.dead == ["shp_7"]


@pytest.mark.parametrize(("payload", "dead"), [("full", ["large"]), ("thin", [])])
async def test_one_event_that_is_too_large_is_dead_and_nothing_else(
    tmp_path: Path, payload: str, dead: list[str]
) -> None:
    async with opened(tmp_path, "max_packet_size 5000") as whole, whole.relaying(payload=payload):
        await whole.outbox.change("large", *keys(20))
        await whole.settled()
        await whole.mirrored()
        await whole.outbox.change("large", size=20_000)
        await whole.outbox.change(*keys(10, 30))
        await whole.settled()
        await whole.mirrored("large")
        await whole.outbox.change("small")
        await whole.settled()
        await whole.mirrored("large")
    assert whole.dead == dead
    topic, reason = "dockbell/state/main/shipments/large", "larger than the broker accepts (5000 bytes)"
    assert whole.facts.of(SinkOmits) == [f"sink floor: publishes nothing to {topic}, {reason}"]
    assert not whole.facts.of(SinkFails)


async def test_a_broker_that_takes_one_at_a_time_gets_all(tmp_path: Path) -> None:
    async with opened(tmp_path, "max_inflight_messages 1") as whole, whole.relaying():
        await whole.outbox.change(*keys(100))
        await whole.outbox.change(*keys(100))
        await whole.settled()
        await whole.mirrored()
    assert not whole.dead
    assert not whole.facts.of(SinkFails)


@contextmanager
def asleep(broker: Mosquitto) -> Iterator[None]:
    """Subscribe to everything, and never read any of it."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(10)
        sock.connect((broker.host, broker.port))
        sock.sendall(packet(CONNECT, b"\0\4MQTT\4\2\0\0\0\1z") + packet(SUBSCRIBE, b"\0\1\0\1#\1", flags=2))
        answer = b""
        while len(answer) < len(packet(CONNACK, b"\0\0") + packet(SUBACK, b"\0\1\1")):
            answer += sock.recv(1)
        yield


async def test_a_subscriber_that_sleeps_and_fills_its_queue_holds_up_nothing(
    tmp_path: Path,
) -> None:
    lines = "max_queued_messages 5", "max_inflight_messages 5"
    async with opened(tmp_path, *lines) as whole, whole.relaying():
        with asleep(whole.broker):
            await whole.outbox.change(*keys(300), size=4000)
            await whole.settled()
            await whole.mirrored()
    assert not whole.dead
    assert not whole.facts.of(SinkFails)


async def test_a_wrong_password_that_is_put_right_loses_nothing(tmp_path: Path) -> None:
    passwords, secret, rules = tmp_path / "passwords", tmp_path / "secret", tmp_path / "acl"
    passwords.write_text("dock:right\n")
    rules.write_text("user dock\ntopic readwrite #\n")
    secret.write_text("wrong\n")
    await anyio.run_process(["mosquitto_passwd", "-U", str(passwords)])
    lines = "allow_anonymous false", f"password_file {passwords}", f"acl_file {rules}"
    async with opened(tmp_path, *lines) as whole:
        await whole.outbox.change(*keys(30))
        async with whole.relaying(username="dock", password=Secret(file=str(secret))):
            await whole.facts.until(SinkFails, 2)
            secret.write_text("right\n")
            await whole.settled()
        with Subscriber(whole.broker, STATE + "#", username="dock", password="right") as subscriber:
            await subscriber.until(lambda _: len(subscriber.retained()) == 30)
    assert not whole.dead


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """Return the certificate of an authority that nobody knows."""
    path = tmp_path / "trusted.pem"
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=other -keyout {path}.key"
        f" -out {path}".split(),
        check=True,
        capture_output=True,
    )
    return path


async def test_a_certificate_that_is_put_right_loses_nothing(tmp_path: Path, stranger: Path, certificate: Path) -> None:
    async with opened(tmp_path, f"certfile {certificate}", f"keyfile {certificate}") as whole:
        await whole.outbox.change(*keys(30))
        async with whole.relaying(url=f"mqtts://localhost:{whole.broker.port}", ca_file=str(stranger)):
            await whole.facts.until(SinkFails, 2)
            shutil.copy(certificate, stranger)
            await whole.settled()
    assert "certificate not accepted" in whole.facts.of(SinkFails)[0]
    assert not whole.dead
