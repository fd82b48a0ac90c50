"""Pages with and without the records of another feed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dockbell.core.model import ClockSource, Feed, Page, Unsound
from dockbell.core.reading.embedding import PAIRS
from dockbell.detection.expansion import Embedding, Expansion
from dockbell.errors import CursorExpired, PageUnreadable, RateLimited, RequestRefused, SchemaMismatch
from tests.fakes import NOON, FakeSource
from tests.rig import STOCK, Rig, open_rig

ITEMS = Feed("main", "items")


@dataclass
class Items:
    """Items as an API shows them, with their stock where that is asked for."""

    expansion: Expansion
    rig: Rig
    count: int = 25
    alter: Callable[[dict[str, Any]], object] = lambda _: None
    """Called with each record that is shown with its stock."""
    error: Exception | None = None
    """Raised where stock is asked for."""
    asked: list[tuple[str, ...]] = field(default_factory=list)
    unsound: bool = False
    next_cursor: str | None = None

    async def ask(self, expand: tuple[str, ...]) -> Page:
        self.asked.append(expand)
        records = [{"id": f"i{number}", "updated_at": "2026-11-21T12:00:00Z"} for number in range(self.count)]
        if expand:
            if self.error is not None:
                raise self.error
            for number, record in enumerate(records):
                record |= {"stock": [{"id": f"s{number}", "on_hand": 1}]}  # type: ignore[dict-item]
                self.alter(record)
        raws = tuple(json.dumps(record).encode() for record in records)
        page = Page(raws, self.next_cursor, "items", NOON, ClockSource.DATE, NOON, NOON)
        return replace(page, unsound={0: Unsound("cut", {})}) if self.unsound and expand else page

    async def read(self) -> Embedding:
        if not self.expansion.begin(is_wanted=True):
            return Embedding(await self.ask(()))
        return await self.expansion.read(self.ask)


@pytest.fixture
async def items(tmp_path: Path) -> AsyncIterator[Items]:
    async with open_rig(tmp_path) as stock:
        stock.feed = STOCK
        stock.restart(reconcile=None, every="5m")
        rig = Rig(stock.store, stock.clock, FakeSource(stock.clock), feed=ITEMS, ear=stock.ear)
        rig.source.put("i0")
        for each in (stock, rig):
            await each.read_whole()
        yield Items(Expansion(PAIRS[0], rig.tracked, stock.tracked), rig)


async def test_what_is_added_is_learned_by_pages_with_and_without_it(items: Items) -> None:
    first = await items.read()
    assert (first.page, first.embedded) == (await items.ask(()), None)
    assert items.asked[:2] == [(), ("stock",)]
    items.asked.clear()
    second = await items.read()
    assert items.asked == [("stock",)]
    assert second.page.records == (await items.ask(())).records  # to the byte
    assert second.embedded is not None
    assert [json.loads(raw)["id"] for raw in second.embedded.records] == [f"s{number}" for number in range(25)]


async def test_a_few_records_are_not_enough_to_learn_it(items: Items) -> None:
    items.count = 7
    for _ in range(3):
        assert (await items.read()).embedded is None
    assert (await items.read()).embedded is not None


async def test_without_records_nothing_more_is_asked_for(items: Items) -> None:
    items.count = 0
    await items.read()
    assert items.asked == [()]


async def test_after_an_hour_it_is_looked_at_again(items: Items) -> None:
    await items.read()
    assert (await items.read()).embedded is not None
    items.rig.clock.pass_(3601)
    items.alter = lambda record: record.update(total=1)
    found = await items.read()
    assert (found.embedded, found.problem) == (None, "items?expand=stock does not just add one member")
    assert b"total" not in found.page.records[0]


@pytest.mark.parametrize(
    "alter",
    [
        lambda record: record.pop("stock"),
        lambda record: record.update(total=1),
        lambda record: record.update(id=record["id"], name="x"),
    ],
)
async def test_anything_but_one_new_member_is_no_signal(
    items: Items, alter: Callable[[dict[str, Any]], object]
) -> None:
    items.alter = alter
    found = await items.read()
    assert found.problem == "items?expand=stock does not just add one member"
    assert found.page == await items.ask(())


async def test_what_is_refused_is_no_signal(items: Items) -> None:
    items.error = RequestRefused("HTTP 400")
    found = await items.read()
    assert found.problem == "items?expand=stock is refused: HTTP 400"
    assert found.page == await items.ask(())


@pytest.mark.parametrize("error", [PageUnreadable("too large"), SchemaMismatch("two arrays")])
async def test_where_it_does_not_come_it_is_left_alone_for_ten_minutes(items: Items, error: Exception) -> None:
    await items.read()
    items.error = error
    found = await items.read()
    assert (found.page, found.embedded, found.problem) == (await items.ask(()), None, "")
    items.asked.clear()
    await items.read()
    assert items.asked == [()]
    items.rig.clock.pass_(601)
    items.error = None
    assert (await items.read()).embedded is not None


async def test_an_unsound_page_is_read_without_it(items: Items) -> None:
    await items.read()
    items.unsound = True
    found = await items.read()
    assert (found.page.unsound, found.embedded) == ({}, None)


async def test_a_cursor_that_is_lost_is_the_run_s_to_mend_without_it(items: Items) -> None:
    await items.read()
    items.error = CursorExpired("HTTP 410")
    with pytest.raises(CursorExpired):
        await items.read()
    items.asked.clear()
    await items.read()
    assert items.asked == [()]


async def test_a_budget_that_is_used_up_says_nothing_of_it(items: Items) -> None:
    await items.read()
    items.error = RateLimited("HTTP 429")
    with pytest.raises(RateLimited):
        await items.read()
    items.error = None
    assert (await items.read()).embedded is not None


async def test_what_the_operator_has_embedded_stays(items: Items) -> None:
    items.rig.restart(expand=["stock"])
    await items.rig.tracked.state()
    stock = items.expansion._target
    items.expansion = Expansion(PAIRS[0], items.rig.tracked, stock)
    found = await items.read()
    assert items.asked == [("stock",)]
    assert b"stock" in found.page.records[0]
    assert found.embedded is not None
    assert len(found.embedded.records) == 25
