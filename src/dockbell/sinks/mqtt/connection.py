"""One MQTT connection, driven by the event loop; paho speaks the protocol. It queues nothing and resends nothing.

After a loss the caller publishes what was not acknowledged on the next connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias

from paho.mqtt import client as paho
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from dockbell.errors import SinkError
from dockbell.sinks.mqtt.packets import (
    MOST_REMAINING,
    Packed,
    Protocol,
    Publication,
    VersionUnclear,
    describe,
    find_refusal,
    packet_size,
    properties_of,
    remaining_length,
)

_PUBACK_LIMIT: Final = timedelta(seconds=30)
_OVERTAKEN_LIMIT: Final = timedelta(seconds=10)
"""A broker acknowledges in the order of arrival (MQTT 5.0, 4.6): after so long, it skips an older one."""
_DOUBT_AFTER: Final = timedelta(seconds=5)
_TICK: Final = timedelta(seconds=1)
_QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)
_MOST_IN_FLIGHT: Final = 65_535
_MOST_GIVEN_UP: Final = 1000
"""paho keeps each, and its packet id, until the connection ends."""
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


class Ack(NamedTuple):
    """A PUBACK or PUBCOMP, or with QoS 0 that it is written.

    With the code None it is the end of waiting for one: later publications were acknowledged long ago. ``reason``
    explains that, and the codes from 0x80 on, ``not authorized (0x87)``; it is empty for the others.
    """

    packet_id: int
    code: int | None
    reason: str


class Connection:
    def __init__(self, client: paho.Client, wake: Callable[[], None], protocol: Protocol = Protocol.V5) -> None:
        self.protocol = protocol
        self.lost = ""  # why it ended
        self.ending = Ending.OURS
        self.receive_maximum = _MOST_IN_FLIGHT
        self.packet_maximum = packet_size(MOST_REMAINING)
        self.retains = True  # whether the broker does
        self.qos_maximum = 2  # what it takes
        self.is_subscribing = False  # a subscription has been neither granted nor refused
        self.has_answered = False  # the broker has acknowledged something
        self._properties_of: Callable[[Publication], Packed | None] = (
            properties_of if protocol is Protocol.V5 else lambda _: None
        )
        self._client = client
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._begun_at = self._loop.time()
        self._lost_at = 0.0
        self._greeted = asyncio.Event()
        self._refusal: SinkError | None = None
        self._sent: dict[int, float] = {}  # when each publication in flight was sent, in that order
        self._written: set[int] = set()  # publications of QoS 0 that paho wrote before it told their packet ids
        self._answered = float("-inf")  # when the last of those was sent that were acknowledged
        self._given_up: set[int] = set()
        self._acks: list[Ack] = []
        self._answer: asyncio.Future[str] = self._loop.create_future()
        self._listener: OnMessage = lambda *_: None
        client.on_connect = self._on_connect
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        client.on_socket_close = self._on_socket_close
        sock = client.socket()
        assert sock is not None
        self._socket = sock
        # Where paho speaks through a WebSocket, it shows the number of the socket alone; a second one has its options.
        self._options = sock if isinstance(sock, socket.socket) else socket.socket(fileno=os.dup(sock.fileno()))
        self._options.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(self._socket, self._read)
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
        return self.receive_maximum - len(self._given_up)

    @property
    def is_worn(self) -> bool:
        """Whether so many publications were given up that a new connection is better."""
        return len(self._given_up) >= min(max(1, self.receive_maximum // 2), _MOST_GIVEN_UP)

    @property
    def is_doubtful(self) -> bool:
        """Whether one has been in flight for long, and no later one was acknowledged either."""
        oldest = next(iter(self._sent.values()), None)
        return oldest is not None and oldest >= self._answered and self._is_over(oldest, _DOUBT_AFTER)

    def find_obstacle(self, publication: Publication) -> str:
        """Return why the broker does not take a publication, empty where it does; to try would cost the connection."""
        if publication.retain and not self.retains:
            return "the broker does not retain messages"
        remaining = remaining_length(publication, self._properties_of(publication))
        if remaining > MOST_REMAINING or packet_size(remaining) > self.packet_maximum:
            return f"larger than the broker accepts ({self.packet_maximum} bytes)"
        return ""

    def publish(self, publication: Publication) -> int | None:
        """Send once; return the packet id that the :class:`Ack` will bear, or None when the connection is lost."""
        info = self._send(publication)
        while info.rc == paho.MQTT_ERR_QUEUE_SIZE:  # its next packet id is still in use: it goes on to the one after
            info = self._send(publication)
        if info.rc != paho.MQTT_ERR_SUCCESS:
            self._lose(f"not sent, {paho.error_string(info.rc).rstrip('.').lower()}", Ending.DROPPED)
            return None
        if publication.qos == 0 and info.mid in self._written:
            self._written.discard(info.mid)
            self._acks.append(Ack(info.mid, 0, ""))
            self._wake()
        else:
            self._sent[info.mid] = self._loop.time()
        self._write_later()
        return info.mid

    def _send(self, publication: Publication) -> paho.MQTTMessageInfo:
        return self._client.publish(
            publication.topic,
            publication.payload,
            qos=min(publication.qos, self.qos_maximum),
            retain=publication.retain,
            properties=self._properties_of(publication),
        )

    def take_acks(self) -> list[Ack]:
        acks, self._acks = self._acks, []
        return acks

    def waited(self, packet_id: int) -> timedelta:
        """Return how long a publication had been in flight when the connection was lost."""
        return timedelta(seconds=self._lost_at - self._sent[packet_id])

    def is_unanswered(self, packet_id: int) -> bool:
        """Return whether a publication was among those whose silence ended the connection."""
        return self.ending is Ending.SILENT and self.waited(packet_id) > _DOUBT_AFTER

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
        self._write_later()
        return await self._answer

    def unsubscribe(self, topic: str) -> None:
        """End a subscription, whether or not the broker has granted it."""
        self._listener = lambda *_: None
        self.is_subscribing = False
        if not self.lost:
            self._client.unsubscribe(topic)
            self._write_later()

    def disconnect(self) -> None:
        """Send DISCONNECT, so that the broker discards the will, and close."""
        self._lose("closed")  # before paho tells of an end that it does not know to be ours
        self._client.disconnect()
        self.close()

    def close(self) -> None:
        """Close at once; unless :meth:`disconnect` did, the broker publishes the will."""
        self._ticker.cancel()
        if self._client.socket() is not None:
            self._on_socket_close()
            self._client.on_socket_close = None
            self._socket.close()
        self._options.close()
        self._lose("closed")

    # Called by the event loop. paho writes to the socket at once; only the rest waits for a writer.

    def _read(self) -> None:
        self._client.loop_read()
        # A selector does not see bytes that TLS has decrypted already.
        while (sock := self._client.socket()) is not None and _count_pending(sock):
            self._client.loop_read()
        if _QUICK_ACK is not None and self._client.socket() is not None:
            # Else a broker with Nagle's algorithm holds PUBACKs back until we acknowledge, 40 ms later, the one before.
            # The kernel takes it as a hint and forgets it.
            self._options.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def _write_later(self) -> None:
        if self._client.want_write() and self._client.socket() is not None:
            self._loop.add_writer(self._socket, self._write)

    def _write(self) -> None:
        self._client.loop_write()
        if not self._client.want_write() and self._client.socket() is not None:
            self._loop.remove_writer(self._socket)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(_TICK.total_seconds(), self._tick)
        self._client.loop_misc()
        self._write_later()
        if not self.lost:
            self._give_up()

    def _give_up(self) -> None:
        """Give up publications that were overtaken, and a connection on which nothing is acknowledged."""
        for packet_id, sent_at in list(self._sent.items()):
            if sent_at >= self._answered:
                if self._is_over(sent_at, _PUBACK_LIMIT):
                    self._lose(f"no acknowledgement within {_PUBACK_LIMIT.total_seconds():g} s", Ending.SILENT)
                break
            if not self._is_over(sent_at, _OVERTAKEN_LIMIT):
                break
            # paho keeps it: a late PUBACK is its own, since nothing else has its packet id meanwhile.
            del self._sent[packet_id]
            self._given_up.add(packet_id)
            limit = f"{_OVERTAKEN_LIMIT.total_seconds():g} s"
            self._acks.append(Ack(packet_id, None, f"not acknowledged within {limit}, but later publications were"))
            self._wake()
        if self.is_doubtful:
            self._wake()

    def _is_over(self, since: float, limit: timedelta) -> bool:
        return self._loop.time() - since > limit.total_seconds()

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

    def _on_publish(self, _client: paho.Client, _data: Any, packet_id: int, code: ReasonCode, _properties: Any) -> None:
        if packet_id in self._given_up:
            self._given_up.discard(packet_id)
        elif (sent_at := self._sent.pop(packet_id, None)) is None:
            self._written.add(packet_id)  # publish() has not returned yet
            return
        else:
            self._answered = max(self._answered, sent_at)
            self._acks.append(Ack(packet_id, code.value, describe(code) if code.is_failure else ""))
        self.has_answered = True
        self._wake()

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
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)


def _count_pending(sock: object) -> int:
    """Return how many bytes TLS has decrypted that were not read yet."""
    pending: Callable[[], int] = getattr(sock, "pending", int)
    return pending()
