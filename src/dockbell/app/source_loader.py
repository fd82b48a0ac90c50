"""Loads sources, and lets the agents of each work as soon as it is loaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Final

import anyio
from anyio.abc import TaskGroup

from dockbell.app.agents import Agents
from dockbell.app.scheduler import Scheduler
from dockbell.app.source_agents import SourceAgents
from dockbell.errors import StoreUnavailable
from dockbell.ports import Store

_AT_ONCE: Final = 16
"""How many sources are loaded side by side: those that are loaded work meanwhile, and would starve a single loader."""
_PAUSE: Final = timedelta(seconds=0.5)
"""Between two sources that are not due yet. Each is loaded when it is due at the latest."""
_DUE_IN: Final = attrgetter("due_in")


class SourceLoader:
    """Loads the sources of the agents that are not loaded.

    Sources that another process had are loaded in the order in which they are due, and those that are not due yet two
    each second: to load a thousand takes seconds of CPU, for which polls that are due would wait.
    """

    def __init__(self, agents: Agents, scheduler: Scheduler) -> None:
        self._agents = agents
        self._scheduler = scheduler

    async def run(self, group: TaskGroup, *, at_once: bool = False) -> None:
        """Load all that there are now, a few side by side; their agents work in ``group``.

        Args:
            group: Outlives the call.
            at_once: Those too that are not due.

        Raises:
            StoreError: The store cannot be read; the sources that are loaded work.
        """
        waiting = sorted((each for each in self._agents.sources.values() if not each.is_started), key=_DUE_IN)
        waiting.reverse()  # the next one is the last
        turn = anyio.Lock()

        async def load_next() -> None:
            while True:
                async with turn:
                    source = await self._take_next(waiting, at_once=at_once)
                if source is None:
                    return
                await retry_in_outage(self._agents.store, partial(self._agents.load_source, source))
                source.start(group, self._scheduler)

        try:
            async with anyio.create_task_group() as loaders:
                for _ in range(_AT_ONCE):
                    loaders.start_soon(load_next)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _take_next(self, waiting: list[SourceAgents], *, at_once: bool) -> SourceAgents | None:
        while waiting:
            rings = self._agents.asked_for.rings
            pause = timedelta(0) if at_once else min(waiting[-1].due_in, _PAUSE)
            if pause > timedelta(0):
                with anyio.move_on_after(pause.total_seconds()):
                    await self._agents.asked_for.wait(rings)
                    waiting.sort(key=_DUE_IN, reverse=True)
                    continue
            return waiting.pop()
        return None


async def retry_in_outage(store: Store, work: Callable[[], Awaitable[None]]) -> None:
    """Do what may be done again, until the store can be written."""
    while True:
        try:
            return await work()
        except StoreUnavailable:
            await store.health.recovered()
