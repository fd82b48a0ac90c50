"""A record whose content is erased: nothing of it is left in any file, and all numbers go on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest

from dockbell.core.comparing.deletion_rules import purge
from dockbell.core.comparing.page_diff import PURGED, Bad, Finding, PageDiff
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Feed, Key, Via
from dockbell.core.publishing.settlement import StartOffset
from dockbell.core.reading.shape import Shape
from dockbell.errors import StoreUnavailable
from dockbell.ports import FeedState, Purged
from dockbell.stores.handles.store import SqlStore
from tests.fakes import NOON
from tests.stores.pages import COMPOSE, DETAILED, FEED, close_pass, commit, delete_records, later
from tests.stores.places import Place, open_read_store, open_store
from tests.stores.standings import dump, read, write

CANARY: Final = "canary@example.com"


@pytest.fixture
async def store(place: Place) -> AsyncIterator[SqlStore]:
    store = await open_store(place, now=lambda: NOON)
    yield store
    await store.aclose()


@pytest.fixture
async def state(store: SqlStore) -> FeedState:
    state = await store.feed(FEED).open()
    await store.feed(state.feed).save_shape(Shape(("/id",), "/at", None), proven=True)
    return state


async def erase(store: SqlStore, key: str = "a", feed: Feed = FEED) -> Purged:
    return await store.privacy.purge(feed, key, partial(purge, feed), COMPOSE)


def is_found(place: Place, canary: str = CANARY) -> bool:
    """Return whether the canary is in a table of the store; or in its files, where it is in files."""
    files = place.parent.glob(f"{place.name}*") if isinstance(place, Path) else ()
    return canary in repr(dump(place)) or any(canary.encode() in file.read_bytes() for file in files)


async def told(store: SqlStore, key: str = "a") -> list[dict[str, Any]]:
    """Return what the events of a record say."""
    return [json.loads(event.body) for event in await store.read_events(FEED, 0, 100, key=key)]


async def test_nothing_of_a_record_is_left_but_its_numbers(place: Place, store: SqlStore, state: FeedState) -> None:
    for number in range(3):
        await commit(store, state, {"id": "a", "mail": CANARY, "n": number, "at": "2026-11-21T11:59:00Z"})
    await commit(store, state, {"id": "b", "mail": "b@example.com"})
    before = await told(store)
    purged = await erase(store)
    await store.privacy.wipe()
    assert (purged.is_known, purged.events) == (True, 3)
    assert not is_found(place)
    after = await told(store)
    numbers = ("id", "sequence", "type", "time", "subject")
    assert [[each[name] for name in numbers] for each in after[:3]] == [
        [each[name] for name in numbers] for each in before
    ]
    assert all(each["data"]["purged"] for each in after[:3])
    assert [each["data"]["revision"] for each in after] == [1, 2, 3, 4]
    last = after[3]["data"]
    assert (last["change"], last["reason"], last["before"], last["after"]) == ("deleted", "purged", None, None)
    (row,) = read(
        place, "SELECT raw_hash, fingerprint, revision, superseded, modified, gone_at FROM records WHERE key = 'a'"
    )
    assert row[:4] == (PURGED, PURGED, 4, None)
    assert row[4] is not None
    assert row[5] is not None
    assert {each for (each,) in read(place, "SELECT fingerprint FROM notes WHERE key = 'a'")} == {None}
    assert is_found(place, "b@example.com")


async def test_what_is_held_waits_or_cannot_be_read_is_erased_too(
    place: Place, store: SqlStore, state: FeedState
) -> None:
    await commit(store, state, {"id": "a", "mail": CANARY, "n": 1, "at": "2026-11-21T11:59:00Z"}, detector=DETAILED)
    stale = {"id": "a", "mail": f"old-{CANARY}", "n": 0, "at": "2026-11-21T11:50:00Z"}
    await commit(store, state, stale, stale_window=later(minutes=5) - NOON)

    def spoil(_: object) -> PageDiff:
        return PageDiff(bad=[Bad(b"1" * 16, "a", "bad", f'{{"mail":"{CANARY}"'.encode())])

    await store.feed(state.feed).commit_page(spoil, COMPOSE, via=Via.POLL)
    (counted,) = read(
        place,
        "SELECT (SELECT count(*) FROM holds), (SELECT count(*) FROM details), (SELECT count(*) FROM quarantine)",
    )
    assert counted == (1, 1, 1)
    await erase(store)
    await store.privacy.wipe()
    assert not is_found(place)
    assert (await store.feed(FEED).open()).quarantined == 0
    assert read(place, "SELECT held FROM records") == [(0,)]


async def test_a_record_that_was_purged_is_told_of_once_and_comes_back_restored(
    store: SqlStore, state: FeedState
) -> None:
    await commit(store, state, {"id": "a", "n": 1})
    assert (await erase(store)).change is not None
    again = await erase(store)
    assert again == Purged(is_known=True, events=0, change=None)
    await commit(store, state, {"id": "a", "n": 1})
    assert [(each["data"]["change"], each["data"]["revision"]) for each in await told(store)] == [
        ("created", 1),
        ("deleted", 2),
        ("restored", 3),
    ]
    assert (await erase(store)).events == 1


async def test_a_deleted_record_is_purged_too(place: Place, store: SqlStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "mail": CANARY})
    await close_pass(store, state, suspected=[1])
    await delete_records(store, state, 1)
    assert (await erase(store)).events == 2
    await store.privacy.wipe()
    assert not is_found(place)
    assert [(each["data"]["change"], each["data"].get("reason")) for each in await told(store)] == [
        ("created", None),
        ("deleted", "absent"),
        ("deleted", "purged"),
    ]


async def test_a_purge_counts_for_no_deletion_by_the_api(store: SqlStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await close_pass(store, state, suspected=[2])
    await delete_records(store, state, 2)
    await erase(store)
    assert await store.feed(state.feed).count_deleted(later(hours=-1)) == 1
    assert (await store.feed(state.feed).find_absent(SeenRows(10))).rows == []


async def test_nobody_is_told_of_a_record_that_was_only_met(store: SqlStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "at": "2026-11-21T12:30:00Z"}, provisional=True)
    assert (await erase(store)).change is None
    assert await told(store) == []
    await commit(store, state, {"id": "a", "at": "2026-11-21T12:30:00Z"})
    assert [(each["data"]["change"], each["data"]["revision"]) for each in await told(store)] == [("created", 1)]


async def test_what_was_stored_under_another_key_of_the_feed_is_erased(
    place: Place, store: SqlStore, state: FeedState
) -> None:
    await commit(store, state, {"id": "a", "mail": CANARY})
    write(place, "UPDATE records SET key = ' ' || row || ' ' || key")
    purged = await erase(store)
    assert (purged.is_known, purged.change) == (True, None)
    await store.privacy.wipe()
    assert not is_found(place)


async def test_of_an_unknown_record_nothing_comes(store: SqlStore, state: FeedState) -> None:
    await commit(store, state, {"id": "b"})
    assert await erase(store, "a") == await erase(store, feed=Feed("x", "stock")) == Purged()
    assert store.purges == 0
    assert await told(store) == []


@pytest.mark.parametrize(("body", "key"), [(b'{"id":"a","n":7}', ["a", 7]), (b"", ["a", "7"])])
async def test_its_key_is_told_as_the_api_writes_it_while_that_is_known(
    place: Place, store: SqlStore, body: bytes, key: list[object]
) -> None:
    state = await store.feed(FEED).open()
    await store.feed(state.feed).save_shape(Shape(("/id", "/n"), None, None), proven=True)
    write(
        place,
        "INSERT INTO records (row, feed, key, raw_hash, fingerprint, revision) VALUES (1, ?, 'a,7', ?, ?, 1)",
        *(state.id, b"1" * 16, b"1" * 16),
    )
    if body:
        write(place, "INSERT INTO bodies VALUES (?, 1, ?)", state.id, body)
    change = (await erase(store, "a,7")).change
    assert change is not None
    assert change.key == Key("a,7", key)


async def test_a_sink_that_begins_with_the_state_is_not_told_what_was_purged_since(
    store: SqlStore, state: FeedState
) -> None:
    await commit(store, state, {"id": "a", "mail": CANARY}, {"id": "b"})
    await close_pass(store, state)
    beginning = StartOffset(2, NOON)
    await commit(store, state, {"id": "a", "mail": CANARY, "n": 2})
    await erase(store)
    found = await store.sink("erp").read_backfill(FEED, beginning, 0, 10)
    assert found is not None
    assert [each.key.text for each in found[0]] == ["b"]
    assert await store.sink("erp").find_backfilled(FEED, beginning, "a") is None
    (kept, _) = await store.read_stored(FEED, 0, 10)
    assert [(each.key, each.revision, each.body is None) for each in kept] == [("a", 3, True), ("b", 1, False)]


async def test_why_shows_that_a_record_was_purged(place: Place, store: SqlStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})
    await erase(store)
    read_store = await open_read_store(place)
    try:
        record = await read_store.find_record(state.id, "a")
        notes = await read_store.read_notes(state.id, "a", 10)
    finally:
        await read_store.aclose()
    assert record is not None
    assert record.is_purged
    assert (notes[-1].finding, notes[-1].via, notes[-1].sequence) == (Finding.PURGED, Via.OPERATOR, 2)


async def test_a_purge_without_an_answer_is_counted_for_it_may_have_been_committed(
    store: SqlStore, state: FeedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(store, state, {"id": "a"})
    write = store.engine.write

    async def lose_the_answer(*args: Any, **more: Any) -> None:
        await write(*args, **more)
        raise StoreUnavailable("connection lost")

    monkeypatch.setattr(store.engine, "write", lose_the_answer)
    with pytest.raises(StoreUnavailable):
        await erase(store)
    assert store.purges == 1


async def test_a_purge_is_counted_before_anything_can_be_sent(store: SqlStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": CANARY})
    rings, counts = store.outbox.rings, []

    async def relay() -> None:
        await store.outbox.wait(rings)
        counts.append(store.purges)

    async with anyio.create_task_group() as group:
        group.start_soon(relay)
        await anyio.lowlevel.checkpoint()
        await erase(store)
    assert counts == [1]


async def test_a_purge_beside_the_opening_of_its_feed_ends_nobodys_lease(place: Place) -> None:
    first = await open_store(place, now=lambda: NOON)
    await commit(first, await first.feed(FEED).open(), {"id": "a"}, {"id": "b"})
    await first.aclose()
    store = await open_store(place, now=lambda: NOON)
    async with anyio.create_task_group() as group:
        group.start_soon(store.feed(FEED).open)
        group.start_soon(erase, store)
    await commit(store, await store.feed(FEED).open(), {"id": "b", "n": 2})
    await store.aclose()


async def test_a_purge_makes_no_feed(store: SqlStore) -> None:
    assert await erase(store, feed=Feed("main", "items")) == Purged()
    assert Feed("main", "items") not in store.outbox.ends
