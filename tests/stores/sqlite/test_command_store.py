"""Wishes: made by one process, seen to by the one that holds the store."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from dockbell.errors import StoreError, StoreFull, StoreIncompatible
from dockbell.ports import Command, CommandKind, CommandOutcome
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER, commit

DONE = CommandOutcome("complete", detail="done")
WISH = """
import pathlib, sys
import anyio
from dockbell.app import now
from dockbell.core.model import Feed
from dockbell.ports import CommandKind
from dockbell.stores.sqlite.command_store import SqliteCommandStore

async def wish():
    store = await SqliteCommandStore.open(pathlib.Path(sys.argv[1]))
    print(await store.make_command(Feed("main", "shipments"), CommandKind.RECONCILE, now()))
    await store.aclose()

anyio.run(wish)
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    await store.feed(FEED).open()
    await store.feed(OTHER).open()
    yield store
    await store.aclose()


@pytest.fixture
async def command_store(store: SqliteStore) -> AsyncIterator[SqliteCommandStore]:
    command_store = await SqliteCommandStore.open(store.path)
    yield command_store
    await command_store.aclose()


async def test_a_wish_of_another_process_is_noticed_and_answered_while_the_store_is_held(store: SqliteStore) -> None:
    assert not await store.commands.take()
    made = await anyio.run_process([sys.executable, "-c", WISH, str(store.path)], stderr=None)
    number = int(made.stdout)
    (command,) = await store.commands.take()
    assert command == Command(number, CommandKind.RECONCILE, FEED)
    await store.commands.finish(command, CommandOutcome("complete", {"pages": 3}))
    command_store = await SqliteCommandStore.open(store.path)
    assert await command_store.load_command(number) == Command(
        number, CommandKind.RECONCILE, FEED, CommandOutcome("complete", {"pages": 3})
    )
    await command_store.aclose()


async def test_nothing_is_read_again_until_something_was_written(
    store: SqliteStore, command_store: SqliteCommandStore
) -> None:
    await command_store.make_command(FEED, CommandKind.APPROVE, NOON)
    assert len(await store.commands.take()) == 1
    assert not await store.commands.take()
    await commit(store, await store.feed(FEED).open(), {"id": "a"})
    assert len(await store.commands.take()) == 1  # it waits still


async def test_there_must_be_a_store_to_leave_wishes_in(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='"dockbell run" creates it'):
        await SqliteCommandStore.open(tmp_path / "none.db")
    sqlite3.connect(tmp_path / "theirs.db").execute("CREATE TABLE theirs (x)").connection.close()
    with pytest.raises(StoreIncompatible, match="belongs to another program"):
        await SqliteCommandStore.open(tmp_path / "theirs.db")
    assert not (tmp_path / "none.db").exists()


async def test_a_store_that_must_not_be_written_is_told_as_such(
    store: SqliteStore, command_store: SqliteCommandStore
) -> None:
    command_store._session._connection.execute("PRAGMA query_only = true")
    with pytest.raises(StoreError, match=r"a.db: attempt to write a readonly database; try again as the user that"):
        await command_store.pause("erp", "by an operator", NOON)


async def test_on_a_full_disk_nothing_can_be_wished_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = await SqliteStore.open(path, now=lambda: NOON)
    await store.feed(FEED).open()
    command_store = await SqliteCommandStore.open(path)
    (pages,) = command_store._session._connection.execute("PRAGMA page_count").fetchone()
    command_store._session._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull, match=r"a\.db: disk full; free some space"):
        await command_store.make_command(FEED, CommandKind.PURGE, NOON, "key" * 10_000)
    await command_store.aclose()
    await store.aclose()
