"""The receivers that the kinds of sinks are tried against, each real, with a part that misbehaves when told."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import hmac
import json
import os
import ssl
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, Final, get_args

import anyio
import msgspec
from aiokafka.protocol.admin import SaslAuthenticateRequest, SaslHandShakeRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.memory_records import MemoryRecords
from anyio import to_thread

from dockbell.core.model import RESOURCES
from dockbell.testing import Arrival, Flight, Receiver
from tests.brokers import find_free_port, make_broker
from tests.kafka_server import KafkaServer
from tests.nats_server import NatsServer
from tests.rabbitmq_server import RabbitMqServer
from tests.redis_server import RedisServer

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
_PUBLISH: Final = 3
_PUBACK: Final = 4
_NOT_AUTHORIZED: Final = 0x87
_QUOTA_EXCEEDED: Final = 0x97
_FAILURES_FROM: Final = 0x80


class Moods(Receiver):
    """What the two that listen on a port have in common: whom they refuse, and whether they answer at all."""

    def __init__(self) -> None:
        super().__init__()
        self.port = find_free_port()
        self._refused: set[str] = set()
        self._failing: set[str] = set()
        self._answering = asyncio.Event()
        self._answering.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.drop()

    async def refuse(self, key: str) -> None:
        self._refused.add(key)

    async def fail(self, key: str) -> None:
        self._failing.add(key)

    async def accept(self, key: str) -> None:
        self._refused.discard(key)
        self._failing.discard(key)

    async def hang(self) -> None:
        self._answering.clear()

    async def resume(self) -> None:
        self._answering.set()

    async def drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._serve(reader, writer)
        except (EOFError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


_EVENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class WebhookReceiver(Moods):
    """An HTTP server.

    Attributes:
        pause: How long it takes over each delivery, in seconds.
    """

    def __init__(self, pause: Callable[[], float] = lambda: 0) -> None:
        super().__init__()
        self.pause = pause

    @property
    def settings(self) -> Mapping[str, Any]:
        url = f"http://127.0.0.1:{self.port}/hooks"
        return {"type": "webhook", "url": url, "secret": SECRET, "timeout": "1s", "lanes": 4}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:-2])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            status = await self._take(body, reader) if body else "204 No Content"
            writer.write(f"HTTP/1.1 {status}\r\n".encode() + b"content-length: 0\r\n" * (status[:3] != "204") + b"\r\n")
            await writer.drain()

    async def _take(self, body: bytes, reader: asyncio.StreamReader) -> str:
        arrivals = self._read(body)
        keys = {arrival.key for arrival in arrivals}
        flights = [self.arrivals.begin(arrival.feed, arrival.key) for arrival in arrivals]
        while not self._answering.is_set():
            if reader.at_eof():
                for flight in flights:
                    flight.lose()
                raise EOFError
            await anyio.sleep(0.005)
        if keys & self._refused:
            status = "422 Unprocessable Content"
        elif keys & self._failing:
            status = "500 Internal Server Error"
        else:
            await anyio.sleep(self.pause())
            for arrival in arrivals:
                self.arrivals.take(arrival)
            status = "204 No Content"
        for flight in flights:
            flight.answer()
        return status

    def _read(self, body: bytes) -> Sequence[Arrival]:
        return [Arrival.read(body)]


class BatchReceiver(WebhookReceiver):
    """An HTTP server that takes several events in one request, all or none."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, "batch": 20, "linger": "5ms"}

    def _read(self, body: bytes) -> Sequence[Arrival]:
        return [Arrival.read(bytes(event)) for event in _EVENTS.decode(body)]


class AlertReceiver(WebhookReceiver):
    """A service that takes messages for people over HTTP."""

    @property
    def settings(self) -> Mapping[str, Any]:
        url = f"json://127.0.0.1:{self.port}/alerts"
        return {"type": "alert", "url": url, "resources": [*RESOURCES], "timeout": "500ms"}

    def _read(self, body: bytes) -> Sequence[Arrival]:
        """Return the arrival of an event of which a message tells in its last line."""
        place, number, *revision, event_id = json.loads(body)["message"].splitlines()[-1].split(" ")
        source, resource, *key = place.split("/")
        revision_number = int("".join(revision)[1:] or 0)
        return [Arrival(event_id, f"{source}/{resource}", "/".join(key), int(number[1:]), revision_number)]


