"""Which findings are written beside events, and with which of their numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from dockbell.core.comparing.page_diff import Finding
from dockbell.core.model import Via
from dockbell.ports import FeedState
from dockbell.stores.handles.read_store import SqlReadStore
from dockbell.stores.handles.store import SqlStore
from tests.fakes import NOON
from tests.stores.pages import DETAILED, FEED, close_pass, commit, complete, delete_records, make_composer, told
from tests.stores.places import Place, open_read_store, open_store


@dataclass
class Shelf:
    """A store, its one feed, and a look at it."""

    store: SqlStore
    state: FeedState
    read_store: SqlReadStore

    async def notes(self, key: str) -> list[tuple[Finding, Via, int | None]]:
        """Return what readings of a record came to, with the number of the event."""
        notes = await self.read_store.read_notes(self.state.id, key, 100)
        return [(note.finding, note.via, note.sequence) for note in notes]


@pytest.fixture
async def shelf(place: Place) -> AsyncIterator[Shelf]:
    store = await open_store(place, now=lambda: NOON)
    state = await store.feed(FEED).open()
    read_store = await open_read_store(place)
    yield Shelf(store, state, read_store)
    await read_store.aclose()
    await store.aclose()


async def test_a_finding_has_the_number_of_its_change_and_not_of_the_named_events_after_it(shelf: Shelf) -> None:
    compose = make_composer(heavy="after.weight > 5", light="after.weight < 9")
    records = [{"id": key, "weight": weight} for key, weight in (("a", 7), ("b", 1), ("c", 9))]
    await commit(shelf.store, shelf.state, *records, compose=compose)
    assert [await shelf.notes(key) for key in "abc"] == [
        [(Finding.CREATED, Via.POLL, 1)],
        [(Finding.CREATED, Via.POLL, 4)],
        [(Finding.CREATED, Via.POLL, 6)],
    ]


async def test_the_way_of_a_record_is_written_down_to_its_end(shelf: Shelf) -> None:
    store, state = shelf.store, shelf.state
    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)
    await complete(store, state, 1, {"lines": [1]}, twice="true")
    await close_pass(store, state, suspected=[1])
    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)
    await close_pass(store, state, suspected=[1])
    await store.feed(state.feed).keep([1], Finding.THERE)
    await close_pass(store, state, suspected=[1])
    await delete_records(store, state, 1)
    assert await told(store) == ["a created 1", "a created 1", "a deleted 2"]
    assert await shelf.notes("a") == [
        (Finding.AWAITED, Via.POLL, None),
        (Finding.CREATED, Via.DETAIL, 1),
        (Finding.SUSPECTED, Via.PASS, None),
        (Finding.SEEN_AGAIN, Via.POLL, None),
        (Finding.SUSPECTED, Via.PASS, None),
        (Finding.THERE, Via.PASS, None),
        (Finding.SUSPECTED, Via.PASS, None),
        (Finding.DELETED, Via.PASS, 3),
    ]


async def test_a_held_reading_is_noted_once_however_often_it_is_met(shelf: Shelf) -> None:
    for at, stamp, value in ((30, 20, 2), (40, 10, 1), (50, 10, 1), (100, 10, 1)):
        dated = (NOON + timedelta(seconds=stamp)).isoformat()
        window = timedelta(seconds=60)
        await commit(shelf.store, shelf.state, {"id": "a", "at": dated, "x": value}, at=at, stale_window=window)
    assert await shelf.notes("a") == [
        (Finding.CREATED, Via.POLL, 1),
        (Finding.HELD, Via.POLL, None),
        (Finding.UPDATED, Via.POLL, 2),
    ]


async def test_a_mass_of_suspicions_is_noted_for_the_first_thousand(shelf: Shelf) -> None:
    await commit(shelf.store, shelf.state, *({"id": str(number)} for number in range(1100)))
    await close_pass(shelf.store, shelf.state, suspected=range(1, 1101))
    noted = [number for number in range(1100) if len(await shelf.notes(str(number))) == 2]
    assert noted == list(range(1000))
