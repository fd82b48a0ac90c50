"""Wishes: made by one process, seen to by the one that holds the store."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from dockbell.core.model import Feed
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


async def test_wishes_wait_in_their_order_until_they_are_fulfilled(
    store: SqliteStore, command_store: SqliteCommandStore
) -> None:
    numbers = [await command_store.make_command(feed, kind, NOON) for feed in (FEED, OTHER) for kind in CommandKind]
    commands = await store.commands.take()
    assert [command.id for command in commands] == numbers
    assert [(command.feed, command.kind) for command in commands] == [
        (feed, kind) for feed in (FEED, OTHER) for kind in CommandKind
    ]
    assert await command_store.load_command(numbers[3]) == commands[3]
    for command in commands[1:]:
        await store.commands.finish(command, DONE)
    assert await store.commands.take() == [commands[0]]
    assert (await command_store.load_command(numbers[0])).outcome is None
    assert (await command_store.load_command(numbers[1])).outcome == DONE


async def test_nothing_is_read_again_until_something_was_written(
    store: SqliteStore, command_store: SqliteCommandStore
) -> None:
    await command_store.make_command(FEED, CommandKind.APPROVE, NOON)
    assert len(await store.commands.take()) == 1
    assert not await store.commands.take()
    await commit(store, await store.feed(FEED).open(), {"id": "a"})
    assert len(await store.commands.take()) == 1  # it waits still


async def test_a_wish_outlives_the_process_that_it_was_left_for(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    store = await SqliteStore.open(path, now=lambda: NOON)
    await store.feed(FEED).open()
    await store.aclose()
    command_store = await SqliteCommandStore.open(path)
    number = await command_store.make_command(FEED, CommandKind.REJECT, NOON)
    await command_store.aclose()
    store = await SqliteStore.open(path, now=lambda: NOON)
    assert await store.commands.take() == [Command(number, CommandKind.REJECT, FEED)]
    await store.aclose()


async def test_a_wish_of_a_feed_that_was_never_read_is_refused(command_store: SqliteCommandStore) -> None:
    with pytest.raises(StoreError, match='feed main/nothing: was never read; "dockbell run" reads it first'):
        await command_store.make_command(Feed("main", "nothing"), CommandKind.APPROVE, NOON)


async def test_fulfilled_wishes_go_with_the_history_and_waiting_ones_stay(
    store: SqliteStore, command_store: SqliteCommandStore
) -> None:
    kept, done = [await command_store.make_command(FEED, CommandKind.RECONCILE, NOON) for _ in range(2)]
    await store.commands.finish(Command(done, CommandKind.RECONCILE, FEED), DONE)
    assert await store.retention.prune_history(NOON, 10) == 0
    assert await store.retention.prune_history(NOON + timedelta(seconds=1), 10) == 1
    assert [command.id for command in await store.commands.take()] == [kept]
    assert await command_store.make_command(FEED, CommandKind.RECONCILE, NOON) > done  # no number is given twice


async def test_there_must_be_a_store_to_leave_wishes_in(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='"dockbell run" makes it'):
        await SqliteCommandStore.open(tmp_path / "none.db")
    sqlite3.connect(tmp_path / "theirs.db").execute("CREATE TABLE theirs (x)").connection.close()
    with pytest.raises(StoreIncompatible, match="another program's"):
        await SqliteCommandStore.open(tmp_path / "theirs.db")
    assert not (tmp_path / "none.db").exists()


async def test_a_store_that_must_not_be_written_is_told_as_such(
    store: SqliteStore, command_store: SqliteCommandStore
) -> None:
    command_store._session._connection.execute("PRAGMA query_only = true")
    with pytest.raises(StoreError, match=r"a.db: attempt to write a readonly database; try again, as the user that"):
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


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("complete: 3 pages, 600 records", CommandOutcome("complete", detail="3 pages, 600 records")),
        (
            "failed: KeyError: 'row'; the log has more",
            CommandOutcome("failed", detail="KeyError: 'row'; the log has more"),
        ),
    ],
)
async def test_an_outcome_that_an_older_version_stored_as_text_reads_as_it_did(
    store: SqliteStore, command_store: SqliteCommandStore, text: str, outcome: CommandOutcome
) -> None:
    number = await command_store.make_command(FEED, CommandKind.RECONCILE, NOON)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE commands SET done_at = 1, outcome = ?", (text,))
    found = (await command_store.load_command(number)).outcome
    assert found == outcome
    assert str(found) == text
