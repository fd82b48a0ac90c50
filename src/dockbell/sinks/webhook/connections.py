"""Connections to a receiver, guarded against SSRF: only addresses that pass the rules are dialled.

httpcore resolves and connects in one step. Here a name is looked up once, its addresses are checked, and those that
pass are dialled as addresses. So a name server cannot give another answer between check and connection (DNS
rebinding). TLS still verifies the name.

A receiver may close an idle connection while the next request is sent, and may answer a request twice. Neither is a
failure of the event. So a request without one byte of a response, on a connection that was used before, is sent once
more on a new connection; and a connection with bytes left over is closed.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Any, Final

import anyio
import httpcore
import httpx
from anyio import to_thread

from dockbell.core.publishing.addresses import Address, AddressRules

_STAGGER: Final = timedelta(milliseconds=250)  # https://www.rfc-editor.org/rfc/rfc8305#section-8
_IDLE_MOST: Final = timedelta(seconds=4)
"""Many receivers close an idle connection after 5 s: a request at that moment would be lost."""
_LOOKUPS: Final = 8
_AGE_MOST: Final = timedelta(minutes=5)
"""After it the receiver's name is looked up again, for a new connection."""
_ENDED: Final = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)


class AddressRefused(Exception):
    """A name resolves to no address that may be dialled; the operator must act."""


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to addresses that pass the rules, the next one when one does not answer at once."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._backend = httpcore.AnyIOBackend()
        # One for each sink: threads that wait for a dead name server must not block other sinks.
        self._lookups = anyio.CapacityLimiter(_LOOKUPS)

    def open_pool(
        self, trust: ssl.SSLContext, proxy_url: str | None, backend: httpcore.AsyncNetworkBackend | None = None
    ) -> httpcore.AsyncConnectionPool:
        """Return a pool of one connection for one lane: a shared pool collapses under concurrency.

        It is the layer below httpx's client, without redirects, cookies, a proxy from the environment, and URLs in the
        log, which a webhook must not have. A proxy looks names up itself: then the rules apply to the proxy's own
        address. ``backend`` may wrap this one.
        """
        expiry, backend = _IDLE_MOST.total_seconds(), backend or self
        if proxy_url is None:
            return httpcore.AsyncConnectionPool(
                trust, max_connections=1, keepalive_expiry=expiry, network_backend=backend
            )
        proxy = httpx.Proxy(proxy_url)
        return httpcore.AsyncHTTPProxy(
            to_core(proxy.url),
            proxy.raw_auth,
            ssl_context=trust,
            proxy_ssl_context=trust if proxy.url.scheme == "https" else None,
            max_connections=1,
            keepalive_expiry=expiry,
            network_backend=backend,
        )

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's word
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Look up a host, check its addresses, and connect to the first that answers.

        The cause of a ConnectError is :class:`AddressRefused` where none of them may be dialled.
        """
        assert local_address is None
        assert not socket_options
        try:
            with anyio.fail_after(timeout):
                return await self._dial_all(self._admit(host, await self._look_up(host, port)), port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except (AddressRefused, OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from error

    async def _look_up(self, host: str, port: int) -> list[Address]:
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await to_thread.run_sync(look_up, limiter=self._lookups, abandon_on_cancel=True)
        return list(dict.fromkeys(ip_address(place[0]) for *_, place in found))

    def _admit(self, host: str, addresses: Sequence[Address]) -> list[Address]:
        objections = {address: self._rules.judge(address) for address in addresses}
        admitted = [address for address, objection in objections.items() if objection is None]
        if not admitted:
            address, objection = next(iter(objections.items()))
            subject = host if host == str(address) else f"{host} ({address})"
            raise AddressRefused(f"dockbell never connects to {subject}: {objection}")
        return admitted

    async def _dial_all(self, addresses: Sequence[Address], port: int) -> httpcore.AsyncNetworkStream:
        """Dial the addresses, each a moment after the one before, and return the first stream."""
        if len(addresses) == 1:
            return await self._backend.connect_tcp(str(addresses[0]), port)
        streams: list[httpcore.AsyncNetworkStream] = []
        errors: list[Exception] = []

        async def dial(address: Address, over: anyio.Event) -> None:
            try:
                stream = await self._backend.connect_tcp(str(address), port)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                errors.append(error)
            else:
                streams.append(stream)
                group.cancel_scope.cancel()
            finally:
                over.set()

        try:
            async with anyio.create_task_group() as group:
                for address in _alternate(addresses):
                    over = anyio.Event()
                    group.start_soon(dial, address, over)
                    with anyio.move_on_after(_STAGGER.total_seconds()):
                        await over.wait()
            if not streams:
                raise errors[0]
            return streams.pop(0)
        finally:
            for stream in streams:  # one that answered at the same moment, or too late
                with anyio.CancelScope(shield=True):
                    await stream.aclose()


def _alternate(addresses: Sequence[Address]) -> list[Address]:
    """Return addresses in the order of dialling: IPv4 and IPv6 in turn, since one of them may be broken."""
    first = [address for address in addresses if address.version == addresses[0].version]
    others = [address for address in addresses if address.version != addresses[0].version]
    return [address for address in chain.from_iterable(zip_longest(first, others)) if address is not None]


def to_core(url: httpx.URL) -> httpcore.URL:
    """Return a URL, which httpx has brought into its normal form, as httpcore takes it."""
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


class Lane(httpcore.AsyncNetworkBackend):
    """Sends one request at a time, over a connection that is opened when it is needed.

    It is its pool's backend, and so records what httpcore does not tell of the connection.
    """

    def __init__(self, backend: GuardedBackend) -> None:
        self.has_received = False  # bytes, since the last request was sent
        self._backend = backend
        self._by: tuple[ssl.SSLContext, str | None] | None = None
        self._pool: httpcore.AsyncConnectionPool | None = None
        self._count = 0  # of the connections that the pool has opened
        self._opened_at = 0.0  # when the last was, by the event loop's clock

    async def send(self, request: httpcore.Request, trust: ssl.SSLContext, proxy_url: str | None) -> httpcore.Response:
        """Send a request, maybe twice; return the response once its head is there, which the caller closes.

        Another ``trust`` or proxy than that of the last request opens a new connection.
        """
        if self._pool is None or self._by != (trust, proxy_url) or self._is_spent(self._pool):
            await self.aclose()
            self._by, self._count = (trust, proxy_url), 0
            self._pool = self._backend.open_pool(trust, proxy_url, self)
        count, self.has_received = self._count, False
        try:
            return await self._pool.handle_async_request(request)
        except _ENDED:
            if not count or count != self._count or self.has_received:
                raise
        return await self._pool.handle_async_request(request)

    async def aclose(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.aclose()

    def _is_spent(self, pool: httpcore.AsyncConnectionPool) -> bool:
        """Return whether the connection is too old, or has bytes left over that would spoil the next response."""
        is_old = anyio.current_time() - self._opened_at > _AGE_MOST.total_seconds()
        return self._count > 0 and (is_old or any(map(_has_leftover, pool.connections)))

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's word
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        self._count += 1
        self._opened_at = anyio.current_time()
        return _Stream(stream, self)


def _has_leftover(connection: object) -> bool:
    # httpcore checks whether the socket is readable, but not the bytes that it has read from it already.
    while (inner := getattr(connection, "_connection", None)) is not None:
        connection = inner
    state = getattr(connection, "_h11_state", None)
    return state is not None and bool(state.trailing_data[0])


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that tells its lane when it receives bytes."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, lane: Lane) -> None:
        self._stream = stream
        self._lane = lane

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore's word
        data = await self._stream.read(max_bytes, timeout)
        self._lane.has_received |= bool(data)
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
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._lane)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
