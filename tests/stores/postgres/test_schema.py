from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest

from dockbell.errors import StoreError, StoreIncompatible
from dockbell.stores.postgres import PostgresReadStore, PostgresStore
from dockbell.stores.sqlite import schema
from tests.fakes import NOON
from tests.stores.pages import FEED

OWN = {"schema_version", "holders", "commits", "leases", "configurations"}
TYPES = {
    "bigint": {"INTEGER"},
    "boolean": {"INTEGER"},
    "text": {"TEXT"},
    "bytea": {"BLOB"},
}


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


async def test_both_databases_have_the_same_tables_and_columns(postgres_url: str) -> None:
    await (await PostgresStore.open(postgres_url, now=lambda: NOON)).aclose()
    found: dict[str, dict[str, tuple[str, bool]]] = {}
    for table, column, kind, nullable in query(
        postgres_url,
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns"
        " JOIN pg_class ON oid = table_name :: regclass WHERE table_schema = 'public' AND NOT relispartition",
    ):
        found.setdefault(str(table), {})[str(column)] = (str(kind), nullable == "NO")
    assert found.keys() >= OWN
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema.read_schema())
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if not name.startswith("sqlite_")
        ]
        assert found.keys() - OWN == set(tables)
        for table in tables:
            columns = {
                name: (kind, bool(is_needed or key))
                for _, name, kind, is_needed, _, key in connection.execute(f"PRAGMA table_info({table})")
            }
            assert columns.keys() == found[table].keys()
            for name, (kind, is_needed) in found[table].items():
                assert columns[name][0] in TYPES[kind], (table, name)
                assert columns[name][1] == is_needed, (table, name)


async def test_text_compares_by_its_bytes(postgres_url: str) -> None:
    await (await PostgresStore.open(postgres_url, now=lambda: NOON)).aclose()
    others = query(
        postgres_url,
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        " AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'",
    )
    assert others == []


async def test_a_database_of_another_program_is_left_alone(postgres_url: str) -> None:
    query(postgres_url, "CREATE TABLE theirs (x int)")
    with pytest.raises(StoreIncompatible, match="belongs to another program; name another database"):
        await PostgresStore.open(postgres_url, now=lambda: NOON)
    with pytest.raises(StoreIncompatible, match="belongs to another program"):
        await PostgresReadStore.open(postgres_url)
    assert query(postgres_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [("theirs",)]


async def test_a_database_without_tables_is_no_store_to_look_at(postgres_url: str) -> None:
    with pytest.raises(StoreError, match='not found; "dockbell run" creates it'):
        await PostgresReadStore.open(postgres_url)


async def test_a_store_that_is_opened_again_is_the_same(postgres_url: str) -> None:
    first = await PostgresStore.open(postgres_url, now=lambda: NOON)
    state = await first.feed(FEED).open()
    await first.aclose()
    second = await PostgresStore.open(postgres_url, now=lambda: NOON)
    assert second.epoch == first.epoch
    assert await second.feed(FEED).open() == state
    await second.aclose()


async def test_a_restored_store_begins_a_new_life_and_its_feeds_state_the_gap(postgres_url: str) -> None:
    first = await PostgresStore.open(postgres_url, now=lambda: NOON)
    await first.feed(FEED).open()
    await first.aclose()
    query(postgres_url, "UPDATE schema_version SET place = 'elsewhere'")  # a dump makes tables with other numbers
    second = await PostgresStore.open(postgres_url, now=lambda: NOON)
    assert second.epoch != first.epoch
    assert (await second.feed(FEED).open()).blind == "store_restored"
    await second.aclose()
    third = await PostgresStore.open(postgres_url, now=lambda: NOON)
    assert third.epoch == second.epoch
    await third.aclose()
