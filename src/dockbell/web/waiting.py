"""The readers that wait for events: a bounded number, each of which leaves when its client does."""

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


class WaitingRoom:
    """Where readers wait.

    However many wait for one feed, the store is asked once whenever events were added.

    Args:
        read_store: Of the store.
        outbox: Rings when events were added.
        most: How many readers may wait at a time.
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
        """Send all readers away, and those that come from now on at once."""
        self._closing.set()

    @asynccontextmanager
    async def attend(self, receive: Receive) -> AsyncIterator[None]:
        """Let one reader wait inside; the block is left early when its client is gone, or when the room is closed.

        Nothing may be raised inside but cancellation.

        Raises:
            Problem: 503, too many wait already.
        """
        if self.readers >= self._most:
            detail = f"readers: {self.readers} wait already, that is the most; ask again later, or without waiting"
            headers = {"Retry-After": "5"}
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-readers", detail, headers=headers)
        self.readers += 1
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_leave_with_client, receive, group.cancel_scope)
                group.start_soon(self._leave_at_close, group.cancel_scope)
                yield
                group.cancel_scope.cancel()
        finally:
            self.readers -= 1

    async def wait(self, feed: Feed, after: int) -> None:
        """Return as soon as a feed has an event after a sequence."""
        while True:
            rings = self._outbox.rings
            extent = await self._look(feed)
            if extent is None or extent.last > after:
                return
            await self._outbox.wait(rings)

    async def _look(self, feed: Feed) -> Extent | None:
        """Return how far a feed goes, as it was found since the bell rang last."""
        async with self._turns[feed]:
            rings = self._outbox.rings
            found_at, extent = self._extents.get(feed, (-1, None))
            if found_at != rings:
                extent = await self._read_store.find_extent(feed)
                self._extents[feed] = rings, extent
            return extent

    async def _leave_at_close(self, scope: anyio.CancelScope) -> None:
        await self._closing.wait()
        scope.cancel()


async def _leave_with_client(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
