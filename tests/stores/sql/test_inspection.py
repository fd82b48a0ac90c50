"""What can be seen in a store beside the one who works on it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.page_diff import Finding
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import ClockSource, Feed, Page, RunKind, Via
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.settlement import Blocked, DeadLetter, Settlement
from dockbell.core.publishing.statement import GapReason, gap
from dockbell.core.text_search import TextSearch
from dockbell.ports import FeedState, KeyStatus, Quarantined, RunRecord
from dockbell.stores.handles.read_store import SqlReadStore
from dockbell.stores.handles.store import SqlStore
from tests.fakes import NOON
from tests.stores.places import Place, open_read_store, open_store

FEED = Feed("main", "shipments")
MINUTE = timedelta(minutes=1)
DETECTOR = ChangeDetector(
    FEED, key=("/id",), updated_at="/updated_at", created_at=None, canon=Canon(updated_at="/updated_at")
)
READING = ReadContext(Via.POLL, NOON, stale_window=MINUTE)


@dataclass
class CommandStore:
    """A store at work, and a look at it."""

    store: SqlStore
    read_store: SqlReadStore
    state: FeedState
    detect: ChangeDetector = DETECTOR

    async def show(self, *records: Mapping[str, Any] | bytes) -> None:
        """Commit a page with these records."""
        raws = tuple(record if isinstance(record, bytes) else json.dumps(record).encode() for record in records)
        page = Page(raws, None, "shipments", NOON, ClockSource.DATE, NOON, NOON)
        compose = Composer(FEED, name="acme", singular="shipment", epoch="epoch")
        await self.store.feed(self.state.feed).commit_page(
            partial(self.detect.detect, page, READING), compose, via=Via.POLL
        )


@pytest.fixture
async def command_store(place: Place) -> AsyncIterator[CommandStore]:
    store = await open_store(place, now=lambda: NOON)
    read_store = await open_read_store(place)
    yield CommandStore(store, read_store, await store.feed(FEED).open())
    await read_store.aclose()
    await store.aclose()


def shipment(key: str, at: str = "11:59:00", **fields: str) -> dict[str, str]:
    return {"id": key, "updated_at": f"2026-11-21T{at}Z"} | fields


async def test_a_record_is_found_as_it_is_stored(command_store: CommandStore) -> None:
    await command_store.show(shipment("a"), shipment("b"))
    record = await command_store.read_store.find_record(command_store.state.id, "a")
    assert record is not None
    assert (record.key, record.modified, record.revision) == ("a", NOON - MINUTE, 1)
    assert (record.gone_at, record.suspected_at, record.is_dormant, record.held_at) == (None, None, False, None)
    assert len(record.fingerprint) == 16
    assert await command_store.read_store.find_record(command_store.state.id, "c") is None


async def test_a_reading_that_is_held_shows_at_its_record_and_in_its_findings(command_store: CommandStore) -> None:
    await command_store.show(shipment("a"))
    await command_store.show(shipment("a", "11:58:00", status="old"))
    record = await command_store.read_store.find_record(command_store.state.id, "a")
    assert record is not None
    assert record.held_at == NOON
    notes = await command_store.read_store.read_notes(command_store.state.id, "a", 10)
    assert [(note.finding, note.via, note.sequence) for note in notes] == [
        (Finding.CREATED, Via.POLL, 1),
        (Finding.HELD, Via.POLL, None),
    ]
    assert (notes[1].at, notes[1].modified) == (NOON, NOON - 2 * MINUTE)
    assert notes[1].fingerprint != notes[0].fingerprint == record.fingerprint
    assert await command_store.read_store.read_notes(command_store.state.id, "a", 1) == notes[1:]


async def test_a_change_that_waits_for_its_detail_shows_at_its_record(command_store: CommandStore) -> None:
    await command_store.show(shipment("a"))
    command_store.detect = ChangeDetector(
        FEED,
        key=("/id",),
        updated_at="/updated_at",
        created_at=None,
        canon=Canon(updated_at="/updated_at"),
        detail=("packages",),
    )
    await command_store.show(shipment("a", "11:59:30", status="packed"))
    record = await command_store.read_store.find_record(command_store.state.id, "a")
    assert record is not None
    assert (record.awaited_at, record.modified) == (NOON, NOON - MINUTE / 2)
    notes = await command_store.read_store.read_notes(command_store.state.id, "a", 10)
    assert [note.finding for note in notes] == [Finding.CREATED, Finding.AWAITED]


async def test_suspected_records_are_listed_first_missed_first(command_store: CommandStore) -> None:
    await command_store.show(shipment("a"), shipment("b"), shipment("c"))
    await command_store.store.feed(command_store.state.feed).suspect([3], NOON)
    await command_store.store.feed(command_store.state.feed).suspect([1], NOON + MINUTE)
    found = await command_store.read_store.find_suspected(command_store.state.id, 10)
    assert [(record.key, record.suspected_at) for record in found] == [("c", NOON), ("a", NOON + MINUTE)]
    assert [record.key for record in await command_store.read_store.find_suspected(command_store.state.id, 1)] == ["c"]
    await command_store.store.feed(command_store.state.feed).keep([3], Finding.KEPT, ignored_until_seen=True)
    spared = await command_store.read_store.find_record(command_store.state.id, "c")
    assert spared is not None
    assert (spared.is_dormant, spared.suspected_at) == (True, None)


async def test_records_in_quarantine_are_found_by_key_too(command_store: CommandStore) -> None:
    await command_store.show(b'{"id": "a", "n": 1e9999999999999999999}', b'{"no": "key"}')
    found = await command_store.read_store.find_quarantined(command_store.state.id, 10)
    assert {bad.key for bad in found} == {"a", ""}
    (one,) = await command_store.read_store.find_quarantined(command_store.state.id, 10, key="a")
    assert one == Quarantined(
        "a", "key a: not usable JSON: a number has an exponent of more than 18 digits", NOON, NOON
    )
    assert len(await command_store.read_store.find_quarantined(command_store.state.id, 1)) == 1


async def test_runs_that_cover_a_date_are_all_passes_and_the_polls_whose_window_holds_it(
    command_store: CommandStore,
) -> None:
    whole = RunRecord(RunKind.PASS, NOON, None, NOON, pages=1, records=1, events=0)
    poll = replace(whole, kind=RunKind.POLL, asked_at=NOON + MINUTE, since=NOON - MINUTE)
    before = replace(poll, asked_at=NOON - 9 * MINUTE, since=NOON - 10 * MINUTE)
    after = replace(poll, asked_at=NOON + 9 * MINUTE, since=NOON + 8 * MINUTE, problem="cut short")
    for run in (before, whole, poll, after):
        await command_store.store.feed(command_store.state.feed).close_run(run)

    async def cover(minutes: int, limit: int = 10) -> list[RunRecord]:
        date = NOON + minutes * MINUTE
        return list(await command_store.read_store.read_covering_runs(command_store.state.id, date, date, limit))

    assert await cover(0) == [whole, poll]
    assert await cover(0, limit=1) == [poll]
    assert await cover(8) == [whole, after]
    assert await cover(-10) == [before, whole]
    assert await command_store.read_store.read_covering_runs(command_store.state.id, None, NOON, 10) == [whole]


async def test_events_of_a_key_come_in_order_with_when_they_were_recorded(command_store: CommandStore) -> None:
    await command_store.show(shipment("a"), shipment("b"))
    await command_store.show(shipment("a", "11:59:30", status="packed"))
    found = await command_store.read_store.read_events_of(command_store.state.id, "a", 10)
    assert [(at, event.sequence, event.change) for at, event in found] == [(NOON, 1, "created"), (NOON, 3, "updated")]
    assert found[0][1].feed == FEED
    assert await command_store.read_store.read_events_of(command_store.state.id, "a", 1) == found[1:]


async def test_events_about_the_feed_have_the_empty_key(command_store: CommandStore) -> None:
    compose = Composer(FEED, name="acme", singular="shipment", epoch="epoch")
    stated = gap(FEED, NOON, began_at=None, ended_at=NOON, reason=GapReason.DOWN)
    await command_store.store.feed(command_store.state.feed).publish([stated], compose)
    ((_, event),) = await command_store.read_store.read_events_of(command_store.state.id, "", 5, change="gap")
    assert event.type == "dockbell.feed.gap"
    assert await command_store.read_store.read_events_of(command_store.state.id, "", 5, change="held") == []


async def test_each_sink_stands_somewhere_with_the_events_of_a_key(command_store: CommandStore) -> None:
    await command_store.show(shipment("a"), shipment("b"))
    for sink in ("floor", "erp"):
        await command_store.store.sink(sink).enroll("beginning")
    blocked = Blocked(FEED, "a", 1, 2, NOON, "HTTP 503")
    letters = [DeadLetter(FEED, "a", sequence, 9, NOON, "HTTP 400") for sequence in (1, 2)]
    await command_store.store.sink("floor").settle(Settlement({FEED: 2}, {(FEED, "a"): blocked}))
    await command_store.store.sink("erp").settle(Settlement(dead=letters))
    assert await command_store.read_store.load_key_statuses(command_store.state.id, "a") == [
        KeyStatus("erp", 0, None, tuple(letters)),
        KeyStatus("floor", 2, blocked),
    ]
    assert await command_store.read_store.load_key_statuses(command_store.state.id, "b") == [
        KeyStatus("erp", 0),
        KeyStatus("floor", 2),
    ]


async def test_complete_readings_are_told_by_feed_after_a_time(command_store: CommandStore) -> None:
    stock = await command_store.store.feed(Feed("main", "stock")).open()
    for minutes, kind, problem in (
        (0, RunKind.PASS, ""),
        (5, RunKind.POLL, ""),
        (6, RunKind.POLL, "no answer"),
        (7, RunKind.TRAILING, ""),
        (8, RunKind.PASS, ""),
    ):
        at = NOON + minutes * MINUTE
        asked_at = at + 60 * MINUTE  # by the service's clock
        run = RunRecord(kind, asked_at, None, at + MINUTE, pages=1, records=1, events=0, problem=problem, sent_at=at)
        await command_store.store.feed(command_store.state.feed).close_run(run)
    await command_store.store.feed(stock.feed).close_run(
        RunRecord(RunKind.PASS, NOON, None, NOON + 3 * MINUTE, 1, 1, 0)
    )
    assert await command_store.read_store.read_readings(NOON + MINUTE) == {
        FEED: [(NOON + 5 * MINUTE, NOON + 6 * MINUTE), (NOON + 8 * MINUTE, NOON + 9 * MINUTE)],
        Feed("main", "stock"): [(NOON, NOON + 3 * MINUTE)],
    }


async def test_records_are_searched_for_a_text_in_portions(command_store: CommandStore) -> None:
    await command_store.show(*(shipment(key) for key in ("a1", "b1", "a2", "b2", "a3")))
    search = command_store.read_store.search_records

    async def find(text: str, after: int = 0, limit: int = 10) -> tuple[list[str], int | None]:
        found, following = await search(command_store.state.id, TextSearch(text), after, limit)
        return [record.key for record in found], following

    assert await find("A") == (["a1", "a2", "a3"], None)
    assert await find("a", limit=2) == (["a1", "a2"], 3)
    assert await find("a", after=3) == (["a3"], None)
    assert await find("nothing") == ([], None)


async def test_what_is_stored_is_read_by_place_with_its_content(command_store: CommandStore) -> None:
    await command_store.show(shipment("a"), shipment("b"), shipment("c"))
    await command_store.store.feed(FEED).suspect([2], NOON)
    detect = partial(DETECTOR.deletion, until=NOON, now=NOON)
    compose = Composer(FEED, name="acme", singular="shipment", epoch="epoch")
    await command_store.store.feed(FEED).delete_records([2], detect, compose)

    async def read(after: int, limit: int, *, with_gone: bool) -> list[tuple[int, str, bool]]:
        found = await command_store.read_store.read_stored(command_store.state.id, after, limit, with_gone=with_gone)
        assert [json.loads(record.body or b"") for record in found] == [shipment(record.key) for record in found]
        return [(record.row, record.key, record.gone_at is not None) for record in found]

    assert await read(0, 10, with_gone=False) == [(1, "a", False), (3, "c", False)]
    assert await read(1, 1, with_gone=False) == [(3, "c", False)]
    assert await read(0, 2, with_gone=True) == [(1, "a", False), (2, "b", True)]
    assert await read(3, 10, with_gone=True) == []
