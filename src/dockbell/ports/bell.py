"""Who waits, and what wakes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import timedelta
from itertools import takewhile
from typing import Protocol

import anyio

from dockbell.core.model import Feed


class Bell:
    """Wakes all waiting tasks; the number of rings tells a task what it has missed."""

    def __init__(self) -> None:
        self.rings = 0
        self._event: anyio.Event | None = None  # made for who waits: a process has thousands of bells

    def ring(self) -> None:
        """Wake all who wait."""
        self.rings += 1
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self, rings: int) -> int:
        """Return when the bell has rung more often than ``rings``, and how often it has."""
        while self.rings <= rings:
            self._event = self._event or anyio.Event()
            await self._event.wait()
        return self.rings


class OutboxBell(Bell):
    """Tells which feeds have new events.

    Args:
        ends: The sequence of the last event of each feed.

    Attributes:
        ends: The same as of now.
        awaited: How many readers wait for the next event of each feed.
    """

    def __init__(self, ends: Mapping[Feed, int]) -> None:
        super().__init__()
        self.ends = dict(ends)
        self.awaited: Counter[Feed] = Counter()
        self._moves: dict[Feed, int] = {}  # the ring that told of each feed; the latest stand last

    def announce(self, feed: Feed, end: int) -> None:
        """Ring when a feed has events that were not told yet."""
        if end <= self.ends.get(feed, 0):  # read before a commit that was told meanwhile
            return
        self.ends[feed] = end
        self._moves.pop(feed, None)
        self._moves[feed] = self.rings + 1
        self.ring()

    def find_moved(self, rings: int) -> Collection[Feed]:
        """Return the feeds that had new events since the bell had rung so often; this costs nothing for the others."""
        latest = takewhile(lambda move: move[1] > rings, reversed(self._moves.items()))
        return [feed for feed, _ in latest]

    async def wait_beyond(self, feed: Feed, sequence: int) -> None:
        """Return as soon as a feed has an event after a sequence."""
        self.awaited[feed] += 1
        try:
            while self.ends.get(feed, 0) <= sequence:
                await self.wait(self.rings)
        finally:
            self.awaited[feed] -= 1


class Alarm(Protocol):
    """Tells an agent that it is time."""

    async def wait(self) -> None:
        """Return at the next ring, or at once when it rang since the last."""
        ...

    def ring_in(self, delay: timedelta) -> None:
        """Ring once after a while, now if it is negative; what was set before is forgotten."""
        ...
