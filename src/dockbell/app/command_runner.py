"""Executes the commands that operators have left in the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

import anyio

from dockbell.admin.commands import purge_record
from dockbell.app.source_agents import FeedAgents
from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.page_diff import Finding
from dockbell.core.counting import count_of
from dockbell.core.model import Feed
from dockbell.detection.reconciler import Reconciler
from dockbell.errors import DockbellError, StoreError, StoreUnavailable, is_due_to
from dockbell.ports import REWRITE_MOST, Alarm, Command, CommandKind, CommandOutcome, Store
from dockbell.telemetry import CommandFinished, Telemetry


@dataclass(slots=True)
class _UnderWay:
    """A command under way."""

    feed: Feed | None  # of which feed; None: of the daemon
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)  # ends it
    ended: anyio.Event = field(default_factory=anyio.Event)  # set when it has ended


class CommandRunner:
    """Executes commands; ``find`` returns the agents of a feed once it is loaded, None where it is not read."""

    def __init__(
        self,
        store: Store,
        find: Callable[[Feed], Awaitable[FeedAgents | None]],
        telemetry: Telemetry,
        *,
        name: str = "dockbell",
    ) -> None:
        self._name = name
        self._store = store
        self._find = find
        self._telemetry = telemetry
        self._busy: dict[int, _UnderWay] = {}

    async def run(self, alarm: Alarm, reload: Callable[[], Awaitable[CommandOutcome]] | None = None) -> None:
        """Look whenever the alarm rings, until cancelled; commands of several feeds run side by side."""
        told = ""
        async with anyio.create_task_group() as group:
            while True:
                await alarm.wait()
                try:
                    commands = await self._store.commands.take()
                except StoreError as error:  # the commands wait until it is mended
                    if told != str(error):  # it is looked at twice a second
                        self._telemetry.emit_failure("commands", error)
                    told = str(error)
                    continue
                told = ""
                for command in commands:
                    if command.id not in self._busy:
                        self._busy[command.id] = _UnderWay(command.feed)
                        group.start_soon(self.execute, command, reload)

    async def execute(self, command: Command, reload: Callable[[], Awaitable[CommandOutcome]] | None = None) -> None:
        running = self._busy.setdefault(command.id, _UnderWay(command.feed))
        try:
            with running.scope:
                await self._try_to_execute(command, reload)
        finally:
            del self._busy[command.id]
            running.ended.set()

    async def leave(self, feeds: Collection[Feed]) -> None:
        """Stop the commands of feeds; they wait for the next readers of these feeds."""
        while running := [each for each in self._busy.values() if each.feed in feeds]:
            for each in running:
                each.scope.cancel()
                await each.ended.wait()

    async def _try_to_execute(self, command: Command, reload: Callable[[], Awaitable[CommandOutcome]] | None) -> None:
        try:
            if command.kind is CommandKind.RELOAD:
                outcome = await (reload or _reload_nothing)()
            elif command.kind is CommandKind.PURGE and command.feed is not None:
                outcome = await self._purge(command.feed, command.key)
            elif command.feed is not None and (agents := await self._find(command.feed)) is not None:
                outcome = await self._do(command.kind, agents)
            else:
                outcome = CommandOutcome("failed", detail="the feed is not configured, or its source is paused")
        except Exception as error:  # noqa: BLE001  # other commands go on
            if is_due_to(error, StoreUnavailable):
                return  # the outage is logged; the command waits for its end
            self._telemetry.emit_failure(f"{command.feed or 'dockbell'}: {command.kind}", error)
            outcome = CommandOutcome("failed", detail=f"{type(error).__name__}: {error}; see the log for details")
        try:
            await self._store.commands.finish(command, outcome)
        except Exception as error:  # noqa: BLE001  # it will be executed again
            self._telemetry.emit_failure(f"{command.feed or 'dockbell'}: {command.kind}", error)
        else:
            if command.feed is not None:
                words = f"{command.kind} {command.key}".strip()
                self._telemetry.emit(CommandFinished(command.feed, words, str(outcome)))

    async def _purge(self, feed: Feed, key: str) -> CommandOutcome:
        agents = await self._find(feed)
        outcome = await purge_record(self._store, feed, key, name=self._name, rewrite_most=REWRITE_MOST)
        if agents is not None:
            await agents.tracked.reload()
            await agents.reconciler.look()
        return outcome

    async def _do(self, kind: CommandKind, agents: FeedAgents) -> CommandOutcome:
        tracked, reconciler = agents.tracked, agents.reconciler
        match kind:
            case CommandKind.RECONCILE:
                return await reconcile(reconciler)
            case CommandKind.APPROVE:
                return await reconcile(reconciler, approve=True)
            case CommandKind.REJECT:
                state = await tracked.state()
                rows = await tracked.store.find_suspected() if state.held else ()
                await tracked.store.keep(rows, Finding.KEPT, ignored_until_seen=True)
                await tracked.reload()
                await reconciler.look()
                return CommandOutcome(
                    "complete", detail=f"{count_of(len(rows), 'record')} will be kept until seen again"
                )
            case _:
                decision = Decision.ABSORB if kind is CommandKind.ABSORB else Decision.PUBLISH
                await tracked.state()
                await tracked.store.decide_drift(decision)
                await tracked.reload()
                return await reconcile(reconciler)


async def reconcile(reconciler: Reconciler, *, approve: bool = False) -> CommandOutcome:
    """Pass once now; with ``approve``, suspended deletions are published."""
    try:
        run = await reconciler.reconcile(approve=approve)
    except DockbellError as error:
        return CommandOutcome("failed", detail=str(error))
    if run.problem:
        return CommandOutcome("incomplete", detail=run.problem)
    changes = {name: getattr(run.tally, name) for name in ("created", "updated", "deleted", "restored")}
    return CommandOutcome("complete", {"pages": run.pages, "records": run.records, **changes})


async def _reload_nothing() -> CommandOutcome:
    return CommandOutcome("complete", detail="no daemon is running, nothing to reload")
