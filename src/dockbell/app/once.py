"""What is done without a daemon: one round over all that is configured, a wish, a purge."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import anyio

from dockbell.admin.purging import purge_record
from dockbell.app import opening
from dockbell.app.crew import Crew, assemble
from dockbell.config import Config
from dockbell.core.model import Feed
from dockbell.delivery.relay import Relay
from dockbell.detection.guarded import tend
from dockbell.ports import RunRecord, Wish, Wished
from dockbell.telemetry import Telemetry

_PATIENCE: Final = timedelta(seconds=20)


async def run_once(config: Config, telemetry: Telemetry) -> bool:
    """Read every feed that is due and deliver what can be delivered now; return whether everything is settled.

    A polled feed is polled; a feed is read whole where its last pass is older than its interval.
    """
    async with assemble(config, telemetry) as crew:
        read: list[bool] = []
        for reconciler in crew.reconcilers.values():
            reconciler.rewrite_most = None  # nobody waits but who called
        async with anyio.create_task_group() as group:
            for feed in crew.readers:
                group.start_soon(_read_once, crew, feed, read)
        await crew.notifier.finish()  # before the deliveries: what reading gave to tell goes with them
        settled: list[bool] = []
        async with anyio.create_task_group() as group:
            for relay in crew.relays.values():
                group.start_soon(_drain, relay, settled)
        await crew.notifier.finish()
        return all(read) and all(settled)


async def run_wishes(config: Config, telemetry: Telemetry, wishes: Sequence[tuple[Feed, Wish]]) -> Sequence[Wished]:
    """See to wishes while no daemon holds the store, and to those that were left for it; return these with outcomes."""
    async with assemble(config, telemetry) as crew:
        desk = await opening.open_desk(config)
        try:
            numbers = [await desk.make_wish(feed, wish, opening.now()) for feed, wish in wishes]
            async with anyio.create_task_group() as group:
                for wished in await crew.store.take_wishes():
                    group.start_soon(crew.attendant.see_to, wished)
            return [await desk.load_wish(number) for number in numbers]
        finally:
            await desk.aclose()


async def run_purge(config: Config, feed: Feed, key: str) -> str:
    """Erase what is stored of a record while no daemon holds the store; return what came of it.

    Raises:
        StoreError: The store is in use, is another program's, or cannot be opened.
    """
    store = await opening.open_store(config)
    try:
        return await purge_record(store, feed, key, name=config.name)
    finally:
        await store.aclose()


async def _read_once(crew: Crew, feed: Feed, read: list[bool]) -> None:
    async def read_feed() -> RunRecord | None:
        runs: list[RunRecord | None] = []
        if await crew.reconcilers[feed].delay() <= timedelta(0):
            runs.append(await crew.reconcilers[feed].run_once())
        if feed in crew.pollers:
            runs.append(await crew.pollers[feed].run_once())
        waits = feed in crew.detailers and await crew.detailers[feed].run_once()
        await crew.reconcilers[feed].inquirer.run_once()  # what was not found is asked for again by the next pass
        complete.append(not waits and all(run is not None and not run.problem for run in runs))
        return next((run for run in runs if run is not None), None)

    complete: list[bool] = []
    await tend(crew.readers[feed], read_feed, pause=False)
    read.append(bool(complete) and complete[0])


async def _drain(relay: Relay, settled: list[bool]) -> None:
    settled.append(await relay.drain(_PATIENCE))
