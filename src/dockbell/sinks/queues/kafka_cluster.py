"""The brokers of a Kafka cluster: which of them leads a partition, and one request at a time to each.

The library's own producer continues to send in the background after an attempt has timed out, and its ``stop`` sends
all messages that wait; an event could then arrive after a later one of its record. A cluster sends a message only while
an attempt waits for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate
from typing import Any, Final

import anyio
from aiokafka.errors import (
    BrokerResponseError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from dockbell.sinks.queues.kafka_connection import Connection, Login, LoginRefused, NotConnected

_REQUEST_BYTES: Final = 256 * 1024
"""About how much goes in one request; a larger message goes alone."""
_REQUEST_PART: Final = 0.75
"""Of the time of an attempt, for one request: who waits for a broker that hangs is told before the attempt is over."""
_LEADERS_FOR: Final = timedelta(minutes=5)
"""How long the leaders of a topic are believed: a topic can get more partitions."""
_PAUSES: Final = (0.1, 0.2, 0.4)
"""Seconds between looks for the leader of a partition: a topic is being made, or its leader moves to another broker."""
_OF_ONE_MESSAGE: Final = frozenset({2, 10, 18, 32, 87})
"""The errors of a batch that one of its messages causes: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
INVALID_TIMESTAMP and INVALID_RECORD. After any other the batch may be stored, and is not sent again at once."""
_partition = DefaultPartitioner()
"""That of Kafka's own clients, so that all producers put a key into the same partition."""

Host = tuple[str, int]


class Throttled(Exception):
    """The cluster asks us to send nothing to a broker for longer than an attempt takes."""

    def __init__(self, wait: timedelta) -> None:
        self.wait = wait
        super().__init__("the cluster throttles us by its quota")


