"""A transport of httpx that is one connection: each request pays for its exchange and for nothing else.

httpx's own transport has a pool, locks and traces around each request, and takes twice the CPU for a page of 100 kB.
HTTP/1.1 is h11's and the connection anyio's, as they are there. Errors are those of httpx, with the cause that
:func:`dockbell.net.network.explain` looks for.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import anyio
import anyio.abc
import h11
import httpx
from anyio.streams.tls import TLSStream

_IDLE_MOST: Final = 50.0
"""Seconds that a connection may be idle; many servers and firewalls end it after a minute."""
_READ_MOST: Final = 64 * 1024  # more would hold up others where a server sends very small chunks
_READ_MOST_UNCHUNKED: Final = 256 * 1024
_HEAD_MOST: Final = 100 * 1024
_BROKEN: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class HttpConnection(httpx.AsyncBaseTransport):
    """A connection to one host by HTTP/1.1, opened with a request and kept for the next, for 50 s.

    It carries one request at a time, and no two hosts. ``tls`` is for ``https`` alone. It waits for as long as the
    caller does.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        tls.set_alpn_protocols(["http/1.1"])  # some balancers look for it
        self._tls = tls
        self._stream: anyio.abc.ByteStream | None = None
        self._idle_poll = select.poll()
        self._http = h11.Connection(h11.CLIENT)
        self._idle_since = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return its response as soon as its head has come; the body is read from its stream.

        Raises:
            httpx.ConnectError: No connection came about; nothing was sent.
            httpx.LocalProtocolError: The request cannot be written in HTTP/1.1.
            httpx.ReadError, httpx.RemoteProtocolError: The connection was lost, or what came is no HTTP/1.1.
        """
        stream = await self._open(request.url)
        with suppress(*_BROKEN):  # a server may answer and hang up before it has read everything
            await stream.send(self._write(request))
        event = await self.receive(stream)
        while isinstance(event, h11.InformationalResponse):
            event = await self.receive(stream)
        assert isinstance(event, h11.Response)  # h11 refuses what a server may not say first
        # h11 reads a body in chunks wherever it finds this header.
        is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        body = _Body(self, stream, _READ_MOST if is_chunked else _READ_MOST_UNCHUNKED)
        return httpx.Response(event.status_code, headers=event.headers.raw_items(), stream=body)

    def _write(self, request: httpx.Request) -> bytes:
        """Return the text of a request, which holds the key: no frame that waits may have it, nor an error's."""
        try:
            assert isinstance(request.stream, httpx.ByteStream)
            return b"".join(
                self._http.send(event) or b""
                for event in (
                    h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw),
                    *map(h11.Data, request.stream),
                    h11.EndOfMessage(),
                )
            )
        except h11.LocalProtocolError as error:
            problem = str(error)
        raise httpx.LocalProtocolError(problem)

    async def receive(self, stream: anyio.abc.ByteStream, most: int = _READ_MOST) -> h11.Event | type[h11.PAUSED]:
        """Return what comes next of the response; read so many bytes at once at most."""
        while True:
            try:
                event = self._http.next_event()
                if isinstance(event, h11.Event) or event is h11.PAUSED:
                    return event
                received = await stream.receive(most)
            except h11.RemoteProtocolError as error:
                raise httpx.RemoteProtocolError(str(error)) from error
            except anyio.EndOfStream:
                received = b""
            except (*_BROKEN, OSError) as error:
                raise httpx.ReadError(str(error)) from error
            if not received and self._http.their_state is h11.SEND_RESPONSE:
                raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
            self._http.receive_data(received)

    async def end_response(self) -> None:
        """Take in that nothing more is read of a response: what is not read to its end ends the connection."""
        is_whole = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        # What follows would be taken for the next response (of TLS, as far as it is deciphered already), and there is
        # no next response where the connection has told its end.
        if is_whole and self._http.trailing_data == (b"", False):
            self._http.start_next_cycle()
            self._idle_since = time.monotonic()
        else:
            await self.aclose()

    async def aclose(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

    async def _open(self, url: httpx.URL) -> anyio.abc.ByteStream:
        if self._stream is not None:
            # What a server sends on an idle connection is its end, or a response to no request.
            if time.monotonic() - self._idle_since <= _IDLE_MOST and not self._idle_poll.poll(0):
                return self._stream
            await self.aclose()
        host = url.raw_host.decode("ascii")
        try:
            stream: anyio.abc.ByteStream = await anyio.connect_tcp(host, url.port or _port_of(url.scheme))
            if url.scheme == "https":
                stream = await self._secure(stream, host)
        except (anyio.BrokenResourceError, anyio.EndOfStream, OSError, UnicodeError) as error:  # ssl's are OSErrors
            raise httpx.ConnectError(str(error)) from error
        self._stream = stream
        self._idle_poll = select.poll()
        connected: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610  # no Django here
        if connected.fileno() < 0:  # TLS was agreed upon, and reset at once
            raise httpx.ConnectError("the server ended the connection at once")
        self._idle_poll.register(connected.fileno(), select.POLLIN)
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_MOST)
        return stream

    async def _secure(self, stream: anyio.abc.ByteStream, host: str) -> anyio.abc.ByteStream:
        try:
            # Servers that end without TLS's own goodbye are many; the length of a response tells whether it is whole.
            return await TLSStream.wrap(stream, hostname=host, ssl_context=self._tls, standard_compatible=False)
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise


class _Body(httpx.AsyncByteStream):
    """The body of a response, as it comes."""

    def __init__(self, connection: HttpConnection, stream: anyio.abc.ByteStream, read_most: int) -> None:
        self._connection = connection
        self._stream = stream
        self._read_most = read_most
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            event = await self._connection.receive(self._stream, self._read_most)
            if not isinstance(event, h11.Data):
                return
            yield event.data

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._connection.end_response()


def _port_of(scheme: str) -> int:
    return 443 if scheme == "https" else 80
