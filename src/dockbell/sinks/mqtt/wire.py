"""One MQTT connection: paho speaks the protocol, the event loop waits; nothing is queued, nothing is sent again.

What a lost connection has not acknowledged is the caller's to publish on the next.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Final, NamedTuple

import anyio
from anyio import to_thread
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from dockbell.errors import SinkError, SinkRejected, SinkUnavailable
from dockbell.network import explain
from dockbell.sinks.mqtt.greeting import Protocol, VersionUnclear, describe, find_refusal
from dockbell.sinks.mqtt.publication import MOST_REMAINING, Publication, packet_size, properties_of, remaining_length

_DIAL_LIMIT: Final = timedelta(seconds=10)
_PUBACK_LIMIT: Final = timedelta(seconds=30)
_TICK: Final = timedelta(seconds=1)
_QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)
_MOST_IN_FLIGHT: Final = 65_535
_MOST_HEARD: Final = 1024 * 1024
"""Bytes of a packet that a broker may send; our own words, which alone we listen to, have some hundred."""
_TAKEN_OVER: Final = 0x8E
# Reasons of a DISCONNECT that no single publication can be blamed for: busy, shutting down, no answer to a ping, too
# much in flight, rate, quota, administrative action, another server, moved, connection rate, longest connection.
_BLAMELESS: Final = frozenset({0x89, 0x8B, 0x8D, 0x93, 0x96, 0x97, 0x98, 0x9C, 0x9D, 0x9F, 0xA0})
# What paho gives as reason when there is no DISCONNECT.
_NOT_MQTT: Final = 0x82
_NO_ANSWER: Final = 0x8D


class Ending(Enum):
    """How a connection came to its end."""

    OURS = auto()  # we gave it up, or the broker had a reason of its own
    DROPPED = auto()  # the broker closed it without a word, or because of what it was sent
    TAKEN_OVER = auto()  # somebody else has connected with our client id


@dataclass(frozen=True, slots=True)
class Login:
    """Where to connect, and as whom."""

    host: str
    port: int
    client_id: str
    keepalive: timedelta
    trust: ssl.SSLContext | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    will: Publication | None = None
    protocol: Protocol = Protocol.V5


class Ack(NamedTuple):
    """A PUBACK; ``reason`` explains the codes from 0x80 on, ``not authorized (0x87)``, and is empty for the others."""

    packet_id: int
    code: int
    reason: str


async def dial(login: Login, wake: Callable[[], None]) -> Wire:
    """Connect, with no session before or after, and await the CONNACK.

    Args:
        login: Where and as whom.
        wake: Called in the event loop whenever the wire has news: acknowledgements, or its loss.

    Raises:
        VersionRefused, VersionUnclear: Another version of MQTT may do.
        RetainRefused: Another will may do.
        SinkUnavailable: Nobody answers.
        SinkRejected: The broker refuses us, or we its certificate.
    """
    client = _make_client(login)
    try:
        with anyio.fail_after(_DIAL_LIMIT.total_seconds()):
            # It blocks (name, TCP, TLS), hence the thread; a client that nobody waits for closes when it is collected.
            await to_thread.run_sync(_connect, client, login, abandon_on_cancel=True)
    except ssl.SSLCertVerificationError as error:
        raise SinkRejected(explain(error)) from error
    except (OSError, ValueError) as error:
        raise SinkUnavailable(explain(error)) from error
    wire = Wire(client, wake, login.protocol)
    try:
        with anyio.fail_after(_DIAL_LIMIT.total_seconds()):
            await wire.greeted()
    except TimeoutError as error:
        wire.close()
        raise VersionUnclear(explain(error)) from error
    except BaseException:
        wire.close()
        raise
    return wire


async def answers(login: Login) -> bool:
    """Return whether anybody listens there at all."""
    with anyio.move_on_after(_TICK.total_seconds()), suppress(OSError):
        await (await anyio.connect_tcp(login.host, login.port)).aclose()
        return True
    return False


def _make_client(login: Login) -> paho.Client:
    version = MQTTProtocolVersion.MQTTv5 if login.protocol is Protocol.V5 else MQTTProtocolVersion.MQTTv311
    clean = None if login.protocol is Protocol.V5 else True
    client = paho.Client(
        CallbackAPIVersion.VERSION2, login.client_id, clean_session=clean, protocol=version, reconnect_on_failure=False
    )
    client.max_inflight_messages_set(0)  # else paho looks through all in flight at each PUBACK
    client.username_pw_set(login.username, login.password)
    if login.trust is not None:
        login.trust.sslsocket_class = _TidySocket
        client.tls_set_context(login.trust)
    if (will := login.will) is not None:
        properties = properties_of(will, PacketTypes.WILLMESSAGE) if login.protocol is Protocol.V5 else None
        client.will_set(will.topic, will.payload, qos=1, retain=will.retain, properties=properties)
    return client


class _TidySocket(ssl.SSLSocket):
    """Closes itself when the handshake fails; paho would leave it open."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


