"""The records of one feed, asked for beside the polls of another that embeds them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from dockbell.core.comparing.page_diff import PageDiff
from dockbell.core.model import Feed, Page, RunKind, Unsound
from dockbell.core.reading.embedding import PAIRS
from dockbell.detection import expansion
from dockbell.detection.expansion import Expansion
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.run import Run
from dockbell.errors import (
    CursorExpired,
    PageUnreadable,
    RateLimited,
    RequestRefused,
    SchemaMismatch,
    SourceRefused,
    SourceUnavailable,
)
from tests.fakes import EmbeddingSource
from tests.rig import STOCK, Rig, open_rig

ITEMS = Feed("main", "items")


NEWEST = "newest"
"""The item that was modified last before the tests begin: every poll shows it again."""


def add_stock(record: dict[str, Any]) -> None:
    is_sold = record["id"] != NEWEST
    record["stock"] = [{"id": f"s{record['id']}", "on_hand": 1}] if is_sold else []


class Shop:
    """Items that embed their stock where that is asked for, and are polled."""

    def __init__(self, items: Rig, stock: Rig) -> None:
        assert isinstance(items.source, EmbeddingSource)
        self.items, self.stock, self.source = items, stock, items.source
        self.take_up()

    def take_up(self) -> None:
        """Begin anew."""
        self.expansion = Expansion(PAIRS[0], self.items.tracked, self.stock.tracked)
        self.items.tracked.listeners[:] = [self.hear]

    def hear(self, _: TrackedFeed, run: Run, page: Page, page_diff: PageDiff) -> None:
        if run.kind is RunKind.POLL:
            self.expansion.take_page(run, page, page_diff)

    async def poll(self, *changed: str, after: float = 15) -> None:
        """Change some items, and poll them some seconds later."""
        self.items.clock.pass_(after)
        for key in changed:
            self.items.source.put(key)
        assert await self.items.poll(1) == ""

    async def read(self) -> list[str]:
        """Return the keys of what is embedded in what is asked for beside the polls."""
        pages = [page async for page in self.expansion.read()]
        return [json.loads(raw)["id"] for page in pages for raw in page.records]

    async def poll_and_read(self) -> list[str]:
        await self.poll("a")
        return await self.read()


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_rig(tmp_path) as stock:
        stock.feed = STOCK
        stock.restart(reconcile=None, every="5m")
        source = EmbeddingSource(stock.clock, embed=add_stock)
        items = Rig(stock.store, stock.clock, source, feed=ITEMS, ear=stock.ear)
        for key in "abcdefgh":
            items.source.put(key)
        for rig in (stock, items):
            await rig.read_whole()
        source.page_size = 100
        stock.clock.pass_(3600)
        source.put(NEWEST)
        for _ in range(3):
            await items.poll()
        source.page_size = 3
        yield Shop(items, stock)


async def test_a_poll_that_shows_modified_records_is_made_once_more_with_what_they_embed(shop: Shop) -> None:
    await shop.poll("a", "b")
    polled = shop.source.asked[-1]
    assert shop.expansion.is_due
    assert await shop.read() == ["sa", "sb"]
    assert shop.source.asides == [(None, polled[1], shop.source.limits[-1])]
    assert shop.source.asked[-1][2] is polled[2]  # as urgent
    assert not shop.expansion.is_due


async def test_new_records_call_for_it_too(shop: Shop) -> None:
    await shop.poll("new")
    assert await shop.read() == ["snew"]


async def test_a_poll_that_shows_nothing_new_calls_for_nothing(shop: Shop) -> None:
    await shop.poll("a")
    await shop.read()
    await shop.poll(after=1)  # the lookback shows it again
    assert not shop.expansion.is_due
    assert await shop.read() == []
    assert len(shop.source.asides) == 1


async def test_pages_are_asked_for_until_all_records_are_met_that_the_poll_has_shown(shop: Shop) -> None:
    await shop.poll(*"abcdefg")  # three pages
    await shop.poll("h", after=1)
    assert len(await shop.read()) == 8
    assert [cursor for cursor, _, _ in shop.source.asides] == [None, "3", "6"]
    shop.source.asides.clear()
    shop.source.put("a")
    await shop.poll(after=1)
    shop.source.records = {"a": shop.source.records.pop("a")} | shop.source.records  # now it comes first
    assert "sa" in await shop.read()
    assert [cursor for cursor, _, _ in shop.source.asides] == [None]


async def test_a_list_that_has_no_end_costs_one_page_more_than_the_poll(shop: Shop) -> None:
    await shop.poll("a", "b")
    shop.source.alter = lambda page: replace(page, records=page.records[:1], next_cursor="0")
    await shop.read()
    assert len(shop.source.asides) == 2


async def test_a_poll_that_is_cut_off_is_waited_for(shop: Shop) -> None:
    def cut(request: int) -> None:
        if request > before + 1:
            raise SourceUnavailable("HTTP 503")

    before = len(shop.source.asked)
    shop.source.before_page = cut
    for key in "abcdefg":
        shop.source.put(key)
    assert await shop.items.poll(1) == "HTTP 503"
    assert not shop.expansion.is_due
    shop.source.before_page = lambda _: None
    await shop.poll()
    assert len(await shop.read()) == 7


async def test_what_polls_have_shown_may_be_forgotten(shop: Shop) -> None:
    await shop.poll("a")
    shop.expansion.forget()
    assert await shop.read() == []


async def test_the_planner_counts_what_is_asked_for_beside_polls(shop: Shop) -> None:
    await shop.poll()
    before = shop.items.tracked.workload.plan.cost.mean
    for _ in range(50):
        await shop.poll_and_read()
    after = shop.items.tracked.workload.plan.cost.mean
    assert before is not None
    assert after is not None
    assert after > before + 0.9


# What does not come --------------------------------------------------------------------------------------------------


async def fail(shop: Shop, error: Exception) -> list[str]:
    async def refuse() -> None:
        raise error

    shop.source.before_aside = refuse
    return await shop.poll_and_read()


@pytest.mark.parametrize(
    "error",
    [
        PageUnreadable("too large"),
        SchemaMismatch("two arrays"),
        SourceRefused("HTTP 403"),
        RateLimited("HTTP 429"),
        CursorExpired("HTTP 410"),
    ],
)
async def test_where_it_does_not_come_it_is_left_alone_for_a_minute(shop: Shop, error: Exception) -> None:
    assert await fail(shop, error) == []
    shop.source.before_aside = None
    assert await shop.poll_and_read() == []
    shop.items.clock.pass_(61)
    assert await shop.poll_and_read() == ["sa"]
    assert shop.expansion.problem == ""


async def test_what_is_refused_is_no_signal(shop: Shop) -> None:
    await fail(shop, RequestRefused("HTTP 400"))
    assert shop.expansion.problem == "items?expand=stock is refused: HTTP 400"


@pytest.mark.parametrize("is_later_page", [False, True])
async def test_what_does_not_come_ten_times_in_a_row_is_no_signal(shop: Shop, is_later_page: bool) -> None:
    async def refuse() -> None:
        if not is_later_page or shop.source.asides[-1][0] is not None:
            raise PageUnreadable("too large")

    shop.source.before_aside = refuse
    problems = []
    for _ in range(10):
        await shop.poll("a", "b", "c", "d")
        await shop.read()
        problems.append(shop.expansion.problem)
        shop.items.clock.pass_(61)
    assert problems == [*9 * [""], "items?expand=stock is not answered"]


async def test_what_comes_now_and_then_is_a_signal(shop: Shop) -> None:
    for _ in range(11):
        await fail(shop, PageUnreadable("too large"))
        shop.items.clock.pass_(61)
        shop.source.before_aside = None
        assert await shop.poll_and_read() == ["sa"]
    assert shop.expansion.problem == ""


async def test_it_is_not_waited_for_long(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "_PATIENCE", timedelta(seconds=0.01))
    shop.source.before_aside = anyio.sleep_forever
    assert await shop.poll_and_read() == []


# What is embedded ----------------------------------------------------------------------------------------------------


async def test_where_nothing_is_embedded_there_is_no_signal(shop: Shop) -> None:
    shop.source.embed = lambda _: None
    for _ in range(12):
        await shop.poll(*"abcdefgh")
        assert await shop.read() == []
    assert shop.expansion.problem == ""
    await shop.poll(*"abcdefgh")
    await shop.read()
    assert shop.expansion.problem == "items?expand=stock embeds nothing"


async def test_records_that_embed_nothing_are_no_problem_where_others_do(shop: Shop) -> None:
    shop.source.embed = lambda record: add_stock(record) if record["id"] == "a" else None
    for _ in range(60):
        await shop.poll("a", "b", "c", after=3600)
        assert await shop.read() == ["sa"]
    assert shop.expansion.problem == ""


async def test_a_record_that_is_not_sound_is_left_out(shop: Shop) -> None:
    shop.source.alter = lambda page: replace(page, unsound={1: Unsound("cut", {})})
    await shop.poll("a", "b")
    assert await shop.read() == ["sb"]


async def test_what_cannot_be_told_apart_is_met_all_the_same(shop: Shop) -> None:
    shop.source.alter = lambda page: replace(page, records=(b"null", *page.records))
    assert await shop.poll_and_read() == ["sa"]


async def test_what_the_operator_has_embedded_the_polls_show(shop: Shop) -> None:
    shop.items.restart(expand=["stock"])
    shop.take_up()
    assert shop.expansion.is_configured
    heard: list[Page | None] = []
    shop.items.tracked.listeners[:] = [lambda _, __, page, ___: heard.append(shop.expansion.embed(page))]
    shop.items.source.put("a")
    await shop.items.poll(1)
    assert [json.loads(raw)["id"] for page in heard if page is not None for raw in page.records] == ["sa"]
    assert shop.source.asides == []
