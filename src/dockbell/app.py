"""The composition root: puts store, sources, agents and sinks together from a configuration, and runs them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from dockbell.attendant import Attendant
from dockbell.config import Config, SinkSettings, check_secrets, load, validate
from dockbell.core.model import RESOURCES, Feed
from dockbell.detailer import Detailer
from dockbell.herald import Herald
from dockbell.janitor import Janitor
from dockbell.poller import Poller, trailing_every
from dockbell.ports import Bell, Desk, RunRecord, Sink, Store, View, Wish, Wished
from dockbell.reading import Reader, tend
from dockbell.reconciler import Reconciler
from dockbell.relay import Relay
from dockbell.scheduler import Scheduler, next_time
from dockbell.sinks import load_sink_type
from dockbell.sources import InventoryClient
from dockbell.stores.sqlite import SqliteStore, SqliteView, probe
from dockbell.stores.sqlite.desk import SqliteDesk
from dockbell.telemetry import SinkLeft, SinkOverrun, Started, Stopping, Telemetry

if TYPE_CHECKING:
    from dockbell.web import Site

_PRUNE_EVERY: Final = timedelta(minutes=10)
_LOOK_EVERY: Final = timedelta(seconds=0.5)
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
    detailers: dict[Feed, Detailer]
    relays: dict[str, Relay]
    janitor: Janitor
    attendant: Attendant
    readers: dict[Feed, Reader]
    herald: Herald


def load_config(path: Path) -> Config:
    """Read a configuration file, with the kinds of sinks that are installed.

    Raises:
        ConfigError: Every problem of the file.
    """
    return load(path, _find_sink_settings)


def configure(base_url: str, key_variable: str) -> Config:
    """Return what a configuration with nothing but one source would be: all its resources, at their defaults.

    Args:
        base_url: Where the API is, without ``/v1``.
        key_variable: The environment variable with the key.

    Raises:
        ConfigError: The address cannot be used, or there is no key.
    """
    source = {"base_url": base_url, "api_key": {"env": key_variable}}
    config = validate({"sources": {"main": source}}, _find_sink_settings, label="--base-url")
    check_secrets(config)
    return config


def _find_sink_settings(kind: str) -> type[SinkSettings]:
    return load_sink_type(kind).Settings


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
    settings = config.sinks[name].owned_by(config.name, name)
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


async def open_desk(config: Config) -> Desk:
    """Return where wishes are left for the daemon; the caller closes it.

    Raises:
        StoreError: There is no store yet, it is another program's, or it cannot be opened.
    """
    return await SqliteDesk.open(config.store.path)


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
                base_url=config.sources[each.source].base_url,
                store=store,
                telemetry=telemetry,
                now=now,
                next_time=next_time,
            )
            await readers[feed].state()
        herald = Herald(store, telemetry, name=config.name, now=now)
        await herald.open()
        for name, owed in (await store.find_left(tuple(config.sinks))).items():
            telemetry.emit(SinkLeft(name, owed))
        for name, settings in config.sinks.items():
            for feed in await store.enroll(name, settings.start):
                telemetry.emit(SinkOverrun(name, feed, None))
        reconcilers = {feed: Reconciler(reader) for feed, reader in readers.items()}
        yield Agents(
            store=store,
            pollers={feed: Poller(reader) for feed, reader in readers.items() if RESOURCES[feed.resource].polled},
            reconcilers=reconcilers,
            detailers={feed: Detailer(reader) for feed, reader in readers.items() if reader.resource.addressable},
            relays={
                name: Relay(
                    sink,
                    config.sinks[name],
                    store=store,
                    telemetry=telemetry,
                    now=now,
                    name=config.name,
                    state_url="" if config.web is None else config.web.public_url,
                    unordered={Feed(each.source, each.resource) for each in config.feeds() if each.settings.unordered},
                )
                for name, sink in sinks.items()
            },
            janitor=Janitor(store, settings=config.store, sinks=tuple(sinks), telemetry=telemetry, now=now),
            herald=herald,
            attendant=Attendant(store, reconcilers, readers, telemetry),
            readers=readers,
        )


@asynccontextmanager
async def _open_site(config: Config, telemetry: Telemetry, outbox: Bell) -> AsyncIterator[Site | None]:
    """Listen on what ``[web]`` says, if it is there; see :class:`dockbell.web.Site`."""
    if config.web is None:
        yield None
        return
    from dockbell.web import Site  # noqa: PLC0415  # a daemon without [web] starts without a web server

    view = await open_view(config)
    try:
        with closing(Site(config.web, name=config.name, view=view, outbox=outbox, telemetry=telemetry)) as site:
            yield site
    finally:
        await view.aclose()


async def run(config: Config, telemetry: Telemetry, stop: anyio.Event) -> None:
    """Run the daemon until ``stop`` is set; then end detection at once, and delivery when what is in flight is settled.

    Raises:
        ConfigError, StoreError: See :func:`assemble`; nothing was started.
    """
    async with (
        assemble(config, telemetry) as agents,
        _open_site(config, telemetry, agents.store.outbox) as site,
        Scheduler() as scheduler,
    ):
        telemetry.emit(Started(config.name, len(agents.readers), tuple(agents.relays)))
        async with anyio.create_task_group() as telling:
            telling.start_soon(agents.herald.run)
            async with anyio.create_task_group() as delivering:
                for relay in agents.relays.values():
                    delivering.start_soon(relay.run)
                await _detect(agents, site, scheduler, stop)
                telemetry.emit(Stopping())
                for relay in agents.relays.values():
                    relay.stop()
            telling.cancel_scope.cancel()
        await agents.herald.finish()


async def _detect(agents: Agents, site: Site | None, scheduler: Scheduler, stop: anyio.Event) -> None:
    """Read, keep the store bounded, and answer who asks, until told to stop."""
    async with anyio.create_task_group() as detecting:
        if site is not None:
            detecting.start_soon(site.run)
        for feed, reconciler in agents.reconcilers.items():
            detecting.start_soon(reconciler.run, scheduler.alarm(f"pass {feed}"))
        for feed, poller in agents.pollers.items():
            settings = agents.readers[feed].settings
            detecting.start_soon(poller.run, scheduler.repeat(f"poll {feed}", settings.schedule))
            detecting.start_soon(poller.run_trailing, scheduler.repeat(f"trail {feed}", trailing_every(settings)))
        for detailer in agents.detailers.values():
            detecting.start_soon(detailer.run)
        detecting.start_soon(agents.janitor.run, scheduler.repeat("prune", _PRUNE_EVERY))
        detecting.start_soon(agents.attendant.run, scheduler.repeat("wishes", _LOOK_EVERY))
        await stop.wait()
        detecting.cancel_scope.cancel()


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
            for feed in agents.readers:
                group.start_soon(_read_once, agents, feed, read)
        await agents.herald.finish()  # before the deliveries: what reading gave to tell goes with them
        settled: list[bool] = []
        async with anyio.create_task_group() as group:
            for relay in agents.relays.values():
                group.start_soon(_drain, relay, settled)
        await agents.herald.finish()
        return all(read) and all(settled)


async def run_wishes(config: Config, telemetry: Telemetry, wishes: Sequence[tuple[Feed, Wish]]) -> Sequence[Wished]:
    """See to wishes while no daemon holds the store, and to those that were left for it; return these with outcomes."""
    async with assemble(config, telemetry) as agents:
        desk = await open_desk(config)
        try:
            numbers = [await desk.make_wish(feed, wish, now()) for feed, wish in wishes]
            async with anyio.create_task_group() as group:
                for wished in await agents.store.take_wishes():
                    group.start_soon(agents.attendant.see_to, wished)
            return [await desk.load_wish(number) for number in numbers]
        finally:
            await desk.aclose()


async def _read_once(agents: Agents, feed: Feed, read: list[bool]) -> None:
    async def read_feed() -> RunRecord | None:
        runs: list[RunRecord | None] = []
        if await agents.reconcilers[feed].delay() <= timedelta(0):
            runs.append(await agents.reconcilers[feed].run_once())
        if feed in agents.pollers:
            runs.append(await agents.pollers[feed].run_once())
        waits = feed in agents.detailers and await agents.detailers[feed].run_once()
        complete.append(not waits and all(run is not None and not run.problem for run in runs))
        return next((run for run in runs if run is not None), None)

    complete: list[bool] = []
    await tend(agents.readers[feed], read_feed, pause=False)
    read.append(bool(complete) and complete[0])


async def _drain(relay: Relay, settled: list[bool]) -> None:
    settled.append(await relay.drain(_PATIENCE))
