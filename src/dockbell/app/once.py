"""What is done without a daemon: one round over all that is configured, a command, a purge."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import anyio

from dockbell.admin.commands import purge_record
from dockbell.app import opening
from dockbell.app.agents import assemble
from dockbell.app.source_agents import FeedAgents
from dockbell.config import Config
from dockbell.core.model import Feed
from dockbell.delivery.relay import Relay
from dockbell.detection.guarded import run_guarded
from dockbell.ports import Command, CommandKind, CommandOutcome, RunRecord
from dockbell.telemetry import Telemetry

_PATIENCE: Final = timedelta(seconds=20)


async def run_once(config: Config, telemetry: Telemetry) -> bool:
    """Read every feed that is due and deliver what can be delivered now; return whether everything is settled.

    A polled feed is polled; a feed is read whole where its last pass is older than its interval. Where that is "auto",
    no planner decides, but the caller.
    """
    async with assemble(config, telemetry) as agents:
        for source in agents.sources.values():
            source.client.give_up_at_once()
        await agents.load()
        read: list[bool] = []
        async with anyio.create_task_group() as group:
            for each in agents.feeds.values():
                each.reconciler.rewrite_most = None  # only the caller waits
                group.start_soon(_read_once, each, read)
        await agents.notifier.finish()  # before the deliveries: what reading gave to tell goes with them
        settled: list[bool] = []
        async with anyio.create_task_group() as group:
            for relay in agents.relays.values():
                group.start_soon(_drain, relay, settled)
        await agents.notifier.finish()
        return all(read) and all(settled)


async def run_commands(
    config: Config, telemetry: Telemetry, commands: Sequence[tuple[Feed, CommandKind]]
) -> Sequence[Command]:
    """Execute commands while no daemon holds the store, also those that wait in it; return these with outcomes."""
    async with assemble(config, telemetry) as agents:
        for source in agents.sources.values():
            source.client.give_up_at_once()
        command_store = await opening.open_command_store(config)
        try:
            await agents.load()
            numbers = [await command_store.make_command(feed, kind, opening.now()) for feed, kind in commands]
            async with anyio.create_task_group() as group:
                for command in await agents.store.commands.take():
                    group.start_soon(agents.command_runner.execute, command)
            return [await command_store.load_command(number) for number in numbers]
        finally:
            await command_store.aclose()


async def run_purge(config: Config, feed: Feed, key: str) -> CommandOutcome:
    """Erase what is stored of a record while no daemon holds the store; return what came of it.

    Raises:
        StoreError: The store is in use, is another program's, or cannot be opened.
    """
    store = await opening.open_store(config)
    try:
        return await purge_record(store, feed, key, name=config.name)
    finally:
        await store.aclose()


async def _read_once(agents: FeedAgents, read: list[bool]) -> None:
    async def read_feed() -> RunRecord | None:
        runs: list[RunRecord | None] = []
        is_due = agents.poller is None and agents.tracked.settings.is_auto
        if is_due or await agents.reconciler.delay() <= timedelta(0):
            runs.append(await agents.reconciler.run_once())
        if agents.poller is not None:
            runs.append(await agents.poller.run_once())
        waits = agents.detail_fetcher is not None and await agents.detail_fetcher.run_once()
        await agents.reconciler.absence_check.run_once()  # what was not found is asked for again by the next pass
        complete.append(not waits and all(run is not None and not run.problem for run in runs))
        return next((run for run in runs if run is not None), None)

    complete: list[bool] = []
    await run_guarded(agents.tracked, read_feed, pause=False)
    read.append(bool(complete) and complete[0])


async def _drain(relay: Relay, settled: list[bool]) -> None:
    settled.append(await relay.drain(_PATIENCE))
