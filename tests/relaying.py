"""Relays for tests: over a real store, to sinks that do what they are told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.config import SinkSettings
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import DELIVERED, ClockSource, Delivery, Feed, Outcome, OutcomeKind, Page, Via
from dockbell.core.publishing.event import Composer, NamedEvent
from dockbell.core.publishing.statement import GapReason, gap
from dockbell.core.reading.shape import Shape
from dockbell.delivery.relay import Relay
from dockbell.ports import Store
from dockbell.stores.sqlite import SqliteStore
from tests.fakes import NOON, Clock, Ear, FakeSink

FEED = Feed("main", "shipments")
STOCK = Feed("main", "stock")
FAILED = Outcome(OutcomeKind.FAILED, "HTTP 500")
UNREACHABLE = Outcome(OutcomeKind.UNREACHABLE, "connection refused")


@asynccontextmanager
async def opened(
    folder: Path, *, clock: Clock | None = None, start: Literal["now", "beginning", "state"] = "beginning"
) -> AsyncIterator[SqliteStore]:
    """Return a store with two feeds, in which a sink has a place."""
    store = await SqliteStore.open(folder / "dockbell.db", now=clock or Clock(), epoch="epoch")
    for feed in (FEED, STOCK):
        await store.feed(feed).open()
        await store.feed(feed).save_shape(Shape(("/id",), None, None), proven=True)
    await store.sink("screen").enroll(start)
    try:
        yield store
    finally:
        await store.aclose()


async def change(store: Store, *records: dict[str, Any], feed: Feed = FEED) -> None:
    """Commit a page of records to a feed."""
    raws = tuple(json.dumps(record).encode() for record in records)
    page = Page(raws, None, feed.resource, NOON, ClockSource.DATE, NOON, NOON)
    detector = ChangeDetector(feed, key=("/id",), updated_at=None, created_at=None, canon=Canon())
    await store.feed(feed).open()
    detect = partial(detector.detect, page, ReadContext(Via.POLL, NOON))
    await store.feed(feed).commit_page(detect, make_composer(feed), via=Via.POLL)


def make_composer(feed: Feed = FEED, named: Sequence[NamedEvent] = ()) -> Composer:
    return Composer(feed, name="acme", singular="shipment", epoch="epoch", named=named)


async def state_gap(store: Store, feed: Feed = FEED) -> None:
    """State something about a feed."""
    await store.feed(feed).open()
    statement = gap(feed, NOON, began_at=None, ended_at=NOON, reason=GapReason.DOWN)
    await store.feed(feed).publish([statement], make_composer(feed))


async def change_keys(store: Store, keys: Iterable[str]) -> None:
    """Change one key after the other, each time to something new."""
    for number, key in enumerate(keys):
        await change(store, {"id": key, "n": number})


def make_relay(
    store: Store,
    sink: FakeSink,
    clock: Clock | None = None,
    ear: Ear | None = None,
    *,
    now: Callable[[], datetime] | None = None,
    processes: Callable[[], int] = lambda: 1,
    keep_attempts: int = 0,
    **settings: Any,
) -> Relay:
    """Make a relay whose clock stands still; ``now`` replaces what it reads."""
    clock = clock or Clock()
    return Relay(
        sink,
        SinkSettings(type="fake", **settings),
        store=store,
        telemetry=(ear or Ear()).telemetry,
        now=now or clock,
        jitter=lambda: 0.0,
        steady=clock.steady,
        processes=processes,
        keep_attempts=keep_attempts,
    )


@asynccontextmanager
async def relaying(
    store: Store, sink: FakeSink, clock: Clock | None = None, ear: Ear | None = None, **settings: Any
) -> AsyncIterator[Relay]:
    """Run a relay meanwhile."""
    relay = make_relay(store, sink, clock, ear, **settings)
    async with anyio.create_task_group() as group:
        group.start_soon(relay.run)
        yield relay
        relay.stop()


async def until(condition: Callable[[], bool], seconds: float = 5) -> None:
    """Wait until something is so."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  # the condition is about a sink that knows no events
            await anyio.sleep(0.002)


async def drain(store: Store, sink: FakeSink, clock: Clock | None = None, **settings: Any) -> bool:
    """Deliver what can be delivered now."""
    relay = make_relay(store, sink, clock, **settings)
    with anyio.fail_after(30):
        return await relay.drain(timedelta(seconds=10))


@dataclass
class PatientSink(FakeSink):
    """Leaves what it is told to leave unanswered in flight, until :meth:`finish` or the end of a session."""

    is_left: Callable[[Delivery], bool] = lambda _: False
    farewell: Outcome = UNREACHABLE
    left: list[Delivery] = field(default_factory=list)

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        self.settle = settle
        async for delivery in deliveries:
            self.got.append(delivery)
            if self.is_left(delivery):
                self.left.append(delivery)
            else:
                settle(delivery, self.answer(delivery))
        for delivery in self.left:
            settle(delivery, self.farewell)
        self.left.clear()

    def finish(self, outcome: Outcome = DELIVERED) -> None:
        """Answer the first that was left."""
        self.settle(self.left.pop(0), outcome)
