"""Opens connections to an MQTT broker: TCP, TLS, CONNECT and CONNACK.

Which version of MQTT is spoken is found out: 5, or 3.1.1 with a broker that does not support it. After a connection
that ended, :class:`ReconnectBackoff` says how long to wait before the next.
"""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

import anyio
import msgspec
from anyio import to_thread
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from dockbell.core.running.backoff import delay
from dockbell.errors import SinkError, SinkRejected, SinkUnavailable
from dockbell.net.network import explain
from dockbell.sinks.mqtt.connection import Connection, Ending
from dockbell.sinks.mqtt.packet_socket import Client
from dockbell.sinks.mqtt.packets import Protocol, Publication, VersionRefused, VersionUnclear, make_will_properties

_CONNECT_LIMIT: Final = timedelta(seconds=10)
_LOOK_AGAIN: Final = timedelta(hours=1)
"""How long a broker is taken for one of 3.1.1: it may be upgraded."""
_CLOSINGS_MOST: Final = 5
"""How often in a row a broker that has spoken 5 may not answer in it: it may be ill, or busy."""
_REACH_LIMIT: Final = timedelta(seconds=1)
_MOST_HEARD: Final = 1024 * 1024
"""Bytes of a packet that a broker may send; our own messages, which alone we subscribe to, have some hundred."""
_BACKOFF_FIRST: Final = timedelta(seconds=1)
_BACKOFF_MOST: Final = timedelta(seconds=15)
# Two clients with one id throw each other out: the one thrown out leaves the broker to the other for a long while.
_TAKEOVER_FIRST: Final = timedelta(minutes=1)
_TAKEOVER_MOST: Final = timedelta(hours=1)
_TAKEOVER_OVER: Final = timedelta(minutes=10)
"""A connection that lasted so long and had a delivery acknowledged shows that the other client is gone."""
# MQTT 3.1.1 has no reason code for a takeover, and Mosquitto sends none before 2.0.15. Then the sign of it is several
# connections in a row that are closed soon, with no publication to blame.
_BRIEF: Final = timedelta(seconds=5)
_BRIEF_MOST: Final = 3

_clock: Final = anyio.current_time


@dataclass(frozen=True, slots=True)
class Login:
    host: str
    port: int
    client_id: str
    keepalive: timedelta
    trust: ssl.SSLContext | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    will: Publication | None = None
    protocol: Protocol = Protocol.V5
    path: str | None = None  # where the broker takes WebSockets; None: it is reached without


async def connect(login: Login, wake: Callable[[], None]) -> Connection:
    """Connect, with no session before or after, and await the CONNACK.

    ``wake`` is called in the event loop whenever the connection has news: acknowledgements, or its loss.

    Raises:
        VersionRefused, VersionUnclear: Another version of MQTT may do.
        RetainRefused: Another will may do.
        SinkUnavailable: The broker does not answer.
        SinkRejected: The broker refuses us, or we its certificate.
    """
    client = _make_client(login)
    try:
        with anyio.fail_after(_CONNECT_LIMIT.total_seconds()):
            # It blocks (name, TCP, TLS), hence the thread; an abandoned client closes when it is garbage-collected.
            await to_thread.run_sync(_connect, client, login, abandon_on_cancel=True)
    except ssl.SSLCertVerificationError as error:
        raise SinkRejected(explain(error)) from error
    except (OSError, ValueError) as error:
        cut = login.trust is not None and isinstance(error, ConnectionResetError | ssl.SSLEOFError)
        plain = "mqtt:" if login.path is None else "ws:"
        hint = f"; if the broker does not use TLS on this port, url must begin with {plain}" if cut else ""
        raise SinkUnavailable(f"{explain(error)}{hint}") from error
    connection = Connection(client, wake, login.protocol)
    try:
        with anyio.fail_after(_CONNECT_LIMIT.total_seconds()):
            await connection.wait_for_connack()
    except TimeoutError as error:
        connection.close()
        raise VersionUnclear(explain(error)) from error
    except BaseException:
        connection.close()
        raise
    return connection


async def answers(login: Login) -> bool:
    with anyio.move_on_after(_REACH_LIMIT.total_seconds()), suppress(OSError):
        await (await anyio.connect_tcp(login.host, login.port)).aclose()
        return True
    return False


def _make_client(login: Login) -> Client:
    version = MQTTProtocolVersion.MQTTv5 if login.protocol is Protocol.V5 else MQTTProtocolVersion.MQTTv311
    clean = None if login.protocol is Protocol.V5 else True
    client = Client(
        CallbackAPIVersion.VERSION2,
        login.client_id,
        clean_session=clean,
        protocol=version,
        transport="tcp" if login.path is None else "websockets",
        reconnect_on_failure=False,
    )
    if login.path is not None:
        client.ws_set_options(path=login.path)
    client.username_pw_set(login.username, login.password)
    if login.trust is not None:
        login.trust.sslsocket_class = _TidySocket
        client.tls_set_context(login.trust)
    if (will := login.will) is not None:
        properties = make_will_properties(will) if login.protocol is Protocol.V5 else None
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


