"""Sites as the daemon opens them, and a feed to fill."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import httpx

from dockbell.config import WebSettings
from dockbell.core.model import Event, Feed
from dockbell.ports import FeedState
from dockbell.stores.sqlite import SqliteStore, SqliteView
from dockbell.telemetry import Telemetry
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
        await self.store.suspect(self.state.id, [row], pages.later(hours=1))
        await pages.bury(self.store, self.state, row)

    async def events(self) -> list[Event]:
        """Return all that is kept."""
        return list(await self.store.read_events(self.feed, 0, 1_000_000))

    async def prune(self, most: int) -> None:
        """Forget the oldest events."""
        assert await self.store.prune_events(pages.later(days=1), (), most) == most

    async def ask(self, **parameters: Any) -> httpx.Response:
        """Ask for events."""
        return await self.client.get(self.events_url, params=parameters)


@dataclass
class Served:
    """A site that runs."""

    store: SqliteStore
    view: SqliteView
    site: Site
    client: httpx.AsyncClient
    stopping: anyio.Event = field(default_factory=anyio.Event)
    stopped: anyio.Event = field(default_factory=anyio.Event)

    async def fill(self, *keys: str, source: str = "main") -> Filled:
        """Return a new feed with some records, of each of which it has one event."""
        feed = Feed(source, f"shipments{next(_numbers)}")
        filled = Filled(self.store, await self.store.open_feed(feed), self.client)
        if keys:
            await filled.put(*keys)
        return filled

    async def until_waiting(self, readers: int) -> None:
        """Return when so many readers wait."""
        with anyio.fail_after(5):
            while self.site.room.readers != readers:  # noqa: ASYNC110  # nobody rings when one sits down
                await anyio.sleep(0.002)


@asynccontextmanager
async def serve(
    folder: Path, *, keep_alive: float = 15, telemetry: Telemetry | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """Serve a store that is made in the folder; ``settings`` are those of ``[web]``."""
    store = await SqliteStore.open(folder / "dockbell.db", now=Clock())
    view = await SqliteView.open(folder / "dockbell.db")
    site = Site(
        WebSettings(**({"listen": "127.0.0.1:0"} | settings)),
        name="acme",
        view=view,
        outbox=store.outbox,
        telemetry=telemetry or Ear().telemetry,
        keep_alive=timedelta(seconds=keep_alive),
    )
    with closing(site):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{site.port}", limits=limits, timeout=10) as client:
            served = Served(store, view, site, client)
            async with anyio.create_task_group() as group:
                group.start_soon(_run, served)
                try:
                    yield served
                finally:
                    served.stopping.set()
    await view.aclose()
    await store.aclose()


async def _run(served: Served) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(served.site.run)
        await served.stopping.wait()
        group.cancel_scope.cancel()
    served.stopped.set()
