"""The agents of a deployment at work side by side, as the daemon lets them, in the deployment's own time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from math import inf
from typing import Final

import anyio

from dockbell.admin.reasons import list_reasons
from dockbell.admin.status import load_status
from dockbell.app import opening
from dockbell.app.next_time import next_time
from tests.acceptance.deployment import START, Deployment

_MOMENT: Final = 1e-6


class VirtualAlarm:
    """Rings as the scheduler's alarms do, by the clock of the loop; rings while the agent is busy count as one."""

    def __init__(self) -> None:
        self._due = inf
        self._changed = anyio.Event()

    async def wait(self) -> None:
        """Return at the next ring."""
        while (left := self._due - anyio.current_time()) > _MOMENT:
            with anyio.move_on_after(left):
                await self._changed.wait()
        self._due = inf

    def ring_in(self, delay: timedelta) -> None:
        """Ring once after a delay."""
        self._due = anyio.current_time() + max(0.0, delay.total_seconds())
        self._changed.set()
        self._changed = anyio.Event()


@asynccontextmanager
async def at_work(dockbell: Deployment) -> AsyncIterator[None]:
    """Let all agents of a deployment work while the block lasts; in it, sleep."""
    agents = dockbell.agents
    async with anyio.create_task_group() as group, AsyncExitStack() as stack:
        for each in agents.feeds.values():
            group.start_soon(each.reconciler.run, VirtualAlarm())
            if each.poller is not None:
                group.start_soon(each.poller.run, VirtualAlarm())
                stack.enter_context(each.poller.trailing.working_in(group))
            if each.detail_fetcher is not None:
                stack.enter_context(each.reconciler.absence_check.task.working_in(group))
                stack.enter_context(each.detail_fetcher.task.working_in(group))
        yield
        group.cancel_scope.cancel()


async def reasons(dockbell: Deployment) -> list[str]:
    """Return why an operator should look, as ``dockbell status`` says it."""
    config = dockbell.agents.config
    read_store = await opening.open_read_store(config)
    try:
        status = await load_status(
            read_store,
            config.feeds(),
            config.sinks,
            at=START + timedelta(seconds=anyio.current_time()),
            holder="a test",
            next_time=next_time,
        )
    finally:
        await read_store.aclose()
    return list(list_reasons(status))