class BrokerReceiver(Moods):
    """Mosquitto, and a wire to it that can be cut, that keeps quiet, and that answers some publications itself.

    What the broker acknowledged has arrived.

    Attributes:
        broker: The broker itself.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.broker = make_broker(folder)
        self._rejecting = False

    @property
    def settings(self) -> Mapping[str, Any]:
        # A broker that hangs up before it has greeted us once could be one of 3.1.1; that has its own tests.
        return {"type": "mqtt", "url": f"mqtt://127.0.0.1:{self.port}", "protocol": "5"}

    async def start(self) -> None:
        self.broker.start()
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        self.broker.stop()

    async def reject(self) -> None:
        self._rejecting = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection(self.broker.host, self.broker.port)
        flights: dict[bytes, tuple[Arrival, Flight]] = {}
        try:
            async with anyio.create_task_group() as group:

                async def answer() -> None:
                    while (packet := await self._read(from_broker)) is not None:
                        self._note(packet, flights)
                        writer.write(packet)
                    group.cancel_scope.cancel()

                group.start_soon(answer)
                while (packet := await self._read(reader)) is not None:
                    refusal = self._judge(packet, flights)
                    if refusal:
                        writer.write(refusal)
                    else:
                        to_broker.write(packet)
                group.cancel_scope.cancel()
        finally:
            for _, flight in flights.values():
                flight.lose()
            to_broker.close()

    async def _read(self, reader: asyncio.StreamReader) -> bytes | None:
        """Return the next packet (MQTT 5.0, 2.1), or None when there is none any more."""
        try:
            packet = await reader.readexactly(2)
            while packet[-1] & 0x80:
                packet += await reader.readexactly(1)
            length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(packet[1:]))
            packet += await reader.readexactly(length)
        except (EOFError, ConnectionError):
            return None
        await self._answering.wait()
        return packet

    def _judge(self, packet: bytes, flights: dict[bytes, tuple[Arrival, Flight]]) -> bytes:
        """Note a publication of an event; return the answer that it gets from us, if any."""
        if self._rejecting:
            return bytes([0x20, 3, 0, _NOT_AUTHORIZED, 0])
        if packet[0] >> 4 != _PUBLISH:
            return b""
        start = 2 + next(place for place, byte in enumerate(packet[1:]) if not byte & 0x80)
        end = start + 2 + int.from_bytes(packet[start : start + 2])
        topic, packet_id = packet[start + 2 : end].decode(), packet[end : end + 2]
        if not topic.startswith(("dockbell/event/", "dockbell/feed/")):
            return b""
        arrival = Arrival.read(packet[end + 3 + packet[end + 2] :])
        flight = self.arrivals.begin(arrival.feed, arrival.key)
        if arrival.key in self._refused | self._failing:
            flight.answer()
            code = _NOT_AUTHORIZED if arrival.key in self._refused else _QUOTA_EXCEEDED
            return bytes([_PUBACK << 4, 3]) + packet_id + bytes([code])
        flights[packet_id] = arrival, flight
        return b""

    def _note(self, packet: bytes, flights: dict[bytes, tuple[Arrival, Flight]]) -> None:
        if packet[0] >> 4 == _PUBACK and (known := flights.pop(packet[2:4], None)) is not None:
            arrival, flight = known
            if len(packet) == 4 or packet[4] < _FAILURES_FROM:
                self.arrivals.take(arrival)
            flight.answer()


class PipeReceiver(Receiver):
    """The other end of a pipe, read by the event loop; what it tries is written to ``fileno()``, as to a file's."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: list[int] = []
        self._writing = -1
        self._reading = -1
        self._rest: dict[int, bytes] = {}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"type": "stdout"}

    def fileno(self) -> int:
        """Return where to write; no descriptor at all while it is stopped."""
        return self._writing

    async def start(self) -> None:
        self._reading, self._writing = os.pipe()
        self._ends += self._reading, self._writing
        fcntl.fcntl(self._writing, fcntl.F_SETPIPE_SZ, 4096)  # a reader who pauses is felt soon
        await self.resume()

    async def stop(self) -> None:
        self._writing = -1  # what was written is read all the same

    async def hang(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)

    async def resume(self) -> None:
        asyncio.get_running_loop().add_reader(self._reading, self._read, self._reading)

    def _read(self, end: int) -> None:
        *lines, self._rest[end] = (self._rest.get(end, b"") + os.read(end, 65536)).split(b"\n")
        for line in lines:
            self.arrivals.take(Arrival.read(line))

    def close(self) -> None:
        """Let everything go."""
        for end in self._ends:
            os.close(end)


