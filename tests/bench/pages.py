"""What open status pages cost: changes are committed and delivered as fast as can be, with pages open and without."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from dockbell.app import now, open_command_store, open_read_store
from dockbell.app.agents import assemble
from dockbell.app.next_time import next_time
from dockbell.config import Config
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import ClockSource, Feed, Page, Via
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.signature import mint
from dockbell.ports import Store
from dockbell.telemetry import DeliverySettled, Fact, Telemetry
from dockbell.telemetry.recent import Recent
from dockbell.web import Site
from tests.bench import bare_delivery
from tests.bench.processes import Cost, Meter, run_alone, serving
from tests.bench.reading import make_config
from tests.bench.servers import serve_receiver
from tests.bench.table import print_table
from tests.brokers import make_broker, started

_OPEN: Final = (0, 1, 10)
_FEED: Final = Feed("main", "shipments")
_PAGE: Final = 100
_AHEAD: Final = 2000


def measure_pages(events: int, rounds: int) -> None:
    """Print how many events a second are committed and delivered while pages are open."""
    costs: dict[tuple[str, int], list[Cost]] = {}
    with TemporaryDirectory() as name, serving(serve_receiver) as hook:
        folder = Path(name)
        with started(make_broker(folder)) as broker:
            sinks = {
                "MQTT": {"type": "mqtt", "url": broker.url},
                "webhooks": {"type": "webhook", "url": hook, "secret": mint(bare_delivery.SECRET)},
            }
            for number in range(rounds):
                for what, sink in sinks.items():
                    for pages in _OPEN:
                        path = folder / f"{what}-{number}-{pages}.db"
                        cost = run_alone(deliver_watched, sink, path, events, pages)
                        costs.setdefault((what, pages), []).append(cost)
    print_table(
        (f"{events:,} changes, committed and delivered", "events/s", "CPU/event, µs", "of no page, by wall", "by CPU"),
        *(
            (
                f"{what}, open pages: {pages}",
                f"{median(cost.count / cost.wall for cost in each):,.0f}",
                f"{median(1_000_000 * cost.cpu / cost.count for cost in each):,.0f}",
                f"{median(none.wall / cost.wall for none, cost in zip(costs[what, 0], each, strict=True)):.0%}",
                f"{median(none.cpu / cost.cpu for none, cost in zip(costs[what, 0], each, strict=True)):.0%}",
            )
            for (what, pages), each in sorted(costs.items())
        ),
    )


def deliver_watched(sink: dict[str, Any], path: Path, events: int, pages: int) -> Cost:
    """Commit and deliver changes while some pages are open."""
    tables = {"sinks": {"bench": {"start": "beginning", **sink}}, "web": {"listen": "127.0.0.1:0"}}
    return anyio.run(_deliver_watched, make_config("http://127.0.0.1:1", path, **tables), events, pages)


async def _deliver_watched(config: Config, events: int, pages: int) -> Cost:
    delivered, recent = 0, Recent(now)
    progress = anyio.Event()

    def count(fact: Fact) -> None:
        nonlocal delivered, progress
        if isinstance(fact, DeliverySettled):
            delivered += 1
            if delivered % _PAGE == 0:
                progress.set()
                progress = anyio.Event()

    telemetry = Telemetry(count, recent.hear)
    async with assemble(config, telemetry) as agents, AsyncExitStack() as stack, anyio.create_task_group() as group:
        site = await _open_site(config, agents.store, recent, telemetry, stack)
        group.start_soon(site.run)
        with ExitStack() as watchers:
            if pages:
                await anyio.to_thread.run_sync(watchers.enter_context, serving(watch, site.port, pages))
            group.start_soon(agents.relays["bench"].run)
            meter = Meter()
            composer = Composer(_FEED, name="bench", singular="shipment", epoch=agents.store.epoch)
            state = await agents.store.feed(_FEED).open()
            detector = ChangeDetector(_FEED, key=("/id",), updated_at=None, created_at=None, canon=Canon())
            for first in range(0, events, _PAGE):
                detect = partial(detector.detect, _make_page(first), ReadContext(Via.POLL, now()))
                await agents.store.feed(state.feed).commit_page(detect, composer, via=Via.POLL)
                while first - delivered > _AHEAD:
                    await progress.wait()
            while delivered < events:
                await progress.wait()
            cost = meter.read(events)
        group.cancel_scope.cancel()
    return cost


async def _open_site(config: Config, store: Store, recent: Recent, telemetry: Telemetry, stack: AsyncExitStack) -> Site:
    read_store, page_view, command_store = (
        await open_read_store(config),
        await open_read_store(config),
        await open_command_store(config),
    )
    for each in (read_store, page_view, command_store):
        stack.push_async_callback(each.aclose)
    assert config.web is not None
    site = Site(
        config.web,
        config=lambda: config,
        read_store=read_store,
        page_read_store=page_view,
        command_store=command_store,
        recent=recent,
        outbox=store.outbox,
        telemetry=telemetry,
        now=now,
        next_time=next_time,
    )
    stack.callback(site.close)
    return site


def _make_page(first: int) -> Page:
    at = datetime.now(UTC)
    records = tuple(
        json.dumps({"id": f"shp_{number % 1000}", "n": number, "note": "x" * 600}).encode()
        for number in range(first, first + _PAGE)
    )
    return Page(records, None, "shipments", at, ClockSource.DATE, at, at)


def watch(parent: Connection, port: int, pages: int) -> None:
    """Look at so many pages until the process is ended."""

    async def look(begun: asyncio.Semaphore) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"event: ready")
        begun.release()
        while await reader.read(65_536):
            pass

    async def run() -> None:
        begun = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            for _ in range(pages):
                group.create_task(look(begun))
            for _ in range(pages):
                await begun.acquire()
            parent.send("")

    asyncio.run(run())
