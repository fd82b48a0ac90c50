"""One MQTT 5 connection: paho speaks the protocol, the event loop waits; nothing is queued, nothing is sent again.

The only module that imports paho. What a lost connection has not acknowledged is the caller's to publish on the next.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, cached_property
from typing import Any, Final, NamedTuple

import anyio
from anyio import to_thread
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from dockbell.errors import SinkError, SinkRejected, SinkUnavailable
from dockbell.network import explain

_DIAL_LIMIT: Final = timedelta(seconds=10)
_PUBACK_LIMIT: Final = timedelta(seconds=30)
_TICK: Final = timedelta(seconds=1)
_QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)
_MOST_IN_FLIGHT: Final = 65_535
_MOST_REMAINING: Final = 268_435_455
# What paho gives as reason when there is no DISCONNECT.
_LOSSES: Final = {0x82: "not in MQTT 5", 0x8D: "no answer to a ping"}
# Refusals of a CONNECT that pass: unspecified, implementation specific, unavailable, busy, quota, connection rate.
_PASSING: Final = frozenset({0x80, 0x83, 0x88, 0x89, 0x97, 0x9F})


@dataclass(frozen=True, slots=True)
class Publication:
    """What one PUBLISH carries; the quality of service is always 1."""

    topic: str
    payload: bytes
    content_type: str = ""
    retain: bool = False
    expiry: timedelta | None = None


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
        SinkUnavailable: Nobody answers, or not in MQTT 5.
        SinkRejected: The broker refuses us, or we its certificate.
    """
    client = _make_client(login)
    try:
        with anyio.fail_after(_DIAL_LIMIT.total_seconds()):
            # It blocks (name, TCP, TLS), hence the thread; a client that nobody waits for closes when it is collected.
            await to_thread.run_sync(_connect, client, login, abandon_on_cancel=True)
            wire = Wire(client, wake)
            try:
                await wire.greeted()
            except BaseException:
                wire.close()
                raise
            return wire
    except ssl.SSLCertVerificationError as error:
        raise SinkRejected(explain(error)) from error
    except (OSError, ValueError) as error:
        raise SinkUnavailable(explain(error)) from error


def _make_client(login: Login) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2, login.client_id, protocol=paho.MQTTv5, reconnect_on_failure=False)
    client.max_inflight_messages_set(0)  # else paho looks through all in flight at each PUBACK
    client.username_pw_set(login.username, login.password)
    if login.trust is not None:
        login.trust.sslsocket_class = _TidySocket
        client.tls_set_context(login.trust)
    if (will := login.will) is not None:
        properties = _properties_of(will, PacketTypes.WILLMESSAGE)
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
    client.connect(login.host, login.port, int(login.keepalive.total_seconds()), clean_start=True)
    if client.socket() is None:
        raise ConnectionResetError("connection lost")


