"""The turn of one feed: the right to ask for a page and to commit it, pages in the order of their requests.

A page that does not come is asked for up to five times, for up to half a minute each. Between two tries its run lends
the turn to the other runs of the feed: the try that succeeds is sent after their pages were committed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Self

import anyio


class Turn(AbstractAsyncContextManager["Turn"]):
    """A turn that is held while it is entered, unless it is lent.

    Args:
        lock: Of the feed: one turn is held at a time.
    """

    def __init__(self, lock: anyio.Lock) -> None:
        self._lock = lock
        self._is_held = False

    async def __aenter__(self) -> Self:
        """Wait for the turn."""
        await self._take()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        if self._is_held:
            self._give_back()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Let other runs have the turn meanwhile; after an error it is not taken back, since the page is given up."""
        self._give_back()
        yield
        await self._take()

    async def _take(self) -> None:
        await self._lock.acquire()
        self._is_held = True

    def _give_back(self) -> None:
        self._is_held = False
        self._lock.release()
