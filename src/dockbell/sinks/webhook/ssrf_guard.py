"""Connections to a receiver, guarded against SSRF: only addresses that pass the rules are dialled.

httpcore resolves and connects in one step. Here a name is looked up once, its addresses are checked, and those that
pass are dialled as addresses. So a name server cannot give another answer between check and connection (DNS
rebinding). TLS still verifies the name.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Final

import anyio
import httpcore
import httpx
from anyio import to_thread

from dockbell.core.publishing.addresses import Address, AddressRules

_STAGGER: Final = timedelta(milliseconds=250)  # https://www.rfc-editor.org/rfc/rfc8305#section-8
_IDLE_MOST: Final = timedelta(seconds=4)
"""Many receivers close an idle connection after 5 s: a request at that moment would be lost."""
_LOOKUPS: Final = 8


class AddressRefused(Exception):
    """A name resolves to no address that may be dialled; the operator must act."""


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to addresses that pass the rules, the next one when one does not answer at once."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._backend = httpcore.AnyIOBackend()
        # One for each sink: threads that wait for a dead name server must not block other sinks.
        self._lookups = anyio.CapacityLimiter(_LOOKUPS)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's word
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Look up a host, check its addresses, and connect to the first that answers.

        Raises:
            httpcore.ConnectError: There is none, none answers, or, by :class:`AddressRefused`, none may be dialled.
            httpcore.ConnectTimeout: Not within ``timeout``, in seconds, all in all.
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
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await to_thread.run_sync(ask, limiter=self._lookups, abandon_on_cancel=True)
        return list(dict.fromkeys(ip_address(place[0]) for *_, place in found))

    def _admit(self, host: str, addresses: Sequence[Address]) -> list[Address]:
        """Return the addresses that may be dialled."""
        objections = {address: self._rules.judge(address) for address in addresses}
        admitted = [address for address, objection in objections.items() if objection is None]
        if not admitted:
            address, objection = next(iter(objections.items()))
            subject = host if host == str(address) else f"{host} is {address}, which"
            raise AddressRefused(f"{subject} is never dialled: {objection}")
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


class ConnectionPools:
    """Opens connection pools to a receiver.

    Args:
        rules: The addresses that may be dialled.
    """

    def __init__(self, rules: AddressRules) -> None:
        self.backend = GuardedBackend(rules)

    def open_pool(
        self,
        trust: ssl.SSLContext,
        proxy_url: str | None = None,
        backend: httpcore.AsyncNetworkBackend | None = None,
    ) -> httpcore.AsyncConnectionPool:
        """Return a pool of one connection for one lane: a shared pool collapses under concurrency.

        It is the layer below httpx's client, without redirects, cookies, a proxy from the environment, and URLs in the
        log, which a webhook must not have.

        Args:
            trust: The trusted authorities, and our own certificate.
            proxy_url: Of a proxy, which looks names up itself: then the rules apply to the proxy's own address.
            backend: Wraps :attr:`backend`; None: that itself.
        """
        expiry = _IDLE_MOST.total_seconds()
        if proxy_url is None:
            return httpcore.AsyncConnectionPool(
                trust, max_connections=1, keepalive_expiry=expiry, network_backend=backend or self.backend
            )
        proxy = httpx.Proxy(proxy_url)
        return httpcore.AsyncHTTPProxy(
            to_core(proxy.url),
            proxy.raw_auth,
            ssl_context=trust,
            proxy_ssl_context=trust if proxy.url.scheme == "https" else None,
            max_connections=1,
            keepalive_expiry=expiry,
            network_backend=backend or self.backend,
        )


def to_core(url: httpx.URL) -> httpcore.URL:
    """Return a URL, which httpx has brought into its normal form, as httpcore takes it."""
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
