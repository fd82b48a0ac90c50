"""One connection to a receiver, opened when it is needed, and replaced when it must not be used again.

A receiver may close an idle connection while the next request is sent, and may answer a request twice. Neither is a
failure of the event. So a request without one byte of a response, on a connection that was used before, is sent once
more on a new connection; and a connection with bytes left over is closed.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

import anyio
import httpcore

from dockbell.sinks.webhook.ssrf_guard import ConnectionPools

_AGE_MOST: Final = timedelta(minutes=5)
"""After it the receiver's name is looked up again, for a new connection."""
_ENDED: Final = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)


class TrackedBackend(httpcore.AsyncNetworkBackend):
    """Connects as another backend does, and records what httpcore does not tell of the connection.

    Attributes:
        count: How many connections were opened.
        opened_at: When the last was, by the event loop's clock.
        has_received: Bytes were received since this was last set to False.
    """

    def __init__(self, backend: httpcore.AsyncNetworkBackend) -> None:
        self.count = 0
        self.opened_at = 0.0
        self.has_received = False
        self._backend = backend

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's word
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect as httpcore says."""
        stream = await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        self.count += 1
        self.opened_at = anyio.current_time()
        return _Stream(stream, self)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that tells its backend when it receives bytes."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, backend: TrackedBackend) -> None:
        self._stream = stream
        self._tracked = backend

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore's word
        data = await self._stream.read(max_bytes, timeout)
        self._tracked.has_received |= bool(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # httpcore's word
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's word
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._tracked)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class Lane:
    """Sends one request at a time.

    Args:
        pools: Opens the connections.
    """

    def __init__(self, pools: ConnectionPools) -> None:
        self._pools = pools
        self._by: tuple[ssl.SSLContext, str | None] | None = None
        self._pool: httpcore.AsyncConnectionPool | None = None
        self._tracked = TrackedBackend(pools.backend)

    async def send(
        self, request: httpcore.Request, trust: ssl.SSLContext, proxy_url: str | None = None
    ) -> httpcore.Response:
        """Send a request, and return the response once its head is there; the caller closes it.

        Args:
            request: The request; it may be sent a second time.
            trust: Verifies the receiver; a change opens a new connection.
            proxy_url: Of a proxy; a change opens a new connection.

        Raises:
            httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException: There is no response.
        """
        if self._pool is None or self._by != (trust, proxy_url) or self._is_spent(self._pool):
            await self.aclose()
            self._by, self._tracked = (trust, proxy_url), TrackedBackend(self._pools.backend)
            self._pool = self._pools.open_pool(trust, proxy_url, self._tracked)
        count, self._tracked.has_received = self._tracked.count, False
        try:
            return await self._pool.handle_async_request(request)
        except _ENDED:
            if not count or count != self._tracked.count or self._tracked.has_received:
                raise
        return await self._pool.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connection."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.aclose()

    def _is_spent(self, pool: httpcore.AsyncConnectionPool) -> bool:
        """Return whether the connection is too old, or has bytes left over that would spoil the next response."""
        if not self._tracked.count:
            return False
        if anyio.current_time() - self._tracked.opened_at > _AGE_MOST.total_seconds():
            return True
        return any(_has_leftover(connection) for connection in pool.connections)


def _has_leftover(connection: object) -> bool:
    # httpcore checks whether the socket is readable, but not the bytes that it has read from it already.
    while (inner := getattr(connection, "_connection", None)) is not None:
        connection = inner
    state = getattr(connection, "_h11_state", None)
    return state is not None and bool(state.trailing_data[0])
