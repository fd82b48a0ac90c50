"""What a real broker does not do on demand, done by a broker of a few lines."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
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
from paho.mqtt.enums import CallbackAPIVersion

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.sinks.mqtt import MqttSettings, MqttSink, connecting
from dockbell.sinks.mqtt import connection as connection_module
from dockbell.sinks.mqtt.acknowledgements import FIRST_ID, Ack
from dockbell.sinks.mqtt.connecting import Login, connect
from dockbell.sinks.mqtt.connection import Connection, Ending
from dockbell.sinks.mqtt.packets import Protocol, Publication, VersionRefused, VersionUnclear
from dockbell.telemetry import SinkFails
from tests.brokers import Broker, find_free_port
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.mqtt.conftest import make_sink, until
from tests.sinks.mqtt.handmade import (
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBSCRIBE,
    packet,
    read_packet,
)


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
    hangs_up: bool = False
    """It closes the connection after it has answered a packet of a kind."""
    hangs_up_on: int = PUBLISH
    port: int = 0
    kinds: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    _writer: asyncio.StreamWriter | None = None

    @property
    def login(self) -> Login:
        return Login("127.0.0.1", self.port, "test", timedelta(seconds=1))

    def send(self, data: bytes) -> None:
        """Send something unasked."""
        assert self._writer is not None
        self._writer.write(data)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            while True:
                kind, _, body = await read_packet(reader)
                topic_size = int.from_bytes(body[:2], "big")
                packet_id = int.from_bytes(body[2 + topic_size : 4 + topic_size], "big") if kind == PUBLISH else 0
                self.kinds.append(kind)
                self.bodies.append(body)
                writer.write(self.answer(kind, packet_id))
                await writer.drain()
                if kind == DISCONNECT or (self.hangs_up and kind == self.hangs_up_on):
                    return
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted(
    answer: Callable[[int, int], bytes] | Script, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Script]:
    script = answer if isinstance(answer, Script) else Script(answer)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0, ssl=tls)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()


@asynccontextmanager
async def dialled(login: Login) -> AsyncIterator[tuple[Connection, asyncio.Event]]:
    news = asyncio.Event()
    connection = await connect(login, news.set)
    try:
        with anyio.fail_after(10):
            yield connection, news
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (0x84, SinkRejected, r"refused by the broker, unsupported protocol version \(0x84\)"),
        (0x85, SinkRejected, r"refused by the broker, client identifier not valid \(0x85\)"),
        (0x86, SinkRejected, r"refused by the broker, bad user name or password \(0x86\)"),
        (0x88, SinkUnavailable, r"refused by the broker, server unavailable \(0x88\)"),
        (0x89, SinkUnavailable, r"refused by the broker, server busy \(0x89\)"),
        (0x01, SinkRejected, r"refused by the broker, unsupported protocol version \(0x84\)"),  # as 3.1.1 says it
        (0x55, SinkUnavailable, "did not answer in MQTT 5"),
    ],
)
async def test_a_refusal_is_told_by_whether_it_passes(code: int, error: type[Exception], text: str) -> None:
    async with scripted(lambda *_: connack(code)) as script:
        with pytest.raises(error, match=text):
            await connect(script.login, lambda: None)


async def test_what_the_broker_grants_is_read_from_its_connack() -> None:
    properties = b"\x21" + (3).to_bytes(2, "big") + b"\x27" + (100).to_bytes(4, "big")
    async with scripted(lambda *_: connack(properties=properties)) as script, dialled(script.login) as (connection, _):
        assert (connection.receive_maximum, connection.packet_maximum, connection.retains) == (3, 100, True)
        assert not connection.find_obstacle(Publication("t", b"x" * (100 - 2 - 2 - 1 - 2 - 1)))
        assert connection.find_obstacle(Publication("t", b"x" * (101 - 2 - 2 - 1 - 2 - 1))) == (
            "larger than the broker accepts (100 bytes)"
        )


async def test_a_broker_that_retains_nothing_is_sent_nothing_to_retain() -> None:
    async with scripted(lambda *_: connack(properties=b"\x25\0")) as script, dialled(script.login) as (connection, _):
        assert not connection.retains
        assert "does not retain messages" in connection.find_obstacle(Publication("t", b"x", retain=True))
        assert not connection.find_obstacle(Publication("t", b"x"))


async def test_a_broker_that_acknowledges_nothing_is_no_broker_for_us() -> None:
    async with scripted(lambda *_: connack(properties=b"\x24\0")) as script:
        with pytest.raises(SinkRejected, match="only QoS 0"):
            await connect(script.login, lambda: None)


async def test_a_broker_that_takes_no_qos_2_gets_qos_1() -> None:
    def answer(kind: int, packet_id: int) -> bytes:
        return connack(properties=b"\x24\x01") if kind == CONNECT else puback(packet_id)

    async with scripted(answer) as script, dialled(script.login) as (connection, news):
        packet_id = connection.publish(Publication("t", b"x", qos=2))
        await news.wait()
        assert connection.take_acks() == [Ack(packet_id or 0, 0, "")]
        told = await make_sink(f"mqtt://127.0.0.1:{script.port}", qos=2).probe()
    assert "MQTT 5, QoS 1 instead of 2, which the broker does not support" in told


async def test_a_publication_too_large_for_the_protocol_does_not_fit() -> None:
    class Large(bytes):
        def __len__(self) -> int:
            return 268_435_456

    async with scripted(lambda *_: connack()) as script, dialled(script.login) as (connection, _):
        assert "larger than the broker accepts" in connection.find_obstacle(Publication("t", Large()))


async def test_each_acknowledgement_is_told_once_with_its_code() -> None:
    codes = [0x00, 0x10, 0x97, 0x83, 0x9F]

    def answer(kind: int, packet_id: int) -> bytes:
        return connack() if kind == CONNECT else puback(packet_id, codes[packet_id - FIRST_ID]) * 2

    async with scripted(answer) as script, dialled(script.login) as (connection, news):
        ids = [connection.publish(Publication("t", b"x")) for _ in codes]
        acks: list[Ack] = []
        while len(acks) < len(codes):
            await news.wait()
            news.clear()
            acks += connection.take_acks()
    assert acks == [
        (FIRST_ID, 0x00, ""),
        (FIRST_ID + 1, 0x10, ""),
        (FIRST_ID + 2, 0x97, "quota exceeded (0x97)"),
        (FIRST_ID + 3, 0x83, "implementation specific error (0x83)"),
        (FIRST_ID + 4, 0x9F, "reason code 0x9f"),
    ]
    assert ids == [ack.packet_id for ack in acks]


async def test_after_the_loss_nothing_is_published() -> None:
    def answer(kind: int, _: int) -> bytes:
        return connack() if kind == CONNECT else disconnect(0x98)

    async with scripted(answer) as script, dialled(script.login) as (connection, news):
        assert connection.publish(Publication("t", b"x")) == FIRST_ID
        await news.wait()
        assert (connection.lost, connection.ending) == (
            "closed by the broker, administrative action (0x98)",
            Ending.OURS,
        )
        assert connection.publish(Publication("t", b"x")) is None
        connection.close()
        assert connection.lost == "closed by the broker, administrative action (0x98)"


@pytest.mark.parametrize(
    ("farewell", "ending", "lost"),
    [
        (disconnect(0x8B), Ending.OURS, "closed by the broker, server shutting down (0x8b)"),
        (disconnect(0x93), Ending.OURS, "closed by the broker, receive maximum exceeded (0x93)"),
        (disconnect(0x8E), Ending.TAKEN_OVER, "closed by the broker, session taken over (0x8e)"),
        (disconnect(0x81), Ending.DROPPED, "closed by the broker, malformed packet (0x81)"),
        (disconnect(0x95), Ending.DROPPED, "closed by the broker, packet too large (0x95)"),
        (packet(14, b""), Ending.DROPPED, "closed by the broker, normal disconnection (0x00)"),
        (b"", Ending.DROPPED, "connection lost"),
    ],
)
async def test_how_a_connection_ends_says_whether_a_publication_may_be_why(
    farewell: bytes, ending: Ending, lost: str
) -> None:
    script = Script(lambda kind, _: connack() if kind == CONNECT else farewell, hangs_up=True)
    async with scripted(script) as script, dialled(script.login) as (connection, news):
        assert (packet_id := connection.publish(Publication("t", b"x"))) is not None
        while not connection.lost:
            news.clear()
            await news.wait()
        assert (connection.lost, connection.ending) == (lost, ending)
        assert timedelta(0) <= connection.waited(packet_id) < timedelta(seconds=5)


@pytest.mark.parametrize(
    ("greeting", "error", "text"),
    [
        (packet(2, b"\0\1"), VersionRefused, r"unsupported protocol version \(0x84\)"),
        (packet(2, b"\0\0"), VersionUnclear, "did not answer in MQTT 5"),
        (packet(2, b"\0\5"), VersionUnclear, "did not answer in MQTT 5"),
        (b"", VersionUnclear, "connection lost"),
    ],
)
async def test_a_broker_of_3_1_1_is_told_by_its_greeting(greeting: bytes, error: type[Exception], text: str) -> None:
    async with scripted(Script(lambda *_: greeting, hangs_up=True, hangs_up_on=CONNECT)) as script:
        with pytest.raises(error, match=text):
            await connect(script.login, lambda: None)


async def test_silence_may_be_due_to_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "_CONNECT_LIMIT", timedelta(milliseconds=100))
    async with scripted(lambda *_: b"") as script:
        with pytest.raises(VersionUnclear, match="no answer in time"):
            await connect(script.login, lambda: None)


async def test_a_goodbye_is_an_end_of_ours_whatever_is_in_flight() -> None:
    async with (
        scripted(lambda kind, _: connack() if kind == CONNECT else b"") as script,
        dialled(script.login) as (connection, _),
    ):
        connection.publish(Publication("t", b"x"))
        await connection.disconnect()
        assert (connection.lost, connection.ending) == ("closed", Ending.OURS)
    assert script.kinds == [CONNECT, PUBLISH, DISCONNECT]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no broker before it has closed."""
    monkeypatch.setattr(connection_module, "_LEAVE_LIMIT", timedelta(minutes=1))


