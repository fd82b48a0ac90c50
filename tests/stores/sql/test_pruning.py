"""What may go, what a sink that is overrun loses, and what one is told that was away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from dockbell.core.publishing.settlement import Blocked, DeadLetter, Settlement, StartOffset
from dockbell.core.reading.shape import Shape
from dockbell.stores.handles.store import SqlStore
from tests.fakes import NOON, Clock
from tests.stores.pages import FEED, OTHER, close_pass, commit, later
from tests.stores.places import Place, open_store
from tests.stores.standings import read, write

EPOCH = datetime.fromtimestamp(0, NOON.tzinfo)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(place: Place, clock: Clock) -> AsyncIterator[SqlStore]:
    """Return a store with six events, an hour apart, of the keys a, b, c in turn, and a sink that owes them all."""
    store = await open_store(place, now=clock)
    state = await store.feed(FEED).open()
    await store.feed(OTHER).open()
    await store.feed(state.feed).save_shape(Shape(("/id",), None, None), proven=True)
    await store.sink("erp").enroll("beginning")
    for number in range(6):
        await commit(store, state, {"id": "abc"[number % 3], "x": number})
        clock.pass_(3600)
    await close_pass(store, state)
    yield store
    await store.aclose()


async def kept(store: SqlStore) -> list[int]:
    return [event.sequence for event in await store.read_events(FEED, 0, 100)]


def blocked(key: str, sequence: int, *, held: bool = False) -> Settlement:
    return Settlement(positions={FEED: 6}, blocked={(FEED, key): Blocked(FEED, key, sequence, 1, NOON, held=held)})


# Pruning -------------------------------------------------------------------------------------------------------------


async def test_blocked_keys_dead_letters_and_replays_keep_their_events_and_no_others(
    place: Place, store: SqlStore
) -> None:
    settlement = blocked("a", 1)
    settlement.dead.append(DeadLetter(FEED, "b", 2, 1, NOON, "HTTP 422"))
    await store.sink("erp").settle(settlement)
    write(place, "INSERT INTO replays (sink, feed, sequence, key) VALUES ('erp', 1, 6, 'c')")
    assert await store.retention.prune_events(later(days=9), ["erp"], 100) == 2
    assert await kept(store) == [1, 2, 4, 6]
    assert (await store.find_extents())[FEED].pruned == 5


async def test_what_is_recorded_after_the_first_young_event_is_not_pruned(store: SqlStore) -> None:
    assert await store.retention.prune_events(later(hours=2), [], 100) == 2
    assert await kept(store) == [3, 4, 5, 6]
    assert await store.retention.prune_events(later(hours=9), [], 3) == 3
    assert await kept(store) == [6]


# Sinks that are overrun ----------------------------------------------------------------------------------------------


async def test_a_sink_loses_what_it_owes_where_the_oldest_of_it_is_too_old(store: SqlStore) -> None:
    assert await store.sink("erp").overrun(NOON) == {}
    assert await store.sink("erp").overrun(later(seconds=1)) == {FEED: NOON}
    assert (await store.sink("erp").load_starts())[FEED] == StartOffset(6, later(hours=6), 0, NOON)
    assert (await store.sink("erp").load_starts())[OTHER].backfilled_to is None
    assert await store.sink("erp").load_queue() == ({FEED: 6, OTHER: 0}, [])
    assert await store.sink("erp").overrun(later(days=99)) == {}


async def test_a_blocked_key_alone_makes_no_sink_lose_events(store: SqlStore) -> None:
    await store.sink("erp").settle(blocked("a", 1))
    assert await store.retention.find_owing(["erp"], later(days=99)) == []
    assert await store.sink("erp").overrun(later(days=99)) == {}
    assert len((await store.sink("erp").load_queue())[1]) == 1


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(("sequence", "hours"), [(1, 0), (2, 3), (4, 3)])
async def test_what_is_lost_begins_with_what_the_blocked_keys_were_owed(
    store: SqlStore, sequence: int, hours: int, *, held: bool
) -> None:
    """An entry may have the number after one that is settled, which is another key's."""
    entry = blocked("a", sequence, held=held)
    entry.positions[FEED] = 4
    await store.sink("erp").settle(entry)
    assert await store.sink("erp").overrun(later(hours=9)) == {FEED: later(hours=hours)}
    assert (await store.sink("erp").load_queue())[1] == []


async def test_a_sink_that_loses_events_again_is_told_since_the_first_until_it_knows_of_all(
    place: Place, store: SqlStore
) -> None:
    assert await store.sink("erp").overrun(later(hours=1)) == {FEED: NOON}
    write(place, "UPDATE positions SET sequence = 4, origin = 4 WHERE feed = 1")  # as if two more came since
    assert await store.sink("erp").overrun(later(days=99)) == {FEED: NOON}
    await store.sink("erp").settle(Settlement(backfilled_to={FEED: None}, blocked=blocked("a", 6).blocked))
    write(place, "UPDATE positions SET sequence = 4 WHERE feed = 1")
    assert await store.sink("erp").overrun(later(days=99)) == {FEED: NOON}
    await store.sink("erp").settle(Settlement(backfilled_to={FEED: None}))
    write(place, "UPDATE positions SET sequence = 4 WHERE feed = 1")
    assert await store.sink("erp").overrun(later(days=99)) == {FEED: later(hours=4)}


