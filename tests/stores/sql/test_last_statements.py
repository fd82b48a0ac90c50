from __future__ import annotations

from dockbell.core.model import Statement, StatementKind
from dockbell.stores.handles.read_store import SqlReadStore
from tests.fakes import NOON
from tests.stores.pages import COMPOSE, FEED, OTHER, commit
from tests.stores.places import Place, open_read_store, open_store


async def test_the_last_gap_of_each_feed_is_found(place: Place) -> None:
    store = await open_store(place, now=lambda: NOON)
    read_store: SqlReadStore = await open_read_store(place)
    state = await store.feed(FEED).open()
    for number in (1, 2):
        gap = Statement(FEED, StatementKind.GAP, NOON, {"from": None, "to": NOON.isoformat(), "reason": f"{number}"})
        await store.feed(FEED).publish([gap], COMPOSE)
        await commit(store, state, {"id": f"record-{number}"})
    await store.feed(OTHER).open()
    found = await read_store.find_last(StatementKind.GAP)
    assert {feed: event.sequence for feed, event in found.items()} == {FEED: 3}
    assert await read_store.find_last(StatementKind.HELD) == {}
    await read_store.aclose()
    await store.aclose()
