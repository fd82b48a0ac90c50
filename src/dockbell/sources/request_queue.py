"""Lets requests through a key's budgets one by one: the most urgent first, and none waits for ever."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import anyio

from dockbell.core.model import Urgency
from dockbell.core.running.budget import Budget

# Each step down in urgency makes a request due later by this. So a poll overtakes the pass pages that came within the
# last minute, and none that has waited longer.
_STEP: Final = timedelta(seconds=15)
_RANKS: Final = {urgency: rank for rank, urgency in enumerate(Urgency)}


def now() -> timedelta:
    """Return the time since the origin of the event loop's clock, which is monotonic."""
    return timedelta(seconds=anyio.current_time())


async def _return_at_once() -> None:
    pass


@dataclass(eq=False, slots=True)
class _Ticket:
    due: timedelta
    called: anyio.Event = field(default_factory=anyio.Event)


class RequestQueue:
    """Makes each request wait for its turn.

    A request is charged to one budget or to several. Of those that all their budgets admit, the one that is due first
    has its turn; one that must wait delays no other. At most ``places`` turns go on at once.

    Attributes:
        wait_for_trust: Waited for at the beginning of each turn: returns when this process may ask at all.
    """

    def __init__(self, places: int) -> None:
        self.wait_for_trust: Callable[[], Awaitable[None]] = _return_at_once
        self._places = places
        # One line for each kind of request: its head is judged for all of them.
        self._lines: dict[tuple[Urgency, tuple[Budget, ...]], deque[_Ticket]] = {}

    @asynccontextmanager
    async def turn(self, urgency: Urgency, *budgets: Budget) -> AsyncIterator[None]:
        """Wait for a turn, and own it until the end; a request that is cancelled while it waits spends nothing."""
        await self._enter(urgency, budgets)
        try:
            await self.wait_for_trust()
            yield
        finally:
            self._places += 1
            for budget in budgets:
                budget.answered(now(), urgency)
            self._call_next()

    async def _enter(self, urgency: Urgency, budgets: tuple[Budget, ...]) -> None:
        ticket = _Ticket(due=now() + _RANKS[urgency] * _STEP)
        line = self._lines.setdefault((urgency, budgets), deque())
        line.append(ticket)
        try:
            while (wait := self._wait_of(ticket)) > 0:
                ticket.called = anyio.Event()
                with anyio.move_on_after(wait):
                    await ticket.called.wait()
            self._places -= 1
            for budget in budgets:
                budget.spent(now(), urgency)
        finally:
            line.remove(ticket)
            self._call_next()

    def _wait_of(self, ticket: _Ticket) -> float:
        """Return for how many seconds a ticket sleeps unless it is called; only the next one keeps the time."""
        wait, following = self._next()
        if following is ticket:
            return wait
        self._call_next()
        return math.inf

    def _call_next(self) -> None:
        following = self._next()[1]
        if following is not None:
            following.called.set()

    def _next(self) -> tuple[float, _Ticket | None]:
        """Return the ticket whose turn is next, and in how many seconds it is."""
        moment = now()
        heads = [
            (max(budget.admit(moment, urgency) for budget in budgets), line[0].due, line[0])
            for (urgency, budgets), line in self._lines.items()
            if line
        ]
        if not heads or not self._places:
            return math.inf, None
        wait, _, ticket = min(heads, key=lambda head: head[:2])
        return wait.total_seconds(), ticket
