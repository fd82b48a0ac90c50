"""The receivers that the kinds of sinks are tried against, each real, with a part that misbehaves when told."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio

from dockbell.core.model import RESOURCES
from dockbell.testing import Arrival, Flight, Receiver
from tests.brokers import find_free_port, make_broker

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
        arrival = self._read(body)
        flight = self.arrivals.begin(arrival.feed, arrival.key)
        while not self._answering.is_set():
            if reader.at_eof():
                flight.lose()
                raise EOFError
            await anyio.sleep(0.005)
        if arrival.key in self._refused:
            status = "422 Unprocessable Content"
        elif arrival.key in self._failing:
            status = "500 Internal Server Error"
        else:
            await anyio.sleep(self.pause())
            self.arrivals.take(arrival)
            status = "204 No Content"
        flight.answer()
        return status

    def _read(self, body: bytes) -> Arrival:
        return Arrival.read(body)


class AlertReceiver(WebhookReceiver):
    """A service that takes messages for people over HTTP."""

    @property
    def settings(self) -> Mapping[str, Any]:
        url = f"json://127.0.0.1:{self.port}/alerts"
        return {"type": "alert", "url": url, "resources": [*RESOURCES], "timeout": "500ms"}

    def _read(self, body: bytes) -> Arrival:
        """Return the arrival of an event of which a message tells in its last line."""
        place, number, *revision, event_id = json.loads(body)["message"].splitlines()[-1].split(" ")
        source, resource, *key = place.split("/")
        return Arrival(
            event_id, f"{source}/{resource}", "/".join(key), int(number[1:]), int("".join(revision)[1:] or 0)
        )


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
