"""What the measurements talk to, each in a process of its own: sandboxes, and a receiver of webhooks."""

from __future__ import annotations

import asyncio
import re
import time
from multiprocessing.connection import Connection
from typing import Any, Final

import anyio
import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


def serve_restless(parent: Connection, records: int) -> None:
    """Serve ``records`` records; a few on each page of stock change from pass to pass, see :class:`Restless`."""

    async def run() -> None:
        sandbox = Sandbox(SandboxOptions(records=records, requests_per_minute=0))
        sandbox.app = Restless(sandbox.app)
        async with serve(sandbox) as url:
            parent.send(url)
            await anyio.sleep_forever()

    anyio.run(run)


def serve_witnessed(parent: Connection, options: dict[str, Any]) -> None:
    """Serve a sandbox with these options, behind a :class:`Witness`."""

    async def run() -> None:
        sandbox = Sandbox(SandboxOptions(**options))
        sandbox.app = Witness(sandbox.app)
        async with serve(sandbox) as url:
            parent.send(url)
            await anyio.sleep_forever()

    anyio.run(run)


_STOCK: Final = re.compile(rb'"incoming":(.+?)"updated_at":"[^"]+"')
_CHANGED_ON_A_PAGE: Final = 4
"""Of the records of each page of stock: a thousand in the 250 pages of 50,000 records."""


class Restless:
    """Changes the quantity and the timestamp of the first records on each page of stock, anew for each pass."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._passes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with what the sandbox says, but for these records."""
        if scope["type"] != "http" or scope["path"] != "/v1/stock":
            await self._app(scope, receive, send)
            return
        self._passes += b"cursor=" not in scope["query_string"]
        start: dict[str, Any] = {}
        body = bytearray()

        async def hear(message: Message) -> None:
            start.update(message if message["type"] == "http.response.start" else {})
            body.extend(message.get("body", b""))

        await self._app(scope, receive, hear)
        hour, minute = divmod(self._passes, 60)
        anew = rb'"incoming":%d\1"updated_at":"2026-11-01T%02d:%02d:00.000000Z"' % (self._passes, hour, minute)
        content = _STOCK.sub(anew, bytes(body), count=_CHANGED_ON_A_PAGE)
        headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        await send({**start, "headers": [*headers, (b"content-length", b"%d" % len(content))]})
        await send({"type": "http.response.body", "body": content})


class Request(msgspec.Struct, array_like=True):
    """One request below ``/v1/``, and who sent it."""

    at: float  # Unix time of its answer
    key: str
    agent: str
    status: int


class Shown(msgspec.Struct, array_like=True):
    """A version of a record that was changed since the start, when a key first got to see it."""

    at: float  # Unix time of the answer
    key: str
    resource: str
    identity: str
    stamp: str  # ``updated_at``


class Testimony(msgspec.Struct):
    """All that a witness saw."""

    requests: list[Request]
    shown: list[Shown]


class _Record(msgspec.Struct):
    id: str
    updated_at: str


_OK: Final = 200
_SEEDED_UNTIL: Final = "2026"
"""No seeded record is younger than that year, see docs/sandbox.md."""
_PAGE: Final = msgspec.json.Decoder(dict[str, list[_Record] | str | None])


class Witness:
    """Remembers the requests that an API answers and the changes that it shows; ``GET /witness`` asks for both."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._requests: list[Request] = []
        self._shown: dict[tuple[str, str, str, str], Shown] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and note it."""
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            asked = scope["type"] == "http" and scope["path"] == "/witness"
            await (self._testify() if asked else self._app)(scope, receive, send)
            return
        status, body = 0, bytearray()

        async def hear(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            body.extend(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, hear)
        headers = dict(scope["headers"])
        key = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        now = time.time()
        self._requests.append(Request(now, key, headers.get(b"user-agent", b"").decode(), status))
        resource = scope["path"].removeprefix("/v1/")
        if status == _OK and "/" not in resource:
            records = _PAGE.decode(body)[resource]
            assert isinstance(records, list)
            for record in records:
                if record.updated_at > _SEEDED_UNTIL:
                    seen = (key, resource, record.id, record.updated_at)
                    self._shown.setdefault(seen, Shown(now, *seen))

    def _testify(self) -> Response:
        return Response(msgspec.json.encode(Testimony(self._requests, list(self._shown.values()))))


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
