"""A record whose content is erased: nothing of it is left in any file, and all numbers go on."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

from dockbell.core.comparing.deletion_rules import purge
from dockbell.core.comparing.page_diff import PURGED, Bad, Finding, PageDiff
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Feed, Key, Via
from dockbell.core.publishing.settlement import StartOffset
from dockbell.core.reading.shape import Shape
from dockbell.ports import FeedState, Purged
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from dockbell.stores.sqlite.wiping import wipe
from tests.fakes import NOON
from tests.stores.pages import COMPOSE, DETAILED, FEED, OTHER, close_pass, commit, delete_records, later
from tests.stores.standings import read

CANARY: Final = "canary@example.com"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON, epoch="epoch")
    yield store
    await store.aclose()


@pytest.fixture
async def state(store: SqliteStore) -> FeedState:
    state = await store.feed(FEED).open()
    await store.feed(state.feed).save_shape(Shape(("/id",), "/at", None), proven=True)
    return state


async def erase(store: SqliteStore, key: str = "a", feed: Feed = FEED) -> Purged:
    return await store.privacy.purge(feed, key, partial(purge, feed), COMPOSE)


def is_found(store: SqliteStore, canary: str = CANARY) -> bool:
    """Return whether the canary is in a file of the store."""
    return any(canary.encode() in path.read_bytes() for path in store.path.parent.glob("dockbell.db*"))


async def told(store: SqliteStore, key: str = "a") -> list[dict[str, Any]]:
    """Return what the events of a record say."""
    return [json.loads(event.body) for event in await store.read_events(FEED, 0, 100, key=key)]


async def test_nothing_of_a_record_is_left_but_its_numbers(store: SqliteStore, state: FeedState) -> None:
    for number in range(3):
        await commit(store, state, {"id": "a", "mail": CANARY, "n": number, "at": "2026-11-21T11:59:00Z"})
    await commit(store, state, {"id": "b", "mail": "b@example.com"})
    before = await told(store)
    purged = await erase(store)
    assert await store.privacy.wipe() == ""
    assert (purged.is_known, purged.events) == (True, 3)
    assert not is_found(store)
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
        store.path, "SELECT raw_hash, fingerprint, revision, superseded, modified, gone_at FROM records WHERE key = 'a'"
    )
    assert row[:4] == (PURGED, PURGED, 4, None)
    assert row[4] is not None
    assert row[5] is not None
    assert {each for (each,) in read(store.path, "SELECT fingerprint FROM notes WHERE key = 'a'")} == {None}
    assert is_found(store, "b@example.com")


async def test_what_is_held_waits_or_cannot_be_read_is_erased_too(store: SqliteStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "mail": CANARY, "n": 1, "at": "2026-11-21T11:59:00Z"}, detector=DETAILED)
    stale = {"id": "a", "mail": f"old-{CANARY}", "n": 0, "at": "2026-11-21T11:50:00Z"}
    await commit(store, state, stale, stale_window=later(minutes=5) - NOON)

    def spoil(_: object) -> PageDiff:
        return PageDiff(bad=[Bad(b"1" * 16, "a", "bad", f'{{"mail":"{CANARY}"'.encode())])

    await store.feed(state.feed).commit_page(spoil, COMPOSE, via=Via.POLL)
    (counted,) = read(
        store.path,
        "SELECT (SELECT count(*) FROM holds), (SELECT count(*) FROM details), (SELECT count(*) FROM quarantine)",
    )
    assert counted == (1, 1, 1)
    await erase(store)
    await store.privacy.wipe()
    assert not is_found(store)
    assert (await store.feed(FEED).open()).quarantined == 0
    assert read(store.path, "SELECT held FROM records") == [(0,)]


async def test_a_record_that_was_purged_is_told_of_once_and_comes_back_restored(
    store: SqliteStore, state: FeedState
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


async def test_a_deleted_record_is_purged_too(store: SqliteStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "mail": CANARY})
    await close_pass(store, state, suspected=[1])
    await delete_records(store, state, 1)
    assert (await erase(store)).events == 2
    await store.privacy.wipe()
    assert not is_found(store)
    assert [(each["data"]["change"], each["data"].get("reason")) for each in await told(store)] == [
        ("created", None),
        ("deleted", "absent"),
        ("deleted", "purged"),
    ]


async def test_a_purge_counts_for_no_deletion_by_the_api(store: SqliteStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await close_pass(store, state, suspected=[2])
    await delete_records(store, state, 2)
    await erase(store)
    assert await store.feed(state.feed).count_deleted(later(hours=-1)) == 1
    assert (await store.feed(state.feed).find_absent(SeenRows(10))).rows == []


async def test_nobody_is_told_of_a_record_that_was_only_met(store: SqliteStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "at": "2026-11-21T12:30:00Z"}, provisional=True)
    assert (await erase(store)).change is None
    assert await told(store) == []
    await commit(store, state, {"id": "a", "at": "2026-11-21T12:30:00Z"})
    assert [(each["data"]["change"], each["data"]["revision"]) for each in await told(store)] == [("created", 1)]


async def test_what_was_stored_under_another_key_of_the_feed_is_erased(store: SqliteStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "mail": CANARY})
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE records SET key = ' ' || row || ' ' || key")
    purged = await erase(store)
    assert (purged.is_known, purged.change) == (True, None)
    await store.privacy.wipe()
    assert not is_found(store)


async def test_only_the_rows_of_the_record_are_read(store: SqliteStore, state: FeedState) -> None:
    await commit(store, state, *[{"id": f"k{number}"} for number in range(3000)])
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    store.engine.writer.set_progress_handler(count, 100)
    assert (await erase(store, "k1234")).is_known
    store.engine.writer.set_progress_handler(None, 0)
    assert steps < 30, "hundreds of instructions, where reading all rows is tens of thousands"


async def test_of_an_unknown_record_nothing_comes(store: SqliteStore, state: FeedState) -> None:
    await commit(store, state, {"id": "b"})
    assert await erase(store, "a") == await erase(store, feed=Feed("x", "stock")) == Purged()
    assert store.purges == 0
    assert await told(store) == []


async def test_its_key_is_told_as_the_api_writes_it_while_that_is_known(store: SqliteStore) -> None:
    state = await store.feed(FEED).open()
    await store.feed(state.feed).save_shape(Shape(("/id", "/n"), None, None), proven=True)
    for body, key in ((b'{"id":"a","n":7}', ["a", 7]), (b"", ["a", "7"])):
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.execute("DELETE FROM records")
            connection.execute("DELETE FROM bodies")
            connection.execute(
                "INSERT INTO records (row, feed, key, raw_hash, fingerprint, revision) VALUES (1, ?, 'a,7', ?, ?, 1)",
                (state.id, b"1" * 16, b"1" * 16),
            )
            if body:
                connection.execute("INSERT INTO bodies VALUES (?, 1, ?)", (state.id, body))
        change = (await erase(store, "a,7")).change
        assert change is not None
        assert change.key == Key("a,7", key)


async def test_a_sink_that_begins_with_the_state_is_not_told_what_was_purged_since(
    store: SqliteStore, state: FeedState
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


async def test_why_shows_that_a_record_was_purged(store: SqliteStore, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})
    await erase(store)
    read_store = await SqliteReadStore.open(store.path)
    try:
        record = await read_store.find_record(state.id, "a")
        notes = await read_store.read_notes(state.id, "a", 10)
    finally:
        await read_store.aclose()
    assert record is not None
    assert record.is_purged
    assert (notes[-1].finding, notes[-1].via, notes[-1].sequence) == (Finding.PURGED, Via.OPERATOR, 2)


async def test_while_somebody_reads_the_log_is_not_emptied_and_that_is_told(
    store: SqliteStore, state: FeedState
) -> None:
    await commit(store, state, {"id": "a", "mail": CANARY})
    store.engine.writer.execute("PRAGMA busy_timeout = 20")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM records").fetchall()
        await erase(store)
        assert "cannot be emptied while a process reads it" in await store.privacy.wipe()
        other.execute("COMMIT")
    assert await store.privacy.wipe() == ""
    assert not is_found(store)


async def test_while_it_is_written_anew_the_store_says_that_it_is_well(
    store: SqliteStore, state: FeedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog kills a daemon whose store does not answer."""
    await commit(store, state, {"id": "a"})
    began, goes_on = threading.Event(), threading.Event()

    def wipe_slowly(*args: Any) -> str:
        began.set()
        assert goes_on.wait(20)
        return wipe(*args)

    monkeypatch.setattr("dockbell.stores.sqlite.engine.wipe", wipe_slowly)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(store.privacy.wipe)
            await to_thread.run_sync(began.wait)
            with anyio.move_on_after(5) as waiting:
                await store.health.check()
            goes_on.set()
    finally:
        goes_on.set()
    assert not waiting.cancelled_caught
    with anyio.fail_after(5):
        await store.health.check()


