"""A real store, filled with events of records that change."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from dockbell.config import Expression
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import RESOURCES, ClockSource, Event, Feed, Page, Via
from dockbell.core.publishing.event import Composer, NamedEvent
from dockbell.core.publishing.statement import GapReason, gap
from dockbell.stores.sqlite import SqliteStore

SHIPMENTS: Final = Feed("main", "shipments")
STOCK: Final = Feed("main", "stock")
_FEEDS: Final = (SHIPMENTS, STOCK)
_ALL: Final = 1_000_000


class Outbox:
    """A store with two feeds, and what happens to their records."""

    def __init__(self, store: SqliteStore, now: Callable[[], datetime]) -> None:
        self.store = store
        self._now = now
        self._versions = Counter[tuple[Feed, str]]()
        self._composers = {feed: _make_composer(feed, store.epoch) for feed in _FEEDS}

    async def change(self, *keys: str, feed: Feed = SHIPMENTS, size: int = 0, first: int = 0) -> None:
        """Create or update records, all in one transaction; each becomes one event.

        ``keys`` are the records' ids, ``size`` the bytes of text that each record holds besides, ``first`` the version
        of a record that is new.
        """
        records = []
        for key in keys:
            version = self._versions[feed, key] = max(first, self._versions[feed, key] + 1)
            record = {"id": key, "n": version, "text": "é" * (size // 2)}
            records.append(json.dumps(record, ensure_ascii=False).encode())
        now = self._now()
        page = Page(tuple(records), None, feed.resource, now, ClockSource.LOCAL, now, now)
        detector = ChangeDetector(feed, key=("/id",), updated_at=None, created_at=None, canon=Canon())
        detect = partial(detector.detect, page, ReadContext(Via.POLL, now))
        await self.store.feed(feed).commit_page(detect, self._composers[feed], via=Via.POLL)

    async def state_gap(self, feed: Feed = SHIPMENTS) -> None:
        """Make an event without a key: a statement about a feed."""
        now = self._now()
        statement = gap(feed, now, began_at=None, ended_at=now, reason=GapReason.DOWN)
        await self.store.feed(feed).publish([statement], self._composers[feed])

    async def events(self) -> list[Event]:
        return [event for feed in _FEEDS for event in await self.store.read_events(feed, 0, _ALL)]


# A named event follows every third version, with its revision and an id of its own.
_THIRD: Final = NamedEvent("third", Expression("after.n % 3 == 0"))


def _make_composer(feed: Feed, epoch: str) -> Composer:
    return Composer(feed, name="acme", singular=RESOURCES[feed.resource].singular, epoch=epoch, named=[_THIRD])


@asynccontextmanager
async def open_outbox(folder: Path, *sinks: str, now: Callable[[], datetime] | None = None) -> AsyncIterator[Outbox]:
    """Open the store in a folder, making it if there is none; sinks that are new begin with the first event."""
    now = now or partial(datetime.now, UTC)
    store = await SqliteStore.open(folder / "dockbell.db", now=now)
    try:
        for feed in _FEEDS:
            state = await store.feed(feed).open()
            if not state.passes:
                await store.feed(feed).end_baseline(proven=True, newest=None)  # all that there was then: nothing
        for sink in sinks:
            await store.sink(sink).enroll("beginning")
        yield Outbox(store, now)
    finally:
        await store.aclose()
