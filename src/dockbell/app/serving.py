"""The web server of a daemon, with the store connections that it needs: opened, replaced and ended."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.abc import TaskGroup

from dockbell.admin.shared_read import SharedRead
from dockbell.admin.status import Status
from dockbell.app import opening
from dockbell.app.agent_task import AgentTask
from dockbell.app.agents import Agents
from dockbell.app.next_time import next_time
from dockbell.config import Config, WebSettings
from dockbell.core.model import Feed
from dockbell.ports import ReadStore
from dockbell.telemetry.recent import Recent
from dockbell.telemetry.series import STEP, STEPS

if TYPE_CHECKING:
    from dockbell.telemetry.metrics import Metrics
    from dockbell.web import Site


class OpenSite(msgspec.Struct, frozen=True):
    """A web server, and the store connections that are open for it."""

    site: Site
    stack: AsyncExitStack

    async def run(self) -> None:
        try:
            await self.site.run()
        finally:
            with anyio.CancelScope(shield=True):
                await self.aclose()

    async def aclose(self) -> None:
        await self.stack.aclose()


class Serving:
    """Serves the page, the pull feeds and the metrics, as ``[web]`` asks.

    Args:
        agents: What is shown.
        config: Returns the configuration that is followed.
        works_on: Returns whether this process reads a source, by its name; others may.
    """

    def __init__(self, agents: Agents, *, config: Callable[[], Config], works_on: Callable[[str], bool]) -> None:
        self._agents = agents
        self._config = config
        self._works_on = works_on
        self._recent = Recent(opening.now)
        agents.telemetry.listen(self._recent.hear)
        self._metrics: Metrics | None = None
        self._open: OpenSite | None = None
        self._settings: WebSettings | None = None
        self._task: AgentTask | None = None

    @property
    def shared_status(self) -> SharedRead[Status] | None:
        """The status that clients share; None without a web server."""
        return None if self._open is None else self._open.site.shared_status

    def follows(self, settings: WebSettings | None) -> bool:
        """Return whether it serves by these settings already."""
        return settings == self._settings

    async def open(self, config: Config) -> OpenSite | None:
        """Return a site on the address of ``[web]``, if there is one; the same address keeps its socket.

        Raises:
            ConfigError: The address cannot be listened on.
            StoreError: The store cannot be read.
        """
        if config.web is None:
            return None
        from dockbell.web import Site  # noqa: PLC0415  # a daemon without [web] starts without a web server

        is_there = self._open is not None and self._settings is not None and self._settings.listen == config.web.listen
        async with AsyncExitStack() as stack:
            read_store = await opening.open_read_store(config)
            page_read_store = await opening.open_read_store(config)
            stack.push_async_callback(read_store.aclose)
            stack.push_async_callback(page_read_store.aclose)
            command_store = await opening.open_command_store(config)
            stack.push_async_callback(command_store.aclose)
            if self._metrics is None:
                await self._recall(read_store)
            site = Site(
                config.web,
                config=self._config,
                read_store=read_store,
                page_read_store=page_read_store,
                command_store=command_store,
                recent=self._recent,
                outbox=self._agents.store.outbox,
                telemetry=self._agents.telemetry,
                now=opening.now,
                next_time=next_time,
                metrics=self._count_facts(),
                check_store=self._check_store,
                works_on=self._works_on,
                listener=self._open.site.share() if is_there and self._open is not None else None,
            )
            stack.callback(site.close)
            return OpenSite(site, stack.pop_all())

    def start(self, group: TaskGroup, opened: OpenSite | None, settings: WebSettings | None) -> None:
        """Answer on what was opened for these settings."""
        self._open, self._settings = opened, settings
        self._task = None if opened is None else AgentTask(group, opened.run)

    async def end(self) -> None:
        """End the web server, if there is one."""
        if self._task is not None:
            await self._task.end()

    def keep(self) -> None:
        """Show what the agents are now: forget the others."""
        agents = self._agents
        self._recent.keep(agents.configured, agents.relays)
        if self._metrics is not None:
            self._metrics.expect(agents.configured, agents.relays)

    def forget_progress(self, feeds: Collection[Feed]) -> None:
        """Show no passes under way of feeds whose agents have ended."""
        self._recent.forget_progress(feeds)

    async def _recall(self, read_store: ReadStore) -> None:
        """Fill the recent measurements with what is stored of the hours before the start."""
        readings = await read_store.read_readings(opening.now() - STEPS * STEP)
        for state in await read_store.load_feeds():
            runs = [(run.known_at, run.ended_at) for run in (state.poll, state.full) if run is not None]
            self._recent.recall(
                state.feed,
                sorted({*runs, *readings.get(state.feed, ())}, key=lambda run: run[1]),
                records=None if state.full is None else state.full.records,
            )

    def _count_facts(self) -> Metrics:
        """Return the metrics, which count from the first time that there is a web server."""
        if self._metrics is None:
            from dockbell.telemetry.metrics import Metrics  # noqa: PLC0415  # a library that only the web server needs

            self._metrics = Metrics()
            self._agents.telemetry.listen(self._metrics.hear)
            self._metrics.expect(self._agents.configured, self._agents.relays)
        return self._metrics

    async def _check_store(self) -> None:
        await self._agents.store.health.check()
        if self._agents.store.health.trouble is not None:
            raise self._agents.store.health.trouble
