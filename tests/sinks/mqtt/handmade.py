"""A broker of a few lines, for what no real one does on demand."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, DISCONNECT = 1, 2, 3, 4, 5, 6, 14
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP = 8, 9, 10, 11, 12, 13
V3: Final = 4
V5: Final = 5
REFUSED: Final = 0x80


def packet(kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    """Return a packet."""
    size, length = b"", len(body)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([kind << 4 | flags]) + size + bytes([length]) + body


async def read_packet(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Return kind, flags and body of the next packet."""
    first = (await reader.readexactly(1))[0]
    size = shift = 0
    while (byte := (await reader.readexactly(1))[0]) & 128:
        size, shift = size + ((byte & 127) << shift), shift + 7
    return first >> 4, first & 15, await reader.readexactly(size + (byte << shift))


@dataclass
class Seen:
    """One PUBLISH as the broker got it."""

    connection: int
    topic: str
    payload: bytes
    retain: bool
    beside: int
    """How much else was in flight when it came."""

    @property
    def alone(self) -> bool:
        """Nothing else was in flight when it came."""
        return not self.beside


@dataclass
class HandMade:
    """A broker for publishers, who may subscribe to single topics.

    Attributes:
        version: The only protocol level that it speaks; 0: none; None: 4 and 5.
        rude: How many CONNECTs it answers by closing the connection before it speaks.
        refuses: What it answers to a CONNECT in another; empty: it closes the connection.
        receive_maximum: As in its CONNACK.
        properties: More of the CONNACK's properties.
        poison: Whether it closes the connection on a topic.
        farewell: What it sends before.
        crashes: It goes down on it altogether, for a moment.
        early: What it acknowledges at once all the same.
        late: What it acknowledges a quarter of a second later than the rest.
        silent: Whether it never acknowledges a topic, unless :meth:`relent` lets it.
        verdict: The reason code for a topic.
        grants: The answer to a SUBSCRIBE; None closes the connection.
        wildcards: The same where it has wildcards.
        shows: How much of what it retains it delivers to a subscriber.
        echoes: Whether it delivers what is published to a topic to who has subscribed to it.
        delay: How long it takes over a PUBACK, in seconds.
        lingers: Whether it does not close the connection at a DISCONNECT.
        levels: The protocol level of each CONNECT.
        wills: Whether each has a will.
        seen: Every PUBLISH.
        kinds: The kind of every packet.
        retained: What it retains.
        most_in_flight: The most it ever had to acknowledge at once on one connection.
        connections: How many have asked for a greeting.
    """

    version: int | None = V5
    rude: int = 0
    refuses: bytes = packet(CONNACK, b"\0\1")
    receive_maximum: int = 65_535
    properties: bytes = b""
    poison: Callable[[str], bool] = lambda _: False
    farewell: bytes = b""
    crashes: bool = False
    early: str = ""
    late: str = ""
    silent: Callable[[str], bool] = lambda _: False
    verdict: Callable[[str], int] = lambda _: 0
    grants: int | None = 1
    wildcards: int | None = 1
    shows: int = 1_000_000
    echoes: bool = True
    delay: float = 0.0
    lingers: bool = False
    port: int = 0
    levels: list[int] = field(default_factory=list)
    wills: list[bool] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    retained: dict[str, bytes] = field(default_factory=dict)
    most_in_flight: int = 0
    connections: int = 0
    _owed: list[Callable[[], None]] = field(default_factory=list)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None
    _rising: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def topics(self) -> list[str]:
        """The topics of all that was published, in order."""
        return [each.topic for each in self.seen]

    def drop(self, farewell: bytes = b"") -> None:
        """Close every connection, without a word or with a last packet."""
        for writer in self._writers:
            if farewell:
                writer.write(farewell)
                writer.close()
            else:
                writer.transport.abort()

    def relent(self) -> None:
        """Acknowledge what it has been silent about."""
        for acknowledge in self._owed:
            acknowledge()
        self._owed.clear()

    async def start(self) -> None:
        """Listen, always on the same port."""
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Listen no more, and close every connection."""
        if self._server is not None:
            self._server.close()
        self.drop()

    def crash(self) -> None:
        """Stop, and start again a little later."""
        self.stop()
        self._rising = asyncio.create_task(self._rise())

    async def _rise(self) -> None:
        await asyncio.sleep(0.05)
        await self.start()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._writers.add(writer)
        visit = _Visit(self, writer)
        try:
            while visit.answer(*await read_packet(reader)):
                await writer.drain()
        except (EOFError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


class _Visit:
    """One connection."""

    def __init__(self, broker: HandMade, writer: asyncio.StreamWriter) -> None:
        self._broker = broker
        self._writer = writer
        self._number = 0
        self._heard: set[str] = set()
        self._in_flight: list[bytes] = []
        self._is_v5 = False
        self._answers = {
            CONNECT: self._greet,
            PUBLISH: self._take,
            SUBSCRIBE: self._subscribe,
            UNSUBSCRIBE: self._unsubscribe,
        }

    def answer(self, kind: int, flags: int, body: bytes) -> bool:
        """Answer a packet; return whether the connection goes on."""
        self._broker.kinds.append(kind)
        if kind in self._answers:
            return self._answers[kind](flags, body)
        if kind == PINGREQ:
            self._writer.write(packet(PINGRESP))
        return kind != DISCONNECT or self._broker.lingers

    def _greet(self, _: int, body: bytes) -> bool:
        broker, level = self._broker, body[6]
        broker.levels.append(level)
        broker.wills.append(bool(body[7] & 4))
        broker.connections += 1
        self._number = broker.connections
        if self._number <= broker.rude:
            return False
        self._is_v5 = level == V5
        if broker.version not in (level, None):
            self._writer.write(broker.refuses)
            return False
        properties = b"\x21" + broker.receive_maximum.to_bytes(2, "big") + broker.properties
        more = bytes([len(properties)]) + properties if self._is_v5 else b""
        self._writer.write(packet(CONNACK, b"\0\0" + more))
        return True

    def _take(self, flags: int, body: bytes) -> bool:
        broker, end = self._broker, 2 + int.from_bytes(body[:2], "big")
        topic, packet_id = body[2:end].decode(), body[end : end + 2]
        payload = body[end + 3 + body[end + 2] :] if self._is_v5 else body[end + 2 :]
        broker.seen.append(Seen(self._number, topic, payload, bool(flags & 1), beside=len(self._in_flight)))
        self._in_flight.append(packet_id)
        broker.most_in_flight = max(broker.most_in_flight, len(self._in_flight))
        if len(self._in_flight) > broker.receive_maximum:
            self._writer.write(packet(DISCONNECT, b"\x93\0"))
            return False
        if broker.poison(topic):
            self._writer.write(broker.farewell)
            if broker.crashes:
                broker.crash()
            return False
        if flags & 1:
            broker.retained[topic] = payload
        if topic in self._heard and broker.echoes:
            self._publish(topic, payload, flags=0)
        if broker.silent(topic):
            broker._owed.append(partial(self._acknowledge, packet_id, 0))
            return True
        delay = 0.0 if topic == broker.early else broker.delay + 0.25 * (topic == broker.late)
        asyncio.get_running_loop().call_later(delay, self._acknowledge, packet_id, broker.verdict(topic))
        return True

    def _acknowledge(self, packet_id: bytes, code: int) -> None:
        self._in_flight.remove(packet_id)
        if not self._writer.is_closing():
            self._writer.write(packet(PUBACK, packet_id + (bytes([code, 0]) if self._is_v5 else b"")))

    def _subscribe(self, _: int, body: bytes) -> bool:
        broker = self._broker
        rest = body[3 + body[2] :] if self._is_v5 else body[2:]
        topic = rest[2 : 2 + int.from_bytes(rest[:2], "big")].decode()
        grants = broker.wildcards if "+" in topic else broker.grants
        if grants is None:
            return False
        self._writer.write(packet(SUBACK, body[:2] + b"\0" * self._is_v5 + bytes([grants])))
        if grants < REFUSED:
            self._heard.add(topic)
            wanted = re.compile(re.escape(topic).replace(r"\+", "[^/]+"))
            found = [each for each, payload in broker.retained.items() if payload and wanted.fullmatch(each)]
            for each in found[: broker.shows]:
                self._publish(each, broker.retained[each], flags=1)
        return True

    def _unsubscribe(self, _: int, body: bytes) -> bool:
        self._heard.clear()
        self._writer.write(packet(UNSUBACK, body[:2] + b"\0\0" * self._is_v5))
        return True

    def _publish(self, topic: str, payload: bytes, *, flags: int) -> None:
        name = topic.encode()
        head = len(name).to_bytes(2, "big") + name + b"\0" * self._is_v5
        self._writer.write(packet(PUBLISH, head + payload, flags))


@asynccontextmanager
async def listening(broker: HandMade) -> AsyncIterator[HandMade]:
    """Let it listen."""
    await broker.start()
    try:
        yield broker
    finally:
        broker.stop()
