"""Requests that stay open until there are events: long polls and streams, in a bounded number."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dockbell.core.model import Feed
from dockbell.errors import StoreError
from dockbell.ports import OutboxBell
from dockbell.web.responses import Problem

READERS_MOST: Final = 200
EVENT_STREAM: Final = "text/event-stream"
_GOODBYE_SECONDS: Final = 0.3


class LongPolls:
    """The requests that wait: ``most`` at a time."""

    def __init__(self, outbox: OutboxBell, *, most: int = READERS_MOST) -> None:
        self.readers = 0
        self._outbox = outbox
        self._most = most
        self._closing = anyio.Event()

    def close(self) -> None:
        """End all requests that wait, and those that come from now on."""
        self._closing.set()

    @asynccontextmanager
    async def admit(self, receive: Receive) -> AsyncIterator[None]:
        """Count a request as waiting inside the block; the block may raise nothing but cancellation.

        The block is cancelled when the client disconnects, and by :meth:`close`.

        Raises:
            Problem: 503, too many requests wait already.
        """
        if self.readers >= self._most:
            detail = f"readers: {self.readers} are waiting, which is the maximum; retry later, or without waiting"
            headers = {"Retry-After": "5"}
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-readers", detail, headers=headers)
        self.readers += 1
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_on_disconnect, receive, group.cancel_scope)
                group.start_soon(self._cancel_on_close, group.cancel_scope)
                yield
                group.cancel_scope.cancel()
        finally:
            self.readers -= 1

    async def wait(self, feed: Feed, after: int) -> None:
        """Return as soon as a feed has an event after a sequence."""
        await self._outbox.wait_beyond(feed, after)

    async def _cancel_on_close(self, scope: anyio.CancelScope) -> None:
        await self._closing.wait()
        scope.cancel()


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class EventStream(Response):
    """Server-sent events: a response that goes on until the client or the daemon ends it, or the store cannot be read.

    ``write`` sends its text with the function that it is given, until it returns; ``long_polls`` counts it.
    """

    def __init__(
        self,
        long_polls: LongPolls,
        write: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(headers={"Content-Type": EVENT_STREAM, **headers})
        del self.headers["content-length"]
        self._long_polls = long_polls
        self._write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's signature
        """Stream to one client.

        Raises:
            Problem: 503, too many requests wait already; nothing was sent.
        """

        async def send_text(text: bytes) -> None:
            await send({"type": "http.response.body", "body": text, "more_body": True})

        async with self._long_polls.admit(receive):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with suppress(StoreError):
                await self._write(send_text)
        with anyio.move_on_after(_GOODBYE_SECONDS):  # does not wait for a client that does not read
            await send({"type": "http.response.body", "body": b""})
