"""The composition root: puts store, sources, agents and sinks together from a configuration, and runs them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from dockbell.config import Config, check_secrets, load
from dockbell.core.model import RESOURCES, Feed
from dockbell.janitor import Janitor
from dockbell.poller import Poller
from dockbell.ports import RunRecord, Sink, Store, View
from dockbell.reading import Reader, tend
from dockbell.reconciler import Reconciler
from dockbell.relay import Relay
from dockbell.scheduler import Scheduler, next_time
from dockbell.sinks import load_sink_type
from dockbell.sources import InventoryClient
from dockbell.stores.sqlite import SqliteStore, SqliteView, probe
from dockbell.telemetry import Started, Stopping, Telemetry

_PRUNE_EVERY: Final = timedelta(minutes=10)
_PATIENCE: Final = timedelta(seconds=20)


def now() -> datetime:
    """Return the time: the one clock of the program."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Agents:
    """What runs, put together but not running yet."""

    store: Store
    pollers: dict[Feed, Poller]
    reconcilers: dict[Feed, Reconciler]
    relays: dict[str, Relay]
    janitor: Janitor
    readers: dict[Feed, Reader]


def load_config(path: Path) -> Config:
    """Read a configuration file, with the kinds of sinks that are installed.

    Raises:
        ConfigError: Every problem of the file.
    """
    return load(path, lambda kind: load_sink_type(kind).Settings)


def open_source(config: Config, name: str, telemetry: Telemetry) -> InventoryClient:
    """Return the client of a source; the caller closes it.

    Raises:
        ConfigError: A file that it needs cannot be used.
    """
    return InventoryClient.from_settings(name, config.sources[name], telemetry)


def open_sink(config: Config, name: str, telemetry: Telemetry, *, aside: bool = False) -> Sink:
    """Return a sink, not connected yet; with ``aside`` one that does not disturb the daemon's.

    Raises:
        ConfigError: A secret, a template or a file that it needs cannot be used.
    """
    settings = config.sinks[name]
    return load_sink_type(settings.type)(name, settings.aside() if aside else settings, telemetry)


async def open_view(config: Config) -> View:
    """Return a look at the store; the caller closes it.

    Raises:
        StoreError: There is none yet, it is another program's, or it cannot be opened.
    """
    return await SqliteView.open(config.store.path)


def find_holder(config: Config) -> str:
    """Return who works on the store, ``process 4711``; empty when nobody does.

    Raises:
        StoreError: It cannot be asked.
    """
    return probe.find_holder(config.store.path)


async def probe_store(config: Config) -> str:
    """Look whether a daemon could open the store; say in a few words what was found.

    Raises:
        StoreError: It could not.
    """
    return await probe.probe(config.store.path)


@asynccontextmanager
async def assemble(config: Config, telemetry: Telemetry) -> AsyncIterator[Agents]:
    """Open everything that a configuration names, and close it again.

    Raises:
        ConfigError: Something that the configuration names cannot be used.
        StoreError: The store is in use, is another program's, or cannot be opened.
    """
    async with AsyncExitStack() as stack:
        check_secrets(config)
        sinks = {name: open_sink(config, name, telemetry) for name in config.sinks}
        sources = {name: open_source(config, name, telemetry) for name in config.sources}
        for source in sources.values():
            stack.push_async_callback(source.aclose)
        store = await SqliteStore.open(config.store.path, now=now)
        stack.push_async_callback(store.aclose)
        readers: dict[Feed, Reader] = {}
        for each in config.feeds():
            feed = Feed(each.source, each.resource)
            readers[feed] = Reader(
                feed,
                each.settings,
                name=config.name,
                source=sources[each.source],
                store=store,
                telemetry=telemetry,
                now=now,
            )
            await readers[feed].state()
        for name, sink in config.sinks.items():
            await store.enroll(name, sink.start)
        yield Agents(
            store=store,
            pollers={feed: Poller(reader) for feed, reader in readers.items() if RESOURCES[feed.resource].polled},
            reconcilers={
                feed: Reconciler(
                    reader, telemetry, partial(next_time, reader.settings.reconcile or reader.settings.schedule)
                )
                for feed, reader in readers.items()
            },
            relays={
                name: Relay(sink, config.sinks[name], store=store, telemetry=telemetry, now=now)
                for name, sink in sinks.items()
            },
            janitor=Janitor(store, keep=config.store.keep_events, sinks=tuple(sinks), telemetry=telemetry, now=now),
            readers=readers,
        )


async def run(config: Config, telemetry: Telemetry, stop: anyio.Event) -> None:
    """Run the daemon until ``stop`` is set; then end detection at once, and delivery when what is in flight is settled.

    Raises:
        ConfigError, StoreError: See :func:`assemble`; nothing was started.
    """
    async with assemble(config, telemetry) as agents, Scheduler() as scheduler:
        telemetry.emit(Started(config.name, len(agents.readers), tuple(agents.relays)))
        async with anyio.create_task_group() as delivering:
            for relay in agents.relays.values():
                delivering.start_soon(relay.run)
            async with anyio.create_task_group() as detecting:
                for feed, reconciler in agents.reconcilers.items():
                    detecting.start_soon(reconciler.run, scheduler.alarm(f"pass {feed}"))
                for feed, poller in agents.pollers.items():
                    settings = agents.readers[feed].settings
                    detecting.start_soon(poller.run, scheduler.repeat(f"poll {feed}", settings.schedule))
                detecting.start_soon(agents.janitor.run, scheduler.repeat("prune", _PRUNE_EVERY))
                await stop.wait()
                telemetry.emit(Stopping())
                detecting.cancel_scope.cancel()
            for relay in agents.relays.values():
                relay.stop()


async def run_until_signal(config: Config, telemetry: Telemetry) -> None:
    """Run the daemon until SIGTERM or SIGINT; a second signal ends it without waiting for deliveries."""
    stop = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_watch_signals, stop, group.cancel_scope)
        await run(config, telemetry, stop)
        group.cancel_scope.cancel()


async def _watch_signals(stop: anyio.Event, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            if stop.is_set():
                scope.cancel()
            stop.set()


async def run_once(config: Config, telemetry: Telemetry) -> bool:
    """Read every feed that is due and deliver what can be delivered now; return whether everything is settled.

    A polled feed is polled; a feed is read whole where its last pass is older than its interval.
    """
    async with assemble(config, telemetry) as agents:
        read: list[bool] = []
        async with anyio.create_task_group() as group:
            for feed, reader in agents.readers.items():
                group.start_soon(_read_once, reader, agents.reconcilers[feed], agents.pollers.get(feed), read)
        settled: list[bool] = []
        async with anyio.create_task_group() as group:
            for relay in agents.relays.values():
                group.start_soon(_drain, relay, settled)
        return all(read) and all(settled)


async def _read_once(reader: Reader, reconciler: Reconciler, poller: Poller | None, read: list[bool]) -> None:
    async def read_feed() -> None:
        runs: list[RunRecord | None] = []
        if await reconciler.due() <= now():
            runs.append(await reconciler.run_once())
        if poller is not None:
            runs.append(await poller.run_once())
        complete.append(all(run is not None and not run.problem for run in runs))

    complete: list[bool] = []
    await tend(reader, read_feed, pause=False)
    read.append(bool(complete) and complete[0])


async def _drain(relay: Relay, settled: list[bool]) -> None:
    settled.append(await relay.drain(_PATIENCE))
