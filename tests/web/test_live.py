from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from dockbell.core.model import RunKind, StatementKind, Urgency
from dockbell.telemetry import PageRead, RequestSent
from tests.fakes import NOON
from tests.stores import pages
from tests.web.sites import Served, serve


class Page:
    """What a page has been told."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.parts: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self._lines = response.aiter_lines()

    async def hear(self) -> str:
        """Take in the next thing that is told, and return its name."""
        name = ""
        async for line in self._lines:
            match line.partition(": "):
                case "event", _, name:
                    pass
                case "data", _, text:
                    told = json.loads(text)
                case _:
                    break
        else:
            return ""
        if name == "part":
            self.parts[told["part"]] = told["value"]
        elif name == "events":
            self.events += told["events"]
        return name

    async def until(self, name: str) -> None:
        """Take in all until something of this name."""
        with anyio.fail_after(10):
            while (heard := await self.hear()) != name:
                assert heard, "it has ended"


@asynccontextmanager
async def opened(served: Served) -> AsyncIterator[Page]:
    async with served.client.stream("GET", "/live") as response:
        yield Page(response)


async def test_a_page_is_shown_everything_that_is_configured(served: Served) -> None:
    filled = await served.fill("a", "b", resource="shipments")
    await served.fill("x", source="gone", resource="items")  # was configured once
    async with opened(served) as page:
        assert page.response.headers["content-type"] == "text/event-stream"
        assert page.response.headers["cache-control"] == "no-store"
        await page.until("ready")
    resources = ("shipments", "packages", "items", "stock", "warehouses")
    assert list(page.parts) == [
        "dockbell",
        *(f"feed:main/{resource}" for resource in resources),
        "budget:main",
        "sink:erp",
        "sink:floor",
        "plan:main",
    ]
    assert page.parts["dockbell"]["name"] == "acme"
    assert page.parts["dockbell"]["reasons"][0] == {
        "text": "daemon: reads all 5 feeds for the first time; changes are detected after that",
        "about": "daemon",
        "weight": "progress",
    }
    feed = page.parts["feed:main/shipments"]
    assert (feed["records"], feed["events"], feed["every"], feed["polled"]) == (2, 2, "1m", True)
    assert feed["reasons"] == []
    assert feed["last_change_at"] == "2026-11-21T12:00:00.000Z"
    assert [(event["feed"], event["key"]) for event in page.events[:2]] == [(str(filled.feed), key) for key in "ab"]


async def test_a_page_is_shown_an_event_within_a_second(tmp_path: Path) -> None:
    async with serve(tmp_path, clock=lambda: datetime.now(UTC)) as served:
        filled = await served.fill("a", resource="shipments")
        async with opened(served) as page:
            await page.until("ready")
            began = time.monotonic()
            await filled.put("b", n=1)
            await page.until("events")
            assert time.monotonic() - began < 1
            assert page.events[-1] == {
                "place": 2,
                "feed": "main/shipments",
                "source": "main",
                "resource": "shipments",
                "sequence": 2,
                "key": "b",
                "type": "dockbell.shipment.created",
                "change": "created",
                "revision": 1,
                "at": "2026-11-21T12:00:00.000Z",
                "words": "n: 1",
            }


async def test_a_page_that_comes_later_is_shown_the_last_events(served: Served) -> None:
    filled = await served.fill(*(f"k{number:02}" for number in range(80)), resource="shipments")
    async with opened(served) as first:
        await first.until("ready")
        assert [event["sequence"] for event in first.events] == list(range(31, 81))
        await filled.put("new")
        await first.until("events")
        async with opened(served) as second:
            await second.until("ready")
    assert [event["sequence"] for event in second.events] == list(range(32, 82))


async def test_what_it_was_like_lately_is_shown(served: Served) -> None:
    filled = await served.fill("a", resource="shipments")
    telemetry = served.recent
    telemetry.hear(PageRead(filled.feed, RunKind.PASS, NOON, 3, 600, 1))
    telemetry.hear(
        RequestSent(
            "main", Urgency.PASS, "/v1/shipments", 200, timedelta(), 80, limit=120, resets_in=timedelta(seconds=30)
        )
    )
    async with opened(served) as page:
        await page.until("ready")
    progress = page.parts["feed:main/shipments"]["progress"]
    assert (progress["kind"], progress["pages"], progress["records"]) == ("pass", 3, 600)
    budget = page.parts["budget:main"]
    assert (budget["limit"], budget["allowed"], budget["used"], budget["remaining"]) == (120, 270, 1, 80)
    assert budget["kinds"]["pass"][-1] == 1
    assert budget["kinds"]["left"][-1] == 80
    assert len(budget["kinds"]["pass"]) == 240


async def test_held_deletions_are_shown(served: Served) -> None:
    filled = await served.fill("a", "b", resource="stock")
    statement = pages.a_statement(StatementKind.HELD, reason="mass_deletion", count=2, since="2026-11-21T12:00:00Z")
    await pages.close_pass(served.store, filled.state, suspected=[1, 2], held=2, statements=[statement])
    async with opened(served) as page:
        await page.until("ready")
    feed = page.parts["feed:main/stock"]
    assert feed["held"] == 2
    assert feed["deletions"] == [{"key": key, "suspected_at": "2026-11-21T12:00:00.000Z"} for key in "ab"]


async def test_what_leaves_the_configuration_leaves_the_page(served: Served) -> None:
    async with opened(served) as page:
        await page.until("ready")
        sinks = {"floor": served.config.sinks["floor"]}
        served.config = served.config.model_copy(update={"sinks": sinks})
        served.store.outbox.ring()
        await page.until("part")
    assert page.parts["sink:erp"] is None


async def test_only_so_many_look_at_once(served: Served) -> None:
    served.site.page_polls._most = 1
    async with opened(served) as page:
        await page.until("ready")
        answer = await served.client.get("/live")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:dockbell:problem:too-many-readers")
    with anyio.fail_after(5):
        while True:  # until the first is known to be gone
            async with opened(served) as page:
                if page.response.status_code == 200:
                    return


async def test_a_stream_ends_by_itself_so_that_the_token_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.web.live._LIFE", timedelta(seconds=0.3))
    async with serve(tmp_path) as served, opened(served) as page:
        with anyio.fail_after(5):
            while await page.hear():
                pass


async def test_when_dockbell_stops_the_stream_ends_at_once(served: Served) -> None:
    async with opened(served) as page:
        await page.until("ready")
        served.stopping.set()
        with anyio.fail_after(1):
            while await page.hear():
                pass


async def test_its_headers_can_be_asked_for_alone(served: Served) -> None:
    answer = await served.client.head("/live")
    assert answer.headers["content-type"] == "text/event-stream"
    assert served.site.broadcast.reads == 0
