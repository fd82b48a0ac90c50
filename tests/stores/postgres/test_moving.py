"""A store that is moved from its file into PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from dockbell.core.model import Feed, RunKind
from dockbell.core.moment import to_micros
from dockbell.core.reading.shape import Shape
from dockbell.errors import ConfigError, StoreError, StoreIncompatible, StoreInUse, StoreUnavailable
from dockbell.stores.postgres import PostgresStore, moving
from dockbell.stores.postgres.connection import connect
from dockbell.stores.postgres.moving import Moved, Row, move
from dockbell.stores.postgres.store_errors import name_store
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from dockbell.stores.sqlite.backup import back_up
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.stores.sqlite.moving import take_back
from dockbell.stores.sqlite.schema import list_tables
from tests.fakes import NOON
from tests.postgres import Server
from tests.stores.pages import FEED, OTHER, a_run, close_pass, commit, make_composer, told
from tests.stores.sqlite.test_upgrading import make
from tests.stores.standings import block, kill, read, stand, write

AT_NOON = to_micros(NOON)
EPOCH = "0123456789abcdef"
NOWHERE = "postgresql://dockbell@127.0.0.1:9/dockbell"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dockbell.db"


async def fill(path: Path) -> None:
    """Make a store that has something in each of its tables, and has forgotten its last event, replay and command."""
    store = await SqliteStore.open(path, now=lambda: NOON, epoch=EPOCH)
    state = await store.feed(FEED).open()
    await store.feed(OTHER).open()
    await store.feed(FEED).begin_feed(NOON)
    await store.feed(FEED).save_shape(Shape(("/id",), "/at", None), proven=True)
    for number, key in enumerate(("a", "b", "ü", "a", "x%2F1")):
        await commit(store, state, {"id": key, "number": number}, compose=make_composer(EPOCH))
    await store.sink("erp").enroll("beginning")
    await store.sink("shop").enroll("now")
    await store.sink("shop").pause("maintenance")
    await close_pass(store, state, a_run(RunKind.PASS))
    await store.aclose()
    block(path, "erp", "b", 2, held=True)
    kill(path, "erp", "b", 2, error="HTTP 422: \0 in the answer")
    stand(path, "erp", 3)
    for statement in (
        "INSERT INTO holds VALUES (1, 2, x'00ff', 1, x'7b7d')",
        "INSERT INTO quarantine VALUES (1, x'01', 'q', 'appears twice', x'00', 1, 2)",
        "INSERT INTO details VALUES (1, 3, 'ü', x'', 'updated', NULL, 1, NULL, 1, 'poll', 0, 1, 0, NULL)",
        "INSERT INTO checkpoints VALUES (1, 'c', '{}', x'01', x'', 1)",
        "INSERT INTO replays (sink, feed, sequence, key) VALUES ('erp', 1, 1, 'a'), ('erp', 1, 2, 'b')",
        "DELETE FROM replays WHERE id = 2",
        "INSERT INTO receivers (sink, asked_at) VALUES ('erp', 1)",
        "INSERT INTO conditions VALUES ('erp', 'failing', 1, 'HTTP 503')",
        "INSERT INTO attempts VALUES (7, 'erp', 1, 'b', 2, 1, 1, 2, 'failed', 'HTTP 503', 503, 'busy', 9, 1)",
        "INSERT INTO delays VALUES (1, 1, 'erp', '{}', 7, NULL)",
        "INSERT INTO commands (kind, made_at) VALUES ('RELOAD', 1), ('RELOAD', 2)",
        "DELETE FROM commands WHERE id = 2",
        "DELETE FROM events WHERE sequence = 5",
    ):
        write(path, statement)


def read_all(path: Path) -> dict[str, list[Row]]:
    """Return the rows of each table, with the text that PostgreSQL can hold."""
    return {
        table: in_order(read(path, f"SELECT * FROM {table}"))  # noqa: S608  # our names
        for table in list_tables()
    }


def read_database(path: Path, url: str) -> dict[str, list[Row]]:
    """Return the rows of the same tables and columns, unpacked, flags as SQLite has them."""
    found = {}
    with closing(connect(url)) as connection:
        for table in list_tables():
            columns = read(path, "SELECT name FROM pragma_table_info(?) ORDER BY cid", table)
            names = sql.SQL(", ").join(sql.Identifier(str(name)) for (name,) in columns)
            rows = connection.execute(sql.SQL("SELECT {} FROM {}").format(names, sql.Identifier(table)))
            found[table] = in_order(rows)
    return found


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Return rows sorted, without what the two databases cannot have alike: flags and the zero byte in text."""
    return sorted((tuple(map(level, row)) for row in rows), key=repr)


