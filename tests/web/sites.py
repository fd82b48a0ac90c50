"""Sites as the daemon opens them, and a feed to fill."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import httpx

from dockbell.app.next_time import next_time
from dockbell.config import Config, validate
from dockbell.core.model import Event, Feed
from dockbell.ports import FeedState
from dockbell.sinks import load_sink_type
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.telemetry import Telemetry
from dockbell.telemetry.metrics import Metrics
from dockbell.telemetry.recent import Recent
from dockbell.web import Site
from tests.fakes import Clock, Ear
from tests.stores import pages

_numbers = count(1)


@dataclass
class Filled:
    """One feed of a store, and what fills it."""

    store: SqliteStore
    state: FeedState
    client: httpx.AsyncClient

    @property
    def feed(self) -> Feed:
        return self.state.feed

    @property
    def events_url(self) -> str:
        return f"/feeds/{self.feed}"

    @property
    def state_url(self) -> str:
        return f"/state/{self.feed}"

    async def put(self, *keys: str, n: int = 0) -> None:
        """Create or change records, in one commit."""
        await pages.commit(self.store, self.state, *({"id": key, "n": n} for key in keys))

    async def delete(self, row: int) -> None:
        """Delete a record, as two passes would."""
        await self.store.feed(self.state.feed).suspect([row], pages.later(hours=1))
        await pages.delete_records(self.store, self.state, row)

    async def events(self) -> list[Event]:
        """Return all that is kept."""
        return list(await self.store.read_events(self.feed, 0, 1_000_000))

    async def prune(self, most: int) -> None:
        """Forget the oldest events."""
        assert await self.store.retention.prune_events(pages.later(days=1), (), most) == most

    async def ask(self, **parameters: Any) -> httpx.Response:
        """Ask for events."""
        return await self.client.get(self.events_url, params=parameters)


SINKS: Mapping[str, Any] = {
    "erp": {
        "type": "webhook",
        "url": "http://127.0.0.1:9",
        "secret": "whsec_" + "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
    },
    "floor": {"type": "stdout"},
}
"""Two sinks that are configured; nothing is delivered to them."""


def configure(web: Mapping[str, Any], **tables: Any) -> Config:
    """Return a configuration of one source and two sinks; ``tables`` are others, or these anew."""
    given = {
        "name": "acme",
        "web": {"listen": "127.0.0.1:0"} | dict(web),
        "sources": {"main": {"base_url": "http://127.0.0.1:9", "api_key": "key"}},
        "sinks": SINKS,
    }
    return validate(given | tables, lambda kind: load_sink_type(kind).Settings, label="tests")


@dataclass
class Served:
    """A site that runs.

    What is configured may be changed while it does: ``config`` is looked up anew each time.
    """

    store: SqliteStore
    read_store: SqliteReadStore
    command_store: SqliteCommandStore
    config: Config
    recent: Recent
    clock: Callable[[], datetime]
    site: Site
    client: httpx.AsyncClient
    stopping: anyio.Event = field(default_factory=anyio.Event)
    stopped: anyio.Event = field(default_factory=anyio.Event)

    async def fill(self, *keys: str, source: str = "main", resource: str | None = None) -> Filled:
        """Return a feed with some records, of each of which it has one event; one of its own, or of a resource."""
        feed = Feed(source, resource or f"shipments{next(_numbers)}")
        filled = Filled(self.store, await self.store.feed(feed).open(), self.client)
        if keys:
            await filled.put(*keys)
        return filled

    async def until_waiting(self, readers: int) -> None:
        """Return when so many readers wait."""
        with anyio.fail_after(5):
            while self.site.long_polls.readers != readers:  # noqa: ASYNC110  # nobody rings when one sits down
                await anyio.sleep(0.002)


@asynccontextmanager
async def serve(
    folder: Path,
    *,
    keep_alive: float = 15,
    telemetry: Telemetry | None = None,
    clock: Callable[[], datetime] | None = None,
    tables: Mapping[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Serve a store that is made in the folder.

    Args:
        folder: For the store.
        keep_alive: After how many seconds of silence a pull feed's stream says that it is there.
        telemetry: Is told; what it was like lately is listened to there.
        clock: Of store, site and what it was like lately; by default it stands still at noon.
        tables: Of the configuration; see :func:`configure`.
        settings: Those of ``[web]``.
    """
    clock = clock or Clock()
    path = folder / "dockbell.db"
    async with AsyncExitStack() as stack:
        store = await SqliteStore.open(path, now=clock)
        stack.push_async_callback(store.aclose)
        read_store, page_read_store = await SqliteReadStore.open(path), await SqliteReadStore.open(path)
        stack.push_async_callback(read_store.aclose)
        stack.push_async_callback(page_read_store.aclose)
        command_store = await SqliteCommandStore.open(path)
        stack.push_async_callback(command_store.aclose)
        config, recent = configure(settings, **(tables or {})), Recent(clock, lambda: clock().timestamp())
        telemetry = telemetry or Ear().telemetry
        telemetry.listen(recent.hear)
        metrics = Metrics()
        telemetry.listen(metrics.hear)
        assert config.web is not None
        site = Site(
            config.web,
            config=lambda: served.config,
            read_store=read_store,
            page_read_store=page_read_store,
            command_store=command_store,
            recent=recent,
            metrics=metrics,
            check_store=store.health.check,
            outbox=store.outbox,
            telemetry=telemetry,
            now=clock,
            next_time=next_time,
            keep_alive=timedelta(seconds=keep_alive),
        )
        stack.callback(site.close)
        limits = httpx.Limits(max_connections=None)
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{site.port}", limits=limits, timeout=10)
        await stack.enter_async_context(client)
        served = Served(store, read_store, command_store, config, recent, clock, site, client)
        async with anyio.create_task_group() as group:
            group.start_soon(_run, served)
            try:
                yield served
            finally:
                served.stopping.set()


async def _run(served: Served) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(served.site.run)
        await served.stopping.wait()
        group.cancel_scope.cancel()
    served.stopped.set()
