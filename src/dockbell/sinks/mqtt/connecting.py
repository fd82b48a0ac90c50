"""Opens connections to an MQTT broker: TCP, TLS, CONNECT and CONNACK."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import anyio
from anyio import to_thread
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.net.network import explain
from dockbell.sinks.mqtt.connack import Protocol, VersionUnclear
from dockbell.sinks.mqtt.connection import Connection
from dockbell.sinks.mqtt.publication import Publication, properties_of

_CONNECT_LIMIT: Final = timedelta(seconds=10)
_REACH_LIMIT: Final = timedelta(seconds=1)
_MOST_HEARD: Final = 1024 * 1024
"""Bytes of a packet that a broker may send; our own messages, which alone we subscribe to, have some hundred."""


@dataclass(frozen=True, slots=True)
class Login:
    """Address, credentials and will of a connection."""

    host: str
    port: int
    client_id: str
    keepalive: timedelta
    trust: ssl.SSLContext | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    will: Publication | None = None
    protocol: Protocol = Protocol.V5


async def connect(login: Login, wake: Callable[[], None]) -> Connection:
    """Connect, with no session before or after, and await the CONNACK.

    Args:
        login: The broker and our credentials.
        wake: Called in the event loop whenever the connection has news: acknowledgements, or its loss.

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
        raise SinkUnavailable(explain(error)) from error
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
    """Return whether the port accepts connections."""
    with anyio.move_on_after(_REACH_LIMIT.total_seconds()), suppress(OSError):
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
