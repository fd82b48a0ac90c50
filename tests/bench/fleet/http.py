"""A server of HTTP that does nothing but what a measurement needs: it costs a tenth of a real one."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar
from urllib.request import urlopen

import msgspec

_HEADER: Final = re.compile(rb"\r\n([\w-]+): *([^\r\n]*)")
_T = TypeVar("_T")


class Peer(asyncio.Protocol, ABC):
    """One connection, with requests one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end])
        headers = {name.lower(): value for name, value in _HEADER.findall(head)}
        length = int(headers.get(b"content-length", b"0"))
        if len(self._received) >= end + 4 + length:
            body = bytes(self._received[end + 4 : end + 4 + length])
            self._received.clear()
            self.take(head.split(b" ", 2)[1].decode(), headers, body)

    @abstractmethod
    def take(self, path: str, headers: Mapping[bytes, bytes], body: bytes) -> None:
        """Take a request, and answer it now or later."""

    def answer(self, status: int, body: bytes = b"", headers: bytes = b"") -> None:
        """Answer a request; ``headers`` are whole lines."""
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
                % (status, len(body), headers, body)
            )

    def answer_with(self, testimony: object) -> None:
        self.answer(200, msgspec.json.encode(testimony))


async def serve(parent: Connection, make_peer: Callable[[], asyncio.Protocol]) -> None:
    """Listen until the process is ended, and tell the parent where."""
    server = await asyncio.get_running_loop().create_server(make_peer, "127.0.0.1", 0, backlog=1000)
    parent.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await server.serve_forever()


def ask(url: str, kind: type[_T]) -> _T:
    """Return what a server of this kind has to tell."""
    with urlopen(url, timeout=60) as response:  # noqa: S310  # our own server
        return msgspec.json.decode(response.read(), type=kind)


def tell(url: str) -> Any:
    """Have a server of this kind do something."""
    return ask(url, Any)