class Wire:
    """A connection that :func:`dial` opened, driven by the event loop it was opened in.

    Attributes:
        lost: Why it ended; empty while it lives.
        receive_maximum: How many publications the broker takes before it acknowledges one.
        packet_maximum: The largest packet that the broker takes, in bytes.
    """

    def __init__(self, client: paho.Client, wake: Callable[[], None]) -> None:
        self.lost = ""
        self.receive_maximum = _MOST_IN_FLIGHT
        self.packet_maximum = _packet_size(_MOST_REMAINING)
        self._client = client
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._greeted = asyncio.Event()
        self._refusal: SinkError | None = None
        self._sent: dict[int, float] = {}
        self._acks: list[Ack] = []
        client.on_connect = self._on_connect
        client.on_publish = self._on_publish
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
            SinkRejected: It is a refusal that somebody must mend.
            SinkUnavailable: It is a refusal that passes, or the connection was lost before it.
        """
        await self._greeted.wait()
        if self._refusal is not None:
            raise self._refusal
        if self.lost:
            raise SinkUnavailable(self.lost)

    @property
    def room(self) -> int:
        """How many publications the broker takes now, before it acknowledges another."""
        return self.receive_maximum - len(self._sent)

    def fits(self, publication: Publication) -> bool:
        """Whether the broker takes a packet of this size; one that is larger would cost the connection."""
        properties = len(_properties_of(publication).packed)
        remaining = 2 + len(publication.topic.encode()) + 2 + properties + len(publication.payload)
        return remaining <= _MOST_REMAINING and _packet_size(remaining) <= self.packet_maximum

    def publish(self, publication: Publication) -> int | None:
        """Send once; return the packet id that the :class:`Ack` will bear, or None when the connection is lost."""
        info = self._client.publish(
            publication.topic,
            publication.payload,
            qos=1,
            retain=publication.retain,
            properties=_properties_of(publication),
        )
        if info.rc != paho.MQTT_ERR_SUCCESS:
            self._lose(f"not sent, {paho.error_string(info.rc).rstrip('.').lower()}")
            return None
        self._sent[info.mid] = self._loop.time()
        self._write_later()
        return info.mid

    def take_acks(self) -> list[Ack]:
        """Return the acknowledgements that have arrived since the last call, in order."""
        acks, self._acks = self._acks, []
        return acks

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

    def _lose(self, reason: str) -> None:
        self.lost = self.lost or reason
        self._greeted.set()
        self._wake()

    # What paho calls, in the event loop.

    def _on_connect(self, _client: paho.Client, _data: Any, _flags: Any, code: ReasonCode, properties: Any) -> None:
        if code.is_failure:
            kind = SinkUnavailable if code.value in _PASSING else SinkRejected
            self._refusal = kind(f"refused by the broker, {_describe(code)}")
        self.receive_maximum = getattr(properties, "ReceiveMaximum", self.receive_maximum)
        self.packet_maximum = getattr(properties, "MaximumPacketSize", self.packet_maximum)
        self._greeted.set()

    def _on_publish(self, _client: paho.Client, _data: Any, packet_id: int, code: ReasonCode, _properties: Any) -> None:
        self._sent.pop(packet_id, None)
        self._acks.append(Ack(packet_id, code.value, _describe(code) if code.is_failure else ""))
        self._wake()

    def _on_disconnect(
        self, _client: paho.Client, _data: Any, flags: paho.DisconnectFlags, code: ReasonCode, _properties: Any
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self._lose(f"closed by the broker, {_describe(code)}")
        else:
            self._lose(_LOSSES.get(code.value, "connection lost"))

    def _on_socket_close(self, *_: Any) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)


class _Packed(Properties):
    """Properties that are packed once: paho packs them anew for each PUBLISH, at a fifth of its cost."""

    @cached_property
    def packed(self) -> bytes:
        return bytes(super().pack())  # type: ignore[no-untyped-call]  # paho's own are not typed

    def pack(self) -> bytes:
        return self.packed


def _properties_of(publication: Publication, packet_type: int = PacketTypes.PUBLISH) -> _Packed:
    return _make_properties(publication.content_type, publication.expiry, packet_type)


@cache
def _make_properties(content_type: str, expiry: timedelta | None, packet_type: int) -> _Packed:
    properties = _Packed(packet_type)  # type: ignore[no-untyped-call]  # paho's own are not typed
    if content_type:
        properties.PayloadFormatIndicator = 1
        properties.ContentType = content_type
    if expiry is not None:
        properties.MessageExpiryInterval = int(expiry.total_seconds())
    return properties


def _packet_size(remaining: int) -> int:
    """Return the size of a packet by its Remaining Length, itself a number of one to four bytes (MQTT 5.0, 1.5.5)."""
    return 2 + sum(remaining >> bits > 0 for bits in (7, 14, 21)) + remaining


def _describe(code: ReasonCode) -> str:
    return f"{code.getName().lower()} (0x{code.value:02x})"
