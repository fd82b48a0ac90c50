"""A receiver of webhooks that answers with anything, however wrong; and a sink that posts to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import anyio

from dockbell.core.model import Outcome
from dockbell.core.publishing.signature import mint
from dockbell.ports import Bell
from dockbell.sinks.webhook import WebhookSettings, WebhookSink
from tests.sinks.conftest import Facts, make_delivery, running

# Not of the same byte: HMAC fills keys up with zeros, and two of nothing else would be one.
SECRET: Final = mint(b"s" * 24)
OTHER: Final = mint(b"o" * 32)


@dataclass
class Request:
    """One request; ``connection`` numbers the connection that it came on."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


Answer: TypeAlias = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Receiver:
    """A server of a few lines, and what it was asked."""

    answer: Answer
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    bell: Bell = field(default_factory=Bell)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks?token=hush"

    async def until_asked(self, count: int) -> None:
        """Wait for so many requests."""
        with anyio.fail_after(10):
            while len(self.requests) < count:
                await self.bell.wait(self.bell.rings)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = self.connections
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:-2])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                request = Request(method, target, headers, body, connection)
                self.requests.append(request)
                self.bell.ring()
                await self.answer(request, writer)
                await writer.drain()
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(answer: Answer | bytes, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Serve on a loopback port; each request gets the same bytes, or what a function writes."""

    async def repeat(_request: Request, writer: asyncio.StreamWriter) -> None:
        assert isinstance(answer, bytes)
        writer.write(answer)

    receiver = Receiver(repeat if isinstance(answer, bytes) else answer)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


def respond(status: str, body: bytes = b"", **headers: str) -> bytes:
    """Return an HTTP response; ``_`` in the name of a header stands for ``-``."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


OK: Final = respond("200 OK", b"thanks")


def make_sink(
    url: str | dict[str, str], facts: Facts | None = None, *, secret: Any = SECRET, **settings: Any
) -> WebhookSink:
    """Return the sink ``erp``."""
    values = {"type": "webhook", "url": url, "secret": secret} | settings
    return WebhookSink("erp", WebhookSettings.model_validate(values), (facts or Facts()).telemetry)


async def attempt(sink: WebhookSink) -> Outcome:
    """Return what comes of one delivery."""
    async with running(sink) as run:
        run.deliver(make_delivery())
        (outcome,) = await run.until_settled(1)
    return outcome
