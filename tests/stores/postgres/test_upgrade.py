"""Processes of two versions on one store: the newer one adds what it needs, and what the older one needs goes last."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import TypeAlias

import psycopg
import pytest

from dockbell.errors import StoreError, StoreIncompatible, StoreUnavailable
from dockbell.ports import CommandKind, Upgrade
from dockbell.stores.postgres import PostgresCommandStore, PostgresReadStore, PostgresStore, holder, schema
from dockbell.stores.postgres.database import PostgresDatabase
from dockbell.stores.postgres.migrations import MIGRATIONS, Migration
from dockbell.stores.postgres.read_store import DatabaseSession
from dockbell.telemetry import StoreExtended
from tests.fakes import NOON, Ear
from tests.stores.pages import FEED, commit, told

NEWER = (
    *MIGRATIONS,
    Migration(
        pre="ALTER TABLE life ADD COLUMN since BIGINT;",
        post="UPDATE life SET since = began_at; ALTER TABLE life DROP COLUMN copied_at;",
    ),
)
NEWEST = (*NEWER, Migration(pre="ALTER TABLE life ADD COLUMN note TEXT;"))
NOW = len(MIGRATIONS)
REFUSED = (
    f"has schema version {NOW + 1}, which needs a dockbell that knows version {NOW + 1},"
    f" this dockbell knows {NOW}; upgrade dockbell"
)
Be: TypeAlias = Callable[[tuple[Migration, ...]], None]


@pytest.fixture
def be(monkeypatch: pytest.MonkeyPatch) -> Be:
    """Return what lets all that follows be done by the dockbell that knows some migrations."""

    def be(migrations: tuple[Migration, ...]) -> None:
        for module in ("schema", "holder", "store"):
            monkeypatch.setattr(f"dockbell.stores.postgres.{module}.MIGRATIONS", migrations)

    return be


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def find_columns(url: str) -> set[object]:
    rows = query(url, "SELECT column_name FROM information_schema.columns WHERE table_name = 'life'")
    return {name for (name,) in rows} & {"copied_at", "since", "note"}


@asynccontextmanager
async def working(url: str, ear: Ear | None = None) -> AsyncIterator[PostgresStore]:
    telemetry = None if ear is None else ear.telemetry
    store = await PostgresStore.open(url, now=lambda: NOON, epoch="epoch", telemetry=telemetry, shared=True)
    try:
        yield store
    finally:
        await store.aclose()


async def finish(store: PostgresStore) -> Upgrade:
    assert store.fleet is not None
    return await store.fleet.finish_upgrade()


async def test_an_older_process_goes_on_and_what_it_needs_is_removed_when_it_has_ended(
    postgres_url: str, be: Be
) -> None:
    async with working(postgres_url) as older:
        state = await older.feed(FEED).open()
        be(NEWER)
        ear = Ear()
        async with working(postgres_url, ear) as newer:
            assert ear.facts == [StoreExtended(NOW, NOW + 1)]
            assert find_columns(postgres_url) == {"copied_at", "since"}
            await commit(older, state, {"id": "a"})
            assert await told(newer) == await told(older) == ["a created 1"]
            be(MIGRATIONS)
            async with working(postgres_url) as late:  # an older one may still start
                assert await told(late) == ["a created 1"]
            be(NEWER)
            upgrade = await finish(newer)
            assert (upgrade.before, upgrade.oldest, len(upgrade.older)) == (1, 1, 1)
            assert upgrade.older[0].startswith(f"process {os.getpid()} on ")
            assert find_columns(postgres_url) == {"copied_at", "since"}
            await older.aclose()
            assert await finish(newer) == Upgrade(1, NOW + 1)
            assert find_columns(postgres_url) == {"since"}
            assert await finish(newer) == Upgrade(NOW + 1, NOW + 1)
            assert await told(newer) == ["a created 1"]
    be(MIGRATIONS)
    with pytest.raises(StoreIncompatible, match=REFUSED):
        async with working(postgres_url):
            pass
    assert query(postgres_url, "SELECT count(*) FROM holders") == [(0,)]


async def test_what_only_adds_refuses_no_older_process(postgres_url: str, be: Be) -> None:
    await (await PostgresStore.open(postgres_url, now=lambda: NOON)).aclose()
    be(NEWER)
    await (await PostgresStore.open(postgres_url, now=lambda: NOON)).aclose()
    async with working(postgres_url) as older:
        be(NEWEST)
        async with working(postgres_url) as newest:
            assert find_columns(postgres_url) == {"since", "note"}
            assert await finish(newest) == Upgrade(NOW + 1, NOW + 1)
        assert await told(older) == []
    be(NEWER)
    async with working(postgres_url):
        pass


async def test_a_version_may_be_left_out(postgres_url: str, be: Be) -> None:
    async with working(postgres_url):
        be(NEWEST)
        async with working(postgres_url) as newest:
            assert find_columns(postgres_url) == {"copied_at", "since", "note"}
            assert (await finish(newest)).oldest == 1
    async with working(postgres_url) as newest:
        assert await finish(newest) == Upgrade(1, NOW + 1)
        assert find_columns(postgres_url) == {"since", "note"}


async def test_an_older_process_that_comes_while_an_upgrade_is_finished_is_refused(postgres_url: str, be: Be) -> None:
    async with working(postgres_url):
        pass
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        be(NEWER)
        schema.migrate(connection, "here", epoch="", now=0)
        be(MIGRATIONS)
        schema.migrate(connection, "here", epoch="", now=0)  # it was let in …
        be(NEWER)
        schema.finish(connection, "here")
        be(MIGRATIONS)
        late = holder.Holder(postgres_url, "here", alone=False)
        with pytest.raises(StoreIncompatible, match=REFUSED):  # … and the upgrade was finished before it registered
            late.register(connection)


async def test_who_works_alone_finishes_an_upgrade_at_once(postgres_url: str, be: Be) -> None:
    await (await PostgresStore.open(postgres_url, now=lambda: NOON)).aclose()
    be(NEWER)
    await (await PostgresStore.open(postgres_url, now=lambda: NOON)).aclose()
    assert find_columns(postgres_url) == {"since"}


async def test_commands_of_either_version_work_until_the_upgrade_is_finished(postgres_url: str, be: Be) -> None:
    async with working(postgres_url) as older:
        await older.feed(FEED).open()
        be(NEWER)
        with pytest.raises(StoreIncompatible, match=f"version {NOW}, this dockbell needs {NOW + 1}; .* upgrades it"):
            await PostgresReadStore.open(postgres_url)
        async with working(postgres_url) as newer:
            for version in (MIGRATIONS, NEWER):
                be(version)
                commands = await PostgresCommandStore.open(postgres_url)
                await commands.make_command(FEED, CommandKind.REJECT, NOON)
                await commands.aclose()
                assert "held by process" in await PostgresDatabase(postgres_url).probe()
            looking = await DatabaseSession.open(postgres_url)
            await older.aclose()
            await finish(newer)
            be(MIGRATIONS)
            for opening in (PostgresReadStore.open, PostgresCommandStore.open):
                with pytest.raises(StoreIncompatible, match=REFUSED):
                    await opening(postgres_url)
            with pytest.raises(StoreIncompatible, match=REFUSED):  # what looked at it before, at what is gone
                await looking.do(lambda connection: connection.execute("SELECT copied_at FROM life"))
            await looking.aclose()


async def test_a_command_of_a_newer_dockbell_waits_for_a_process_that_knows_it(postgres_url: str) -> None:
    async with working(postgres_url) as older:
        await older.feed(FEED).open()
        assert older.fleet is not None
        await older.fleet.take_share({"main": "main"})
        query(postgres_url, "INSERT INTO commands (kind, feed, made_at) SELECT 'DUST', id, 0 FROM feeds")
        commands = await PostgresCommandStore.open(postgres_url)
        number = await commands.make_command(FEED, CommandKind.REJECT, NOON)
        await commands.aclose()
        assert [command.id for command in await older.commands.take()] == [number]
    assert query(postgres_url, "SELECT kind FROM commands WHERE done_at IS NULL") == [("DUST",), ("REJECT",)]


async def test_a_part_that_fails_changes_nothing(postgres_url: str, be: Be) -> None:
    async with working(postgres_url):
        be((*NEWER, Migration(pre="INSERT INTO nowhere VALUES (1);")))
        with pytest.raises(psycopg.errors.UndefinedTable):
            async with working(postgres_url):
                pass
        assert find_columns(postgres_url) == {"copied_at"}
        be((*NEWER, Migration(post="INSERT INTO nowhere VALUES (1);")))
        async with working(postgres_url):
            pass
    async with working(postgres_url) as newer:
        with pytest.raises(psycopg.errors.UndefinedTable):
            await finish(newer)
        assert query(postgres_url, "SELECT version, oldest FROM schema_version") == [(NOW + 2, 1)]
        assert find_columns(postgres_url) == {"copied_at", "since"}


async def test_a_backup_that_is_being_made_holds_up_the_upgrade_and_no_older_process(
    postgres_url: str, be: Be, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.stores.postgres.schema._TRIES", 2)
    async with working(postgres_url) as older:
        state = await older.feed(FEED).open()
        be(NEWER)
        with closing(psycopg.connect(postgres_url)) as dumping:
            dumping.execute("LOCK TABLE life IN ACCESS SHARE MODE")  # as pg_dump does with all tables
            with pytest.raises(
                StoreUnavailable, match="while another session uses its tables, such as a backup; restart"
            ):
                async with working(postgres_url):
                    pass
            await commit(older, state, {"id": "a"})
        async with working(postgres_url) as newer:
            await older.aclose()
            with closing(psycopg.connect(postgres_url)) as dumping:
                dumping.execute("LOCK TABLE life IN ACCESS SHARE MODE")
                with pytest.raises(
                    StoreError, match="its upgrade cannot be finished while another session uses its tables"
                ):
                    await finish(newer)
            assert await finish(newer) == Upgrade(1, NOW + 1)
