"""Pages with and without the records of another feed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.core.model import ClockSource, Feed, Page, Unsound
from dockbell.core.reading.embedding import PAIRS
from dockbell.detection import expansion
from dockbell.detection.expansion import Embedding, Expansion
from dockbell.errors import CursorExpired, PageUnreadable, RateLimited, RequestRefused, SchemaMismatch, SourceRefused
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
    patient: list[bool] = field(default_factory=list)
    unsound: bool = False
    next_cursor: str | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """What the records have besides."""

    async def ask(self, expand: tuple[str, ...], *, patient: bool = True) -> Page:
        self.asked.append(expand)
        self.patient.append(patient)
        when = "2026-11-21T12:00:00Z"
        records = [{"id": f"i{number}", "updated_at": when} | self.more for number in range(self.count)]
        if expand:
            if self.error is not None:
                raise self.error
            for number, record in enumerate(records):
                record |= {"stock": [{"id": f"s{number}", "on_hand": 1}]}
                self.alter(record)
        raws = tuple(json.dumps(record).encode() for record in records)
        page = Page(raws, self.next_cursor, "items", NOON, ClockSource.DATE, NOON, NOON)
        return replace(page, unsound={0: Unsound("cut", {})}) if self.unsound and expand else page

    async def read(self, cursor: str | None = None) -> Embedding:
        if cursor is None:
            self.expansion.begin(is_wanted=True)
        return await self.expansion.read(self.ask, cursor)


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


async def test_where_nothing_is_added_there_is_no_signal(items: Items) -> None:
    items.alter = lambda record: record.pop("stock")
    assert (await items.read()).problem == "items?expand=stock adds nothing"


async def test_records_that_embed_nothing_speak_neither_for_it_nor_against(items: Items) -> None:
    items.alter = lambda record: record.pop("stock") if record["id"] in {"i0", "i1", "i2", "i3"} else None
    assert (await items.read()).problem == ""
    assert len((await items.read()).page.records) == 25


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


async def test_what_does_not_come_three_times_is_no_signal(items: Items) -> None:
    await items.read()
    items.error = PageUnreadable("too large")
    problems = []
    for _ in range(3):
        problems.append((await items.read()).problem)
        items.rig.clock.pass_(601)
    assert problems == ["", "", "items?expand=stock is not answered"]


async def test_it_is_tried_once_and_not_for_long(items: Items, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(expand: tuple[str, ...], *, patient: bool = True) -> Page:
        if not patient:
            await anyio.sleep_forever()
        return await items.ask(expand, patient=patient)

    monkeypatch.setattr(expansion, "_PATIENCE", timedelta(seconds=0.01))
    items.expansion.begin(is_wanted=True)
    found = await items.expansion.read(hang, None)
    assert (found.page, found.embedded) == (await items.ask(()), None)


async def test_all_pages_of_a_run_that_began_with_it_are_asked_for_with_it(items: Items) -> None:
    await items.read()
    await items.read()
    items.rig.clock.pass_(3601)  # what is added would have to be learned anew
    items.asked.clear()
    second = await items.read("next")
    assert items.asked == [("stock",)]
    assert b"stock" not in second.page.records[0]


async def test_a_later_page_that_does_not_come_lets_the_run_begin_again_without_it(items: Items) -> None:
    await items.read()
    items.next_cursor = "next"
    problems = []
    for _ in range(3):
        items.error = None
        assert (await items.read()).embedded is not None
        items.error = PageUnreadable("too large")
        with pytest.raises(CursorExpired):
            await items.read("next")
        items.asked.clear()
        problems.append((await items.read()).problem)
        assert items.asked == [()]
        items.rig.clock.pass_(601)
    assert problems == ["", "", "items?expand=stock is not answered"]


async def test_a_later_page_that_is_refused_is_no_signal(items: Items) -> None:
    await items.read()
    items.next_cursor = "next"
    await items.read()
    items.error = RequestRefused("HTTP 403")
    with pytest.raises(CursorExpired):
        await items.read("next")
    assert (await items.read()).problem == "items?expand=stock is refused: HTTP 403"
    assert (await items.read()).problem == ""


@pytest.mark.parametrize("cursor", [None, "next"])
async def test_a_member_that_begins_to_be_added_besides_is_never_shown(items: Items, cursor: str | None) -> None:
    await items.read()
    await items.read()
    items.alter = lambda record: record.update(stock_total=1)
    if cursor:
        with pytest.raises(CursorExpired):
            await items.read(cursor)
    found = await items.read()
    assert found.page == await items.ask(())
    assert found.problem == "items?expand=stock does not just add one member"


async def test_a_new_member_that_is_shown_without_it_too_costs_one_request(items: Items) -> None:
    await items.read()
    items.more = {"weight": 3}
    items.asked.clear()
    assert (await items.read()).page == await items.ask(())
    items.asked.clear()
    assert b"weight" in (await items.read()).page.records[0]
    assert items.asked == [("stock",)]


async def test_what_is_no_object_stays_what_it_is(items: Items) -> None:
    await items.read()

    async def ask(expand: tuple[str, ...], *, patient: bool = True) -> Page:
        return replace(await items.ask(expand, patient=patient), records=(b"null",))

    items.expansion.begin(is_wanted=True)
    assert (await items.expansion.read(ask, None)).page.records == (b"null",)


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
