"""Kafka: each event a message of a topic, whose key puts all events of a record into one partition, in order."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from dockbell.config import Secret
from dockbell.config.values import split_url
from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.net.network import explain, find_cause
from dockbell.sinks.queues.queue_settings import QueueSettings, find_rest, list_fields
from dockbell.sinks.queues.queue_sink import QueueSink
from dockbell.telemetry import Telemetry

if TYPE_CHECKING:
    from dockbell.sinks.queues.kafka_cluster import Cluster
    from dockbell.sinks.queues.kafka_connection import Login

_PORT: Final = 9092
_CONTENT_TYPE: Final = b"application/cloudevents+json; charset=utf-8"
_FIELDS: Final = ("source", "resource")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TLS: Final = "kafka+ssl"
_LOGIN_ERRORS: Final = (31, 33, 34, 58)
"""CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE and SASL_AUTHENTICATION_FAILED."""


def _split_hosts(url: str) -> Sequence[tuple[str, int]]:
    """Return host and port of each broker that a URL names, with commas between them."""
    scheme, _, hosts = url.partition("://")
    example = '"kafka+ssl://kafka-1.example.com:9093,kafka-2.example.com:9093"'
    if "@" in url:
        raise ValueError("must not contain a user or password; use the keys user and password")
    parts = [split_url(f"{scheme}://{host}", example, schemes=("kafka", _TLS)) for host in hosts.split(",")]
    if any(part.path.strip("/") or part.query or part.fragment for part in parts):
        raise ValueError("must end with the host and port")
    return [(part.hostname or "", part.port or _PORT) for part in parts]


def _check_url(url: str) -> str:
    _split_hosts(url)
    return url


def _check_topic(template: str) -> str:
    name = find_rest(template, _FIELDS, filled="x")
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        wanted = "must be a name of letters, digits, dots, underscores and hyphens"
        raise ValueError(f'{wanted}, which may contain {list_fields(_FIELDS)}, got "{template}"')
    return template


class KafkaSettings(QueueSettings):
    """``[sinks.NAME]`` with ``type = "kafka"``."""

    tls_scheme: ClassVar = _TLS
    type: Literal["kafka"]
    url: Annotated[str, AfterValidator(_check_url)]
    user: str | None = None
    password: Secret | None = None
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    topic: Annotated[str, AfterValidator(_check_topic)] = "dockbell.{resource}"
    in_flight: int = Field(default=50, ge=1, le=1000)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("set both user and password, or neither")
        return self


class KafkaSink(QueueSink["Cluster"]):
    """Publishes each event with its ``partitionkey`` as the key, and settles it once all replicas in sync have it."""

    Settings: ClassVar = KafkaSettings
    library: ClassVar = ("aiokafka", "kafka")

    def __init__(self, name: str, settings: KafkaSettings, telemetry: Telemetry) -> None:
        self._settings = settings
        self._hosts = _split_hosts(settings.url)
        place = ",".join(f"{host}:{port}" for host, port in self._hosts)
        super().__init__(name, telemetry, place=place, window=settings.in_flight, timeout=settings.timeout)
        self._find_password()  # a file that cannot be used is told at the start
        settings.find_trust(name)

    def _find_password(self) -> str | None:
        """Return the password as it is now: a file may have another one since."""
        password = self._settings.password
        return None if password is None else password.reveal()

    async def _open(self) -> Cluster:
        from dockbell.sinks.queues.kafka_cluster import Cluster  # noqa: PLC0415  # where one is used

        cluster = Cluster(self._hosts, self._find_login, self._settings.timeout)
        try:
            await cluster.open()
        except BaseException:
            cluster.close()
            raise
        self._hosts = cluster.hosts
        return cluster

    def _find_login(self) -> Login:
        from dockbell.sinks.queues.kafka_connection import Login  # noqa: PLC0415

        settings = self._settings
        return Login(
            trust=settings.find_trust(self.name),
            mechanism=None if settings.user is None else settings.mechanism,
            user=settings.user,
            password=self._find_password(),
        )

    async def _close(self, connection: Cluster) -> None:
        connection.close()

    async def _describe(self, connection: Cluster) -> str:
        return f"Kafka, brokers: {connection.size}"

    async def _publish(self, connection: Cluster, delivery: Delivery) -> None:
        from dockbell.sinks.queues.kafka_cluster import Message  # noqa: PLC0415

        event = delivery.event
        headers = [("content-type", _CONTENT_TYPE), ("dockbell-type", event.type.encode())]
        if delivery.replayed:
            headers.append(("dockbell-replay", b"true"))
        key = f"{event.feed}/{event.key}" if event.key else str(event.feed)
        topic = self._settings.topic.format(source=event.feed.source, resource=event.feed.resource)
        await connection.publish(Message(topic=topic, key=key.encode(), value=event.body, headers=headers))

    def _judge(self, error: Exception) -> Outcome:
        from aiokafka.errors import BrokerResponseError, UnknownTopicOrPartitionError  # noqa: PLC0415

        from dockbell.sinks.queues.kafka_cluster import LeaderAway, Throttled  # noqa: PLC0415

        retry_after = None
        match error:
            case Throttled():
                kind, reason, retry_after = OutcomeKind.FAILED, str(error), error.wait
            case LeaderAway():
                kind, reason = OutcomeKind.FAILED, f"{error.place}, which leads its partition: {self._explain(error)}"
            case UnknownTopicOrPartitionError():
                kind, reason = OutcomeKind.FAILED, "the topic does not exist, and the cluster does not create it"
            case BrokerResponseError(errno=10 | 18):  # MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE
                kind, reason = OutcomeKind.REFUSED, "larger than its topic accepts (max.message.bytes)"
            case BrokerResponseError(errno=87):
                kind, reason = OutcomeKind.REFUSED, "the topic does not accept it (INVALID_RECORD)"
            case BrokerResponseError():
                kind, reason = OutcomeKind.FAILED, self._explain(error)
            case _:
                kind, reason = OutcomeKind.UNREACHABLE, self._explain(error)
        return Outcome(kind, reason, retry_after)

    def _refuses_us(self, error: Exception) -> bool:
        from dockbell.sinks.queues.kafka_connection import LoginRefused  # noqa: PLC0415

        refused = isinstance(error, LoginRefused) and error.code in _LOGIN_ERRORS
        return refused or isinstance(find_cause(error), ssl.SSLCertVerificationError)

    def _explain(self, error: Exception) -> str:
        from aiokafka.errors import BrokerResponseError  # noqa: PLC0415

        from dockbell.sinks.queues.kafka_connection import LoginRefused  # noqa: PLC0415

        if isinstance(error, BrokerResponseError):
            return f"the server reports, {error.message} ({error.errno})"
        if isinstance(error, LoginRefused):
            return f"the server reports, {error} ({error.code})"
        if not isinstance(find_cause(error), EOFError):
            return explain(error)
        missing = " and ".join(
            words
            for words, is_there in (
                (f"TLS (a url that begins with {_TLS}:)", self._settings.is_tls),
                ("a user", self._settings.user is not None),
            )
            if not is_there
        )
        return f"the server closed the connection{f'; it may want {missing}' * bool(missing and not self._is_told)}"