class RedisReceiver(Moods):
    """Redis, and a wire to it that can be cut, that keeps quiet, and that answers some entries itself.

    An entry that the server has given an id has arrived.

    Attributes:
        server: The server itself.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.server = RedisServer(folder)
        self._rejecting = False

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"type": "redis", "url": f"redis://127.0.0.1:{self.port}", "timeout": "1s"}

    async def start(self) -> None:
        await to_thread.run_sync(self.server.start)
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await to_thread.run_sync(self.server.stop)

    async def reject(self) -> None:
        self._rejecting = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            while True:
                command = await _read_reply(reader)
                await self._answering.wait()
                writer.write(await self._answer(command, from_server, to_server))
        finally:
            to_server.close()

    async def _answer(
        self, command: bytes, from_server: asyncio.StreamReader, to_server: asyncio.StreamWriter
    ) -> bytes:
        words = command.split(b"\r\n")[2::2]
        if self._rejecting:
            return b"-NOAUTH Authentication required.\r\n"
        if words[0] != b"XADD":
            to_server.write(command)
            return await _read_reply(from_server)
        arrival = Arrival.read(words[words.index(b"event") + 1])
        flight = self.arrivals.begin(arrival.feed, arrival.key)
        try:
            if arrival.key in self._failing:
                return b"-ERR no room for it\r\n"
            to_server.write(command)
            reply = await _read_reply(from_server)
            if not reply.startswith(b"-"):
                self.arrivals.take(arrival)
            await self._answering.wait()
            return reply
        finally:
            flight.answer()


async def _read_reply(reader: asyncio.StreamReader) -> bytes:
    """Return the next value of the protocol of Redis (RESP2), as it is; a command is an array of texts."""
    line = await reader.readuntil(b"\r\n")
    kind, count = line[:1], line[1:-2]
    if kind == b"$" and int(count) >= 0:
        return line + await reader.readexactly(int(count) + 2)
    if kind in b"*%":
        size = int(count) * (2 if kind == b"%" else 1)
        return line + b"".join([await _read_reply(reader) for _ in range(size)])
    return line


class NatsReceiver(Moods):
    """NATS, and a wire to it that can be cut, that keeps quiet, and that answers some messages itself.

    A message that the stream has acknowledged has arrived.

    Attributes:
        server: The server itself.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.server = NatsServer(folder)
        self._rejecting = False

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"type": "nats", "url": f"nats://127.0.0.1:{self.port}", "timeout": "1s"}

    async def start(self) -> None:
        await to_thread.run_sync(self.server.start)
        await self.server.add_stream("dockbell.>")
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        await to_thread.run_sync(self.server.stop)

    async def reject(self) -> None:
        self._rejecting = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.server.port)
        flights: dict[bytes, tuple[Arrival, Flight]] = {}
        subscription = b""
        try:
            async with anyio.create_task_group() as group:

                async def answer() -> None:
                    with suppress(EOFError, ConnectionError):
                        while True:
                            words, message = await _read_message(from_server)
                            await self._answering.wait()
                            if words[0] == b"MSG" and (known := flights.pop(words[1], None)) is not None:
                                if b'"error"' not in message:
                                    self.arrivals.take(known[0])
                                known[1].answer()
                            writer.write(message)
                    group.cancel_scope.cancel()

                group.start_soon(answer)
                with suppress(EOFError, ConnectionError):
                    while True:
                        words, message = await _read_message(reader)
                        await self._answering.wait()
                        subscription = words[-1] if words[0] == b"SUB" else subscription
                        if refusal := self._judge(words, message, flights, subscription):
                            writer.write(refusal)
                        else:
                            to_server.write(message)
                group.cancel_scope.cancel()
        finally:
            for _, flight in flights.values():
                flight.lose()
            to_server.close()

    def _judge(
        self,
        words: Sequence[bytes],
        message: bytes,
        flights: dict[bytes, tuple[Arrival, Flight]],
        subscription: bytes,
    ) -> bytes:
        """Note an event; return the answer that it gets from us, if any."""
        if self._rejecting:
            return b"-ERR 'Authorization Violation'\r\n"
        if words[0] != b"HPUB" or not words[1].startswith(b"dockbell."):
            return b""
        arrival, reply = Arrival.read(message[-2 - int(words[-1]) + int(words[-2]) : -2]), words[2]
        flight = self.arrivals.begin(arrival.feed, arrival.key)
        if arrival.key in self._refused | self._failing:
            flight.answer()
            code = 10054 if arrival.key in self._refused else 10077
            error = json.dumps({"error": {"code": 400, "err_code": code, "description": "not this one"}}).encode()
            return b"MSG %b %b %d\r\n%b\r\n" % (reply, subscription, len(error), error)
        flights[reply] = arrival, flight
        return b""


