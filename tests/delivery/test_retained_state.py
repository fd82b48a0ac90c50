"""What a receiver lacks that keeps a copy of each stored record."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from dockbell.core.model import Feed
from dockbell.core.publishing.settlement import Blocked, Settlement
from dockbell.core.reading.shape import Shape
from dockbell.delivery.retained_state import StoredRetainedState
from dockbell.stores.sqlite import SqliteStore
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER, close_pass, commit, delete_records, later


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Return a store with 250 records of a feed that was read whole, one of which is gone, all settled by a sink."""
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON, epoch="epoch")
    for feed in (FEED, OTHER):
        state = await store.feed(feed).open()
        await store.feed(state.feed).save_shape(Shape(("/id",), None, None), proven=True)
        await close_pass(store, state)
    await store.sink("mirror").enroll("beginning")
    state = await store.feed(FEED).open()
    await commit(store, state, *({"id": f"k{number}", "x": 0, "secret": 1} for number in range(250)))
    await close_pass(store, state, suspected=[2])
    await delete_records(store, state, 2)
    await settle(store, 251)
    yield store
    await store.aclose()


async def settle(store: SqliteStore, position: int) -> None:
    await store.sink("mirror").settle(Settlement(positions={FEED: position}))


def make_shelf(store: SqliteStore, wants: Callable[[Feed], bool] = lambda _: True) -> StoredRetainedState:
    def render(raw: bytes) -> bytes:
        return json.dumps({name: value for name, value in json.loads(raw).items() if name != "secret"}).encode()

    return StoredRetainedState("mirror", store, wants=wants, render=render)


async def read(retained_state: StoredRetainedState, mark: str) -> Mapping[str, bytes | None]:
    return {kept.key: kept.body async for portion in retained_state.read_since(mark) for kept in portion}


async def test_a_receiver_that_is_where_the_sink_is_lacks_nothing(store: SqliteStore) -> None:
    retained_state = make_shelf(store)
    mark, must_read = await retained_state.mark("")
    assert must_read
    assert await read(retained_state, mark) == {}
    assert await retained_state.mark(mark) == (mark, False)


async def test_a_receiver_lacks_what_has_changed_since_its_mark_as_it_is_now_and_as_the_sink_may_see_it(
    store: SqliteStore,
) -> None:
    retained_state = make_shelf(store)
    mark, _ = await retained_state.mark("")
    state = await store.feed(FEED).open()
    await commit(store, state, {"id": "k7", "x": 1, "secret": 1})
    await commit(store, state, {"id": "k7", "x": 2, "secret": 1})
    await close_pass(store, state, suspected=[4])
    await delete_records(store, state, 4)
    assert await read(retained_state, mark) == {"k7": b'{"id": "k7", "x": 2}', "k3": None}
    assert (await retained_state.mark(mark))[0] == mark  # what is not settled is owed, and comes anyway
    await settle(store, 254)
    assert await read(retained_state, (await retained_state.mark(mark))[0]) == {}


@pytest.mark.parametrize("mark", ["", "{", "[]", '{"epoch": "epoch"}', '{"epoch": "epoch", "settled": {"x": 1}}'])
async def test_a_receiver_whose_mark_says_nothing_lacks_all_and_the_end_of_what_is_gone(
    store: SqliteStore, mark: str
) -> None:
    lacking = await read(make_shelf(store), mark)
    assert len(lacking) == 250
    assert lacking["k1"] is None
    assert lacking["k0"] == b'{"id": "k0", "x": 0}'


async def test_a_mark_of_another_life_of_the_store_or_from_before_the_kept_events_says_nothing(
    store: SqliteStore,
) -> None:
    retained_state = make_shelf(store)
    mark, _ = await retained_state.mark("")
    assert len(await read(retained_state, mark.replace('"epoch": "epoch"', '"epoch": "other"'))) == 250
    assert len(await read(retained_state, mark.replace("251", "9999"))) == 250
    await commit(store, await store.feed(FEED).open(), {"id": "k7", "x": 1})
    await store.retention.prune_events(later(days=1), [], 1000)
    assert len(await read(retained_state, mark)) == 250
    assert (await retained_state.mark(mark))[1]


async def test_feeds_that_the_sink_does_not_take_are_left_out(store: SqliteStore) -> None:
    retained_state = make_shelf(store, wants=lambda feed: feed == OTHER)
    assert await read(retained_state, "") == {}
    assert str(FEED) not in (await retained_state.mark(""))[0]


async def test_a_mark_is_not_beyond_a_blocked_key_whose_state_the_receiver_lacks(store: SqliteStore) -> None:
    retained_state = make_shelf(store)
    await commit(store, await store.feed(FEED).open(), {"id": "k7", "x": 1}, {"id": "k8", "x": 1})
    blocked = {(FEED, "k7"): Blocked(FEED, "k7", 252, 1, NOON)}
    await store.sink("mirror").settle(Settlement(positions={FEED: 253}, blocked=blocked))
    mark, _ = await retained_state.mark("")
    await store.sink("mirror").settle(Settlement(freed={(FEED, "k7")}))
    assert set(await read(retained_state, mark)) == {"k7", "k8"}


async def test_a_mark_says_nothing_of_a_feed_while_the_sink_is_told_of_it(store: SqliteStore) -> None:
    await store.sink("new").enroll("state")
    retained_state = StoredRetainedState("new", store, wants=lambda _: True, render=bytes)
    mark, must_read = await retained_state.mark("")
    assert not must_read
    await store.sink("new").settle(Settlement(backfilled_to={FEED: None, OTHER: None}))
    assert len(await read(retained_state, mark)) == 250


async def test_a_key_that_is_blocked_for_longer_than_events_are_kept_makes_nothing_be_read_again_and_again(
    store: SqliteStore,
) -> None:
    await commit(store, await store.feed(FEED).open(), {"id": "k7", "x": 1}, {"id": "k8", "x": 1})
    blocked = {(FEED, "k7"): Blocked(FEED, "k7", 252, 1, NOON, held=True)}
    await store.sink("mirror").settle(Settlement(positions={FEED: 253}, blocked=blocked))
    await store.retention.prune_events(later(days=1), ["mirror"], 1000)
    retained_state = make_shelf(store)
    mark, _ = await retained_state.mark("")
    assert await retained_state.mark(mark) == (mark, False)
