"""Wishes: made by one process, seen to by the one that holds the store."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from dockbell.core.model import Feed
from dockbell.errors import StoreError, StoreFull, StoreIncompatible
from dockbell.ports import Wish, Wished
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.desk import SqliteDesk
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER, commit

WISH = """
import pathlib, sys
import anyio
from dockbell.app import now
from dockbell.core.model import Feed
from dockbell.ports import Wish
from dockbell.stores.sqlite.desk import SqliteDesk

async def wish():
    desk = await SqliteDesk.open(pathlib.Path(sys.argv[1]))
    print(await desk.make_wish(Feed("main", "shipments"), Wish.RECONCILE, now()))
    await desk.aclose()

anyio.run(wish)
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    await store.open_feed(FEED)
    await store.open_feed(OTHER)
    yield store
    await store.aclose()


@pytest.fixture
async def desk(store: SqliteStore) -> AsyncIterator[SqliteDesk]:
    desk = await SqliteDesk.open(store.path)
    yield desk
    await desk.aclose()


async def test_a_wish_of_another_process_is_noticed_and_answered_while_the_store_is_held(store: SqliteStore) -> None:
    assert not await store.take_wishes()
    made = await anyio.run_process([sys.executable, "-c", WISH, str(store.path)], stderr=None)
    number = int(made.stdout)
    (wished,) = await store.take_wishes()
    assert wished == Wished(number, Wish.RECONCILE, FEED)
    await store.fulfil(wished, "complete: 3 pages")
    desk = await SqliteDesk.open(store.path)
    assert await desk.load_wish(number) == Wished(number, Wish.RECONCILE, FEED, "complete: 3 pages")
    await desk.aclose()


async def test_wishes_wait_in_their_order_until_they_are_fulfilled(store: SqliteStore, desk: SqliteDesk) -> None:
    numbers = [await desk.make_wish(feed, wish, NOON) for feed in (FEED, OTHER) for wish in Wish]
    wishes = await store.take_wishes()
    assert [wished.id for wished in wishes] == numbers
    assert [(wished.feed, wished.wish) for wished in wishes] == [
        (feed, wish) for feed in (FEED, OTHER) for wish in Wish
    ]
    assert await desk.load_wish(numbers[3]) == wishes[3]
    for wished in wishes[1:]:
        await store.fulfil(wished, "done")
    assert await store.take_wishes() == [wishes[0]]
    assert (await desk.load_wish(numbers[0])).outcome is None
    assert (await desk.load_wish(numbers[1])).outcome == "done"


async def test_nothing_is_read_again_until_something_was_written(store: SqliteStore, desk: SqliteDesk) -> None:
    await desk.make_wish(FEED, Wish.APPROVE, NOON)
    assert len(await store.take_wishes()) == 1
    assert not await store.take_wishes()
    await commit(store, await store.open_feed(FEED), {"id": "a"})
    assert len(await store.take_wishes()) == 1  # it waits still


async def test_a_wish_outlives_the_process_that_it_was_left_for(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    store = await SqliteStore.open(path, now=lambda: NOON)
    await store.open_feed(FEED)
    await store.aclose()
    desk = await SqliteDesk.open(path)
    number = await desk.make_wish(FEED, Wish.REJECT, NOON)
    await desk.aclose()
    store = await SqliteStore.open(path, now=lambda: NOON)
    assert await store.take_wishes() == [Wished(number, Wish.REJECT, FEED)]
    await store.aclose()


async def test_a_wish_of_a_feed_that_was_never_read_is_refused(desk: SqliteDesk) -> None:
    with pytest.raises(StoreError, match='feed main/nothing: was never read; "dockbell run" reads it first'):
        await desk.make_wish(Feed("main", "nothing"), Wish.APPROVE, NOON)


async def test_fulfilled_wishes_go_with_the_history_and_waiting_ones_stay(store: SqliteStore, desk: SqliteDesk) -> None:
    kept, done = [await desk.make_wish(FEED, Wish.RECONCILE, NOON) for _ in range(2)]
    await store.fulfil(Wished(done, Wish.RECONCILE, FEED), "done")
    assert await store.prune_history(NOON, 10) == 0
    assert await store.prune_history(NOON + timedelta(seconds=1), 10) == 1
    assert [wished.id for wished in await store.take_wishes()] == [kept]
    assert await desk.make_wish(FEED, Wish.RECONCILE, NOON) > done  # no number is given twice


async def test_there_must_be_a_store_to_leave_wishes_in(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='"dockbell run" makes it'):
        await SqliteDesk.open(tmp_path / "none.db")
    sqlite3.connect(tmp_path / "theirs.db").execute("CREATE TABLE theirs (x)").connection.close()
    with pytest.raises(StoreIncompatible, match="another program's"):
        await SqliteDesk.open(tmp_path / "theirs.db")
    assert not (tmp_path / "none.db").exists()


async def test_a_store_that_must_not_be_written_is_told_as_such(store: SqliteStore, desk: SqliteDesk) -> None:
    desk._connection.execute("PRAGMA query_only = true")
    with pytest.raises(StoreError, match=r"a.db: attempt to write a readonly database; try again, as the user that"):
        await desk.pause("erp", "by an operator", NOON)


async def test_on_a_full_disk_nothing_can_be_wished_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = await SqliteStore.open(path, now=lambda: NOON)
    await store.open_feed(FEED)
    desk = await SqliteDesk.open(path)
    (pages,) = desk._connection.execute("PRAGMA page_count").fetchone()
    desk._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull, match=r"a\.db: disk full; free some space"):
        await desk.make_wish(FEED, Wish.PURGE, NOON, "key" * 10_000)
    await desk.aclose()
    await store.aclose()
