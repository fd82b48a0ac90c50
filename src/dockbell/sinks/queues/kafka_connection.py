"""One connection to a broker of Kafka, opened when it is needed and ended so that nothing is sent afterwards."""

from __future__ import annotations

import socket
import ssl
import struct
from asyncio import StreamWriter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import anyio
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import BrokerResponseError, KafkaConnectionError, KafkaError
from aiokafka.protocol.produce import ProduceRequest

_FROM_ALL_REPLICAS: Final = -1
"""``acks=all``: every replica that is in sync has a message before it is confirmed."""
_STORE_PART: Final = 0.25
"""Of the time of an attempt, for the replicas: the leader answers before the attempt is over, for each partition."""
_IDLE: Final = timedelta(minutes=9)
"""Brokers end connections that were idle for ten minutes."""
_LONGEST: Final = timedelta(milliseconds=2**31 - 1)
_DROP_UNSENT: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing drops what the kernel has not sent yet."""


class NotConnected(Exception):
    """A broker gave us no connection, or ended the one that there was; ``place`` is its host and port."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(place)


class LoginRefused(Exception):
    """A broker refused us before any message was sent; ``code`` is the error of Kafka's protocol."""

    def __init__(self, error: BrokerResponseError) -> None:
        self.code = error.errno
        super().__init__(error.message)


@dataclass(frozen=True, kw_only=True)
class Login:
    """Whom we trust by TLS, None without it, and how we present ourselves; ``mechanism`` is that of SASL."""

    trust: ssl.SSLContext | None
    mechanism: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def protocol(self) -> str:
        """The name of Kafka's own clients for it (``security.protocol``)."""
        transport = "PLAINTEXT" if self.trust is None else "SSL"
        return transport if self.mechanism is None else f"SASL_{transport}"


class Connection:
    """The connection to one broker.

    Args:
        find_login: Returns the login as it is now, for each connection.
        timeout: Of an attempt to publish.
    """

    def __init__(self, host: str, port: int, find_login: Callable[[], Login], timeout: timedelta) -> None:
        self.host = host
        self.port = port
        self._find_login = find_login
        self._timeout = min(timeout, _LONGEST)
        self._connection: AIOKafkaConnection | None = None
        self._writer: StreamWriter | None = None
        self._opening = anyio.Lock()
        self._is_closed = False

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"

    async def ask(self, request: Any) -> Any:
        """Return the answer to a request, on a connection that is opened where there is none.

        Raises:
            LoginRefused: The broker refuses us.
            NotConnected: There is no connection, or it was lost; the cause says why.
            TimeoutError: There is no answer in time.
        """
        try:
            connection = await self._connect()
            return await connection.send(request)
        except (OSError, KafkaError) as error:
            if isinstance(error, TimeoutError):
                raise
            self.reset()
            raise NotConnected(self.place) from error

    def make_request(self, topics: list[tuple[str, list[tuple[int, bytes]]]]) -> ProduceRequest:
        """Return a request to store batches, by topic and partition."""
        limit = _STORE_PART * self._timeout
        return ProduceRequest(None, _FROM_ALL_REPLICAS, max(1, int(limit / timedelta(milliseconds=1))), topics)

    def reset(self) -> None:
        """End the connection: what was asked on it is not sent any more, as far as it has not left this machine."""
        connection, writer = self._connection, self._writer
        self._connection = self._writer = None
        if connection is not None and writer is not None:
            sock = writer.get_extra_info("socket")
            if sock is not None and not writer.transport.is_closing():
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP_UNSENT)
            writer.transport.abort()
            connection.close()

    def close(self) -> None:
        """End the connection for good, and whichever is being opened."""
        self._is_closed = True
        self.reset()

    async def _connect(self) -> AIOKafkaConnection:
        async with self._opening:
            if self._connection is not None and not self._connection.connected():
                self.reset()
            if self._connection is None and not self._is_closed:
                await self._open()
            if self._is_closed:
                self.reset()
                raise KafkaConnectionError("it was closed")
            assert self._connection is not None
            return self._connection

    async def _open(self) -> None:
        login = self._find_login()
        connection = AIOKafkaConnection(
            self.host,
            self.port,
            client_id="dockbell",
            request_timeout_ms=int(self._timeout / timedelta(milliseconds=1)),
            ssl_context=login.trust,
            security_protocol=login.protocol,
            max_idle_ms=int(_IDLE / timedelta(milliseconds=1)),
            sasl_mechanism=login.mechanism,
            sasl_plain_username=login.user,
            sasl_plain_password=login.password,
        )
        try:
            _, writer = await connection.connect()
        except BrokerResponseError as error:
            raise LoginRefused(error) from error
        self._connection, self._writer = connection, writer
