"""One connection to a receiver, made when it is needed, and made anew when it is not to be used again.

A receiver may close an idle connection in the moment in which the next request goes out, and may answer a request
twice. Neither says anything about an event: a request to which not one byte of an answer came on a connection that was
used before goes out once more on a fresh one, and a connection with bytes left over is closed.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

import anyio
import httpcore

from dockbell.sinks.webhook.ssrf_guard import Dialler

_AGE_MOST: Final = timedelta(minutes=5)
"""After it the receiver is looked up again, and dialled where it is now."""
_ENDED: Final = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)


class Wire(httpcore.AsyncNetworkBackend):
    """Dials as another does, and knows of a lane's connection what httpcore does not tell.

    Attributes:
        count: How many connections were made.
        opened_at: When the last was, by the event loop's clock.
        has_heard: Whether anything was received since this was last set to False.
    """

    def __init__(self, backend: httpcore.AsyncNetworkBackend) -> None:
        self.count = 0
        self.opened_at = 0.0
        self.has_heard = False
        self._backend = backend

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's word
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect; see httpcore."""
        stream = await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        self.count += 1
        self.opened_at = anyio.current_time()
        return _Stream(stream, self)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that tells its wire when something is received."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, wire: Wire) -> None:
        self._stream = stream
        self._wire = wire

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore's word
        data = await self._stream.read(max_bytes, timeout)
        self._wire.has_heard |= bool(data)
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
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._wire)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class Lane:
    """Sends one request at a time.

    Args:
        dialler: Knows the way to the receiver.
    """

    def __init__(self, dialler: Dialler) -> None:
        self._dialler = dialler
        self._by: tuple[ssl.SSLContext, str | None] | None = None
        self._pool: httpcore.AsyncConnectionPool | None = None
        self._wire = Wire(dialler.backend)

    async def send(
        self, request: httpcore.Request, trust: ssl.SSLContext, proxy_url: str | None = None
    ) -> httpcore.Response:
        """Send a request, and return the answer once its head is there; the caller closes it.

        Args:
            request: It may be sent a second time.
            trust: Proves the receiver; another one than before makes a fresh connection.
            proxy_url: Of a proxy; another one too.

        Raises:
            httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException: There is no answer.
        """
        if self._pool is None or self._by != (trust, proxy_url) or self._is_spent(self._pool):
            await self.aclose()
            self._by, self._wire = (trust, proxy_url), Wire(self._dialler.backend)
            self._pool = self._dialler.open_lane(trust, proxy_url, self._wire)
        count, self._wire.has_heard = self._wire.count, False
        try:
            return await self._pool.handle_async_request(request)
        except _ENDED:
            if not count or count != self._wire.count or self._wire.has_heard:
                raise
        return await self._pool.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connection."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.aclose()

    def _is_spent(self, pool: httpcore.AsyncConnectionPool) -> bool:
        """Whether a connection is too old, or has bytes left over that would be taken for the next answer."""
        if not self._wire.count:
            return False
        if anyio.current_time() - self._wire.opened_at > _AGE_MOST.total_seconds():
            return True
        return any(_has_leftover(connection) for connection in pool.connections)


def _has_leftover(connection: object) -> bool:
    # httpcore looks whether the socket has something to read, but not into what was read from it already.
    while (inner := getattr(connection, "_connection", None)) is not None:
        connection = inner
    state = getattr(connection, "_h11_state", None)
    return state is not None and bool(state.trailing_data[0])
