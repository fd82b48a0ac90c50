"""What becomes of the store of an older dockbell when this one opens it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dockbell.core.moment import to_micros
from dockbell.errors import StoreError, StoreFull, StoreIncompatible
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore, schema, upgrading
from dockbell.stores.sqlite.backup import back_up
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.stores.sqlite.migrations import MIGRATIONS
from dockbell.stores.sqlite.probe import probe
from tests.fakes import NOON, Ear
from tests.stores.pages import FEED, told

AT_NOON = to_micros(NOON)
NOW = len(MIGRATIONS)
OLDER = range(1, NOW)
ROWS_PER_FEED = 7
"""The first version that numbers the rows of each feed by themselves."""
FAILING = "INSERT INTO nowhere VALUES (1);"
OLD_LIFE = "0123456789abcdef"


def make(path: Path, version: int) -> None:
    """Make a store as the dockbell of a version would have: two records, three events, a run, a sink that owes one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript("".join(MIGRATIONS[:version]))
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("INSERT INTO life (epoch, began_at) VALUES (?, ?)", (OLD_LIFE, AT_NOON))
        connection.execute(
            "INSERT INTO feeds (id, source, resource, key, first_asked_at, watermark, passes, sequence)"
            " VALUES (1, 'main', 'shipments', '[\"/id\"]', ?, ?, 1, 3)",
            (AT_NOON, AT_NOON),
        )
        records = (
            "INSERT INTO records (feed, row, key, raw_hash, fingerprint, revision) VALUES (1, ?, ?, x'01', x'02', 1)"
        )
        bodies = "INSERT INTO bodies VALUES (1, ?, ?)"
        if version < ROWS_PER_FEED:
            records = (
                "INSERT INTO records (feed, id, key, raw_hash, fingerprint, revision) VALUES (1, ?, ?, x'01', x'02', 1)"
            )
            bodies = "INSERT INTO bodies VALUES (?, ?)"
        connection.executemany(records, [(1, "a"), (2, "b")])
        connection.executemany(bodies, [(1, b'{"id": "a"}'), (2, b'{"id": "b"}')])
        add_events(connection, 1, 2, 3)
        add_run(connection, AT_NOON)
        connection.execute("INSERT INTO positions (sink, feed, sequence) VALUES ('erp', 1, 2)")


def add_events(connection: sqlite3.Connection, *numbers: int) -> None:
    connection.executemany(
        "INSERT INTO events (feed, sequence, key, id, type, change, revision, recorded_at, body)"
        " VALUES (1, ?, 'a', ?, 'dockbell.shipment.updated', 'updated', ?, ?, x'7b7d')",
        [(number, f"evt_{number}", number, AT_NOON) for number in numbers],
    )


def add_run(connection: sqlite3.Connection, at: int) -> None:
    connection.execute("DELETE FROM runs")
    connection.execute(
        "INSERT INTO runs (feed, kind, complete, asked_at, ended_at, pages, records, events, problem)"
        " VALUES (1, 'pass', 1, ?, ?, 1, 2, 3, '')",
        (at, at),
    )


def dump(path: Path) -> tuple[int, list[str]]:
    """Return the version of a store and all that is in it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return version, [line for line in connection.iterdump() if "sqlite_sequence" not in line]


def copies(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir() if ".before-" in each.name)


async def open_once(path: Path, ear: Ear | None = None) -> None:
    store = await SqliteStore.open(path, now=lambda: NOON, telemetry=(ear or Ear()).telemetry)
    assert store.epoch == OLD_LIFE
    assert await told(store) == ["a updated 1", "a updated 2", "a updated 3"]
    assert {event.visible_at for event in await store.read_events(FEED, 0, 3)} == {None}
    assert (await store.feed(FEED).open()).blind == ""
    assert (await store.sink("erp").load_queue())[0] == {FEED: 2}
    await store.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dockbell.db"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the last migration fail after all that it does."""
    scripts = (*MIGRATIONS[:-1], MIGRATIONS[-1] + FAILING)
    monkeypatch.setattr(schema, "MIGRATIONS", scripts)