def _connect(client: Client, login: Login) -> None:
    properties = None
    if login.protocol is Protocol.V5:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's own are not typed
        properties.MaximumPacketSize = _MOST_HEARD
    # A fresh client starts clean.
    takes_websockets = True
    try:
        client.connect(login.host, login.port, int(login.keepalive.total_seconds()), properties=properties)
    except paho.WebsocketConnectionError:
        takes_websockets = False
    if not takes_websockets:  # not before the error is gone: it keeps the socket open
        raise SinkUnavailable(
            f"the server does not accept MQTT over WebSockets at {login.path}; correct the port or the path of url"
        )
    if client.socket() is None:
        raise ConnectionResetError("connection lost")


class Negotiation:
    """Connects in the version that the broker speaks, and remembers it."""

    def __init__(self, wanted: Literal["auto", "5", "3.1.1"]) -> None:
        self._wanted = None if wanted == "auto" else Protocol(wanted)
        self._old_until = float("-inf")
        self._has_spoken_5 = False
        self._closings = 0

    async def connect(self, login: Login, wake: Callable[[], None]) -> Connection:
        """Connect as :func:`connect` does, whatever version the login names."""
        if self._wanted is not None:
            return await connect(dataclasses.replace(login, protocol=self._wanted), wake)
        if _clock() < self._old_until:
            try:
                return await connect(dataclasses.replace(login, protocol=Protocol.V3), wake)
            except (VersionRefused, VersionUnclear):
                self._old_until = float("-inf")
                raise
        try:
            return await self._connect_5(login, wake)
        except (VersionRefused, VersionUnclear) as refusal:
            self._closings += 1
            if isinstance(refusal, VersionUnclear) and self._has_spoken_5 and self._closings < _CLOSINGS_MOST:
                raise
            return await self._connect_old(login, wake, refusal)

    async def _connect_5(self, login: Login, wake: Callable[[], None]) -> Connection:
        connection = await connect(dataclasses.replace(login, protocol=Protocol.V5), wake)
        self._has_spoken_5, self._closings = True, 0
        return connection

    async def _connect_old(
        self, login: Login, wake: Callable[[], None], refusal: VersionRefused | VersionUnclear
    ) -> Connection:
        """Connect in 3.1.1, once it is clear that the broker does not speak 5."""
        connection = await _connect_3(login, wake, refusal)
        if isinstance(refusal, VersionUnclear) and not refusal.is_answered:
            # It may have hung or been stopping, and this connection would last for weeks without reason codes.
            await connection.disconnect()
            try:
                return await self._connect_5(login, wake)
            except (VersionRefused, VersionUnclear) as second:
                refusal = second
            connection = await _connect_3(login, wake, refusal)
        # A broker that closes the connection without an answer is tried with 5 every time.
        if not (isinstance(refusal, VersionUnclear) and refusal.is_closed):
            self._old_until = _clock() + _LOOK_AGAIN.total_seconds()
        return connection


async def _connect_3(login: Login, wake: Callable[[], None], refusal: SinkError) -> Connection:
    """Connect in 3.1.1; where that fails too, raise the refusal of 5, which says more."""
    try:
        return await connect(dataclasses.replace(login, protocol=Protocol.V3), wake)
    except VersionRefused:
        raise refusal from None
    except SinkRejected:
        raise  # it speaks 3.1.1, and does not want us
    except SinkError:
        raise refusal from None


class End(msgspec.Struct, frozen=True):
    reason: str
    ending: Ending | None = None  # None: there was no connection
    lasted: timedelta = timedelta(0)
    delivered: bool = False  # the broker acknowledged a delivery on it
    blameless: bool = True  # neither was the broker gone, nor did it owe us an answer


@dataclass(slots=True)
class ReconnectBackoff:
    """Counts failures, and returns how long to wait before the next connection."""

    failures: int = 0  # how many connections in a row have ended without a delivery
    takeovers: int = 0  # how many have ended because another client had our id
    is_contested: bool = False  # whether the last did
    _brief: int = 0

    def pause(self, end: End, jitter: float) -> timedelta:
        """Return how long to wait before connecting again; ``jitter`` is a random number from 0 to 1."""
        self.failures = 1 if end.delivered else self.failures + 1
        if end.delivered and end.lasted >= _TAKEOVER_OVER:
            self.takeovers = 0
        if end.ending is not Ending.DROPPED or end.lasted >= _BRIEF:
            self._brief = 0
        elif end.blameless:
            self._brief += 1
        self.is_contested = end.ending is Ending.TAKEN_OVER or self._brief >= _BRIEF_MOST
        if self.is_contested:
            self.takeovers += 1
            self._brief = 0
            return min(_TAKEOVER_FIRST * 2.0 ** min(self.takeovers - 1, 10), _TAKEOVER_MOST)
        return delay(self.failures, base=_BACKOFF_FIRST, cap=_BACKOFF_MOST, jitter=jitter)