async def test_a_key_that_waits_for_an_operator_makes_no_sink_lose_events(store: SqlStore) -> None:
    await store.sink("erp").settle(blocked("a", 1, held=True))
    assert await store.retention.find_owing(["erp"], later(days=99)) == []
    assert await store.sink("erp").overrun(later(days=99)) == {}
    assert len((await store.sink("erp").load_queue())[1]) == 1


async def test_dead_letters_that_are_too_old_are_forgotten_and_what_was_held_behind_them_goes_on(
    store: SqlStore,
) -> None:
    old, young = (
        DeadLetter(FEED, key, number, 3, later(days=day), "x") for key, number, day in (("a", 1, 0), ("b", 3, 2))
    )
    held = {(FEED, each.key): Blocked(FEED, each.key, each.sequence, 3, NOON, "x", held=True) for each in (old, young)}
    await store.sink("erp").settle(Settlement(positions={FEED: 6}, blocked=held, dead=[old, young]))
    assert await store.retention.forget_letters(later(days=1)) == {"erp": 1}
    _, entries = await store.sink("erp").load_queue()
    assert {(each.key, each.sequence, each.attempts, each.held) for each in entries} == {
        ("a", 2, 0, False),
        ("b", 3, 3, True),
    }
    assert await store.retention.forget_letters(later(days=1)) == {}


async def test_a_stored_record_that_waits_is_not_old_because_its_last_event_is(store: SqlStore) -> None:
    await store.sink("new").enroll("state")
    await store.sink("new").settle(blocked("c", 6))
    assert await store.sink("new").overrun(later(days=9)) == {}


async def test_the_sinks_that_owe_old_events_are_found_the_oldest_first(store: SqlStore) -> None:
    await store.sink("late").enroll("beginning")
    await store.sink("late").settle(Settlement(positions={FEED: 1}))
    assert await store.retention.find_owing(["late"], later(hours=1)) == []
    assert await store.retention.find_owing(["late", "erp"], later(hours=2)) == ["erp", "late"]
    assert await store.retention.find_owing([], later(hours=9)) == []


async def test_what_was_settled_of_an_earlier_beginning_is_not_saved_but_for_single_events(
    place: Place, store: SqlStore
) -> None:
    await store.sink("erp").overrun(later(days=1))
    stale = blocked("a", 1)
    stale.backfilled_to[FEED] = None
    stale.dead.append(DeadLetter(FEED, "b", 2, 1, NOON, "HTTP 422"))
    stale.origins = {FEED: 0, OTHER: 0}
    stale.positions[FEED] = 9
    await store.sink("erp").settle(stale)
    assert await store.sink("erp").load_queue() == ({FEED: 6, OTHER: 0}, [])
    assert (await store.sink("erp").load_starts())[FEED].backfilled_to == 0
    assert read(place, "SELECT sequence FROM dead_letters") == [(2,)]


# Sinks that were away ------------------------------------------------------------------------------------------------


async def test_a_sink_that_was_away_while_its_events_were_pruned_begins_again_with_the_state(
    store: SqlStore,
) -> None:
    await store.sink("erp").settle(Settlement(positions={FEED: 2}))
    await store.retention.prune_events(later(hours=2), [], 100)
    assert await store.sink("erp").enroll("now") == []
    await store.retention.prune_events(later(hours=3), [], 100)
    assert await store.sink("erp").enroll("now") == [FEED]
    assert (await store.sink("erp").load_starts())[FEED] == StartOffset(6, later(hours=6), 0, EPOCH)
    assert await store.sink("erp").enroll("now") == []


@pytest.mark.parametrize(("sequence", "is_lost"), [(1, True), (4, True), (5, False)])
async def test_a_sink_that_was_away_has_lost_what_its_blocked_keys_owed(
    store: SqlStore, sequence: int, is_lost: bool
) -> None:
    """Its position is behind all events: only its entries tell."""
    await store.sink("erp").settle(blocked("a", sequence))
    assert await store.retention.prune_events(later(days=9), ["other"], 100) == 6
    assert await store.sink("erp").enroll("now") == ([FEED] if is_lost else [])


async def test_a_sink_that_stayed_loses_nothing_though_events_behind_its_blocked_keys_are_gone(
    store: SqlStore,
) -> None:
    await store.sink("erp").settle(blocked("a", 1))
    assert await store.retention.prune_events(later(days=9), ["erp"], 100) == 4
    assert await store.sink("erp").enroll("now") == []


async def test_a_sink_that_begins_with_the_kept_events_has_lost_none(store: SqlStore) -> None:
    await store.retention.prune_events(later(hours=2), [], 100)
    for _ in range(2):
        assert await store.sink("new").enroll("beginning") == []
    assert (await store.sink("new").load_queue())[0][FEED] == 2
