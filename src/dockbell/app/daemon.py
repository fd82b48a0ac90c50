"""The daemon: runs all agents until it is stopped, and follows a configuration that is read again."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from dockbell.admin.reasons import find_reasons
from dockbell.admin.shared_read import SharedRead
from dockbell.admin.status import Status, load_status
from dockbell.app import opening
from dockbell.app.agent_task import AgentTask
from dockbell.app.agents import Agents, open_news
from dockbell.app.changes import Changes
from dockbell.app.next_time import next_time
from dockbell.app.revisions import Revisions
from dockbell.app.scheduler import Scheduler
from dockbell.app.serving import Serving
from dockbell.app.sharing import Sharing
from dockbell.app.source_loader import SourceLoader, retry_in_outage
from dockbell.app.systemd import Supervisor
from dockbell.app.upgrading import Upgrading
from dockbell.config import Config, check_secrets
from dockbell.core.counting import count_of
from dockbell.errors import ConfigError, DockbellError, LeaseLost, StoreUnavailable
from dockbell.ports import Bell, Claim, CommandOutcome, Fleet, Revision, Spent
from dockbell.telemetry import AgentFails, ProcessDied, Reloaded, ReloadRefused, Started, Stopping

_PRUNE_EVERY: Final = timedelta(minutes=10)
_LOOK_EVERY: Final = timedelta(seconds=0.5)
_SAVE_EVERY: Final = timedelta(minutes=1)
"""How often measured delays are stored: what a crash loses of them."""
_LOOK_MOST: Final = timedelta(seconds=2)
_SHARE_EVERY: Final = timedelta(seconds=1)
_DUE_FIRST: Final = timedelta(seconds=3)
"""So long a process waits for what is due of the sources that it has claimed, before it claims more."""


class Daemon:
    """Runs the agents, each feed and each sink in a task of its own.

    Args:
        agents: Of the configuration; of no source yet, where several processes share the store.
        config: All of it, with the sources that other processes have.
        scheduler: Rings their alarms.
        read_again: Reads the configuration anew; None where it cannot change.
        revisions: What several processes have agreed to follow, where they share the store.
        supervisor: Is told the state of the daemon.
    """

    def __init__(
        self,
        agents: Agents,
        scheduler: Scheduler,
        *,
        config: Config,
        read_again: Callable[[], Config] | None = None,
        revisions: Revisions | None = None,
        supervisor: Supervisor,
    ) -> None:
        self._agents = agents
        self._telemetry = agents.telemetry
        self.config = config
        self._held: Collection[str] = ()
        self._accounts: tuple[Config, tuple[Mapping[str, str], Mapping[str, timedelta]]] | None = None
        if agents.store.fleet is not None:
            agents.know(config)
        self._serving = Serving(agents, config=lambda: self.config, works_on=self._works_on)
        self._scheduler = scheduler
        self._loader = SourceLoader(agents, scheduler)
        self._read_again = read_again
        self._revisions = None if agents.store.fleet is None else revisions
        self._supervisor = supervisor
        self._shared_status = SharedRead(self._load_status)
        self._turn = anyio.Lock()
        self._loading: AgentTask
        self._relays: dict[str, AgentTask] = {}
        self._janitor: AgentTask | None = None
        self._detecting: TaskGroup
        self._delivering: TaskGroup

    async def run(self, stop: anyio.Event, reloads: Bell) -> None:
        """Run until ``stop`` is set; then end detection at once, and delivery after what is in flight is settled.

        Where several processes share the store, it works on its share of the sources.

        It runs as soon as the page answers and the relays work: the sources are loaded meanwhile.
        Whenever ``reloads`` rings, the configuration is read again.

        Raises:
            ConfigError: The address of ``[web]`` cannot be listened on; nothing was started.
            LeaseLost: Other processes have taken over what this one had.
            StoreError: The store cannot be read.
        """
        agents = self._agents
        fleet = agents.store.fleet
        sharing = None if fleet is None else Sharing(fleet, self, self._telemetry)
        site = await self._serving.open(self.config)
        async with anyio.create_task_group() as notifying:
            notifying.start_soon(agents.notifier.run)
            async with anyio.create_task_group() as self._delivering:
                async with anyio.create_task_group() as self._detecting:
                    self._serving.start(self._detecting, site, self.config.web)
                    self._start_missing()
                    self._loading = self._start_loading()
                    self._detecting.start_soon(self._recover)
                    self._detecting.start_soon(self._attend)
                    self._detecting.start_soon(self._save_delays)
                    self._detecting.start_soon(self._reload_whenever, reloads)
                    self._detecting.start_soon(self._shared_status.run)
                    self._detecting.start_soon(self._supervisor.watch, self._look)
                    if fleet is not None and sharing is not None:
                        self._detecting.start_soon(self._share, sharing)
                        self._detecting.start_soon(sharing.declare)
                        self._detecting.start_soon(fleet.follow)
                        self._detecting.start_soon(self._upgrade, Upgrading(fleet, self._telemetry))
                        self._detecting.start_soon(_watch_membership, fleet)
                    if self._revisions is not None:
                        self._detecting.start_soon(self._follow_revisions, self._revisions)
                    self._telemetry.emit(Started(agents.config.name, len(agents.configured), tuple(agents.relays)))
                    if agents.store.abandoned_by:
                        self._telemetry.emit(ProcessDied(agents.store.abandoned_by))
                    self._supervisor.ready(self._describe())
                    await stop.wait()
                    self._detecting.cancel_scope.cancel()
                self._telemetry.emit(Stopping())
                self._supervisor.stopping(str(Stopping()))
                for relay in agents.relays.values():
                    relay.stop()
            notifying.cancel_scope.cancel()
        await agents.notifier.finish()
        if sharing is not None:
            await sharing.leave()

    async def reload(self) -> CommandOutcome:
        """Read the configuration again and follow it; a failure is an outcome.

        Where several processes share the store, they agree on what is followed.
        """
        if self._read_again is None:
            return CommandOutcome("complete", detail="nothing changed")
        return await self._follow()

    async def _follow(self, revision: Revision | None = None) -> CommandOutcome:
        """Follow a revision, else what the file says; what has happened meanwhile is left alone."""
        self._supervisor.reloading()
        try:
            async with self._turn:  # else the later of two reloads could apply the older text
                config = await self._read(revision)
                if config is None:
                    return CommandOutcome("complete", detail="nothing changed")
                if self._revisions is None:  # which look at what they share
                    check_secrets(config)
                changes = await self._apply(config)
                await self._loader.run(self._detecting, at_once=True)
        except ConfigError as error:
            self._telemetry.emit(ReloadRefused(error.problems))
            return CommandOutcome("failed", detail=f"nothing was changed\n{error}")
        except DockbellError as error:
            self._telemetry.emit(ReloadRefused((str(error),)))
            return CommandOutcome("failed", detail=f"not everything was changed, reload again\n{error}")
        except Exception as error:  # noqa: BLE001  # what runs goes on
            self._telemetry.emit(AgentFails("reload", error))
            words = f"not everything was changed, {type(error).__name__}: {error}; see the log for details"
            return CommandOutcome("failed", detail=words)
        else:
            if self._revisions is None:
                self._telemetry.emit(Reloaded(str(changes)))
                return CommandOutcome("complete", detail=str(changes))
            number, warned = self._revisions.number, self._revisions.warning
            told = Reloaded(str(changes), number)
            self._telemetry.emit(told)
            warning = f"\n{warned}" if warned is not None and revision is None else ""
            return CommandOutcome("complete", detail=f"revision {number}: {changes}{warning}")
        finally:
            self._supervisor.ready(self._describe())

    async def _read(self, revision: Revision | None) -> Config | None:
        if revision is not None and self._revisions is not None:
            return await self._revisions.read(revision)
        assert self._read_again is not None
        own = await to_thread.run_sync(self._read_again)  # in a thread: the disk of the file may be slow
        return own if self._revisions is None else await self._revisions.agree(own)

    async def _follow_revisions(self, revisions: Revisions) -> None:
        with closing(self._scheduler.repeat("revisions", _SHARE_EVERY)) as alarm:
            while True:
                await alarm.wait()
                with suppress(StoreUnavailable):  # the writer meets the same and reports it
                    if (revision := await revisions.find_newer()) is not None:
                        await self._follow(revision)

    async def _apply(self, config: Config) -> Changes:
        """Start, end and replace agents as a configuration asks, but load no source; unchanged ones go on.

        Where several processes share the store, only the agents of its sources that this one has.

        Waits while the store cannot be written; the agents that remain go on meanwhile.

        Raises:
            ConfigError: It cannot be used, or not without a restart; nothing was changed.
            StoreError: The store cannot be read; some of it was changed.
        """
        agents, whole = self._agents, config
        if agents.store.fleet is not None:
            config = whole.only(self._held)
        changes = agents.find_changes(config)
        moves = not self._serving.follows(config.web)
        site = await self._serving.open(config) if moves else None
        try:
            opened = await open_news(config, changes, self._telemetry, agents.store)
            await agents.store.health.recovered()
        except BaseException:
            if site is not None:
                await site.aclose()
            raise
        await self._loading.end()  # the caller goes on with it, by what is configured then
        await self._end(changes, config, moves=moves)
        if moves:
            self._serving.start(self._detecting, site, config.web)
        await agents.adopt(config, opened, changes)
        if agents.store.fleet is not None and whole is not self.config:
            agents.know(whole)
        self.config = whole
        try:
            await retry_in_outage(agents.store, partial(agents.enroll, opened, changes))
        finally:
            self._start_missing()
            self._serving.keep()
        return changes

    async def _end(self, changes: Changes, config: Config, *, moves: bool) -> None:
        """End the agents that a configuration removes or changes."""
        now, ended = self._agents.config, frozenset(changes.feeds.ending)
        prunes_otherwise = (config.store, config.sinks.keys()) != (now.store, now.sinks.keys())
        async with anyio.create_task_group() as ending:
            for name in {feed.source for feed in ended}:
                ending.start_soon(self._agents.sources[name].end, ended)
            for name in changes.sinks.ending:
                self._agents.relays[name].stop()
                ending.start_soon(self._relays.pop(name).wait)
            if self._janitor is not None and prunes_otherwise:
                ending.start_soon(self._janitor.end)
                self._janitor = None
            if moves:
                ending.start_soon(self._serving.end)
        await self._agents.command_runner.leave(ended)
        self._serving.forget_progress(ended)

    # Several processes ------------------------------------------------------------------------------------------------

    def list_accounts(self) -> Mapping[str, str]:
        return self._look_up()[0]

    def list_intervals(self) -> Mapping[str, timedelta]:
        return self._look_up()[1]

    def _look_up(self) -> tuple[Mapping[str, str], Mapping[str, timedelta]]:
        """Return the accounts of the configuration and their intervals, which all sources together decide."""
        if self._accounts is None or self._accounts[0] is not self.config:
            self._accounts = self.config, (self.config.accounts(), self.config.intervals())
        return self._accounts[1]

    def declare_spent(self) -> Mapping[str, Spent]:
        return self._agents.declare_spent()

    def confirm_spent(self, told: Collection[str]) -> None:
        self._agents.confirm_spent(told)

    def settle_spent(self, sources: Collection[str]) -> Callable[[], Mapping[str, Spent]]:
        return self._agents.settle_spent(sources)

    async def work_on(self, sources: Collection[str], claims: Mapping[str, Claim]) -> None:
        agents = self._agents
        async with self._turn:
            self._held, agents.claims = sources, claims
            try:
                await self._apply(self.config)
            finally:
                agents.claims = {}
                self._loading = self._start_loading()

    async def wait_for_due(self) -> None:
        with anyio.move_on_after(_DUE_FIRST.total_seconds()):
            await self._agents.wait_for_due()

    async def end_deliveries(self) -> None:
        async with anyio.create_task_group() as group:
            for relay in self._agents.relays.values():
                group.start_soon(relay.begin_again)

    def _works_on(self, source: str) -> bool:
        return self._agents.store.fleet is None or source in self._held

    async def _share(self, sharing: Sharing) -> None:
        with closing(self._scheduler.repeat("sharing", _SHARE_EVERY)) as alarm:
            await sharing.run(alarm)

    async def _upgrade(self, upgrading: Upgrading) -> None:
        with closing(self._scheduler.repeat("upgrade", _SHARE_EVERY)) as alarm:
            await upgrading.run(alarm)

    # Tasks ------------------------------------------------------------------------------------------------------------

    def _start_loading(self) -> AgentTask:
        return AgentTask(self._detecting, partial(self._loader.run, self._detecting))

    def _start_missing(self) -> None:
        for name, relay in self._agents.relays.items():
            if name not in self._relays:
                self._relays[name] = AgentTask(self._delivering, relay.run)
        if self._janitor is None:
            self._janitor = AgentTask(self._detecting, self._prune)

    async def _prune(self) -> None:
        with closing(self._scheduler.repeat("prune", _PRUNE_EVERY)) as alarm:
            await self._agents.janitor.run(alarm)

    async def _attend(self) -> None:
        with closing(self._scheduler.repeat("commands", _LOOK_EVERY)) as alarm:
            await self._agents.command_runner.run(alarm, self.reload)

    async def _save_delays(self) -> None:
        with closing(self._scheduler.repeat("delays", _SAVE_EVERY)) as alarm:
            await self._agents.delay_log.run(alarm)

    async def _reload_whenever(self, reloads: Bell) -> None:
        rings = 0
        while True:
            rings = await reloads.wait(rings)
            await self.reload()

    # Status -----------------------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        """End an outage of the store also where no agent writes."""
        rings = 0
        while True:
            rings = await self._agents.store.health.stalled.wait(rings)
            await self._agents.store.health.recovered()

    async def _look(self) -> str:
        await self._agents.store.health.check()
        if self._agents.store.health.trouble is not None:
            return str(self._agents.store.health.trouble)
        shared_status = self._serving.shared_status or self._shared_status
        try:
            with anyio.fail_after(_LOOK_MOST.total_seconds()):
                reasons = find_reasons(await shared_status.ask())
        except Exception as error:  # noqa: BLE001  # the watchdog is answered: the daemon works, whatever cannot be read
            return f"{self._describe()}; their status is unknown: {str(error) or 'the store is slow to answer'}"
        if not reasons:
            return self._describe()
        count = f"{len(reasons)} reasons to look, first" if reasons[1:] else "1 reason to look:"
        return f"{self._describe()}; {count} {reasons[0]}"

    async def _load_status(self) -> Status:
        config = self.config
        read_store = await opening.open_read_store(config)
        try:
            return await load_status(
                read_store,
                config.feeds(),
                config.sinks,
                at=opening.now(),
                holder=f"process {os.getpid()}",
                next_time=next_time,
            )
        finally:
            await read_store.aclose()

    def _describe(self) -> str:
        feeds, sinks = len(self._agents.configured), len(self._agents.relays)
        return f"{count_of(feeds, 'feed')}, {count_of(sinks, 'sink')}"


async def _watch_membership(fleet: Fleet) -> None:
    """Raise LeaseLost as soon as this process is no member any more."""
    await fleet.wait_until_lost()
    raise LeaseLost("this process did not renew its membership in time, so others took over its work")