def _connect(client: paho.Client, login: Login) -> None:
    properties = None
    if login.protocol is Protocol.V5:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's own are not typed
        properties.MaximumPacketSize = _MOST_HEARD
    # A fresh client starts clean.
    client.connect(login.host, login.port, int(login.keepalive.total_seconds()), properties=properties)
    if client.socket() is None:
        raise ConnectionResetError("connection lost")


class Wire:
    """A connection that :func:`dial` opened, driven by the event loop it was opened in.

    Attributes:
        protocol: The version that is spoken.
        lost: Why it ended; empty while it lives.
        ending: How it ended.
        receive_maximum: How many publications the broker takes before it acknowledges one.
        packet_maximum: The largest packet that the broker takes, in bytes.
        retains: Whether the broker retains publications.
        is_asking: A subscription has been neither granted nor refused.
    """

    def __init__(self, client: paho.Client, wake: Callable[[], None], protocol: Protocol = Protocol.V5) -> None:
        self.protocol = protocol
        self.lost = ""
        self.ending = Ending.OURS
        self.receive_maximum = _MOST_IN_FLIGHT
        self.packet_maximum = packet_size(MOST_REMAINING)
        self.retains = True
        self.is_asking = False
        self._properties_of = properties_of if protocol is Protocol.V5 else _no_properties
        self._client = client
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._begun_at = self._loop.time()
        self._lost_at = 0.0
        self._greeted = asyncio.Event()
        self._refusal: SinkError | None = None
        self._sent: dict[int, float] = {}
        self._acks: list[Ack] = []
        self._answer: asyncio.Future[str] = self._loop.create_future()
        self._hear: Callable[[bytes, bool], None] = lambda *_: None
        client.on_connect = self._on_connect
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_message = lambda _client, _data, heard: self._hear(bytes(heard.payload), heard.retain)
        client.on_disconnect = self._on_disconnect
        client.on_socket_close = self._on_socket_close
        sock = client.socket()
        assert isinstance(sock, socket.socket)
        self._socket = sock
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(self._socket, self._read)
        self._ticker = self._loop.call_later(_TICK.total_seconds(), self._tick)

    async def greeted(self) -> None:
        """Wait for the CONNACK.

        Raises:
            VersionRefused, VersionUnclear, RetainRefused: See :func:`dial`.
            SinkRejected: It is a refusal that somebody must mend.
            SinkUnavailable: It is a refusal that passes.
        """
        await self._greeted.wait()
        if self._refusal is not None:
            raise self._refusal
        if self.lost:
            is_closed = self.ending is Ending.DROPPED
            raise VersionUnclear(self.lost, is_closed=is_closed, is_answered=not is_closed)

    @property
    def age(self) -> timedelta:
        """How long it has lasted, until now or until it was lost."""
        return timedelta(seconds=(self._lost_at if self.lost else self._loop.time()) - self._begun_at)

    def objection(self, publication: Publication) -> str:
        """Return why the broker cannot be sent this, empty when it can; to try would cost the connection."""
        if publication.retain and not self.retains:
            return "retained, which the broker does not do"
        remaining = remaining_length(publication, self._properties_of(publication))
        if remaining > MOST_REMAINING or packet_size(remaining) > self.packet_maximum:
            return f"larger than the broker takes ({self.packet_maximum} bytes)"
        return ""

    def publish(self, publication: Publication) -> int | None:
        """Send once; return the packet id that the :class:`Ack` will bear, or None when the connection is lost."""
        info = self._client.publish(
            publication.topic,
            publication.payload,
            qos=1,
            retain=publication.retain,
            properties=self._properties_of(publication),
        )
        if info.rc != paho.MQTT_ERR_SUCCESS:
            self._lose(f"not sent, {paho.error_string(info.rc).rstrip('.').lower()}", Ending.DROPPED)
            return None
        self._sent[info.mid] = self._loop.time()
        self._write_later()
        return info.mid

    def take_acks(self) -> list[Ack]:
        """Return the acknowledgements that have arrived since the last call, in order."""
        acks, self._acks = self._acks, []
        return acks

    def waited(self, packet_id: int) -> timedelta:
        """Return how long a publication had been in flight when the connection was lost."""
        return timedelta(seconds=self._lost_at - self._sent[packet_id])

    async def subscribe(self, topic: str, hear: Callable[[bytes, bool], None]) -> str:
        """Subscribe to one topic; return why the broker refuses, empty when it grants it.

        It does not return when the connection is lost before the answer.

        Args:
            topic: No filter: without wildcards.
            hear: Called with each payload, and whether it is the retained one.
        """
        self._hear = hear
        self.is_asking = True
        self._client.subscribe(topic, qos=1)
        self._write_later()
        return await self._answer

    def unsubscribe(self, topic: str) -> None:
        """Hear no more of a topic, whether or not the broker has granted it."""
        self._hear = lambda *_: None
        self.is_asking = False
        if not self.lost:
            self._client.unsubscribe(topic)
            self._write_later()

    def disconnect(self) -> None:
        """Say goodbye, so that the broker forgets the will, and close."""
        self._client.disconnect()
        self.close()

    def close(self) -> None:
        """Close at once; unless :meth:`disconnect` did, the broker publishes the will."""
        self._ticker.cancel()
        if self._client.socket() is not None:
            self._on_socket_close()
            self._client.on_socket_close = None
            self._socket.close()
        self._lose("closed")

    # What the event loop calls. paho writes at once what the socket takes; only the rest waits for a writer.

    def _read(self) -> None:
        self._client.loop_read()
        # No selector tells of what TLS has decrypted already.
        while isinstance(sock := self._client.socket(), ssl.SSLSocket) and sock.pending():
            self._client.loop_read()
        if _QUICK_ACK is not None and self._client.socket() is not None:
            # Else a broker with Nagle's algorithm holds PUBACKs back until we acknowledge, 40 ms later, the one before.
            # The kernel takes it as a hint and forgets it.
            self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

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
        oldest = next(iter(self._sent.values()), None)
        if oldest is not None and self._loop.time() - oldest > _PUBACK_LIMIT.total_seconds():
            self._lose(f"no acknowledgement within {_PUBACK_LIMIT.total_seconds():g} s")

    def _lose(self, reason: str, ending: Ending = Ending.OURS) -> None:
        if not self.lost:
            self.lost, self.ending, self._lost_at = reason, ending, self._loop.time()
        self._greeted.set()
        self._wake()

    # What paho calls, in the event loop.

    def _on_connect(self, _client: paho.Client, _data: Any, _flags: Any, code: ReasonCode, properties: Any) -> None:
        self._refusal = find_refusal(code, properties)
        self.receive_maximum = getattr(properties, "ReceiveMaximum", self.receive_maximum)
        self.packet_maximum = getattr(properties, "MaximumPacketSize", self.packet_maximum)
        self.retains = bool(getattr(properties, "RetainAvailable", True))
        self._greeted.set()

    def _on_publish(self, _client: paho.Client, _data: Any, packet_id: int, code: ReasonCode, _properties: Any) -> None:
        self._sent.pop(packet_id, None)
        self._acks.append(Ack(packet_id, code.value, describe(code) if code.is_failure else ""))
        self._wake()

    def _on_subscribe(self, _client: paho.Client, _data: Any, _id: int, codes: list[ReasonCode], _more: Any) -> None:
        self.is_asking = False
        if not self._answer.done():
            self._answer.set_result(describe(codes[0]) if codes[0].is_failure else "")

    def _on_disconnect(
        self, _client: paho.Client, _data: Any, flags: paho.DisconnectFlags, code: ReasonCode, _properties: Any
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            ending = Ending.OURS if code.value in _BLAMELESS else Ending.DROPPED
            ending = Ending.TAKEN_OVER if code.value == _TAKEN_OVER else ending
            self._lose(f"closed by the broker, {describe(code)}", ending)
        elif code.value == _NOT_MQTT:
            self._lose(f"not in MQTT {self.protocol}")
        elif code.value == _NO_ANSWER:
            self._lose("no answer to a ping")
        else:
            self._lose("connection lost", Ending.DROPPED)

    def _on_socket_close(self, *_: Any) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)


def _no_properties(_: Publication) -> None:
    """3.1.1 knows none."""
