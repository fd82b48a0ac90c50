"""Who waits, and what wakes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

import anyio


class Bell:
    """Wakes all waiting tasks; the number of rings tells a task what it has missed."""

    def __init__(self) -> None:
        self.rings = 0
        self._event = anyio.Event()

    def ring(self) -> None:
        """Wake all who wait."""
        self.rings += 1
        self._event.set()
        self._event = anyio.Event()

    async def wait(self, rings: int) -> int:
        """Return when the bell has rung more often than ``rings``, and how often it has."""
        while self.rings <= rings:
            await self._event.wait()
        return self.rings


class Alarm(Protocol):
    """Tells an agent that it is time."""

    async def wait(self) -> None:
        """Return at the next ring, or at once when it rang since the last."""
        ...

    def ring_in(self, delay: timedelta) -> None:
        """Ring once after a while, now if it is negative; what was set before is forgotten."""
        ...