async def _read_message(reader: asyncio.StreamReader) -> tuple[Sequence[bytes], bytes]:
    """Return the next message of the protocol of NATS, as words and as it is."""
    line = await reader.readuntil(b"\r\n")
    words = line.split() or [b""]
    payload = b""
    if words[0] in (b"PUB", b"HPUB", b"MSG", b"HMSG"):
        payload = await reader.readexactly(int(words[-1]) + 2)
    return words, line + payload


class KafkaReceiver(Moods):
    """A broker that speaks Kafka's protocol, and a wire to it that can be cut, and that keeps quiet.

    The wire asks for a user, ends TLS, and answers some requests itself. A message that the broker stored has arrived.

    Attributes:
        server: The broker itself, which tells its clients to use the wire.
        users: Who may log in, with the password; nobody is asked while there is none.
        trust: That of the wire's TLS, if it speaks that.
        codes: Errors (Kafka protocol, error codes) for the next requests that name a topic, none forwarded.
        produce_codes: The same for the next requests that bring messages.
        batches: How many messages each request brought.
        others: The ports of other brokers, which lead some partitions; none of them is asked for here.
        login_code: An error that answers each login.
        slow: The partitions whose replicas do not follow in the time that a request gives them.
        throttle: How long clients are asked to wait after each request, in milliseconds.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.server = KafkaServer(folder, public_port=self.port)
        self.users = {"bell": "open sesame"}
        self.trust: ssl.SSLContext | None = None
        self.codes: list[int] = []
        self.produce_codes: list[int] = []
        self.batches: list[int] = []
        self.others: list[int] = []
        self.login_code = 0
        self.slow: set[int] = set()
        self.throttle = 0

    @property
    def settings(self) -> Mapping[str, Any]:
        # A request has three quarters of the time: a broker on a busy machine took more than 0.75 s for one,
        # whose messages the sink rightly sent again.
        url = f"kafka://127.0.0.1:{self.port}"
        return {"type": "kafka", "url": url, "user": "bell", "password": "open sesame", "timeout": "3s"}

    async def start(self) -> None:
        await to_thread.run_sync(self.server.start)
        await self.start_wire()

    async def stop(self) -> None:
        await self.stop_wire()
        await to_thread.run_sync(self.server.stop)

    async def start_wire(self) -> None:
        """Start what stands before the broker, which runs."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=self.trust)

    async def stop_wire(self) -> None:
        """End what stands before the broker."""
        await super().stop()

    async def reject(self) -> None:
        self.users = {"bell": "another one"}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.server.port)
        login = _ScramServer(self.users)

        async def ask(frame: bytes) -> bytes:
            to_server.write(frame)
            return await _read_sized(from_server)

        try:
            while True:
                request = _KafkaRequest(await _read_sized(reader))
                await self._until_answering(reader)
                if request.name == "Produce":
                    answer = await self._store(request, ask)
                else:
                    answer = self._answer(request, login) or self._name_brokers(request, await ask(request.frame))
                await self._answering.wait()
                writer.write(len(answer).to_bytes(4) + answer)
        finally:
            to_server.close()

    async def _until_answering(self, reader: asyncio.StreamReader) -> None:
        while not self._answering.is_set():
            if reader.at_eof() or reader.exception() is not None:  # nobody waits for it any more
                raise EOFError
            await anyio.sleep(0.005)

    def _name_brokers(self, request: _KafkaRequest, answer: bytes) -> bytes:
        """Return an answer in which the partitions are led in turn by this broker and the other ones."""
        if request.name != "Metadata" or not self.others:
            return answer
        said = request.decode_answer(answer)
        ports = dict(enumerate((self.port, *self.others), start=said.brokers[0][0]))
        said.brokers = [(number, "127.0.0.1", port, None) for number, port in ports.items()]
        said.topics = [
            (*head, [(code, part, [*ports][part % len(ports)], *rest) for code, part, _, *rest in parts])
            for *head, parts in said.topics
        ]
        return answer[:4] + bytes(said.encode())

    def _answer(self, request: _KafkaRequest, login: _ScramServer) -> bytes:
        """Return the answer that a request gets from us, if any."""
        if request.name == "SaslHandShake":
            return request.answer(error_code=self.login_code, enabled_mechanisms=["SCRAM-SHA-512", "PLAIN"])
        if request.name == "SaslAuthenticate":
            code, words = login.step(request.read().sasl_auth_bytes)
            fields = {"error_code": code, "error_message": "no" if code else None, "sasl_auth_bytes": words}
            return request.answer(**fields, **({"session_lifetime_ms": 0} if request.version else {}))
        if request.name == "Metadata" and request.read().topics and self.codes:
            code = self.codes.pop(0)
            topics = [(code, name, False, ()) for name in request.read().topics]
            brokers = [(111, "127.0.0.1", self.port, None)]
            ours = {"brokers": brokers, "controller_id": 111, "topics": topics}
            return request.answer(throttle_time_ms=0, cluster_id=None, **ours)
        return b""

    async def _store(self, request: _KafkaRequest, ask: Callable[[bytes], Awaitable[bytes]]) -> bytes:
        """Have the broker store the batches that we do not refuse; return the answer."""
        flights = [self.arrivals.begin(arrival.feed, arrival.key) for _, arrival in request.arrivals]
        try:
            self.batches.append(len(request.arrivals))
            codes = dict.fromkeys((place for place, _ in request.arrivals), 0)
            codes |= {place: code for place, arrival in request.arrivals if (code := self._find_code(arrival.key))}
            if self.produce_codes:
                codes = dict.fromkeys(codes, self.produce_codes.pop(0))
            if late := {place: _REQUEST_TIMED_OUT for place in codes if place[1] in self.slow}:
                await anyio.sleep(request.read().timeout / 1000)
                codes |= late
            if wanted := {place for place, code in codes.items() if not code}:
                codes |= request.read_codes(await ask(request.keep(wanted)))
            for place, arrival in request.arrivals:
                if not codes[place]:
                    self.arrivals.take(arrival)
            await self._answering.wait()
            for flight in flights:
                flight.answer()
            return request.answer_codes(codes, throttle=self.throttle)
        finally:
            for flight in flights:
                flight.lose()

    @property
    def connections(self) -> int:
        """How many clients there are."""
        return len(self._writers)

    def _find_code(self, key: str) -> int:
        if key in self._refused:
            return _MESSAGE_TOO_LARGE
        return _NOT_ENOUGH_REPLICAS if key in self._failing else 0


