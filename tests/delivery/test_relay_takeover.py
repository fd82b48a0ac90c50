"""A relay that takes in the feeds of another process, which hands them over; each has its own store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from dockbell.core.model import DELIVERED
from dockbell.core.reading.shape import Shape
from dockbell.ports import Fleet
from dockbell.stores.postgres import PostgresStore
from tests.fakes import Clock, FakeSink
from tests.relaying import FAILED, FEED, change, drain, relaying, until


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Return the stores of two processes; the first has a feed, in which a sink has a place."""
    async with AsyncExitStack() as stack:
        first, second = [await PostgresStore.open(postgres_url, now=Clock(), shared=True) for _ in range(2)]
        for store in (first, second):
            stack.push_async_callback(store.aclose)
        await take_share(first)
        await first.feed(FEED).open()
        await first.feed(FEED).save_shape(Shape(("/id",), None, None), proven=True)
        for store in (first, second):
            await store.sink("screen").enroll("beginning")
        yield first, second


def fleet(store: PostgresStore) -> Fleet:
    assert store.fleet is not None
    return store.fleet


async def take_share(store: PostgresStore) -> None:
    await fleet(store).take_share({FEED.source: FEED.source})


async def test_what_failed_elsewhere_is_delivered_here_before_what_followed(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = stores
    await change(first, {"id": "a", "n": 0}, {"id": "b", "n": 0})
    ill = FakeSink(answer=lambda each: FAILED if each.event.key == "b" else DELIVERED)
    assert not await drain(first, ill)
    await change(first, {"id": "b", "n": 1})
    clock, sink = Clock(), FakeSink()
    clock.pass_(60)
    async with relaying(second, sink, clock) as relay:
        await until(lambda: relay._has_turned)
        await fleet(first).hand_over({FEED.source}, {})
        await take_share(second)
        await second.sink("screen").enroll("beginning")
        await until(lambda: len(sink.got) == 2)
    assert [(each.event.sequence, each.event.key, each.attempt) for each in sink.got] == [(2, "b", 2), (3, "b", 1)]