def level(value: object) -> object:
    match value:
        case bool():
            return int(value)
        case str():
            return value.replace("\0", "␀")
        case _:
            return value


def count_tables(url: str) -> int:
    with closing(psycopg.connect(url)) as connection:
        ((number,),) = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchall()
    return int(number)


async def open_moved(url: str) -> PostgresStore:
    return await PostgresStore.open(url, now=lambda: NOON, epoch="another")


async def test_all_rows_are_in_the_database_as_they_were_in_the_file(path: Path, postgres_url: str) -> None:
    await fill(path)
    before = read_all(path)
    assert [table for table, rows in before.items() if not rows] == []
    heard = []

    def hear(words: str, done: int, total: int) -> None:
        heard.append((words, done, total))
        with (
            closing(sqlite3.connect(path, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("DELETE FROM pauses")  # as a command would that an operator gives meanwhile

    moved = await move(path, postgres_url, at=AT_NOON, progress=hear)
    rows = sum(map(len, before.values()))
    name = name_store(postgres_url)
    assert moved == Moved(name, feeds=2, records=4, events=4, sinks=2, rows=rows, was_there=False, copy=None)
    assert heard[0] == ("copying life", 0, rows)
    assert heard[-1] == ("comparing commands", rows - 1, rows)
    assert read_database(path, postgres_url) == before
    assert before["dead_letters"][0][-2] == "HTTP 422: ␀ in the answer"
    with closing(psycopg.connect(postgres_url)) as connection:
        analysed = connection.execute("SELECT reltuples FROM pg_class WHERE relname = 'records'").fetchall()
    assert analysed == [(4,)]


async def test_the_daemon_goes_on_with_the_same_epoch_and_the_next_numbers_and_states_no_gap(
    path: Path, postgres_url: str
) -> None:
    await fill(path)
    await move(path, postgres_url, at=AT_NOON)
    for _ in range(2):
        store = await open_moved(postgres_url)
        assert store.epoch == EPOCH
        state = await store.feed(FEED).open()
        assert (state.sequence, state.blind, state.shape) == (5 + _, "", Shape(("/id",), "/at", None))
        assert (await store.feed(Feed("main", "packages")).open()).blind == ""
        await commit(store, state, {"id": "new", "number": _}, compose=make_composer(EPOCH))
        await store.aclose()
    store = await open_moved(postgres_url)
    assert await told(store, after=5) == ["new created 1", "new updated 2"]
    assert (await store.sink("erp").load_queue())[0][FEED] == 3
    assert (await store.sink("shop").load_controls()).paused == "maintenance"
    await store.aclose()
    # The numbers of what was forgotten are not given again.
    assert read(postgres_url, "SELECT entry FROM events WHERE sequence > 5") == [(6,), (7,)]
    write(postgres_url, "INSERT INTO replays (sink, feed, sequence, key) VALUES ('erp', 1, 3, 'b')")
    write(postgres_url, "INSERT INTO commands (kind, made_at) VALUES ('RELOAD', 3)")
    assert read(postgres_url, "SELECT id FROM replays ORDER BY id") == [(1,), (3,)]
    assert read(postgres_url, "SELECT id FROM commands ORDER BY id") == [(1,), (3,)]


async def test_a_database_that_is_restored_before_the_first_start_is_noticed(path: Path, postgres_url: str) -> None:
    await fill(path)
    await move(path, postgres_url, at=AT_NOON)
    write(postgres_url, "UPDATE schema_version SET place = place || '0'")  # a dump makes tables with other numbers
    store = await open_moved(postgres_url)
    assert store.epoch == "another"
    assert (await store.feed(FEED).open()).blind == "store_restored"
    await store.aclose()


async def test_the_file_is_refused_by_all_and_can_be_taken_back_as_a_backup_of_that_time(
    path: Path, postgres_url: str, tmp_path: Path
) -> None:
    await fill(path)
    await move(path, postgres_url, at=AT_NOON)
    place = f"{name_store(postgres_url)} on 2026-11-21"
    refusal = f"store {path}: was moved to {place}; put its URL in .* or return to this file with"
    with pytest.raises(StoreIncompatible, match=refusal):
        await SqliteStore.open(path, now=lambda: NOON)
    with pytest.raises(StoreIncompatible, match=refusal):
        await SqliteReadStore.open(path)
    with pytest.raises(StoreIncompatible, match=refusal):
        await SqliteCommandStore.open(path)
    with pytest.raises(StoreIncompatible, match=refusal):
        await back_up(path, tmp_path / "backup.db", at=NOON, force=False)
    with pytest.raises(StoreIncompatible, match=refusal):
        await move(path, postgres_url, at=AT_NOON)
    assert take_back(path) == place
    with pytest.raises(StoreError, match="was not moved, and can be used as it is"):
        take_back(path)
    store = await SqliteStore.open(path, now=lambda: NOON, epoch="another")
    assert store.epoch == "another"
    assert (await store.feed(FEED).open()).blind == "store_restored"
    await store.aclose()


async def test_a_move_that_ended_before_the_file_was_marked_is_completed_by_another_try(
    path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(path)
    with monkeypatch.context() as patch:
        patch.setattr(moving, "mark_moved", crash)
        with pytest.raises(Crash):
            await move(path, postgres_url, at=AT_NOON)
    before = read_all(path)
    assert read_database(path, postgres_url) == before
    (await_epoch,) = read(path, "SELECT epoch FROM life")
    assert await_epoch == (EPOCH,)
    write(postgres_url, "DELETE FROM pauses")
    gone_on = (
        r"contains this store, but one of the two has changed since: pauses \(1 rows in the file, 0 in the database\)"
    )
    with pytest.raises(StoreIncompatible, match=gone_on):
        await move(path, postgres_url, at=AT_NOON)
    write(postgres_url, "INSERT INTO pauses VALUES ('shop', ?, 'maintenance')", AT_NOON)
    moved = await move(path, postgres_url, at=AT_NOON)
    assert (moved.was_there, moved.events) == (True, 4)
    assert read_database(path, postgres_url) == before
    with pytest.raises(StoreIncompatible, match="was moved to"):
        await SqliteReadStore.open(path)


class Crash(Exception):
    """The end of a process, as far as it can be told from inside."""


def crash(*_: object) -> None:
    raise Crash


async def test_where_the_database_has_not_stored_what_was_sent_nothing_is_moved(
    path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(path)
    send = moving._send

    def spoil(target: Any, table: Any, rows: Iterator[Row]) -> None:
        send(target, table, spoiled(table.name, rows))

    monkeypatch.setattr(moving, "_send", spoil)
    with pytest.raises(StoreError, match="nothing was moved: ") as caught:
        await move(path, postgres_url, at=AT_NOON)
    told = str(caught.value).partition("moved: ")[2]
    assert told == "bodies (4 rows in the file, 3 in the database), pauses (different values in 1 rows)"
    assert count_tables(postgres_url) == 0
    await (await SqliteReadStore.open(path)).aclose()


def spoiled(table: str, rows: Iterator[Row]) -> Iterator[Row]:
    for number, row in enumerate(rows):
        if table == "pauses":
            yield (*row[:-1], f"{row[-1]} ")
        elif table != "bodies" or number:
            yield row


async def test_the_store_of_an_older_dockbell_is_copied_and_brought_up_to_date_first(
    path: Path, postgres_url: str
) -> None:
    make(path, 1)
    moved = await move(path, postgres_url, at=AT_NOON)
    assert moved.copy is not None
    assert read(moved.copy, "SELECT count(*) FROM events") == [(3,)]
    assert (moved.records, moved.events, moved.sinks) == (2, 3, 1)


async def test_a_backup_that_is_moved_begins_a_new_life_there(path: Path, postgres_url: str, tmp_path: Path) -> None:
    await fill(path)
    copy = tmp_path / "backup.db"
    await back_up(path, copy, at=NOON, force=False)
    await move(copy, postgres_url, at=AT_NOON)
    store = await open_moved(postgres_url)
    assert store.epoch not in (EPOCH, "another")
    assert (await store.feed(FEED).open()).blind == "store_restored"
    await store.aclose()


async def test_a_database_that_is_not_empty_is_left_alone(path: Path, postgres_url: str) -> None:
    await fill(path)
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute("CREATE TABLE theirs (x int)")
        with pytest.raises(StoreIncompatible, match="the database is not empty; create one for the store alone"):
            await move(path, postgres_url, at=AT_NOON)
        connection.execute("DROP TABLE theirs")
    await (await open_moved(postgres_url)).aclose()
    with pytest.raises(StoreIncompatible, match="contains another store; create an empty database, and use that"):
        await move(path, postgres_url, at=AT_NOON)
    write(postgres_url, "UPDATE schema_version SET version = 99")
    with pytest.raises(StoreIncompatible, match="the database is not empty"):
        await move(path, postgres_url, at=AT_NOON)
    await (await SqliteReadStore.open(path)).aclose()


async def test_a_database_of_another_encoding_is_refused(path: Path, postgres_server: Server) -> None:
    await fill(path)
    postgres_server.query("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreIncompatible, match="its encoding is LATIN1; create a database with ENCODING 'UTF8'"):
        await move(path, postgres_server.url("latin"), at=AT_NOON)


async def test_a_database_that_cannot_be_reached_is_told_before_the_file_is_opened(path: Path) -> None:
    make(path, 1)
    with pytest.raises(StoreUnavailable, match="9/dockbell: connection refused; check its server"):
        await move(path, NOWHERE, at=AT_NOON)
    assert read(path, "PRAGMA user_version") == [(1,)]


async def test_a_store_that_a_process_works_on_is_not_moved(path: Path) -> None:
    store = await SqliteStore.open(path, now=lambda: NOON)
    with pytest.raises(StoreInUse, match=f"held by process {os.getpid()}; stop it, then move the store"):
        await move(path, NOWHERE, at=AT_NOON)
    await store.aclose()


async def test_where_there_is_no_file_none_is_made(path: Path) -> None:
    with pytest.raises(StoreError, match="not found, so there is nothing to move"):
        await move(path, NOWHERE, at=AT_NOON)
    with pytest.raises(StoreError, match="not found; check"):
        take_back(path)
    assert not path.is_file()  # noqa: ASYNC240  # a moment


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///other.db",
        "host=127.0.0.1 dbname=dockbell password=canary",
        "postgresql://127.0.0.1",
        "postgresql://dockbell:canary@127.0.0.1:port:/x?nonsense=1",
    ],
)
async def test_what_names_no_database_is_wrong_usage_and_not_repeated(path: Path, url: str) -> None:
    with pytest.raises(
        ConfigError, match='URL: must name a database of PostgreSQL, "postgresql://user@host/'
    ) as caught:
        await move(path, url, at=AT_NOON)
    assert "canary" not in str(caught.value)
