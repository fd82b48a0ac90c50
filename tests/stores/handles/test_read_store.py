"""What is seen of a store beside the process that holds it."""

from __future__ import annotations

from dockbell.app import now
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.publishing.settlement import Blocked, Settlement
from dockbell.ports import Checkpoint, Reached
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER, commit
from tests.stores.places import Place, open_read_store, open_store


async def test_a_store_can_be_looked_at_while_it_is_held(place: Place) -> None:
    store = await open_store(place, now=now)
    await store.feed(FEED).open()
    await store.sink("screen").enroll("now")
    read_store = await open_read_store(place)
    assert await read_store.load_feeds() == [await store.feed(FEED).open()]
    assert [(sink.name, sink.owed) for sink in await read_store.load_sinks()] == [("screen", 0)]
    assert await read_store.count_records() == {FEED: 0}
    assert await read_store.read_latest(-10, 10) == []
    assert read_store.epoch == store.epoch
    await read_store.aclose()
    await store.aclose()


async def test_a_blocked_key_owes_its_events_though_the_position_has_passed_them(place: Place) -> None:
    store = await open_store(place, now=now)
    state = await store.feed(FEED).open()
    await store.sink("erp").enroll("beginning")
    for record in ({"id": "a"}, {"id": "a", "n": 1}, {"id": "b"}):
        await commit(store, state, record)
    await store.sink("erp").settle(Settlement({FEED: 2}, {(FEED, "a"): Blocked(FEED, "a", 1, 1, now(), "HTTP 500")}))
    read_store = await open_read_store(place)
    (sink,) = await read_store.load_sinks()
    assert (sink.owed, sink.blocked, sink.error) == (3, 1, "HTTP 500")
    await read_store.aclose()
    await store.aclose()


async def test_the_latest_events_are_told_in_the_order_in_which_they_were_recorded(place: Place) -> None:
    store = await open_store(place, now=now)
    for feed in (FEED, OTHER, FEED):
        await commit(store, await store.feed(feed).open(), {"id": "a", "n": store.outbox.rings})
    read_store = await open_read_store(place)
    latest = await read_store.read_latest(-2, 10)
    assert [(place, event.feed, event.sequence) for place, event in latest] == [(2, OTHER, 1), (3, FEED, 2)]
    assert await read_store.read_latest(2, 10) == latest[1:]
    await read_store.aclose()
    await store.aclose()


async def test_how_far_a_pass_has_come_is_seen_from_beside(place: Place) -> None:
    store = await open_store(place, now=lambda: NOON)
    state = await store.feed(FEED).open()
    await store.feed(OTHER).open()
    read_store = await open_read_store(place)
    assert await read_store.load_reached() == {}
    walk = b'{"pages": 100, "records": 20000, "events": 3}'
    await store.feed(state.feed).save_checkpoint(Checkpoint("c", walk, SeenRows(3), SeenRows(3), NOON))
    assert await read_store.load_reached() == {FEED: Reached(100, 20_000, 3, NOON)}
    await read_store.aclose()
    await store.aclose()
