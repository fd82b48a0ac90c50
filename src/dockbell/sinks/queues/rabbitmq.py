"""RabbitMQ, by AMQP 0-9-1: each event a persistent message of an exchange, settled when the server confirms it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import unquote, urlsplit

import anyio
import msgspec
from pydantic import AfterValidator, Field, model_validator

from dockbell.config import Secret
from dockbell.config.values import split_url
from dockbell.core.model import Delivery, Event, Outcome, OutcomeKind
from dockbell.net.network import explain, find_cause
from dockbell.sinks.queues.queue_settings import EVENT_FIELDS, QueueSettings, fill_name, find_rest, list_fields
from dockbell.sinks.queues.queue_sink import QueueSink, end
from dockbell.telemetry import Telemetry

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
_LONGEST_ROUTING_KEY: Final = 255
"""Bytes of a routing key, a short string (AMQP 0-9-1, 4.2.5.3)."""
_CONFIRM_PART: Final = 0.9
"""Of the time of an attempt, for the confirmation: the rest is for finding out whether the server is blocked."""
_TOO_LARGE: Final = re.compile(r"message size (\d+) is larger than configured max size (\d+)")
"""What RabbitMQ says when it closes a channel for the size of a message."""


def _check_url(url: str) -> str:
    parts = split_url(url, '"amqps://rabbitmq.example.com/vhost"', schemes=tuple(_PORTS))
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password; use the keys user and password")
    if "/" in parts.path[1:] or parts.query or parts.fragment:
        raise ValueError('must end with the host and port, or with the name of a virtual host, its "/" as %2F')
    return url


def _check_routing_key(template: str) -> str:
    rest = find_rest(template, EVENT_FIELDS)
    if "{" in rest or "}" in rest:
        raise ValueError(f'must be text, which may contain {list_fields(EVENT_FIELDS)}, got "{template}"')
    return template


class RabbitMqSettings(QueueSettings):
    """``[sinks.NAME]`` with ``type = "amqp"``."""

    tls_scheme: ClassVar = "amqps"
    type: Literal["amqp"]
    url: Annotated[str, AfterValidator(_check_url)]
    user: str | None = None
    password: Secret | None = None
    exchange: str = Field(default="amq.topic", max_length=_LONGEST_ROUTING_KEY)
    routing_key: Annotated[str, AfterValidator(_check_routing_key)] = "dockbell.{source}.{resource}.{change}"
    in_flight: int = Field(default=50, ge=1, le=1000)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("set both user and password, or neither")
        return self


class TooLarge(Exception):
    """The server has closed the channel, because this message is larger than its ``max_message_size``."""


class Blocked(Exception):
    """The server takes no message now, because its memory or its disk is nearly full."""


class RoutingKeyTooLong(Exception):
    """The protocol has no room for the routing key of this event."""


class _Link(msgspec.Struct, frozen=True):
    """An open connection, its one channel, and the exchange that takes the events."""

    connection: AbstractConnection
    channel: AbstractChannel
    exchange: AbstractExchange


class RabbitMqSink(QueueSink[_Link]):
    """Publishes each event as mandatory, so that one that no queue takes comes back, and waits for its confirmation."""

    Settings: ClassVar = RabbitMqSettings
    library: ClassVar = ("aio_pika", "amqp")

    def __init__(self, name: str, settings: RabbitMqSettings, telemetry: Telemetry) -> None:
        parts = urlsplit(settings.url)
        self._settings = settings
        self._host, self._port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        self._virtual_host = unquote(parts.path[1:]) or "/"
        place = f"{self._host}:{self._port}"
        super().__init__(name, telemetry, place=place, window=settings.in_flight, timeout=settings.timeout)
        self._find_password()  # a file that cannot be used is told at the start
        settings.find_trust(name)

    def _find_password(self) -> str:
        """Return the password as it is now: a file may have another one since."""
        password = self._settings.password
        return "guest" if password is None else password.reveal()

    async def _open(self) -> _Link:
        from aio_pika.connection import Connection, make_url  # noqa: PLC0415  # where one is used

        url = make_url(
            host=self._host,
            port=self._port,
            login=self._settings.user or "guest",
            password=self._find_password(),
            virtualhost=self._virtual_host,
            ssl=self._settings.is_tls,
        )
        # Not one that opens itself anew: the relay decides when there is another attempt.
        trust = self._settings.find_trust(self.name)
        connection = Connection(url, ssl_context=trust, client_properties={"connection_name": "dockbell"})
        try:
            await connection.connect()
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            name = self._settings.exchange
            # The default exchange, whose name is empty, cannot be asked for: it is always there.
            exchange = await channel.get_exchange(name) if name else channel.default_exchange
        except BaseException:
            await end(connection.close)
            raise
        return _Link(connection, channel, exchange)

    async def _close(self, connection: _Link) -> None:
        await connection.connection.close()

    def _is_open(self, connection: _Link) -> bool:
        return not connection.channel.is_closed

    async def _describe(self, connection: _Link) -> str:
        transport = connection.connection.transport
        server: Mapping[str, Any] = {} if transport is None else transport.connection.server_properties
        return f"{server.get('product', 'a server')} {server.get('version', 'of an unknown version')}"

    async def _publish(self, connection: _Link, delivery: Delivery) -> None:
        from aio_pika import DeliveryMode, Message  # noqa: PLC0415
        from aio_pika.exceptions import ChannelPreconditionFailed  # noqa: PLC0415

        event = delivery.event
        routing_key = self._name_routing_key(event)
        headers: dict[str, Any] = {"key": event.key} | ({"replay": "true"} if delivery.replayed else {})
        message = Message(
            event.body,
            message_id=event.id,
            type=event.type,
            content_type=_CONTENT_TYPE,
            delivery_mode=DeliveryMode.PERSISTENT,
            app_id="dockbell",
            headers=headers,
        )
        try:
            with anyio.move_on_after(_CONFIRM_PART * self._settings.timeout.total_seconds()):
                await connection.exchange.publish(message, routing_key, mandatory=True)
                return
        except ChannelPreconditionFailed as error:
            sizes = _TOO_LARGE.search(str(error))
            if sizes and len(event.body) > int(sizes[2]):
                raise TooLarge(f"larger than the server accepts (max_message_size = {sizes[2]})") from error
            raise
        if await _is_blocked(connection):
            raise Blocked
        raise TimeoutError

    def _name_routing_key(self, event: Event) -> str:
        """Return the routing key of an event, see :func:`fill_name`."""
        routing_key = fill_name(self._settings.routing_key, event)
        if len(routing_key.encode()) > _LONGEST_ROUTING_KEY:
            raise RoutingKeyTooLong
        return routing_key

    def _judge(self, error: Exception) -> Outcome:
        from aio_pika.exceptions import (  # noqa: PLC0415
            ChannelClosed,
            ConnectionClosed,
            DeliveryError,
            InvalidFrameError,
            ProbableAuthenticationError,
            PublishError,
        )

        match error:
            case RoutingKeyTooLong():
                kind, reason = OutcomeKind.UNFIT, f"its routing key has more than {_LONGEST_ROUTING_KEY} bytes"
            case TooLarge():
                kind, reason = OutcomeKind.REFUSED, str(error)
            case PublishError():
                kind, reason = OutcomeKind.FAILED, "no queue is bound to the exchange for its routing key"
            case DeliveryError():
                kind, reason = OutcomeKind.FAILED, "the server did not accept it (basic.nack)"
            case Blocked():
                kind, reason = (
                    OutcomeKind.UNREACHABLE,
                    "the server accepts no messages: its memory or disk is nearly full",
                )
            case ChannelClosed() | ConnectionClosed() | ProbableAuthenticationError():
                kind, reason = OutcomeKind.UNREACHABLE, f"the server reports, {error.args[-1]}"
            case InvalidFrameError():
                # RabbitMQ ends the connection instead of opening the virtual host; the library drops what it says.
                kind = OutcomeKind.UNREACHABLE
                reason = f'the virtual host "{self._virtual_host}" does not exist, or the user may not use it'
            case _:
                kind, reason = OutcomeKind.UNREACHABLE, explain(error)
        return Outcome(kind, reason)

    def _refuses_us(self, error: Exception) -> bool:
        from aio_pika.exceptions import AuthenticationError, InvalidFrameError  # noqa: PLC0415

        refused = isinstance(error, AuthenticationError | InvalidFrameError) or "ACCESS_REFUSED" in str(error)
        return refused or isinstance(find_cause(error), ssl.SSLCertVerificationError)


async def _is_blocked(link: _Link) -> bool:
    """Return whether the server has said that it takes no messages for now (``connection.blocked``)."""
    transport = link.connection.transport
    with anyio.move_on_after(0):
        if transport is not None:
            await transport.connection.ready()
        return False
    return True
