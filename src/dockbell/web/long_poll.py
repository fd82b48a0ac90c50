"""Requests that stay open until there are events: long polls and streams, in a bounded number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import anyio
from starlette.types import Receive

from dockbell.core.model import Feed
from dockbell.ports import Bell, Extent, ReadStore
from dockbell.web.problem import Problem

READERS_MOST: Final = 200


class LongPolls:
    """The requests that wait.

    Each time that events were added, the store is asked once per feed, however many requests wait for the feed.

    Args:
        read_store: Of the store.
        outbox: Rings when events were added.
        most: How many requests may wait at a time.
    """

    def __init__(self, read_store: ReadStore, outbox: Bell, *, most: int = READERS_MOST) -> None:
        self.readers = 0
        self._read_store = read_store
        self._outbox = outbox
        self._most = most
        self._closing = anyio.Event()
        self._extents: dict[Feed, tuple[int, Extent | None]] = {}
        self._turns: defaultdict[Feed, anyio.Lock] = defaultdict(anyio.Lock)

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
            detail = f"readers: {self.readers} wait already, that is the most; ask again later, or without waiting"
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
        while True:
            rings = self._outbox.rings
            extent = await self._find_extent(feed)
            if extent is None or extent.last > after:
                return
            await self._outbox.wait(rings)

    async def _find_extent(self, feed: Feed) -> Extent | None:
        """Return the extent of a feed; read it once for each ring of the bell."""
        async with self._turns[feed]:
            rings = self._outbox.rings
            found_at, extent = self._extents.get(feed, (-1, None))
            if found_at != rings:
                extent = await self._read_store.find_extent(feed)
                self._extents[feed] = rings, extent
            return extent

    async def _cancel_on_close(self, scope: anyio.CancelScope) -> None:
        await self._closing.wait()
        scope.cancel()


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
