"""Redis streams, and those of Valkey: each event an entry of the stream of its feed."""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from dockbell.config import Secret
from dockbell.config.values import split_url
from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.net.network import explain, find_cause
from dockbell.sinks.queues.queue_settings import QueueSettings, find_rest, list_fields
from dockbell.sinks.queues.queue_sink import QueueSink, end
from dockbell.telemetry import Telemetry

if TYPE_CHECKING:
    from redis.asyncio import Redis

_PORT: Final = 6379
_WAIT_PART: Final = 0.8
"""Of the time of an attempt, for replicas: the server says how many have an entry before the attempt is over."""
_FIELDS: Final = ("source", "resource")


def _check_url(url: str) -> str:
    parts = split_url(url, '"rediss://redis.example.com:6379/0"', schemes=("redis", "rediss"))
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password; use the keys username and password")
    if not (parts.path.strip("/").isdecimal() or not parts.path.strip("/")) or parts.query or parts.fragment:
        raise ValueError("must end with the host and port, or with the number of a database")
    return url


def _check_stream(template: str) -> str:
    rest = find_rest(template, _FIELDS)
    if not template or "{" in rest or "}" in rest:
        raise ValueError(f'must be a name, which may contain {list_fields(_FIELDS)}, got "{template}"')
    return template


class RedisSettings(QueueSettings):
    """``[sinks.NAME]`` with ``type = "redis"``."""

    tls_scheme: ClassVar = "rediss"
    type: Literal["redis"]
    url: Annotated[str, AfterValidator(_check_url)]
    username: str | None = None
    password: Secret | None = None
    stream: Annotated[str, AfterValidator(_check_stream)] = "dockbell:{source}:{resource}"
    max_length: int | None = Field(default=None, ge=1)
    replicas: int = Field(default=0, ge=0, le=100)
    in_flight: int = Field(default=8, ge=1, le=100)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.username is not None and self.password is None:
            raise ValueError("username needs a password")
        return self


class TooFewReplicas(Exception):
    """The server has stored an entry, but not as many replicas as were asked for have it."""


class RedisSink(QueueSink["Redis"]):
    """Adds each event to a stream; with ``replicas`` it is settled once so many have it."""

    Settings: ClassVar = RedisSettings
    library: ClassVar = ("redis", "redis")

    def __init__(self, name: str, settings: RedisSettings, telemetry: Telemetry) -> None:
        parts = urlsplit(settings.url)
        self._settings = settings
        self._host, self._port = parts.hostname or "", parts.port or _PORT
        self._database = int(parts.path.strip("/") or 0)
        super().__init__(
            name,
            telemetry,
            place=f"{self._host}:{self._port}",
            window=settings.in_flight,
            timeout=settings.timeout,
        )
        self._find_password()
        settings.find_trust(name)  # a file that cannot be used is told at the start

    def _find_password(self) -> str | None:
        """Return the password as it is now: a file may have another one since."""
        password = self._settings.password
        return None if password is None else password.reveal()

    async def _open(self) -> Redis:
        from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection  # noqa: PLC0415  # where one is used
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415

        settings = self._settings
        tls: dict[str, Any] = {
            "connection_class": SSLConnection,
            "ssl_ca_certs": settings.ca_file,
            "ssl_certfile": settings.cert_file,
            "ssl_keyfile": settings.key_file,
        }
        pool = BlockingConnectionPool(
            **(tls if settings.is_tls else {}),
            host=self._host,
            port=self._port,
            db=self._database,
            username=settings.username,
            password=self._find_password(),
            max_connections=self.window,
            retry=Retry(NoBackoff(), 0),  # the relay decides when there is another attempt
            client_name="dockbell",
            protocol=2,
        )
        redis: Redis = Redis(connection_pool=pool)
        try:
            await redis.ping()
        except BaseException:
            await self._discard(redis)
            raise
        return redis

    async def _close(self, connection: Redis) -> None:
        await connection.connection_pool.disconnect()

    async def _describe(self, connection: Redis) -> str:
        info = await connection.info("server")
        return f"Redis {info.get('redis_version', 'of an unknown version')}"

    async def _publish(self, connection: Redis, delivery: Delivery) -> None:
        try:
            await self._add(connection, delivery)
        finally:
            if connection is not self._connection:
                # Its pool was closed while this entry was about to get one of the pool's connections, which is open.
                # Other entries may be on their way by others of these connections.
                await end(partial(connection.connection_pool.disconnect, inuse_connections=False))

    async def _add(self, connection: Redis, delivery: Delivery) -> None:
        event, settings = delivery.event, self._settings
        entry = {"id": event.id, "type": event.type, "key": event.key, "event": event.body}
        if delivery.replayed:
            entry["replay"] = "true"
        stream = settings.stream.format(source=event.feed.source, resource=event.feed.resource)
        if not settings.replicas:
            await connection.xadd(stream, entry, maxlen=settings.max_length)  # type: ignore[arg-type]  # any text or bytes
            return
        async with connection.pipeline(transaction=False) as both:
            both.xadd(stream, entry, maxlen=settings.max_length)  # type: ignore[arg-type]
            both.wait(settings.replicas, int(_WAIT_PART * settings.timeout.total_seconds() * 1000))
            _, count = await both.execute()
        if count < settings.replicas:
            raise TooFewReplicas(f"{count} of {settings.replicas} replicas have it")

    def _judge(self, error: Exception) -> Outcome:
        from redis.exceptions import AuthenticationError, ReadOnlyError, ResponseError  # noqa: PLC0415
        from redis.exceptions import ConnectionError as Lost  # noqa: PLC0415
        from redis.exceptions import TimeoutError as TooLate  # noqa: PLC0415

        away = self._refuses_us(error) or isinstance(error, Lost | TooLate | ReadOnlyError | OSError)
        kind = OutcomeKind.UNREACHABLE if away else OutcomeKind.FAILED
        if isinstance(error, TooFewReplicas):
            return Outcome(kind, str(error))
        if isinstance(error, ResponseError | AuthenticationError):
            return Outcome(kind, f"the server reports, {error}")
        return Outcome(kind, explain(error))

    def _refuses_us(self, error: Exception) -> bool:
        from redis.exceptions import AuthenticationError, NoPermissionError  # noqa: PLC0415

        cause = find_cause(error)
        return isinstance(error, AuthenticationError | NoPermissionError) or isinstance(
            cause, ssl.SSLCertVerificationError
        )