async def test_a_large_store_is_not_written_anew_while_a_daemon_works_on_it(
    store: SqliteStore, state: FeedState
) -> None:
    await commit(store, state, {"id": "a"})
    await erase(store)
    assert "too much to write it anew unless the daemon is stopped" in await store.privacy.wipe(rewrite_most=4096)


@pytest.mark.parametrize("seed", range(3))
async def test_no_trace_is_left_wherever_its_texts_have_been(store: SqliteStore, state: FeedState, seed: int) -> None:
    """Pages of the file are divided and joined as records grow and shrink, and leave copies of what they held."""
    chance = random.Random(seed)
    keys = [f"k{number}" for number in range(60)]
    for number in range(12):
        some = [
            {"id": key, "mail": f"canary-{key}-", "n": number, "text": "x" * chance.choice((5, 300, 900, 6000))}
            for key in chance.sample(keys, 30)
        ]
        await commit(store, state, *some)
    chosen = chance.sample(keys, 10)
    for key in chosen:
        await erase(store, key)
    await store.privacy.wipe()
    assert [key for key in chosen if is_found(store, f"canary-{key}-")] == []
    assert store.outbox.ends == {FEED: 12 * 30 + 10}
    assert (await store.feed(OTHER).open()).sequence == 0


async def test_a_purge_is_counted_before_anything_can_be_sent(store: SqliteStore, state: FeedState) -> None:
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


async def test_a_purge_beside_the_opening_of_its_feed_ends_nobodys_lease(tmp_path: Path) -> None:
    first = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON)
    await commit(first, await first.feed(FEED).open(), {"id": "a"}, {"id": "b"})
    await first.aclose()
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON)
    async with anyio.create_task_group() as group:
        group.start_soon(store.feed(FEED).open)
        group.start_soon(erase, store)
    await commit(store, await store.feed(FEED).open(), {"id": "b", "n": 2})
    await store.aclose()


async def test_a_purge_makes_no_feed(store: SqliteStore) -> None:
    assert await erase(store, feed=Feed("main", "items")) == Purged()
    assert Feed("main", "items") not in store.outbox.ends
