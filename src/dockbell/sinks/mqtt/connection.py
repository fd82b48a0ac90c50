"""One MQTT connection, driven by the event loop. It queues nothing and resends nothing.

paho speaks the protocol, except for publications and the answers to them, see ``packet_socket``. After a loss the
caller publishes what was not acknowledged on the next connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Final, TypeAlias

import anyio
from paho.mqtt import client as paho
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from dockbell.errors import SinkError
from dockbell.sinks.mqtt import acknowledgements
from dockbell.sinks.mqtt.acknowledgements import Ack, Acknowledgements
from dockbell.sinks.mqtt.packet_socket import PacketSocket
from dockbell.sinks.mqtt.packets import (
    MOST_REMAINING,
    Answer,
    Protocol,
    Publication,
    VersionUnclear,
    describe,
    encode_publish,
    encode_pubrel,
    find_refusal,
    pack_properties,
    packet_size,
    remaining_length,
)

_TICK: Final = timedelta(seconds=1)
_LEAVE_LIMIT: Final = timedelta(seconds=1)
_LAST_READINGS: Final = 100
"""How often a lost connection is read from once more; each time up to 64 KiB."""
_MOST_GIVEN_UP: Final = 1000
"""The packet id of each is in use until the connection ends."""
_TAKEN_OVER: Final = 0x8E
# Reasons of a DISCONNECT that no single publication can be blamed for: busy, shutting down, no answer to a ping, too
# much in flight, rate, quota, administrative action, another server, moved, connection rate, longest connection.
_BLAMELESS: Final = frozenset({0x89, 0x8B, 0x8D, 0x93, 0x96, 0x97, 0x98, 0x9C, 0x9D, 0x9F, 0xA0})
# The reasons that paho gives when there is no DISCONNECT.
_NOT_MQTT: Final = 0x82
_NO_ANSWER: Final = 0x8D


class Ending(Enum):
    OURS = auto()  # we gave it up, or the broker gave a reason that blames no publication
    SILENT = auto()  # we gave it up: the broker did not acknowledge the last publications
    DROPPED = auto()  # the broker closed it without a reason, or because of a publication
    TAKEN_OVER = auto()  # another client has connected with our client id


OnMessage: TypeAlias = Callable[[str, bytes, bool], None]


class Connection:
    def __init__(self, client: paho.Client, wake: Callable[[], None], protocol: Protocol = Protocol.V5) -> None:
        self.protocol = protocol
        self.lost = ""  # why it ended
        self.ending = Ending.OURS
        self.receive_maximum = 65_535
        self.packet_maximum = packet_size(MOST_REMAINING)
        self.retains = True  # whether the broker does
        self.qos_maximum = 2  # what it takes
        self.is_subscribing = False  # a subscription has been neither granted nor refused
        self._client = client
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._begun_at = self._loop.time()
        self._lost_at = 0.0
        self._cut = asyncio.Event()  # the other side has closed, or the network is gone
        self._greeted = asyncio.Event()
        self._refusal: SinkError | None = None
        self._acknowledgements = Acknowledgements(self._loop.time)
        self._is_heard = False  # a publication was answered since the last tick
        self._is_flush_due = False
        self._has_reader = True
        self._has_writer = False
        self._answer: asyncio.Future[str] = self._loop.create_future()
        self._listener: OnMessage = lambda *_: None
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        client.on_socket_close = self._on_socket_close
        sock = client.socket()
        assert isinstance(sock, PacketSocket)
        self._socket = sock
        self._loop.add_reader(self._socket, self._read)
        self._flush_soon()
        self._ticker = self._loop.call_later(_TICK.total_seconds(), self._tick)

    async def wait_for_connack(self) -> None:
        await self._greeted.wait()
        if self._refusal is not None:
            raise self._refusal
        if self.lost:
            is_closed = self.ending is Ending.DROPPED
            raise VersionUnclear(self.lost, is_closed=is_closed, is_answered=not is_closed)

    @property
    def age(self) -> timedelta:
        return timedelta(seconds=(self._lost_at if self.lost else self._loop.time()) - self._begun_at)

    @property
    def quota(self) -> int:
        """How many publications may be in flight: the broker goes on counting those we gave up (MQTT 5.0, 4.9)."""
        return self.receive_maximum - self._acknowledgements.given_up

    @property
    def is_worn(self) -> bool:
        """Whether so many publications were given up that a new connection is better."""
        return self._acknowledgements.given_up >= min(max(1, self.receive_maximum // 2), _MOST_GIVEN_UP)

    @property
    def is_doubtful(self) -> bool:
        """Whether one has been in flight for long, and no later one was acknowledged either."""
        return self._acknowledgements.is_doubtful

    @property
    def has_answered(self) -> bool:
        """Whether the broker has acknowledged something."""
        return self._acknowledgements.has_come

    def find_obstacle(self, publication: Publication) -> str:
        """Return why the broker does not take a publication, empty where it does; to try would cost the connection."""
        if publication.retain and not self.retains:
            return "the broker does not retain messages"
        remaining = remaining_length(publication, pack_properties(publication, self.protocol))
        if remaining > MOST_REMAINING or packet_size(remaining) > self.packet_maximum:
            return f"larger than the broker accepts ({self.packet_maximum} bytes)"
        return ""

    def publish(self, publication: Publication) -> int | None:
        """Send once; return the packet id that the :class:`Ack` will bear, or None when the connection is lost.

        What is published in one turn of the event loop goes out together at its end.
        """
        if self.lost:
            return None
        qos = min(publication.qos, self.qos_maximum)
        packet_id = self._acknowledgements.expect(qos)
        self._socket.send(encode_publish(publication, packet_id, qos, pack_properties(publication, self.protocol)))
        self._flush_soon()
        return packet_id

    def take_acks(self) -> list[Ack]:
        return self._acknowledgements.take()

    def waited(self, packet_id: int) -> timedelta:
        """Return how long a publication had been in flight when the connection was lost."""
        return timedelta(seconds=self._lost_at - self._acknowledgements.sent_at(packet_id))

    def is_unanswered(self, packet_id: int) -> bool:
        """Return whether a publication was among those whose silence ended the connection."""
        return self.ending is Ending.SILENT and self.waited(packet_id) > acknowledgements.DOUBT_AFTER

    async def subscribe(self, topic: str, on_message: OnMessage, *, is_queued: bool = True) -> str:
        """Subscribe to one filter, and to none beside it; return why the broker refuses, empty when it grants it.

        It does not return when the connection is lost before the answer. ``on_message`` is called with the topic and
        payload of each publication, and whether it is a retained one. ``is_queued`` asks for quality of service 1,
        which brokers queue some hundred of, and for our own publications too.
        """
        self._listener = on_message
        self.is_subscribing = True
        self._answer = self._loop.create_future()
        if is_queued or self.protocol is Protocol.V3:
            self._client.subscribe(topic, qos=int(is_queued))
        else:
            self._client.subscribe(topic, options=SubscribeOptions(qos=0, noLocal=True))
        self._flush_soon()
        return await self._answer

    def unsubscribe(self, topic: str) -> None:
        """End a subscription, whether or not the broker has granted it."""
        self._listener = lambda *_: None
        self.is_subscribing = False
        if not self.lost:
            self._client.unsubscribe(topic)
            self._flush_soon()

    async def disconnect(self) -> None:
        """Send what waits, then DISCONNECT, so that the broker discards the will; close once the broker has closed.

        If this side closed first, an acknowledgement that comes later could make the kernel reset the connection, and
        the broker might not read the DISCONNECT. A broker should close at a DISCONNECT (MQTT 5.0, 3.14.4); this side
        closes after a second at the latest.
        """
        self._lose("closed")  # before paho tells of an end that it does not know to be ours
        self._ticker.cancel()
        try:
            if self._socket.is_open and self._client.socket() is not None:
                self._client.on_socket_close = None
                self._socket.outlives_paho = True
                self._client.disconnect()
                self._flush_soon()
                with anyio.move_on_after(_LEAVE_LIMIT.total_seconds()):
                    await self._cut.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Close at once; a broker that has read no DISCONNECT publishes the will."""
        self._ticker.cancel()
        self._client.on_socket_close = None
        self._on_socket_close()
        self._socket.outlives_paho = False
        self._socket.close()
        self._lose("closed")

    # Called by the event loop.

    def _read(self) -> None:
        self._read_packets()
        self._socket.acknowledge_at_once()
        self._flush()

    def _read_packets(self) -> None:
        """Read what has come, but not so much that others wait long."""
        for part in self._socket.receive():
            if isinstance(part, Answer):
                self._is_heard = True
                if self._acknowledgements.take_in(part) and not self.lost:  # nothing may follow a DISCONNECT
                    self._socket.send(encode_pubrel(part.packet_id))
            else:
                if not part:
                    self._cut.set()
                self._socket.give_paho(part)
                self._let_paho_read()
            if not self._socket.is_open:
                break
        self._tell()

    def _let_paho_read(self) -> None:
        try:
            while self._socket.has_news_for_paho and self._client.socket() is not None:
                self._client.loop_read()
        except Exception as error:  # noqa: BLE001  # it would raise the same again, and the connection would never end
            self._on_socket_close()
            self._socket.close()
            self._lose(f"the broker sent what cannot be read, {type(error).__name__}: {error}")

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what waits, and go on with the rest once the network takes more."""
        self._is_flush_due = False
        if self._client.want_write():  # what it was asked to send in one of its own callbacks
            self._client.loop_write()
        if not self._socket.is_open:
            return
        try:
            self._socket.flush()
        except OSError:
            self._end()
            return
        if self._socket.has_sent_all:
            self._acknowledgements.confirm_written()
            self._tell()
        self._watch()

    def _watch(self) -> None:
        """Let the event loop call when there is something to read, and when the network takes more."""
        if self._has_writer is not self._socket.waits_to_write:
            self._has_writer = not self._has_writer
            if self._has_writer:
                self._loop.add_writer(self._socket, self._flush)
            else:
                self._loop.remove_writer(self._socket)
        if self._has_reader is not self._socket.is_readable:
            self._has_reader = not self._has_reader
            if self._has_reader:
                self._loop.add_reader(self._socket, self._read)
            else:
                self._loop.remove_reader(self._socket)
        if self._socket.hides_bytes:
            self._loop.call_soon(self._read)

    def _end(self) -> None:
        """Read what the broker has sent before the connection was lost: acknowledgements, and perhaps why."""
        for _ in range(_LAST_READINGS):
            self._read_packets()
            if not self._socket.is_open or self._cut.is_set():
                break
        self._cut.set()
        self._lose("connection lost", Ending.DROPPED)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(_TICK.total_seconds(), self._tick)
        if self._is_heard:
            # Else paho would take the broker for dead: it does not see the answers to publications.
            self._is_heard = False
            self._socket.give_paho_pingresp()
            self._let_paho_read()
        self._client.loop_misc()
        self._flush()
        if not self.lost:  # else what it owes goes out again on the next connection
            self._acknowledgements.give_up_overtaken()
            if self._acknowledgements.is_silent:
                limit = f"{acknowledgements.ANSWER_LIMIT.total_seconds():g} s"
                self._lose(f"no acknowledgement within {limit}", Ending.SILENT)
        if self.is_doubtful:
            self._wake()
        self._tell()

    def _tell(self) -> None:
        if self._acknowledgements.has_news:
            self._wake()

    def _lose(self, reason: str, ending: Ending = Ending.OURS) -> None:
        if not self.lost:
            self.lost, self.ending, self._lost_at = reason, ending, self._loop.time()
        self._greeted.set()
        self._wake()

    # Called by paho, in the event loop.

    def _on_connect(self, _client: paho.Client, _data: Any, _flags: Any, code: ReasonCode, properties: Any) -> None:
        self._refusal = find_refusal(code, properties)
        self.receive_maximum = getattr(properties, "ReceiveMaximum", self.receive_maximum)
        self.packet_maximum = getattr(properties, "MaximumPacketSize", self.packet_maximum)
        self.retains = bool(getattr(properties, "RetainAvailable", True))
        self.qos_maximum = getattr(properties, "MaximumQoS", self.qos_maximum)
        self._greeted.set()

    def _on_subscribe(self, _client: paho.Client, _data: Any, _id: int, codes: list[ReasonCode], _more: Any) -> None:
        self.is_subscribing = False
        if not self._answer.done():
            self._answer.set_result(describe(codes[0]) if codes[0].is_failure else "")

    def _on_message(self, _client: paho.Client, _data: Any, heard: paho.MQTTMessage) -> None:
        with suppress(UnicodeDecodeError):
            self._listener(heard.topic, bytes(heard.payload), heard.retain)

    def _on_disconnect(
        self, _client: paho.Client, _data: Any, flags: paho.DisconnectFlags, code: ReasonCode, _properties: Any
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            blamed = Ending.TAKEN_OVER if code.value == _TAKEN_OVER else Ending.DROPPED
            ending = Ending.OURS if code.value in _BLAMELESS else blamed
            self._lose(f"closed by the broker, {describe(code)}", ending)
        elif code.value == _NOT_MQTT:
            self._lose(f"the broker did not answer in MQTT {self.protocol}")
        elif code.value == _NO_ANSWER:
            self._lose("no answer to a ping")
        else:
            self._lose("connection lost", Ending.DROPPED)

    def _on_socket_close(self, *_: Any) -> None:
        if self._socket.is_open:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
