"""The brokers of a Kafka cluster: which of them leads a partition, and one request at a time to each.

The library's own producer goes on sending in the background after an attempt was given up, and its ``stop`` sends what
waits; an event could then arrive after a later one of its record. Here an attempt is over when it says so.
"""

from __future__ import annotations

import ssl
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate
from typing import Final

import anyio
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import (
    BrokerResponseError,
    KafkaConnectionError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

_FROM_ALL_REPLICAS: Final = -1
"""``acks=all``: every replica that is in sync has a message before it is confirmed."""
_REQUEST_BYTES: Final = 256 * 1024
"""About how much goes in one request; a larger message goes alone."""
_LEADERS_FOR: Final = timedelta(minutes=5)
"""How long the leaders of a topic are believed: a topic can get more partitions."""
_PAUSES: Final = (0.1, 0.2, 0.4)
"""Seconds between looks for the leader of a partition: a topic is being made, or its leader moves to another broker."""
_partition = DefaultPartitioner()
"""That of Kafka's own clients, so that all producers put a key into the same partition."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """How brokers are reached.

    Attributes:
        trust: Whom we trust by TLS; None without it.
        mechanism: Of SASL; None where no user is presented.
        timeout: Of a connection, and of a request.
    """

    trust: ssl.SSLContext | None
    mechanism: str | None
    user: str | None
    password: str | None
    timeout: timedelta

    async def connect(self, host: str, port: int) -> AIOKafkaConnection:
        """Return a connection that the broker has accepted."""
        return await create_conn(
            host,
            port,
            client_id="dockbell",
            request_timeout_ms=self._milliseconds,
            ssl_context=self.trust,
            security_protocol=f"{'SASL_' * (self.mechanism is not None)}{'PLAINTEXT' if self.trust is None else 'SSL'}",
            sasl_mechanism=self.mechanism,
            sasl_plain_username=self.user,
            sasl_plain_password=self.password,
        )

    def make_request(self, topics: Sequence[tuple[str, Sequence[tuple[int, bytes]]]]) -> ProduceRequest:
        """Return a request to store batches, by topic and partition."""
        return ProduceRequest(None, _FROM_ALL_REPLICAS, self._milliseconds, topics)

    @property
    def _milliseconds(self) -> int:
        return int(self.timeout / timedelta(milliseconds=1))


@dataclass(eq=False, kw_only=True)
class Message:
    """What a topic is to have, and why it does not have it yet."""

    topic: str
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]]
    partition: int = 0
    error: Exception | None = None
    was_alone: bool = False

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value)


@dataclass(eq=False)
class _Broker:
    host: str
    port: int
    connection: AIOKafkaConnection | None = None
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    waiting: list[Message] = field(default_factory=list)

    def take(self) -> list[Message]:
        """Return what the next request brings: the first that waits, and whatever fits beside it."""
        sizes = accumulate(message.size for message in self.waiting)
        count = max(1, sum(size <= _REQUEST_BYTES for size in sizes))
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken


@dataclass
class _Topic:
    leaders: dict[int, int]  # the broker by the partition
    until: float


class Cluster:
    """The brokers, the connections to those that were needed, and the leaders of the topics that were used."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._brokers: dict[int, _Broker] = {}
        self._first: AIOKafkaConnection | None = None
        self._topics: dict[str, _Topic] = {}
        self._looking = anyio.Lock()

    @property
    def size(self) -> int:
        """How many brokers there are."""
        return len(self._brokers)

    async def open(self, hosts: Sequence[tuple[str, int]]) -> None:
        """Learn the brokers from the first host that answers; raise the error of the last where none does."""
        *others, last = hosts
        for host, port in others:
            try:
                self._first = await self._access.connect(host, port)
                break
            except Exception:  # noqa: BLE001, S112  # the next one may answer
                continue
        if self._first is None:
            self._first = await self._access.connect(*last)
        await self._look_up(None)

    def close(self) -> None:
        """End all connections; what waits is not sent."""
        _close((self._first, *(broker.connection for broker in self._brokers.values())))

    async def publish(self, message: Message) -> None:
        """Return when the cluster has stored a message.

        Raises:
            BrokerResponseError: The cluster does not take it; the error says why.
            KafkaConnectionError: The connection is lost.
            TimeoutError: There is no answer in time.
        """
        for pause in _PAUSES:
            try:
                return await self._try(message)
            except BrokerResponseError as error:
                if not _is_moved(error):
                    raise
                self._topics.pop(message.topic, None)
            await anyio.sleep(pause)
        return await self._try(message)

    async def _try(self, message: Message) -> None:
        async with self._looking:  # one of those that want to know asks for all
            topic = self._topics.get(message.topic)
            if topic is None or topic.until < anyio.current_time():
                topic = self._topics[message.topic] = await self._look_up(message.topic)
        message.partition = _partition(message.key, sorted(topic.leaders), ())
        broker = self._brokers.get(topic.leaders[message.partition])
        if broker is None:
            raise LeaderNotAvailableError
        await self._send(broker, message)
        if message.error is not None:
            raise message.error

    async def _look_up(self, name: str | None) -> _Topic:
        """Ask for the brokers, and for the leaders of a topic; a cluster may make a topic that somebody asks for."""
        connection = await self._find_connection()
        answer = await connection.send(MetadataRequest([] if name is None else [name]))
        known = {(broker.host, broker.port): broker for broker in self._brokers.values()}
        self._brokers = {
            number: known.pop((host, port), _Broker(host, port)) for number, host, port, *_ in answer.brokers
        }
        _close(broker.connection for broker in known.values())
        topic = _Topic({}, anyio.current_time() + _LEADERS_FOR.total_seconds())
        for code, _, *_, partitions in answer.topics:
            if code:
                raise _find_error(code)
            topic.leaders = {number: leader for _, number, leader, *_ in partitions}
        if name is not None and not topic.leaders:
            raise UnknownTopicOrPartitionError
        return topic

    async def _find_connection(self) -> AIOKafkaConnection:
        """Return any connection; that of the first host where it is still open."""
        if self._first is not None and self._first.connected():
            return self._first
        for broker in self._brokers.values():
            if broker.connection is not None and broker.connection.connected():
                return broker.connection
        return await self._connect(next(iter(self._brokers.values())))

    async def _connect(self, broker: _Broker) -> AIOKafkaConnection:
        """Return the connection to a broker, opened anew where the broker has ended it: it does so with idle ones."""
        if broker.connection is None or not broker.connection.connected():
            broker.connection = await self._access.connect(broker.host, broker.port)
        return broker.connection

    async def _send(self, broker: _Broker, message: Message) -> None:
        """Send what waits for a broker in one request, once the one before is answered; return when ours was sent."""
        broker.waiting.append(message)
        try:
            async with broker.turn:
                if message in broker.waiting:
                    await self._request(broker, broker.take())
                if message.error is not None and not message.was_alone:
                    await self._request(broker, [message])  # a batch is refused whole, for any one of its messages
        finally:
            if message in broker.waiting:
                broker.waiting.remove(message)

    async def _request(self, broker: _Broker, messages: Sequence[Message]) -> None:
        batches: dict[tuple[str, int], list[Message]] = defaultdict(list)
        for message in messages:
            message.error = KafkaConnectionError("its request was given up")  # unless there is an answer
            message.was_alone = True
            batches[message.topic, message.partition].append(message)
        topics: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        for (topic, partition), batch in batches.items():
            topics[topic].append((partition, _encode(batch)))
        try:
            connection = await self._connect(broker)
            answer = await connection.send(self._access.make_request([*topics.items()]))
        except Exception as error:  # noqa: BLE001  # it is that of each message
            for message in messages:
                message.error = error
            return
        for topic, partitions in answer.topics:
            for partition, code, *_ in partitions:
                batch = batches.pop((topic, partition), [])
                for message in batch:
                    message.error = _find_error(code) if code else None
                    message.was_alone = len(batch) == 1 or message.error is None or _is_moved(message.error)


def _close(connections: Iterable[AIOKafkaConnection | None]) -> None:
    for connection in connections:
        if connection is not None:
            connection.close()


def _encode(messages: Sequence[Message]) -> bytes:
    """Return a batch of records (Kafka protocol, record batch v2)."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**31 - 1,
    )
    for offset, message in enumerate(messages):
        builder.append(offset, None, message.key, message.value, [*message.headers])
    return bytes(builder.build())


def _find_error(code: int) -> BrokerResponseError:
    """Return the error of a code; the library does not know all of them."""
    error = for_code(code)()
    error.errno = code
    return error


def _is_moved(error: Exception) -> bool:
    """Return whether an error says that we do not know the leader: it may be another broker by now."""
    return bool(getattr(error, "invalid_metadata", False))
