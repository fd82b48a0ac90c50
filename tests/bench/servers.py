"""What the measurements talk to, each in a process of its own: an unlimited sandbox, and a receiver of webhooks."""

from __future__ import annotations

import asyncio
import re
from multiprocessing.connection import Connection
from typing import Final

import anyio

from dockbell.sandbox import Sandbox, SandboxOptions, serve

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


def serve_sandbox(parent: Connection, records: int) -> None:
    """Serve ``records`` records that do not move, over all five resources, to whoever asks how often."""

    async def run() -> None:
        async with serve(Sandbox(SandboxOptions(records=records, requests_per_minute=0))) as url:
            parent.send(url)
            await anyio.sleep_forever()

    anyio.run(run)


def serve_receiver(parent: Connection) -> None:
    """Take every webhook as fast as can be: nothing is looked at but where a request ends."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(_Receiver, "127.0.0.1", 0)
        parent.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook")
        await server.serve_forever()

    asyncio.run(run())


def serve_silence(parent: Connection) -> None:
    """Take every request and never answer."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        parent.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook")
        await server.serve_forever()

    asyncio.run(run())


class _Receiver(asyncio.Protocol):
    """One connection, with requests one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _LENGTH.search(self._received, 0, head)
        if length is not None and len(self._received) >= head + 4 + int(length[1]):
            self._received.clear()
            self._transport.write(_ANSWER)