@asynccontextmanager
async def dialled_by_hand(
    tls: ssl.SSLContext | None = None, trust: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a broker whose packets the test reads and writes."""
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(connack())
        await accepted.put((reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=10_000, ssl=tls)
    login = Login("localhost", server.sockets[0].getsockname()[1], "test", timedelta(seconds=30), trust)
    async with dialled(login) as (connection, _):
        reader, writer = await accepted.get()
        try:
            yield connection, reader, writer
        finally:
            writer.close()
            server.close()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("scheme", ["mqtt", "mqtts"])
async def test_a_goodbye_comes_after_all_that_waits_though_the_network_takes_it_slowly_and_answers_come(
    certificate: Path, scheme: str
) -> None:
    tls = trust = None
    if scheme == "mqtts":
        tls, trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=certificate)
        tls.load_cert_chain(certificate)
    async with dialled_by_hand(tls, trust) as (connection, reader, writer), anyio.create_task_group() as tasks:
        for _ in range(100):
            connection.publish(Publication("t", b"x" * 100_000))
        tasks.start_soon(connection.disconnect)
        for number in range(100):
            kind, _, body = await read_packet(reader)
            assert (kind, len(body)) == (PUBLISH, 100_000 + 6)
            writer.write(puback(FIRST_ID + number))
            await writer.drain()
        assert (await read_packet(reader))[0] == DISCONNECT
        assert connection._socket.is_open
        writer.close()
    assert not connection._socket.is_open
    assert len(connection.take_acks()) == 100


async def test_a_goodbye_that_is_cancelled_closes_the_connection() -> None:
    async with dialled_by_hand() as (connection, reader, _):
        for _ in range(100):
            connection.publish(Publication("t", b"x" * 100_000))
        watched = connection._socket.fileno()
        with anyio.move_on_after(0.01) as scope:
            await connection.disconnect()
        assert scope.cancelled_caught
        assert not connection._socket.is_open
        assert watched not in connection._loop._selector.get_map()  # type: ignore[attr-defined]
        await reader.read()


@pytest.mark.usefixtures("patient")
async def test_nothing_follows_a_goodbye() -> None:
    async with dialled_by_hand() as (connection, reader, writer), anyio.create_task_group() as tasks:
        connection.publish(Publication("t", b"x", qos=2))
        tasks.start_soon(connection.disconnect)
        assert [(await read_packet(reader))[0] for _ in range(2)] == [PUBLISH, DISCONNECT]
        writer.write(packet(PUBREC, struct.pack("!H", FIRST_ID)))
        writer.write_eof()
        assert await reader.read() == b""


async def test_a_broker_that_does_not_close_after_a_goodbye_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_LEAVE_LIMIT", timedelta(milliseconds=50))
    async with dialled_by_hand() as (connection, reader, _):
        await connection.disconnect()
        assert not connection._socket.is_open
        assert (await read_packet(reader))[0] == DISCONNECT
        assert await reader.read() == b""


async def test_in_3_1_1_nothing_has_properties_and_no_puback_a_reason() -> None:
    def answer(kind: int, packet_id: int) -> bytes:
        return packet(2, b"\0\0") if kind == CONNECT else packet(4, packet_id.to_bytes(2, "big"))

    async with scripted(answer) as script:
        login = dataclasses.replace(script.login, protocol=Protocol.V3, will=Publication("w", b"gone", "text/plain"))
        async with dialled(login) as (connection, news):
            assert connection.publish(Publication("t", b"x", "text/plain", expiry=timedelta(seconds=9))) == FIRST_ID
            await news.wait()
            assert connection.take_acks() == [Ack(FIRST_ID, 0, "")]
    will = b"\0\1w" + b"\0\4gone"
    assert script.bodies == [b"\0\4MQTT\x04\x0e\0\1\0\4test" + will, b"\0\1t\x80\0x"]


async def test_what_cannot_be_read_ends_the_connection_and_keeps_what_was_acknowledged_before() -> None:
    def answer(kind: int, packet_id: int) -> bytes:
        no_codes = packet(SUBACK, b"\0\1\0")
        return {CONNECT: connack(), PUBLISH: puback(packet_id), SUBSCRIBE: no_codes}.get(kind, b"")

    async with scripted(answer) as script, dialled(script.login) as (connection, news):
        connection.publish(Publication("t", b"x"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.subscribe, "t", lambda *_: None)
            while not connection.lost:
                await news.wait()
                news.clear()
            tasks.cancel_scope.cancel()
        assert connection.lost == "the broker sent what cannot be read, IndexError: list index out of range"
        assert connection.ending is Ending.OURS
        assert connection.take_acks() == [Ack(FIRST_ID, 0, "")]


@pytest.mark.parametrize(
    ("qos", "wrong", "right"),
    [
        (0, [], []),
        (1, [(5, 0), (5, 0x97), (7, 0)], [(4, 0)]),
        (2, [(4, 0), (7, 0)], [(5, 0), (7, 0)]),
        (2, [(4, 0x97)], [(5, 0x97)]),
    ],
)
async def test_only_the_answers_to_its_own_quality_settle_a_publication(
    qos: int, wrong: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    number = struct.pack("!H", FIRST_ID)
    probe = packet(PUBLISH, b"\0\1p\0")  # after it, all that came before has been read

    def answer(kind: int, _: int) -> bytes:
        if kind == CONNECT:
            return connack()
        if kind == PUBLISH and not released.is_set():
            released.set()
            return b"".join(packet(each, number + bytes([code])) for each, code in wrong) + probe
        return b""

    released, heard = asyncio.Event(), asyncio.Event()
    async with scripted(answer) as script, dialled(script.login) as (connection, news):
        connection._listener = lambda *_: heard.set()
        assert connection.publish(Publication("t", b"x", qos=qos)) == FIRST_ID
        await heard.wait()
        acks = connection.take_acks()
        assert [ack.packet_id for ack in acks] == [FIRST_ID] * (qos == 0)
        for kind, code in right:
            script.send(packet(kind, number + bytes([code])))
        while right and not acks:
            await news.wait()
            news.clear()
            acks = connection.take_acks()
        assert len(acks) == 1
        assert acks[0].code == (right[-1][1] if right else 0)
        await until(lambda: script.kinds.count(PUBREL) == (right == [(5, 0), (7, 0)]))


def peek(connection: Connection) -> bytes:
    """Return what has come and was not read."""
    try:
        return connection._socket._options.recv(1_000_000, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


async def test_what_came_before_a_loss_is_read_however_much_it_is() -> None:
    def answer(kind: int, packet_id: int) -> bytes:
        many = packet(4, b"\xff\xff\0") * 20_000 + puback(packet_id) + disconnect(0x97)
        return connack() if kind == CONNECT else many

    script = Script(answer, hangs_up=True)
    async with scripted(script), dialled(script.login) as (connection, _):
        connection._loop.remove_reader(connection._socket)  # as where the loss is noticed in writing
        assert connection.publish(Publication("t", b"x")) == FIRST_ID
        await until(lambda: peek(connection).endswith(disconnect(0x97)))
        connection._end()
        assert connection.lost == "closed by the broker, quota exceeded (0x97)"
        assert connection.take_acks() == [Ack(FIRST_ID, 0, "")]


@pytest.mark.parametrize("is_secure", [False, True])
async def test_a_broker_that_sends_without_an_end_holds_up_nothing_else(certificate: Path, *, is_secure: bool) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    trust = ssl.create_default_context(cafile=certificate) if is_secure else None
    heard = 0

    def count(*_: object) -> None:
        nonlocal heard
        heard += 1

    flood = packet(PUBLISH, b"\0\1t\0" + b"x" * 80) * 100_000
    answers = {CONNECT: connack(), SUBSCRIBE: packet(SUBACK, b"\0\1\0\0") + flood}
    async with scripted(lambda kind, _: answers.get(kind, b""), tls=server if is_secure else None) as script:
        login = Login("localhost", script.port, "test", timedelta(seconds=60), trust)
        async with dialled(login) as (connection, _):
            assert await connection.subscribe("t", count) == ""
            turns = 0
            while heard < 100_000:
                await asyncio.sleep(0)
                turns += 1
    assert turns > 80  # of 9 MB, no turn reads more than 64 KiB


async def test_a_listener_may_unsubscribe_when_it_is_called() -> None:
    def answer(kind: int, _: int) -> bytes:
        heard = packet(SUBACK, b"\0\1\0\0") + packet(PUBLISH, b"\0\1t\0x")
        return {CONNECT: connack(), SUBSCRIBE: heard}.get(kind, b"")

    async with scripted(answer) as script, dialled(script.login) as (connection, _):
        assert await connection.subscribe("t", lambda *_: connection.unsubscribe("t")) == ""
        await until(lambda: UNSUBSCRIBE in script.kinds)
    assert script.kinds[:3] == [CONNECT, SUBSCRIBE, UNSUBSCRIBE]


async def test_a_broker_that_answers_no_ping_is_left() -> None:
    def answer(kind: int, _: int) -> bytes:
        return connack() if kind == CONNECT else b""

    async with scripted(answer) as script, dialled(script.login) as (connection, news):
        await news.wait()
        assert connection.lost == "no answer to a ping"
    assert script.kinds == [CONNECT, PINGREQ]


async def test_a_broker_that_answers_publications_is_there_whatever_it_does_with_pings() -> None:
    def answer(kind: int, packet_id: int) -> bytes:
        return connack() if kind == CONNECT else puback(packet_id) if kind == PUBLISH else b""

    async with scripted(answer) as script, dialled(script.login) as (connection, news):
        while script.kinds.count(PINGREQ) < 3:
            connection.publish(Publication("t", b"x"))
            await news.wait()
            news.clear()
            await anyio.sleep(0.2)
            assert not connection.lost


async def test_a_connection_that_is_lost_while_it_is_made_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paho.Client, "connect", lambda *_, **__: paho.MQTT_ERR_CONN_LOST)
    with pytest.raises(SinkUnavailable, match=r"^connection lost$"):
        await connect(Login("127.0.0.1", 1, "test", timedelta(seconds=1)), lambda: None)


async def test_what_tls_has_decrypted_already_is_read_as_well(certificate: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    trust = ssl.create_default_context(cafile=certificate)
    all_in_one_record = connack() + packet(13, b"") * 50 + disconnect(0x8B)
    async with scripted(lambda *_: all_in_one_record, tls=server) as script:
        login = Login("localhost", script.port, "test", timedelta(seconds=60), trust)
        with pytest.raises(SinkUnavailable, match=r"closed by the broker, server shutting down \(0x8b\)"):
            await connect(login, lambda: None)


async def test_a_delivery_that_was_in_flight_at_a_loss_is_published_again_and_settled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "_BACKOFF_FIRST", timedelta(milliseconds=10))
    facts, connections = Facts(), 0

    def answer(kind: int, packet_id: int) -> bytes:
        nonlocal connections
        connections += kind == CONNECT
        if kind == CONNECT:
            return connack()
        # The first connection acknowledges the event of the first delivery, and ends with its state in flight.
        if connections == 1:
            number = packet_id - FIRST_ID
            return puback(packet_id) if number == 1 else disconnect(0x8B) if number == 4 else b""
        return puback(packet_id)

    async with scripted(answer) as script:
        settings = MqttSettings(type="mqtt", url=f"mqtt://127.0.0.1:{script.port}")
        async with running(MqttSink("floor", settings, facts.telemetry)) as run:
            run.deliver(make_delivery(1), make_delivery(2))
            assert await run.until_settled(2) == [Outcome(OutcomeKind.DELIVERED)] * 2
    # A birth and four publications; again a birth, and the three that were not acknowledged; the goodbye.
    assert script.kinds == [CONNECT, *[PUBLISH] * 5, CONNECT, *[PUBLISH] * 4, PUBLISH, 14]
    assert len(facts.of(SinkFails)) == 1


async def test_an_attempt_that_the_broker_cannot_take_now_is_a_failure() -> None:
    async with scripted(lambda kind, number: connack() if kind == CONNECT else puback(number, 0x97)) as script:
        settings = MqttSettings(type="mqtt", url=f"mqtt://127.0.0.1:{script.port}")
        async with running(MqttSink("floor", settings, Facts().telemetry)) as run:
            run.deliver(make_delivery())
            assert await run.until_settled(1) == [Outcome(OutcomeKind.FAILED, "quota exceeded (0x97)")]


async def test_the_end_is_noticed_between_two_attempts_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "_BACKOFF_FIRST", timedelta(hours=1))
    monkeypatch.setattr(connecting, "_BACKOFF_MOST", timedelta(hours=1))
    facts = Facts()
    settings = MqttSettings(type="mqtt", url=f"mqtt://127.0.0.1:{find_free_port()}")
    with anyio.fail_after(5):
        async with running(MqttSink("floor", settings, facts.telemetry)) as run:
            await facts.until(SinkFails, 1)
    assert not run.settled


async def test_what_others_have_put_where_we_listen_is_not_sent_to_us_beyond_a_size(mosquitto: Broker) -> None:
    """``MaximumPacketSize`` of the CONNECT is the broker's to obey; a retained sentinel may be anybody's."""
    stranger = paho.Client(CallbackAPIVersion.VERSION2)
    stranger.connect(mosquitto.host, mosquitto.port)
    stranger.loop_start()
    stranger.publish("dockbell/positions/x", b"x" * 2_000_000, qos=1, retain=True).wait_for_publish(5)
    heard, news = list[bytes](), anyio.Event()

    def on_message(_topic: str, payload: bytes, _: bool) -> None:
        heard.append(payload)
        news.set()

    connection = await connect(Login(mosquitto.host, mosquitto.port, "test", timedelta(seconds=30)), lambda: None)
    assert await connection.subscribe("dockbell/positions/x", on_message) == ""
    stranger.publish("dockbell/positions/x", b"small", qos=1).wait_for_publish(5)
    with anyio.fail_after(5):
        await news.wait()
    assert heard == [b"small"]
    stranger.disconnect()
    stranger.loop_stop()
    connection.close()
