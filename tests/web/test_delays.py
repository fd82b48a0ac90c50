"""How long changes of a feed took in the last week."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

import pytest

from dockbell.core.delays import QUARTER, MeasuredDelays, find_bucket
from dockbell.core.model import Feed
from tests.fakes import NOON
from tests.web.sites import Served, configure

DAY = timedelta(days=1)
STOCK = Feed("main", "stock")


def measure(seconds: float, began_at: datetime = NOON, *, feed: Feed = STOCK, sink: str = "erp") -> MeasuredDelays:
    return MeasuredDelays(feed, sink, began_at, {find_bucket(seconds): 10})


async def read(served: Served) -> dict[str, Any]:
    answer: dict[str, Any] = (await served.client.get("/delays/main/stock")).json()
    return answer


async def test_they_are_told_by_two_hours_of_one_feed_and_of_the_sinks_that_are_configured(served: Served) -> None:
    filled = await served.fill("a", resource="stock")
    other = await served.fill("a", resource="items")
    assert filled.feed == STOCK
    await served.store.health.note_delays(
        [
            measure(4),
            measure(6, NOON - QUARTER),
            measure(90, feed=other.feed),
            measure(90, sink="gone"),
            measure(9, NOON - 7 * DAY + QUARTER),
            measure(9, NOON - 7 * DAY),
        ]
    )
    week = await read(served)
    assert (week["feed"], week["step_seconds"], week["end"]) == ("main/stock", 7200, "2026-11-21T12:15:00.000Z")
    assert len(week["mean_seconds"]) == len(week["p99_seconds"]) == len(week["changes"]) == 84
    assert {place: count for place, count in enumerate(week["changes"]) if count} == {0: 10, 83: 20}
    assert week["mean_seconds"][83] == pytest.approx(5, rel=0.05)
    assert week["p99_seconds"][83] == pytest.approx(6, rel=0.05)
    assert week["mean_seconds"][1] is None
    assert (week["goal_seconds"], week["goal_share"]) == (None, None)


async def test_a_goal_is_told_with_the_share_that_met_it(served: Served) -> None:
    await served.fill("a", resource="stock")
    served.config = configure({}, resources={"stock": {"freshness_goal": "30s"}})
    assert (await read(served))["goal_share"] is None
    await served.store.health.note_delays([measure(4), measure(40, NOON - 3 * DAY)])
    assert ((await read(served))["goal_seconds"], (await read(served))["goal_share"]) == (30, 0.5)


async def test_of_a_feed_that_is_not_stored_there_are_none(served: Served) -> None:
    assert (await served.client.get("/delays/main/nothing")).status_code == HTTPStatus.NOT_FOUND
