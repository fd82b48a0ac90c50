"""What a store tells of a moment in the past: the state at a sink's beginning, whatever has become of it since."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dockbell.core.model import Feed
from dockbell.core.publishing.settlement import StartOffset
from dockbell.core.reading.shape import Shape
from dockbell.ports import BackfillRecord, FeedState, Store
from dockbell.stores.handles.store import SqlStore
from tests.fakes import NOON
from tests.stores.pages import DETAILED, FEED, OTHER, close_pass, commit, complete, delete_records, later
from tests.stores.places import Place, open_store

KEYS = "abcd"
Step = tuple[str, str, int]
steps = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "touch", "delete"]), st.sampled_from(KEYS), st.integers(0, 2)),
    max_size=12,
)


async def open_feed(place: Place, now: Callable[[], datetime] = lambda: NOON) -> tuple[SqlStore, FeedState]:
    store = await open_store(place, now=now)
    state = await store.feed(FEED).open()
    await store.feed(state.feed).save_shape(Shape(("/id",), "/at", None), proven=True)
    return store, state


class World:
    """A store that a feed is read into, and what is in that feed."""

    def __init__(self, store: SqlStore, state: FeedState) -> None:
        self.store = store
        self.state = state
        self.records: dict[str, tuple[int, dict[str, Any]]] = {}
        self.gone: dict[str, int] = {}
        self.clock = 0

    async def step(self, kind: str, key: str, value: int) -> None:
        """Let something happen to a record, and let the store see it."""
        self.clock += 1
        revision, record = self.records.get(key, (self.gone.get(key, 0), {}))
        if kind == "delete":
            if key in self.records:
                await self.delete(key)
                del self.records[key]
                self.gone[key] = revision + 1
            return
        if kind == "touch" and not record:
            return
        new = (record if kind == "touch" else {"id": key, "x": value}) | {"at": f"2026-11-21T13:00:{self.clock:02}Z"}
        await commit(self.store, self.state, new, at=3600 + self.clock)
        is_news = not record or record["x"] != new["x"]
        self.records[key] = (revision + is_news, new)
        self.gone.pop(key, None)

    async def delete(self, key: str) -> None:
        rows = {each.key: each.row for each in (await self.store.read_stored(FEED, 0, 100))[0]}
        await close_pass(self.store, self.state, suspected=[rows[key]])
        assert await delete_records(self.store, self.state, rows[key]) == 1


async def read_all(store: Store, beginning: StartOffset, limit: int) -> Sequence[BackfillRecord]:
    told: list[BackfillRecord] = []
    row = 0
    while True:
        found = await store.sink("erp").read_backfill(FEED, beginning, row, limit)
        assert found is not None
        portion, row, is_all = found
        told += portion
        if is_all:
            return told


def test_the_state_at_a_moment_is_told_for_any_history_since(make_place: Callable[[], Place]) -> None:
    async def check(before: Sequence[Step], after: Sequence[Step], limit: int) -> None:
        store, state = await open_feed(make_place())
        world = World(store, state)
        for each in before:
            await world.step(*each)
        await close_pass(store, state)
        beginning = StartOffset(store.outbox.ends[FEED], NOON)
        expected = {key: (revision, record["x"]) for key, (revision, record) in world.records.items()}
        told: Sequence[BackfillRecord] = []
        for number in range(len(after) + 1):
            if number:
                await world.step(*after[number - 1])
            told = await read_all(store, beginning, limit)
            assert [each.row for each in told] == sorted({each.row for each in told})
            assert {each.key.text: (each.revision, json.loads(each.body or b"")["x"]) for each in told} == expected
        for key in KEYS:
            found = await store.sink("erp").find_backfilled(FEED, beginning, key)
            assert found == next((each for each in told if each.key.text == key), None)
        await store.aclose()

    @settings(max_examples=60 if isinstance(make_place(), Path) else 20)
    @given(before=steps, after=steps, limit=st.integers(1, 5))
    def check_any(before: Sequence[Step], after: Sequence[Step], limit: int) -> None:
        anyio.run(check, before, after, limit)

    check_any()


async def test_where_events_were_lost_those_records_are_told_too_that_are_gone_since(place: Place) -> None:
    moments = [later(hours=hours) for hours in (0, 1, 2)]
    store, state = await open_feed(place, lambda: moments[0])
    world = World(store, state)
    for key in KEYS[:3]:
        await world.step("put", key, 1)
    await world.delete("a")
    moments.pop(0)
    await world.delete("b")
    beginning = StartOffset(store.outbox.ends[FEED], moments[0], lost_since=moments[0])
    told = await read_all(store, beginning, 10)
    assert [(each.key.text, each.revision, each.body is None) for each in told] == [("b", 2, True), ("c", 1, False)]
    assert await store.sink("erp").find_backfilled(FEED, beginning, "b") == told[0]
    await store.aclose()


async def test_a_key_keeps_its_type_as_long_as_its_record_is_known(place: Place) -> None:
    store, state = await open_feed(place)
    await commit(store, state, {"id": 7, "x": 1})
    await close_pass(store, state)
    beginning = StartOffset(1, NOON, lost_since=NOON)
    assert [each.key.id for each in await read_all(store, beginning, 10)] == [7]
    await close_pass(store, state, suspected=[1])
    await delete_records(store, state, 1)
    assert [each.key.id for each in await read_all(store, beginning, 10)] == [7]
    await store.retention.prune_history(later(days=99), 10)
    beginning = StartOffset(2, NOON, lost_since=NOON)
    assert [each.key.id for each in await read_all(store, beginning, 10)] == ["7"]
    await store.aclose()


async def test_nothing_is_told_of_a_feed_before_it_was_read_whole_or_that_is_unknown(place: Place) -> None:
    store, state = await open_feed(place)
    await commit(store, state, {"id": "a", "x": 1})
    assert await store.sink("erp").read_backfill(FEED, StartOffset(0, NOON), 0, 10) is None
    assert await store.sink("erp").read_backfill(OTHER, StartOffset(0, NOON), 0, 10) is None
    assert await store.sink("erp").find_backfilled(OTHER, StartOffset(0, NOON), "a") is None
    await store.aclose()


async def test_a_record_whose_first_event_is_still_to_come_is_not_told(place: Place) -> None:
    """Its detail is awaited, or it was only met: the event that comes says all."""
    store, state = await open_feed(place)
    await commit(store, state, {"id": "old", "x": 1})
    await commit(store, state, {"id": "a", "x": 1}, {"id": "old", "x": 2}, detector=DETAILED)
    await commit(store, state, {"id": "met", "at": "2026-11-21T12:00:05Z"}, at=10, baseline=True, provisional=True)
    await close_pass(store, state)
    beginning = StartOffset(1, NOON)
    told = await read_all(store, beginning, 10)
    assert [(each.key.text, each.revision, each.body) for each in told] == [("old", 1, b'{"id": "old", "x": 1}')]
    assert await store.sink("erp").find_backfilled(FEED, beginning, "a") is None
    for row in (1, 2):
        await complete(store, state, row, {"id": "-", "x": 9})
    again = await read_all(store, beginning, 10)
    assert [(each.key.text, each.revision, each.body) for each in again] == [("old", 1, b'{"id": "old", "x": 1}')]
    await store.aclose()


async def test_what_changed_is_read_as_it_is_now_and_each_record_once(place: Place) -> None:
    store, state = await open_feed(place)
    world = World(store, state)
    for step in [("put", "a", 1), ("put", "b", 1), ("put", "a", 2), ("put", "b", 2)]:
        await world.step(*step)
    await world.delete("b")
    portion, end = await store.read_changed(FEED, 2, 10)
    assert [(each.key, each.revision, each.body is None) for each in portion] == [("a", 2, False), ("b", 3, True)]
    assert end == 5
    assert await store.read_changed(FEED, 5, 10) == ([], 5)
    assert [each.key for each in (await store.read_stored(FEED, 1, 10))[0]] == ["b"]
    assert await store.read_changed(Feed("no", "shipments"), 0, 10) == ([], 0)
    await store.aclose()


@pytest.mark.parametrize("kind", ["update", "delete"])
async def test_what_is_told_is_the_same_whatever_became_of_the_record(place: Place, kind: str) -> None:
    store, state = await open_feed(place)
    world = World(store, state)
    await world.step("put", "a", 1)
    await close_pass(store, state)
    beginning = StartOffset(1, NOON)
    (first,) = await read_all(store, beginning, 10)
    await world.step("put" if kind == "update" else "delete", "a", 2)
    assert first.modified == later(hours=1, seconds=1)
    assert await read_all(store, beginning, 10) == [first]
    await store.aclose()
