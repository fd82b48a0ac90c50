"""Makes requests wait while an API answers none: one at a time probes, and all go when one is answered."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import Final

import anyio

from dockbell.core.reading.request import Request
from dockbell.core.running.circuit_breaker import CircuitBreaker
from dockbell.errors import NOT_SENT
from dockbell.ports import Bell, BetweenTries
from dockbell.sources.connection_pool import Unreached
from dockbell.sources.request_queue import now

PATIENCE: Final = timedelta(seconds=30)
"""A request that is not answered for so long is given up: its run ends incomplete, and says so."""
FIRST_PATIENCE: Final = timedelta(seconds=3)
"""The first of an outage to each collection is given up sooner, so that its feed is told as failing at once."""


class ProbeQueue:
    """The requests that wait for the circuit breaker of a source; they probe in turn.

    Attributes:
        patience: How long each waits, but for the first of its collection.
    """

    def __init__(self, breaker: CircuitBreaker) -> None:
        self.patience = PATIENCE
        self._breaker = breaker
        self._line = deque[object]()
        self._told: set[str] = set()  # collections of which one was given up since all was well
        self._news = Bell()

    def ring(self) -> None:
        """Let all look again: the breaker has opened or closed."""
        if self._breaker.opened_at is None:
            self._told.clear()
        self._news.ring()

    async def wait(self, request: Request, since: timedelta, between_tries: BetweenTries) -> None:
        """Return when a request may be sent that is wanted ``since``; ``between_tries`` is entered while it waits.

        Raises:
            Unreached: Its patience is at an end; nothing was sent.
        """
        if self._breaker.admit(request.collection, now()):
            return
        patience = self.patience if request.collection in self._told else min(self.patience, FIRST_PATIENCE)
        ticket = object()
        self._line.append(ticket)
        try:
            async with between_tries():
                while not self._may_go(request, ticket):
                    left = since + patience - now()
                    if left <= timedelta(0):
                        self._told.add(request.collection)
                        raise self.turned_away()
                    is_next = self._line[0] is ticket  # only this one keeps the time
                    wait = min(self._breaker.wait(now()), left) if is_next else left
                    with anyio.move_on_after(wait.total_seconds()):
                        await self._news.wait(self._news.rings)
        finally:
            self._line.remove(ticket)
            self._news.ring()

    def turned_away(self) -> Unreached:
        """Return the error of a request that is not sent: its message is that of the last that was."""
        return Unreached(f"{NOT_SENT}{self._breaker.reason}")

    def _may_go(self, request: Request, ticket: object) -> bool:
        is_open = self._breaker.opened_at is not None
        return not is_open or (self._line[0] is ticket and self._breaker.admit(request.collection, now()))
