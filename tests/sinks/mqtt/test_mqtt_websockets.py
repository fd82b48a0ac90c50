"""Brokers that are reached by WebSockets, with and without TLS."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from hashlib import sha1
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.core.model import OutcomeKind
from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.sinks.mqtt import connection as connection_module
from dockbell.sinks.mqtt.connecting import Login, connect
from dockbell.sinks.mqtt.connection import Connection
from dockbell.sinks.mqtt.packets import Publication
from dockbell.telemetry import SinkConnected
from tests.brokers import Mosquitto, Subscriber, accepts, find_free_port, wait_until
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.mqtt.conftest import make_sink, needs_mosquitto, open_mosquitto, until
from tests.sinks.mqtt.handmade import packet

pytestmark = [needs_mosquitto, pytest.mark.usefixtures("quick_backoff")]


@contextmanager
def open_web_broker(folder: Path, *lines: str) -> Iterator[tuple[Mosquitto, int]]:
    """Run Mosquitto, and return it with the port at which it takes WebSockets; the lines are about that port."""
    port = find_free_port()
    with open_mosquitto(folder, f"listener {port} 127.0.0.1", "protocol websockets", *lines) as broker:
        wait_until(lambda: accepts("127.0.0.1", port), "mosquitto takes no WebSockets")
        yield broker, port


BINARY, PING, PONG = 2, 9, 10


class WebServer:
    """A WebSocket of which the server is a few lines."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._received = b""

    async def fill(self, size: int) -> None:
        """Take so much from the network."""
        while len(self._received) < size:
            self._received += await self._loop.sock_recv(self._sock, 65_536)

    async def read(self, size: int) -> bytes:
        await self.fill(size)
        data, self._received = self._received[:size], self._received[size:]
        return data

    async def shake_hands(self) -> None:
        """Answer the request (RFC 6455, 4.2.2)."""
        while b"\r\n\r\n" not in self._received:
            self._received += await self._loop.sock_recv(self._sock, 65_536)
        head, self._received = self._received.split(b"\r\n\r\n")
        (key,) = [line.split(b": ")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")]
        accept = b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest())
        answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        answer += b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        await self._loop.sock_sendall(self._sock, answer)

    async def send(self, body: bytes, kind: int = 2) -> None:
        size = bytes([len(body)]) if len(body) < 126 else b"\x7e" + len(body).to_bytes(2, "big")
        await self._loop.sock_sendall(self._sock, bytes([0x80 | kind]) + size + body)

    async def read_frame(self) -> tuple[int, bytes]:
        """Return the kind and the content of a frame; only a whole one can be unmasked to something sensible."""
        first, second = await self.read(2)
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(await self.read(2 if size == 126 else 8), "big")
        mask = await self.read(4) if second & 0x80 else b"\0" * 4
        body = await self.read(size)
        whole = int.from_bytes(body, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        return first & 0x0F, whole.to_bytes(size, "big")

    async def read_frames(self, size: int) -> list[tuple[int, bytes]]:
        """Read until so many bytes of binary content have come."""
        frames: list[tuple[int, bytes]] = []
        while sum(len(body) for kind, body in frames if kind == BINARY) < size:
            frames.append(await self.read_frame())
        return frames

    def close(self) -> None:
        self._sock.close()


async def accept_web(server: socket.socket, accepted: list[WebServer]) -> None:
    """Take a connection, and answer its CONNECT."""
    sock, _ = await asyncio.get_running_loop().sock_accept(server)
    sock.settimeout(0)
    web = WebServer(sock)
    await web.shake_hands()
    await web.read_frame()
    await web.send(packet(2, b"\0\0\0"))
    accepted.append(web)


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


@pytest.mark.parametrize("count", [3, 10])
async def test_a_goodbye_comes_after_all_that_waits(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_LEAVE_LIMIT", timedelta(minutes=1))
    with open_web_broker(tmp_path) as (broker, port), Subscriber(broker, "#") as subscriber:
        will = Publication("will", b"gone")
        login = Login("127.0.0.1", port, "test", timedelta(seconds=30), will=will, path="/mqtt")
        connection = await connect(login, lambda: None)
        for number in range(count):
            connection.publish(Publication(f"t/{number}", b"x" * 60_000))
        with anyio.fail_after(20):
            await connection.disconnect()
        await subscriber.until(lambda received: len(received) == count)
        with Subscriber(broker, "t/0") as last:  # the broker has taken in by now that the connection is gone
            assert last.received == []
    assert "will" not in subscriber.topics


@asynccontextmanager
async def dialled_web() -> AsyncIterator[tuple[Connection, WebServer]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)  # so that it takes only a part of a frame
        server.settimeout(0)
        login = Login("127.0.0.1", server.getsockname()[1], "test", timedelta(seconds=30), path="/mqtt")
        async with anyio.create_task_group() as tasks:
            accepted: list[WebServer] = []
            tasks.start_soon(accept_web, server, accepted)
            connection = await connect(login, lambda: None)
        try:
            yield connection, accepted[0]
        finally:
            connection.close()
            accepted[0].close()


@pytest.mark.parametrize(("size", "frames", "at_once"), [(100, 30, 20 * 100), (20_000, 6, 65_536)])
async def test_of_many_frames_few_are_read_at_once(size: int, frames: int, at_once: int) -> None:
    async with dialled_web() as (connection, web):
        connection._loop.remove_reader(connection._socket)
        connection._socket._options.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
        for _ in range(frames):
            await web.send(packet(3, b"x" * size)[:size])
        await until(lambda: len(connection._socket._options.recv(1_000_000, socket.MSG_PEEK)) >= frames * size)
        assert sum(len(part) for part in connection._socket.receive()) == at_once


async def test_a_ping_of_the_server_is_not_answered_within_a_frame() -> None:
    async with dialled_web() as (connection, web):
        connection._socket._options.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        for _ in range(40):
            connection.publish(Publication("t", b"x" * 60_000))
        await until(lambda: connection._has_writer)
        await web.send(b"p" * 100, kind=PING)
        await web.fill(30_000)  # so that there is room for an answer
        with anyio.fail_after(20):
            frames = await web.read_frames(40 * 60_000)
        assert {kind for kind, _ in frames} <= {BINARY, PONG}
        assert b"".join(body for kind, body in frames if kind == BINARY).count(b"\0\1t") == 40


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
