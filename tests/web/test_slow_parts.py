"""What the page shows of the plan, and of the delays of the last day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dockbell.app.next_time import next_time
from dockbell.config import Config
from dockbell.core.delays import QUARTER, MeasuredDelays, find_bucket
from dockbell.core.model import Feed
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from dockbell.web.slow_parts import SlowParts
from tests.fakes import NOON
from tests.web.sites import configure

STOCK = Feed("main", "stock")
SECOND = timedelta(seconds=1)


@pytest.fixture
def config() -> Config:
    return configure({}, resources={"stock": {}})


@pytest.fixture
def other() -> Config:
    """Return a configuration of another source."""
    return configure({}, sources={"other": {"base_url": "http://127.0.0.1:9", "api_key": "key"}})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    await store.add_feeds([STOCK])
    yield store
    await store.aclose()


@pytest.fixture
async def slow_parts(store: SqliteStore) -> AsyncIterator[SlowParts]:
    read_store = await SqliteReadStore.open(store.path)
    yield SlowParts(read_store, next_time)
    await read_store.aclose()


def measure(seconds: float, began_at: datetime = NOON, sink: str = "erp") -> MeasuredDelays:
    return MeasuredDelays(STOCK, sink, began_at, {find_bucket(seconds): 10}, predicted=50 * SECOND)


async def test_the_plan_is_that_of_the_command(config: Config, slow_parts: SlowParts) -> None:
    plan = (await slow_parts.read(config, NOON))["plan:main"]
    assert (plan["source"], [feed["feed"] for feed in plan["feeds"]]) == ("main", ["main/stock"])
    assert {"interval_seconds", "reason", "requests_per_minute", "part_of_budget", "delay"} <= plan["feeds"][0].keys()
    assert plan["feeds"][0]["measured"] is None


async def test_delays_are_drawn_by_quarters_of_the_last_day(
    config: Config, store: SqliteStore, slow_parts: SlowParts
) -> None:
    await store.health.note_delays(
        [measure(4), measure(8, sink="gone"), measure(9, NOON - 95 * QUARTER), measure(9, NOON - 96 * QUARTER)]
    )
    parts = await slow_parts.read(config, NOON + SECOND)
    course = parts["course:main/stock"]
    assert course["end"] == "2026-11-21T12:15:00.000Z"
    assert len(course["mean"]) == len(course["p99"]) == len(course["planned"]) == 96
    assert [place for place, mean in enumerate(course["mean"]) if mean is not None] == [0, 95]
    assert (course["mean"][95], course["planned"][95]) == (pytest.approx(4, rel=0.05), 5)
    assert parts["plan:main"]["feeds"][0]["measured"]["count"] == 10


async def test_they_are_read_once_a_minute_and_after_a_reload(
    config: Config, other: Config, store: SqliteStore, slow_parts: SlowParts
) -> None:
    assert "course:main/stock" not in await slow_parts.read(config, NOON)
    await store.health.note_delays([measure(4)])
    assert "course:main/stock" not in await slow_parts.read(config, NOON + 59 * SECOND)
    assert "course:main/stock" in await slow_parts.read(config, NOON + 60 * SECOND)
    assert (await slow_parts.read(other, NOON + 61 * SECOND)).keys() == {"plan:other"}