class LeaderAway(Exception):
    """The broker that leads a partition cannot be used; ``place`` is its host and port."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__("no answer in time")


class LeaderLost(LeaderAway):
    """The connection to a leader could not be opened, or was lost; another broker may lead by now."""


@dataclass(eq=False, kw_only=True)
class Message:
    """What a topic is to have, and why it does not have it yet."""

    topic: str
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]]
    partition: int = 0
    error: Exception | None = None
    may_go_alone: bool = False
    """Its batch was refused for one of its messages, which may be another one."""

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value)

    def begin(self) -> None:
        """Forget what the attempt before came to."""
        self.error, self.may_go_alone = None, False


@dataclass(eq=False)
class _Broker:
    connection: Connection
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    waiting: list[Message] = field(default_factory=list)
    ready_at: float = 0

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
    """The brokers, the connections to those that were needed, and the leaders of the topics that were used.

    Attributes:
        hosts: Where the cluster is asked for its brokers; the one that answered last comes first.
    """

    def __init__(self, hosts: Sequence[Host], find_login: Callable[[], Login], timeout: timedelta) -> None:
        self.hosts = [*hosts]
        self._find_login = find_login
        self._timeout = timeout
        self._doors = {host: self._make_connection(host) for host in hosts}
        self._met: dict[Host, _Broker] = {}
        self._brokers: dict[int, _Broker] = {}
        self._topics: dict[str, _Topic] = {}
        self._looking = anyio.Lock()

    @property
    def size(self) -> int:
        """How many brokers there are."""
        return len(self._brokers)

    async def open(self) -> None:
        """Learn the brokers; raise what the first host said that refused us, else what the last one did."""
        await self._look_up(None)

    def close(self) -> None:
        """End all connections; what waits is not sent."""
        for connection in (*self._doors.values(), *(broker.connection for broker in self._met.values())):
            connection.close()

    async def publish(self, message: Message) -> None:
        """Return when the cluster has stored a message.

        Raises:
            BrokerResponseError: The cluster does not take it; the error says why.
            LoginRefused: A broker refuses us.
            NotConnected: No broker can be reached.
            LeaderAway: The broker that leads the partition of the message cannot be used.
            Throttled: The cluster asks us to wait.
            TimeoutError: There is no answer in time.
        """
        for pause in _PAUSES:
            try:
                return await self._try(message)
            except (BrokerResponseError, LeaderLost) as error:
                if not _is_moved(error):
                    raise
            self._topics.pop(message.topic, None)
            await anyio.sleep(pause)
        return await self._try(message)

    async def _try(self, message: Message) -> None:
        topic = await self._find_topic(message.topic)
        message.partition = _partition(message.key, sorted(topic.leaders), ())
        broker = self._brokers.get(topic.leaders[message.partition])
        if broker is None:
            raise LeaderNotAvailableError
        await self._send(broker, message)
        if message.error is not None:
            raise message.error

    # Metadata ---------------------------------------------------------------------------------------------------------

    async def _find_topic(self, name: str) -> _Topic:
        if (known := self._topics.get(name)) is not None and known.until > anyio.current_time():
            return known
        async with self._looking:  # one of those that want to know asks for all
            known = self._topics.get(name)
            if known is None or known.until <= anyio.current_time():
                known = self._topics[name] = await self._look_up(name)
            return known

    async def _look_up(self, name: str | None) -> _Topic:
        """Ask for the brokers, and for the leaders of a topic; the request may make the cluster create the topic."""
        answer = await self._ask(MetadataRequest([] if name is None else [name]))
        self._brokers = {number: self._meet((host, port)) for number, host, port, *_ in answer.brokers}
        topic = _Topic({}, anyio.current_time() + _LEADERS_FOR.total_seconds())
        for code, _, *_, partitions in answer.topics:
            if code:
                raise _find_error(code)
            topic.leaders = {number: leader for _, number, leader, *_ in partitions}
        if name is not None and not topic.leaders:
            raise UnknownTopicOrPartitionError
        return topic

    async def _ask(self, request: MetadataRequest) -> Any:
        """Return the answer of the first broker that gives one: of our hosts, else of those that they told of."""
        doors = [*((host, self._doors[host]) for host in self.hosts)]
        doors += [(host, broker.connection) for host, broker in self._met.items() if host not in self._doors]
        share = self._timeout.total_seconds() / len(doors)
        refusal, failure = None, None
        for host, connection in doors:
            try:
                with anyio.fail_after(share):
                    answer = await connection.ask(request)
            except LoginRefused as error:
                refusal = refusal or error
            except (NotConnected, TimeoutError) as error:
                connection.reset()  # who does not answer in time is asked anew
                failure = error
            else:
                if host in self._doors:
                    self.hosts.sort(key=lambda each: each != host)
                return answer
        raise refusal or failure or NotConnected("")

    def _meet(self, host: Host) -> _Broker:
        if host not in self._met:
            self._met[host] = _Broker(self._make_connection(host))
        return self._met[host]

    def _make_connection(self, host: Host) -> Connection:
        return Connection(*host, self._find_login, self._timeout)

    # Messages ---------------------------------------------------------------------------------------------------------

    async def _send(self, broker: _Broker, message: Message) -> None:
        """Send what waits for a broker in one request, once the one before is answered; return when ours was sent."""
        message.begin()
        broker.waiting.append(message)
        try:
            async with broker.turn:
                if message in broker.waiting:
                    await self._wait_for_quota(broker)
                    await self._request(broker, broker.take())
                if message.error is not None and message.may_go_alone:
                    await self._request(broker, [message])
        finally:
            if message in broker.waiting:
                broker.waiting.remove(message)

    async def _wait_for_quota(self, broker: _Broker) -> None:
        wait = timedelta(seconds=max(0, broker.ready_at - anyio.current_time()))
        if wait > (1 - _REQUEST_PART) * self._timeout:
            raise Throttled(wait)
        await anyio.sleep(wait.total_seconds())

    async def _request(self, broker: _Broker, messages: Sequence[Message]) -> None:
        """Send messages in one request, and note what became of each."""
        batches: dict[tuple[str, int], list[Message]] = defaultdict(list)
        for message in messages:
            batches[message.topic, message.partition].append(message)
        error: Exception = LeaderLost(broker.connection.place)  # so it is where this task is cancelled
        answer = None
        try:
            topics: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
            for (topic, partition), batch in batches.items():
                topics[topic].append((partition, _encode(batch)))
            with anyio.fail_after(_REQUEST_PART * self._timeout.total_seconds()):
                answer = await broker.connection.ask(broker.connection.make_request([*topics.items()]))
        except NotConnected as lost:
            error.__cause__ = lost.__cause__
        except TimeoutError:
            error = LeaderAway(broker.connection.place)
            messages, broker.waiting = [*messages, *broker.waiting], []  # they would wait in vain
        except Exception as other:  # noqa: BLE001  # it is that of each message
            error = other
        finally:
            if answer is None:
                broker.connection.reset()
                for message in messages:
                    message.error, message.may_go_alone = error, False
        if answer is not None:
            _note(answer, batches)
            broker.ready_at = anyio.current_time() + getattr(answer, "throttle_time_ms", 0) / 1000


def _note(answer: Any, batches: dict[tuple[str, int], list[Message]]) -> None:
    """Note what a broker says of each batch; of one that it does not name, it has not said that it is stored."""
    codes = {(topic, part): code for topic, parts in answer.topics for part, code, *_ in parts}
    for place, batch in batches.items():
        code = codes.get(place, -1)
        for message in batch:
            message.error = _find_error(code) if code else None
            message.may_go_alone = code in _OF_ONE_MESSAGE and len(batch) > 1


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
    """Return whether an error says that another broker may lead a partition by now."""
    return isinstance(error, LeaderLost) or bool(getattr(error, "invalid_metadata", False))
