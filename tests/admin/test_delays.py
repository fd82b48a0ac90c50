from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from dockbell.admin.delays import FeedDelays, load_delays, write_delay
from dockbell.core.delays import QUARTER, MeasuredDelays, find_bucket
from dockbell.core.model import Feed
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER

SECOND = timedelta(seconds=1)


@pytest.fixture
async def read_store(tmp_path: Path) -> AsyncIterator[SqliteReadStore]:
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    await store.add_feeds([FEED, OTHER])
    await store.health.note_delays(MEASURED)
    await store.aclose()
    read_store = await SqliteReadStore.open(tmp_path / "a.db")
    yield read_store
    await read_store.aclose()


def measure(seconds: float, count: int, ago: int = 0, sink: str = "erp", feed: Feed = FEED) -> MeasuredDelays:
    return MeasuredDelays(feed, sink, NOON - ago * QUARTER, {find_bucket(seconds): count}, predicted=count * 2 * SECOND)


MEASURED: Sequence[MeasuredDelays] = (
    measure(4, 30),
    measure(4, 10, ago=4),
    measure(900, 10, ago=5),
    measure(8, 10, sink="floor"),
    measure(60, 10, sink="gone"),
    measure(30, 10, sink="floor", feed=OTHER),
)


async def test_delays_are_those_of_the_last_hour_by_feed_and_by_sink(read_store: SqliteReadStore) -> None:
    delays = await load_delays(read_store, ["erp", "floor", "idle"], NOON + SECOND)
    feed = delays.feeds[FEED]
    assert {sink: delay.count for sink, delay in feed.sinks.items()} == {"erp": 40, "floor": 10}
    assert feed.whole is not None
    assert (feed.whole.count, feed.predicted, feed.slow) == (50, 2 * SECOND, None)
    assert feed.whole.mean / SECOND == pytest.approx(4.8, rel=0.05)
    assert feed.sinks["erp"].p99 / SECOND == pytest.approx(4, rel=0.05)
    assert {sink: delay.count for sink, delay in delays.sinks.items()} == {"erp": 40, "floor": 20}


async def test_a_feed_without_delays_has_none(read_store: SqliteReadStore) -> None:
    assert OTHER not in (await load_delays(read_store, ["erp"], NOON)).feeds
    assert FeedDelays.of([], NOON) == FeedDelays()


def test_an_estimated_delay_is_marked() -> None:
    assert write_delay(6.14 * SECOND) == "6.1s"
    assert write_delay(6.14 * SECOND, is_estimated=True) == "≈6.1s"
