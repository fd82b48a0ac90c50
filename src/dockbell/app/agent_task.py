"""A piece of work among others, which ends by itself or when it is told to; the others go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup


class AgentTask:
    """Work that goes on in a task group, with an end of its own."""

    def __init__(self, group: TaskGroup, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._scope = anyio.CancelScope()
        self._has_ended = False
        self._bell: anyio.Event | None = None  # made for who waits: a process has thousands of tasks
        group.start_soon(self._go)

    async def end(self) -> None:
        """Cancel the work; return when it has ended."""
        self._scope.cancel()
        await self.wait()

    async def wait(self) -> None:
        if not self._has_ended:
            self._bell = self._bell or anyio.Event()
            await self._bell.wait()

    async def _go(self) -> None:
        try:
            with self._scope:
                await self._work()
        finally:
            self._has_ended = True
            if self._bell is not None:
                self._bell.set()
