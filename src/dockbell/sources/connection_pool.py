"""Connections to the API: one request in, one complete answer out, or the reason why there is none.

One httpx pool slows down with every request that waits in it (1,700 requests/s alone, 440 among 64), so each request
under way has a *lane*, a transport of one connection. There is no client of httpx around it: a lane follows no
redirect, keeps no cookies and reads no environment.
"""

from __future__ import annotations

import re
import ssl
import time
import zlib
from collections.abc import AsyncIterable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Final

import anyio
import httpx

from dockbell.core.reading.request import Request
from dockbell.core.reading.response import Response, clean
from dockbell.errors import ConfigError, PageCut, PageUnreadable, SourceRefused, SourceUnavailable
from dockbell.net.http_connection import HttpConnection
from dockbell.net.network import explain, hint_at_tls, make_trust

_GZIP: Final = 31  # zlib's word for "expect a gzip header"
_BYTES: Final = re.compile(r" \(received \d+ bytes?, expected \d+\)")
"""What would make two of the same failure different."""
_LIMITS: Final = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=50)
_UNREACHED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)


class Unreached(SourceUnavailable):
    """No connection came about, or none was tried: the request was never sent."""


class ConnectionPool:
    """The connections to one base URL, made when needed and kept for later requests.

    No exchange takes longer than ``timeout``, and no answer has more than ``max_body`` bytes. ``proxy`` returns the URL
    of the proxy, if there is one: it is asked for each lane, as it may change. ``transport`` replaces connections. With
    ``checked`` False, a proxy or a file that cannot be used is a failure of each exchange until it can.

    Raises:
        ConfigError: ``base_url``, ``proxy`` or ``ca_file`` cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout: timedelta,
        max_body: int,
        proxy: Callable[[], str | None],
        ca_file: str | None,
        transport: httpx.AsyncBaseTransport | None,
        checked: bool = True,
    ) -> None:
        url = _parse_url("base_url", base_url)
        if url.userinfo or url.query or url.fragment:
            raise ConfigError(
                f"base_url: must not contain a user, query or fragment, got one for {url.host}; remove it"
            )
        self._base_url = base_url.rstrip("/")
        self._host = (b"Host", url.netloc)
        self._api = self._peer = _address(url)
        self._look_up_proxy = proxy
        self._proxy: httpx.Proxy | None = None
        self._timeout = timeout
        self._max_body = max_body
        self._transport = transport
        self._ca_file = ca_file
        self._tls: ssl.SSLContext | None = None
        self._free: list[httpx.AsyncBaseTransport] = []
        self._was_answered = False
        if checked:
            self._prepare()

    async def exchange(self, request: Request, headers: Iterable[tuple[bytes, bytes]]) -> Response:
        """Send one request and return its complete answer, whatever its status.

        Of an answer that is no success, the status says enough: its body is left empty where it cannot be read.

        Raises:
            Unreached: No connection came about; nothing was sent.
            SourceRefused: The proxy's secret or ``ca_file`` cannot be used; nothing was sent; another try is no use.
            PageUnreadable: A success began to come, but not whole, sound and within the size.
            SourceUnavailable: No answer came in time.
        """
        lane = self._free.pop() if self._free else self._open(request)
        limit = self._timeout.total_seconds()
        answer: httpx.Response | None = None
        intact = False
        try:
            with anyio.fail_after(limit):
                sent_at, started = datetime.now(UTC), time.monotonic()
                answer = await lane.handle_async_request(self._write(request, headers))
                answered = time.monotonic()
                self._was_answered = True
                body = await self._read(request, answer)
            intact = answer.status_code != HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
        except TimeoutError as error:
            raise _kind_of(answer)(f"{request}: no complete answer within {limit:g} s") from error
        except httpx.InvalidURL as error:  # the id of a record may be of any length
            raise SourceUnavailable(
                f"{request.method} {request.collection}: cannot be sent: {explain(error)}"
            ) from error
        except _UNREACHED as error:
            # From nothing: the words of these errors are the other side's, which may have quoted our request.
            raise Unreached(f"{request}: cannot connect to {self._peer}: {explain(error)}") from None
        except httpx.RemoteProtocolError as error:
            reason = _BYTES.sub("", explain(error))
            raise _kind_of(answer)(f"{request}: connection lost: {reason}{self._hint()}") from None
        except (httpx.HTTPError, OSError) as error:
            raise SourceUnavailable(f"{request}: connection lost: {explain(error)}{self._hint()}") from error
        finally:
            if intact:
                self._free.append(lane)
            else:  # the connection's state is unknown: no request meets it again
                await self._close(lane)
                if self._proxy is not None:  # whose password may be another by now, which only new lanes look up
                    await self.aclose()
        return Response(
            status=answer.status_code,
            headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers.raw},
            body=body,
            sent_at=sent_at,
            # Counted on the monotonic clock: a step of the wall clock must not lengthen the round trip.
            answered_at=sent_at + timedelta(seconds=answered - started),
            received_at=sent_at + timedelta(seconds=time.monotonic() - started),
            ticks=timedelta(seconds=started),
        )

    async def aclose(self) -> None:
        while self._free:
            await self._close(self._free.pop())

    def _hint(self) -> str:
        return "" if self._was_answered or not self._base_url.startswith("http:") else hint_at_tls("base_url")

    def _write(self, request: Request, headers: Iterable[tuple[bytes, bytes]]) -> httpx.Request:
        body = request.body or b""
        length = [(b"Content-Length", b"%d" % len(body))] if body else []
        return httpx.Request(
            request.method,
            httpx.URL(self._base_url + request.target),
            headers=[self._host, *headers, *length],
            # With a stream, httpx neither looks for headers to add nor parses the URL twice.
            stream=httpx.ByteStream(body),
        )

    async def _read(self, request: Request, answer: httpx.Response) -> bytes:
        """Return the decoded body, and let the connection go."""
        try:
            return await self._decode(request, answer)
        except PageUnreadable:
            if answer.is_success:
                raise
            return b""
        finally:
            await answer.aclose()

    async def _decode(self, request: Request, answer: httpx.Response) -> bytes:
        """Return the decoded body, never holding more than allowed of it."""
        coding = answer.headers.get("content-encoding", "").lower()
        inflate = zlib.decompressobj(_GZIP) if coding in {"gzip", "x-gzip"} else None
        if inflate is None and coding not in {"", "identity"}:
            raise PageUnreadable(f"{request}: content coding {clean(coding)!r}, which dockbell did not ask for")
        body, whole = bytearray(), True  # of small chunks, a list would hold a multiple of what they hold
        assert isinstance(answer.stream, AsyncIterable)
        async for received in answer.stream:
            try:
                chunk = inflate.decompress(received, self._max_body - len(body) + 1) if inflate else received
            except zlib.error as error:
                raise PageUnreadable(f"{request}: damaged gzip in the answer") from error
            body += chunk
            if len(body) > self._max_body:
                raise PageUnreadable(f"{request}: the answer is larger than {self._max_body} bytes")
            if inflate and inflate.unused_data:  # it would be kept, and copied with every byte that follows
                raise PageUnreadable(f"{request}: more data after the gzip in the answer")
            whole = inflate is None or inflate.eof  # no body at all is no gzip either
        if not whole:
            raise PageUnreadable(f"{request}: truncated gzip in the answer")
        return bytes(body)

    def _open(self, request: Request) -> httpx.AsyncBaseTransport:
        if self._transport is not None:
            return self._transport
        try:
            self._prepare()
        except ConfigError as error:
            raise SourceRefused(f"{request}: cannot connect to {self._api}: {error}") from error
        assert self._tls is not None
        if self._proxy is None:
            return HttpConnection(self._tls)
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=_LIMITS, proxy=self._proxy)

    def _prepare(self) -> None:
        """Look up what the next connection needs; ConfigError where that cannot be used."""
        self._proxy = self._find_proxy()
        if self._tls is None and self._transport is None:
            self._tls = _trust(self._ca_file, _version(self._ca_file))

    def _find_proxy(self) -> httpx.Proxy | None:
        text = self._look_up_proxy()
        proxy = None if text is None else httpx.Proxy(_parse_url("proxy", text))
        self._peer = self._api if proxy is None else f"{self._api} through the proxy {_address(proxy.url)}"
        return proxy

    async def _close(self, lane: httpx.AsyncBaseTransport) -> None:
        if lane is not self._transport:
            with anyio.move_on_after(1, shield=True):
                await lane.aclose()


@lru_cache(maxsize=8)
def _trust(ca_file: str | None, version: int) -> ssl.SSLContext:  # noqa: ARG001  # another version of a file is another trust
    """Return the TLS context of all sources that trust the same authorities: each context takes 800 kB and 20 ms."""
    return make_trust("source", ca_file=ca_file)


def _version(ca_file: str | None) -> int:
    """Return what changes with a file; 0 where there is none: :func:`make_trust` says why it cannot be used."""
    with suppress(OSError):
        return 0 if ca_file is None else Path(ca_file).stat().st_mtime_ns
    return 0


def _kind_of(answer: httpx.Response | None) -> type[SourceUnavailable]:
    """Return what an answer that did not come to its end is called: less of it might have come whole."""
    return PageCut if answer is not None and answer.is_success else SourceUnavailable


def _parse_url(name: str, text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{name}: must be an http:// or https:// URL; check it") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigError(f"{name}: must be an http:// or https:// URL with a host, got scheme {url.scheme!r}")
    return url


def _address(url: httpx.URL) -> str:
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{host}:{url.port or (443 if url.scheme == 'https' else 80)}"