@pytest.mark.parametrize("version", OLDER)
async def test_a_store_of_every_older_version_is_copied_and_brought_up_to_date(path: Path, version: int) -> None:
    make(path, version)
    before = dump(path)
    ear = Ear()
    await open_once(path, ear)
    assert dump(path)[0] == NOW
    assert copies(path) == [f"dockbell.db.before-v{NOW}"]
    copy = path.with_name(f"dockbell.db.before-v{NOW}")
    assert dump(copy) == before
    assert ear.texts() == [
        f"store: upgraded from schema version {version} to {NOW}; copy from before the upgrade: {copy}"
    ]
    await open_once(path, ear)
    assert len(ear.texts()) == len(copies(path)) == 1


async def test_a_new_store_has_nothing_to_copy(path: Path) -> None:
    await (await SqliteStore.open(path, now=lambda: NOON)).aclose()
    assert copies(path) == []


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("version", OLDER)
async def test_a_migration_that_fails_leaves_the_store_to_the_dockbell_that_made_it(path: Path, version: int) -> None:
    make(path, version)
    before = dump(path)
    for _ in range(3):
        with pytest.raises(
            StoreError, match=f"from schema version {version} to {NOW}: no such table: nowhere; it is unchanged"
        ):
            await SqliteStore.open(path, now=lambda: NOON)
    assert dump(path) == before
    assert copies(path) == [f"dockbell.db.before-v{NOW}"]


@pytest.mark.parametrize("is_enough", [True, False])
async def test_a_disk_that_is_full_in_a_migration_gets_the_reserve(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, is_enough: bool
) -> None:
    make(path, 3)
    before = dump(path)
    reserve = path.with_name("dockbell.db.reserve")
    reserve.touch()
    migrate = schema.migrate

    def migrate_with_little_room(connection: sqlite3.Connection, *args: Any, **named: Any) -> bool:
        if reserve.exists() or not is_enough:
            connection.execute("PRAGMA max_page_count = 1")
        return migrate(connection, *args, **named)

    monkeypatch.setattr(upgrading, "migrate", migrate_with_little_room)
    if is_enough:
        await open_once(path)
        assert dump(path)[0] == NOW
    else:
        with pytest.raises(StoreFull, match=r"dockbell\.db: disk full; free some space"):
            await SqliteStore.open(path, now=lambda: NOON)
        assert dump(path) == before
    assert copies(path) == [f"dockbell.db.before-v{NOW}"]


async def test_a_copy_of_an_earlier_try_is_kept_beside_that_of_what_there_is_now(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path, 3)
    scripts = MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", (*scripts[:-1], FAILING))
    with pytest.raises(StoreError):
        await SqliteStore.open(path, now=lambda: NOON)
    first = dump(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        add_run(connection, AT_NOON + 1)  # by the older dockbell, which went on
    second = dump(path)
    monkeypatch.setattr(schema, "MIGRATIONS", scripts)
    await open_once(path)
    assert copies(path) == [f"dockbell.db.before-v{NOW}", f"dockbell.db.before-v{NOW}.2"]
    assert [dump(path.with_name(name)) for name in copies(path)] == [first, second]


async def test_what_the_copy_needs_must_be_free(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path, 3)
    before = dump(path)
    monkeypatch.setattr(upgrading, "find_room", lambda _: 5_000_000)
    with pytest.raises(StoreFull, match=r"is copied before .* needs 9\.\d MB, 5\.0 MB are free; free some space"):
        await SqliteStore.open(path, now=lambda: NOON)
    assert (dump(path), copies(path)) == (before, [])


async def test_the_store_of_a_newer_dockbell_is_refused_by_all_and_left_as_it_is(path: Path) -> None:
    await (await SqliteStore.open(path, now=lambda: NOON)).aclose()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {NOW + 1}")
    before = dump(path)
    for look in (
        SqliteStore.open(path, now=lambda: NOON),
        SqliteReadStore.open(path),
        SqliteCommandStore.open(path),
        probe(path),
        back_up(path, path.with_name("backup.db"), at=NOON, force=False),
    ):
        with pytest.raises(
            StoreIncompatible, match=f"has schema version {NOW + 1}, this dockbell knows {NOW}; upgrade"
        ):
            await look
    assert dump(path) == before
    assert copies(path) == []