_MESSAGE_TOO_LARGE: Final = 10
_NOT_ENOUGH_REPLICAS: Final = 19
_REQUEST_TIMED_OUT: Final = 7


class _KafkaRequest:
    """A request of Kafka's protocol, as it came and as it is read."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._kind = _KAFKA_REQUESTS.get(int.from_bytes(content[:2]))
        self.version = int.from_bytes(content[2:4])
        self.arrivals = [*self._find_arrivals()] if self.name == "Produce" else []

    @property
    def name(self) -> str:
        return "" if self._kind is None else self._kind.__name__.removesuffix("Request")

    @property
    def frame(self) -> bytes:
        return len(self._content).to_bytes(4) + self._content

    def read(self) -> Any:
        """Return what it asks for."""
        return self._struct.decode(BytesIO(self._content[self._start :]))

    def answer(self, **fields: Any) -> bytes:
        """Return an answer to it."""
        return self._content[4:8] + bytes(self._struct.RESPONSE_TYPE(**fields).encode())

    def keep(self, places: Collection[tuple[str, int]]) -> bytes:
        """Return a request to store the batches of some partitions only."""
        asked = self.read()
        asked.topics = [
            (topic, [part for part in partitions if (topic, part[0]) in places]) for topic, partitions in asked.topics
        ]
        content = self._content[: self._start] + bytes(asked.encode())
        return len(content).to_bytes(4) + content

    def decode_answer(self, answer: bytes) -> Any:
        """Return what an answer to it says."""
        return self._struct.RESPONSE_TYPE.decode(BytesIO(answer[4:]))

    def read_codes(self, answer: bytes) -> Mapping[tuple[str, int], int]:
        """Return what an answer says of each partition."""
        topics = self.decode_answer(answer).topics
        return {(topic, partition): code for topic, partitions in topics for partition, code, *_ in partitions}

    def answer_codes(self, codes: Mapping[tuple[str, int], int], *, throttle: int) -> bytes:
        """Return an answer that says something of each partition; the numbers after its code are offsets and a time."""
        count = 5 if self.version >= 5 else 4
        topics = [
            (topic, [(part, codes[topic, part], 0, -1, 0)[:count] for part, _ in partitions])
            for topic, partitions in self.read().topics
        ]
        return self.answer(topics=topics, throttle_time_ms=throttle)

    @property
    def _start(self) -> int:
        """Where the header ends: ``api_key``, ``api_version``, ``correlation_id`` and ``client_id`` with its length."""
        return 10 + max(0, int.from_bytes(self._content[8:10], signed=True))

    @property
    def _struct(self) -> Any:
        kinds: Any = get_args(get_args(self._kind.__orig_bases__[0])[0])  # type: ignore[union-attr]
        return next(kind for kind in kinds if self.version == kind.API_VERSION)

    def _find_arrivals(self) -> Iterator[tuple[tuple[str, int], Arrival]]:
        for topic, partitions in self.read().topics:
            for partition, content in partitions:
                records = MemoryRecords(content)
                while (batch := records.next_batch()) is not None:
                    for record in batch:
                        yield (topic, partition), Arrival.read(record.value)


_KAFKA_REQUESTS: Final = {
    kind.API_KEY: kind for kind in (ProduceRequest, MetadataRequest, SaslHandShakeRequest, SaslAuthenticateRequest)
}


class _ScramServer:
    """The server's side of SCRAM-SHA-512 (RFC 5802), and of PLAIN."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self._first = b""

    def step(self, words: bytes) -> tuple[int, bytes]:
        """Return the code of an error, 58 where a login failed, and what is said."""
        if b"\0" in words:
            _, user, password = words.decode().split("\0")
            return (0 if self._users.get(user) == password else _LOGIN_FAILED), b""
        fields = dict(part.split(b"=", 1) for part in words.removeprefix(b"n,,").split(b","))
        if not self._first:
            self._user = fields[b"n"].decode()
            self._first = words.removeprefix(b"n,,")
            self._challenge = b"r=%b,s=c2FsdA==,i=4096" % (fields[b"r"] + os.urandom(8).hex().encode())
            return 0, self._challenge
        salted = hashlib.pbkdf2_hmac("sha512", self._users.get(self._user, "").encode(), b"salt", 4096)
        client_key, server_key = (hmac.digest(salted, name, "sha512") for name in (b"Client Key", b"Server Key"))
        text = self._first + b"," + self._challenge + b"," + words.rpartition(b",p=")[0]
        signature = hmac.digest(hashlib.sha512(client_key).digest(), text, "sha512")
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        if b64encode(proof) != fields[b"p"]:
            return _LOGIN_FAILED, b""
        return 0, b"v=" + b64encode(hmac.digest(server_key, text, "sha512"))


