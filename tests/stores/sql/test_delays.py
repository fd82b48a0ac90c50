from __future__ import annotations

from datetime import timedelta

from dockbell.core.delays import QUARTER, MeasuredDelays
from dockbell.core.model import Feed
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER
from tests.stores.places import Place, open_read_store, open_store

SECOND = timedelta(seconds=1)


async def read(place: Place) -> list[MeasuredDelays]:
    read_store = await open_read_store(place)
    try:
        return list(await read_store.read_delays(NOON))
    finally:
        await read_store.aclose()


async def test_delays_of_one_quarter_are_added_up(place: Place) -> None:
    store = await open_store(place, now=lambda: NOON)
    await store.add_feeds([FEED, OTHER])
    await store.health.note_delays([MeasuredDelays(FEED, "erp", NOON, {3: 1, 7: 2}, SECOND, 2 * SECOND)])
    await store.health.note_delays(
        [
            MeasuredDelays(FEED, "erp", NOON, {7: 1, 9: 1}, SECOND, 3 * SECOND),
            MeasuredDelays(OTHER, "erp", NOON, {1: 1}),
            MeasuredDelays(Feed("gone", "items"), "erp", NOON, {1: 1}),
            MeasuredDelays(FEED, "erp", NOON - QUARTER, {1: 1}),
        ]
    )
    assert await read(place) == [
        MeasuredDelays(FEED, "erp", NOON, {3: 1, 7: 3, 9: 1}, 2 * SECOND, 5 * SECOND),
        MeasuredDelays(OTHER, "erp", NOON, {1: 1}),
    ]
    # Where no plan predicted a part of them, none is predicted of the whole.
    await store.health.note_delays([MeasuredDelays(FEED, "erp", NOON, {3: 1})])
    assert [each.predicted for each in await read(place)] == [None, None]
    await store.aclose()


async def test_old_delays_are_deleted_in_portions(place: Place) -> None:
    store = await open_store(place, now=lambda: NOON)
    await store.add_feeds([FEED])
    await store.health.note_delays([MeasuredDelays(FEED, "erp", NOON + each * QUARTER, {1: 1}) for each in range(5)])
    deleted = [await store.retention.prune_delays(NOON + 3 * QUARTER, 2) for _ in range(3)]
    assert deleted == [2, 1, 0]
    assert len(await read(place)) == 2
    await store.aclose()
