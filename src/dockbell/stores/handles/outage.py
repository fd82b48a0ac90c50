"""A time in which a store cannot be written: its disk is full, or broken; the agents that need it wait here.

The first agent that meets it begins it. Those that wait for its end look whether it is over, one at a time: all share
one outage, and it is reported once. Looking costs next to nothing, so it is done every few seconds at most. Only an
outage that follows another one closely is given more time, up to a minute: what ended the other was not enough.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from math import inf
from typing import Final

import anyio

from dockbell.errors import StoreError, StoreUnavailable
from dockbell.ports import Bell
from dockbell.telemetry import StoreFails, StoreMended, Telemetry

_FIRST: Final = 1.0
_USUAL: Final = 5.0
_MOST: Final = 60.0
"""Seconds until the store is tried again: at first, later, and at most where outages follow each other."""
_CALM: Final = 120.0
"""An outage that begins so many seconds after another one is the same trouble again."""


class Outage:
    """Whether a store can be written now, and its agents' patience until it can.

    ``try_again`` returns when the store can be written again with some room to spare, and raises StoreError otherwise.
    ``reason`` says why it cannot be written, and is None while it can; ``began`` rings at the beginning.
    """

    def __init__(self, try_again: Callable[[], Awaitable[None]], telemetry: Telemetry) -> None:
        self.reason: StoreUnavailable | None = None
        self.began = Bell()
        self._try_again = try_again
        self._telemetry = telemetry
        self._turn = anyio.Lock()
        self._pause = _FIRST
        self._began_at = 0.0
        self._ended_at = -inf

    def begin(self, reason: StoreUnavailable) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        self._began_at = anyio.current_time()
        again = self._began_at - self._ended_at < _CALM
        self._pause = min(2 * max(self._pause, _USUAL), _MOST) if again else _FIRST
        self._telemetry.emit(StoreFails(str(reason)))
        self.began.ring()

    async def over(self) -> None:
        """Return when the store can be written, at once while nothing is wrong."""
        while self.reason is not None:
            async with self._turn:
                if self.reason is not None:
                    await anyio.sleep(self._pause)
                    await self._look()

    async def _look(self) -> None:
        try:
            await self._try_again()
        except StoreError:
            self._pause = max(self._pause, min(2 * self._pause, _USUAL))
            return
        self.reason = None
        self._ended_at = anyio.current_time()
        self._telemetry.emit(StoreMended(timedelta(seconds=self._ended_at - self._began_at)))
