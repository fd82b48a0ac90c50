"""What a real broker does not do on demand, done by a broker of a few lines."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from paho.mqtt import client as paho

from dockbell.core.model import Fate, Outcome
from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.sinks import mqtt
from dockbell.sinks.mqtt import MqttSettings, MqttSink
from dockbell.sinks.wire import Ack, Login, Publication, Wire, dial
from dockbell.telemetry import SinkFails
from tests.brokers import find_free_port
from tests.sinks.conftest import Facts, make_delivery, running

CONNECT, PUBLISH, PINGREQ = 1, 3, 12


def packet(kind: int, body: bytes) -> bytes:
    """Return an MQTT packet with a body of less than 128 bytes."""
    return bytes([kind << 4, len(body)]) + body


def connack(code: int = 0, properties: bytes = b"") -> bytes:
    return packet(2, bytes([0, code, len(properties)]) + properties)


def puback(packet_id: int, code: int = 0) -> bytes:
    return packet(4, struct.pack("!HBB", packet_id, code, 0))


def disconnect(code: int) -> bytes:
    return packet(14, bytes([code, 0]))


@dataclass
class Script:
    """A broker that answers each packet as it is told."""

    answer: Callable[[int, int], bytes]
    """From the kind of the packet and, for a PUBLISH, its packet id."""
    port: int = 0
    kinds: list[int] = field(default_factory=list)

    @property
    def login(self) -> Login:
        return Login("127.0.0.1", self.port, "test", timedelta(seconds=1))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                kind = (await reader.readexactly(1))[0] >> 4
                size = shift = 0
                while (byte := (await reader.readexactly(1))[0]) & 128:
                    size, shift = size + ((byte & 127) << shift), shift + 7
                body = await reader.readexactly(size + (byte << shift))
                topic_size = int.from_bytes(body[:2], "big")
                packet_id = int.from_bytes(body[2 + topic_size : 4 + topic_size], "big") if kind == PUBLISH else 0
                self.kinds.append(kind)
                writer.write(self.answer(kind, packet_id))
                await writer.drain()
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted(answer: Callable[[int, int], bytes], *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Script]:
    script = Script(answer)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0, ssl=tls)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()


@asynccontextmanager
async def dialled(login: Login) -> AsyncIterator[tuple[Wire, asyncio.Event]]:
    news = asyncio.Event()
    wire = await dial(login, news.set)
    try:
        with anyio.fail_after(10):
            yield wire, news
    finally:
        wire.close()


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (0x84, SinkRejected, r"refused by the broker, unsupported protocol version \(0x84\)"),
        (0x85, SinkRejected, r"refused by the broker, client identifier not valid \(0x85\)"),
        (0x86, SinkRejected, r"refused by the broker, bad user name or password \(0x86\)"),
        (0x88, SinkUnavailable, r"refused by the broker, server unavailable \(0x88\)"),
        (0x89, SinkUnavailable, r"refused by the broker, server busy \(0x89\)"),
        (0x01, SinkRejected, r"refused by the broker, unsupported protocol version \(0x84\)"),  # as 3.1.1 says it
        (0x55, SinkUnavailable, "not in MQTT 5"),
    ],
)
async def test_a_refusal_is_told_by_whether_it_passes(code: int, error: type[Exception], words: str) -> None:
    async with scripted(lambda *_: connack(code)) as script:
        with pytest.raises(error, match=words):
            await dial(script.login, lambda: None)


async def test_what_the_broker_grants_is_read_from_its_connack() -> None:
    properties = b"\x21" + (3).to_bytes(2, "big") + b"\x27" + (100).to_bytes(4, "big")
    async with scripted(lambda *_: connack(properties=properties)) as script, dialled(script.login) as (wire, _):
        assert (wire.receive_maximum, wire.packet_maximum, wire.room) == (3, 100, 3)
        assert wire.fits(Publication("t", b"x" * (100 - 2 - 2 - 1 - 2 - 1)))
        assert not wire.fits(Publication("t", b"x" * (101 - 2 - 2 - 1 - 2 - 1)))


async def test_a_publication_too_large_for_the_protocol_does_not_fit() -> None:
    class Large(bytes):
        def __len__(self) -> int:
            return 268_435_456

    async with scripted(lambda *_: connack()) as script, dialled(script.login) as (wire, _):
        assert not wire.fits(Publication("t", Large()))


async def test_each_acknowledgement_is_told_once_with_its_code() -> None:
    codes = [0x00, 0x10, 0x97, 0x83]

    def answer(kind: int, packet_id: int) -> bytes:
        return connack() if kind == CONNECT else puback(packet_id, codes[packet_id - 1]) * 2

    async with scripted(answer) as script, dialled(script.login) as (wire, news):
        ids = [wire.publish(Publication("t", b"x")) for _ in codes]
        acks: list[Ack] = []
        while len(acks) < len(codes):
            await news.wait()
            news.clear()
            acks += wire.take_acks()
        assert ids == [1, 2, 3, 4]
        assert wire.room == wire.receive_maximum
    assert acks == [
        (1, 0x00, ""),
        (2, 0x10, ""),
        (3, 0x97, "quota exceeded (0x97)"),
        (4, 0x83, "implementation specific error (0x83)"),
    ]


async def test_after_the_loss_nothing_is_published() -> None:
    def answer(kind: int, _: int) -> bytes:
        return connack() if kind == CONNECT else disconnect(0x98)

    async with scripted(answer) as script, dialled(script.login) as (wire, news):
        assert wire.publish(Publication("t", b"x")) == 1
        await news.wait()
        assert wire.lost == "closed by the broker, administrative action (0x98)"
        assert wire.publish(Publication("t", b"x")) is None
        wire.close()
        assert wire.lost == "closed by the broker, administrative action (0x98)"


async def test_a_broker_that_answers_no_ping_is_left() -> None:
    def answer(kind: int, _: int) -> bytes:
        return connack() if kind == CONNECT else b""

    async with scripted(answer) as script, dialled(script.login) as (wire, news):
        await news.wait()
        assert wire.lost == "no answer to a ping"
    assert script.kinds == [CONNECT, PINGREQ]


async def test_a_connection_that_is_lost_while_it_is_made_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paho.Client, "connect", lambda *_, **__: paho.MQTT_ERR_CONN_LOST)
    with pytest.raises(SinkUnavailable, match=r"^connection lost$"):
        await dial(Login("127.0.0.1", 1, "test", timedelta(seconds=1)), lambda: None)


async def test_what_tls_has_decrypted_already_is_read_as_well(certificate: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    trust = ssl.create_default_context(cafile=certificate)
    all_in_one_record = connack() + packet(13, b"") * 50 + disconnect(0x8B)
    async with scripted(lambda *_: all_in_one_record, tls=server) as script:
        login = Login("localhost", script.port, "test", timedelta(seconds=60), trust)
        with pytest.raises(SinkUnavailable, match=r"closed by the broker, server shutting down \(0x8b\)"):
            await dial(login, lambda: None)


async def test_a_delivery_that_was_in_flight_at_a_loss_is_published_again_and_settled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mqtt, "_BACKOFF_FIRST", timedelta(milliseconds=10))
    facts, connections = Facts(), 0

    def answer(kind: int, packet_id: int) -> bytes:
        nonlocal connections
        connections += kind == CONNECT
        if kind == CONNECT:
            return connack()
        # The first connection acknowledges the event of the first delivery, and ends with its state in flight.
        if connections == 1:
            return puback(packet_id) if packet_id == 2 else disconnect(0x8B) if packet_id == 5 else b""
        return puback(packet_id)

    async with scripted(answer) as script:
        settings = MqttSettings(type="mqtt", url=f"mqtt://127.0.0.1:{script.port}")
        async with running(MqttSink("floor", settings, facts.telemetry)) as run:
            run.deliver(make_delivery(1), make_delivery(2))
            assert await run.until_settled(2) == [Outcome(Fate.DELIVERED)] * 2
    # A birth and four publications; again a birth, and the three that were not acknowledged; the goodbye.
    assert script.kinds == [CONNECT, *[PUBLISH] * 5, CONNECT, *[PUBLISH] * 4, PUBLISH, 14]
    assert len(facts.of(SinkFails)) == 1


async def test_an_attempt_that_the_broker_cannot_take_now_is_a_failure() -> None:
    async with scripted(lambda kind, number: connack() if kind == CONNECT else puback(number, 0x97)) as script:
        settings = MqttSettings(type="mqtt", url=f"mqtt://127.0.0.1:{script.port}")
        async with running(MqttSink("floor", settings, Facts().telemetry)) as run:
            run.deliver(make_delivery())
            assert await run.until_settled(1) == [Outcome(Fate.FAILED, "quota exceeded (0x97)")]


async def test_the_end_is_noticed_between_two_attempts_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "_BACKOFF_FIRST", timedelta(hours=1))
    monkeypatch.setattr(mqtt, "_BACKOFF_MOST", timedelta(hours=1))
    facts = Facts()
    settings = MqttSettings(type="mqtt", url=f"mqtt://127.0.0.1:{find_free_port()}")
    with anyio.fail_after(5):
        async with running(MqttSink("floor", settings, facts.telemetry)) as run:
            await facts.until(SinkFails, 1)
    assert not run.settled