_LOGIN_FAILED: Final = 58


async def _read_sized(reader: asyncio.StreamReader) -> bytes:
    """Return the next request or answer of Kafka's protocol."""
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))


_METHOD, _HEADER, _BODY = 1, 2, 3
_ACK: Final = bytes([0, 60, 0, 80])
_NACK: Final = bytes([0, 60, 0, 120])
_START_OK: Final = bytes([0, 10, 0, 11])
_CLOSE: Final = bytes([0, 10, 0, 50])


class RabbitMqReceiver(Moods):
    """RabbitMQ, and a wire to it that can be cut, that keeps quiet, and that refuses a login.

    A message that the server has confirmed has arrived. One that fails meets a queue that is full.

    Attributes:
        server: The server itself, which others use too: stopped is only the wire.
        exchange: Of this receiver alone.
    """

    def __init__(self, server: RabbitMqServer) -> None:
        super().__init__()
        self.server = server
        self.exchange = ""
        self._full = ""
        self._rejecting = False

    @property
    def settings(self) -> Mapping[str, Any]:
        url = f"amqp://127.0.0.1:{self.port}"
        return {"type": "amqp", "url": url, "exchange": self.exchange, "routing_key": "{key}", "timeout": "1s"}

    async def start(self) -> None:
        if not self.exchange:
            self.exchange = await self.server.add_exchange()
            await self.server.add_queue(self.exchange, "#")
            self._full = await self.server.add_queue(self.exchange, x_max_length=0, x_overflow="reject-publish")
        await super().start()

    async def fail(self, key: str) -> None:
        async with self.server.connecting() as channel:
            await (await channel.get_queue(self._full)).bind(self.exchange, key)

    async def accept(self, key: str) -> None:
        async with self.server.connecting() as channel:
            await (await channel.get_queue(self._full)).unbind(self.exchange, key)

    async def reject(self) -> None:
        self._rejecting = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.server.port)
        flights: dict[int, tuple[Arrival, Flight]] = {}
        try:
            async with anyio.create_task_group() as group:

                async def answer() -> None:
                    with suppress(EOFError, ConnectionError):
                        while True:
                            kind, payload, frame = await _read_frame(from_server)
                            await self._answering.wait()
                            if kind == _METHOD:
                                self._note(payload, flights)
                            writer.write(frame)
                    group.cancel_scope.cancel()

                group.start_soon(answer)
                with suppress(EOFError, ConnectionError):
                    to_server.write(await reader.readexactly(8))  # the name and the version of the protocol
                    await self._pass_on(reader, writer, to_server, flights)
                group.cancel_scope.cancel()
        finally:
            for _, flight in flights.values():
                flight.lose()
            to_server.close()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_server: asyncio.StreamWriter,
        flights: dict[int, tuple[Arrival, Flight]],
    ) -> None:
        tag, size, body = 0, 0, b""
        while True:
            kind, payload, frame = await _read_frame(reader)
            await self._answering.wait()
            if kind == _METHOD and payload.startswith(_START_OK) and self._rejecting:
                text = b"ACCESS_REFUSED - Login was refused"
                refusal = _CLOSE + (403).to_bytes(2) + bytes([len(text)]) + text + _START_OK
                writer.write(bytes([_METHOD, 0, 0]) + len(refusal).to_bytes(4) + refusal + b"\xce")
                continue
            if kind == _HEADER:
                size, body = int.from_bytes(payload[4:12]), b""
            elif kind == _BODY:
                body += payload
                if len(body) == size:
                    tag += 1
                    arrival = Arrival.read(body)
                    flights[tag] = arrival, self.arrivals.begin(arrival.feed, arrival.key)
            to_server.write(frame)

    def _note(self, payload: bytes, flights: dict[int, tuple[Arrival, Flight]]) -> None:
        """Note which publications the server confirms or refuses (extension of AMQP 0-9-1: publisher confirms)."""
        if payload[:4] not in (_ACK, _NACK):
            return
        last, and_before = int.from_bytes(payload[4:12]), payload[12] & 1
        for tag in [tag for tag in flights if tag == last or (and_before and tag < last)]:
            arrival, flight = flights.pop(tag)
            if payload[:4] == _ACK:
                self.arrivals.take(arrival)
            flight.answer()


async def _read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    """Return the next frame of AMQP 0-9-1 (4.2.3): its type, what it holds, and as it is."""
    head = await reader.readexactly(7)
    rest = await reader.readexactly(int.from_bytes(head[3:]) + 1)
    return head[0], rest[:-1], head + rest
