"""Where an operator leaves wishes for the daemon that holds the store."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path

import anyio
from anyio import to_thread

from dockbell.core.model import Feed
from dockbell.errors import StoreError
from dockbell.ports import Wish, Wished
from dockbell.stores.sqlite import connect, feeds, look


class SqliteDesk:
    """Writes wishes, and reads what came of them; the store may be held by a daemon."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._turn = anyio.CapacityLimiter(1)

    @classmethod
    async def open(cls, path: Path) -> SqliteDesk:
        """Open a store to leave wishes in it.

        Raises:
            StoreIncompatible: It is not a store, or one of another dockbell.
            StoreError: There is none, or it cannot be opened.
        """
        (await to_thread.run_sync(look, path)).close()
        return cls(await to_thread.run_sync(connect, path))

    async def make_wish(self, feed: Feed, wish: Wish, now: datetime) -> int:
        """Leave a wish; return its number.

        Raises:
            StoreError: The feed was never read.
        """
        return await to_thread.run_sync(self._make_wish, feed, wish, now, limiter=self._turn)

    def _make_wish(self, feed: Feed, wish: Wish, now: datetime) -> int:
        states = feeds.load_feeds(self._connection, feed)
        if not states:
            raise StoreError(f'feed {feed}: was never read; "dockbell run" reads it first')
        return feeds.make_wish(self._connection, states[0].id, wish, now)

    async def load_wish(self, number: int) -> Wished:
        """Return a wish, and what came of it."""
        (wished,) = await to_thread.run_sync(feeds.load_wishes, self._connection, number, limiter=self._turn)
        return wished

    async def aclose(self) -> None:
        """Close it."""
        await to_thread.run_sync(self._connection.close, limiter=self._turn)
