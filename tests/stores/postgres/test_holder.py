from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress

import anyio
import psycopg
import pytest

from dockbell.errors import LeaseLost, StoreInUse
from dockbell.stores.postgres import PostgresStore
from dockbell.stores.postgres.connection import PostgresConnection
from dockbell.stores.postgres.database import PostgresDatabase
from dockbell.stores.sql.connection import transaction
from tests.fakes import NOON
from tests.postgres import Server, begin_writing
from tests.stores.pages import FEED, commit, told
from tests.wires import Wire, wired

OPEN = """
import os, sys, anyio
from datetime import UTC, datetime
from dockbell.stores.postgres import PostgresStore

async def main():
    await PostgresStore.open(sys.argv[1], now=lambda: datetime.now(UTC))
    os.write(1, b"open")
    await anyio.sleep(60)

anyio.run(main)
"""


async def open_store(url: str) -> PostgresStore:
    return await PostgresStore.open(url, now=lambda: NOON, epoch="epoch")


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = await open_store(postgres_url)
    yield store
    await store.aclose()


def change(url: str, statement: str, *, rows: bool = True) -> None:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        assert connection.execute(statement.encode()).rowcount > 0 or not rows


async def test_a_second_process_is_refused_while_the_first_lives(store: PostgresStore, postgres_url: str) -> None:
    holder = PostgresDatabase(postgres_url).find_holder()
    assert holder.startswith(f"process {os.getpid()} on ")
    with pytest.raises(StoreInUse, match=rf"held by {holder}; stop it, or give this one another \[store\] url"):
        await open_store(postgres_url)


async def test_a_store_that_was_closed_is_free_at_once(postgres_url: str) -> None:
    await (await open_store(postgres_url)).aclose()
    assert PostgresDatabase(postgres_url).find_holder() == ""
    await (await open_store(postgres_url)).aclose()


async def test_a_holder_renews_its_row(store: PostgresStore, postgres_url: str) -> None:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        ((before,),) = connection.execute("SELECT expires_at FROM holders").fetchall()
        await anyio.sleep(2.5)
        ((after,),) = connection.execute("SELECT expires_at FROM holders").fetchall()
    assert (after - before).total_seconds() >= 1


async def test_after_a_crash_the_store_is_free_when_the_row_has_expired(postgres_url: str) -> None:
    async with await anyio.open_process([sys.executable, "-c", OPEN, postgres_url], stderr=None) as process:
        assert process.stdout is not None
        assert await process.stdout.receive() == b"open"
        process.kill()
        killed_at = time.monotonic()
    with pytest.raises(StoreInUse, match=f"held by process {process.pid} on .* after a crash it is free within"):
        await open_store(postgres_url)
    while True:
        try:
            store = await open_store(postgres_url)
            break
        except StoreInUse:
            await anyio.sleep(0.1)
    assert 4 < time.monotonic() - killed_at < 8
    await store.aclose()


async def test_a_holder_that_another_process_has_replaced_writes_nothing_more(
    store: PostgresStore, postgres_url: str
) -> None:
    state = await store.feed(FEED).open()
    await commit(store, state, {"id": "a"})
    change(postgres_url, "DELETE FROM holders")  # as another does that finds the row expired
    other = await open_store(postgres_url)
    with pytest.raises(LeaseLost, match="another process took over the work of this one"):
        await commit(store, state, {"id": "b"})
    with pytest.raises(LeaseLost):
        await store.sink("erp").enroll("now")
    successor = await other.feed(FEED).open()
    with pytest.raises(LeaseLost):  # by the token of the feed: this one begins no transaction
        await store.feed(FEED).save_problem("none")
    await commit(other, successor, {"id": "c"})
    assert await told(other) == ["a created 1", "c created 1"]
    await other.aclose()


async def test_a_holder_is_not_replaced_while_it_commits(store: PostgresStore, postgres_url: str) -> None:
    with closing(psycopg.connect(postgres_url)) as committing:
        begin_writing(committing, store.engine.holder)
        with closing(psycopg.connect(postgres_url, autocommit=True)) as other:
            other.execute("SET lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("DELETE FROM holders")
            other.execute("UPDATE holders SET expires_at = clock_timestamp()")  # it can be renewed
        committing.rollback()


@pytest.fixture
def wire(postgres_server: Server) -> Iterator[Wire]:
    with wired(postgres_server.folder) as wire:
        yield wire


@pytest.fixture
async def writer(store: PostgresStore, postgres_url: str, wire: Wire) -> AsyncIterator[PostgresConnection]:
    """Return a connection of the store that writes, and a table for it."""
    change(postgres_url, "CREATE TABLE words (word text)", rows=False)
    connection = PostgresConnection(wire.lead(postgres_url), store.engine.holder.fence())
    yield connection
    connection.raw.close()


@pytest.mark.parametrize("after", [0, 0.2])
async def test_a_commit_whose_answer_is_lost_counts_as_what_it_was(
    writer: PostgresConnection, wire: Wire, after: float
) -> None:
    """The server is asked, and whoever comes first there decides: the commit that is under way, or the question."""
    committed = []
    for word in "abcde":
        wire.lose_answer(after)
        with suppress(psycopg.OperationalError):
            with transaction(writer):
                writer.execute("INSERT INTO words VALUES (?)", (word,))
            committed.append((word,))
    assert committed
    assert writer.execute("SELECT word FROM words ORDER BY word").fetchall() == committed


async def test_what_reaches_the_server_after_it_was_asked_is_refused_there(
    writer: PostgresConnection, wire: Wire
) -> None:
    """The caller has learned that it was not committed, and perhaps does it again."""
    for _ in range(2):
        wire.lose_answer(0.5, since="BEGIN")
        with pytest.raises(psycopg.OperationalError), transaction(writer):
            writer.execute("INSERT INTO words VALUES (?)", ("late",))
        with transaction(writer):
            writer.execute("INSERT INTO words VALUES (?)", ("again",))
    await anyio.sleep(1)
    assert writer.execute("SELECT word FROM words").fetchall() == [("again",)] * 2


async def test_what_was_sent_and_refused_is_not_taken_for_a_commit(
    writer: PostgresConnection, wire: Wire, postgres_url: str
) -> None:
    change(postgres_url, "DELETE FROM holders")
    wire.lose_answer()
    with pytest.raises(psycopg.OperationalError), transaction(writer):
        writer.execute("INSERT INTO words VALUES (?)", ("a",))
    with pytest.raises(LeaseLost), transaction(writer):
        writer.execute("INSERT INTO words VALUES (?)", ("b",))
    assert writer.execute("SELECT count(*) FROM words").fetchone() == (0,)


async def test_what_was_not_committed_is_not_taken_for_it_after_other_commits(
    writer: PostgresConnection, store: PostgresStore, postgres_url: str
) -> None:
    other = PostgresConnection(postgres_url, store.engine.holder.fence())
    with pytest.raises(psycopg.OperationalError), transaction(writer):  # noqa: PT012  # it is the end that fails
        writer.execute("INSERT INTO words VALUES (?)", ("a",))
        with closing(psycopg.connect(postgres_url, autocommit=True)) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", [writer.raw.info.backend_pid])
        with transaction(other):
            other.execute("INSERT INTO words VALUES (?)", ("b",))
    assert other.execute("SELECT word FROM words").fetchall() == [("b",)]
    with transaction(writer):
        writer.execute("INSERT INTO words VALUES (?)", ("c",))
    assert other.execute("SELECT count(*) FROM words").fetchone() == (2,)
    other.raw.close()
