"""What becomes of a store that an older dockbell has left."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import pytest

from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.document import decode
from dockbell.core.model import Feed, RunKind
from dockbell.core.moment import to_micros
from dockbell.core.publishing.settlement import Blocked, DeadLetter
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.errors import StoreError, StoreIncompatible
from dockbell.ports import Failing, RunRecord, Selection
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore, schema
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.stores.sqlite.migrations import MIGRATIONS
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER, commit, datas, later, told

AT_NOON = to_micros(NOON)
RECORDS = [b'{"id": "a", "x": 1}', b'{"id": "b", "x": 1}', b'{"id": "c", "x": 1}']
OLD_LIFE = "0123456789abcdef"


def make_old(path: Path) -> None:
    """Make the store of version 1 of a dockbell that has worked for a while."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(MIGRATIONS[0])
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("INSERT INTO life VALUES (?, ?)", (OLD_LIFE, AT_NOON))
        connection.executemany(
            "INSERT INTO feeds (id, source, resource, key, updated_at, first_asked_at, watermark, candidate, passes,"
            " sequence, held, confirm_at, problem) VALUES (?, 'main', ?, ?, '/at', ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (1, "shipments", '["/id"]', AT_NOON, AT_NOON + 1, AT_NOON + 2, 3, 4, 1, AT_NOON + 3, "key refused"),
                (2, "stock", '["/sku", "/warehouse"]', AT_NOON, AT_NOON, None, 0, 0, 0, None, ""),
                (3, "items", None, None, None, None, 0, 0, 0, None, ""),
            ],
        )
        hours = 3_600_000_000
        connection.executemany(
            "INSERT INTO runs VALUES (1, ?, ?, ?, ?, ?, 1, 2, 3, ?)",
            [
                ("pass", 1, AT_NOON, None, AT_NOON + 4 * hours, ""),
                ("pass", 0, AT_NOON, None, AT_NOON + 1 * hours, "cut short"),
                ("poll", 1, AT_NOON, AT_NOON, AT_NOON + 2 * hours, ""),
                ("poll", 0, AT_NOON, AT_NOON, AT_NOON + 3 * hours, "HTTP 503"),
            ],
        )
        canon = Canon(updated_at="/at")
        connection.executemany(
            "INSERT INTO records VALUES (?, 1, ?, ?, ?, NULL, ?, ?, ?, ?)",
            [
                (
                    row,
                    json.loads(raw)["id"],
                    blake2b(raw, digest_size=16).digest(),
                    canon.fingerprint(decode(raw)),
                    *rest,
                )
                for row, raw, rest in zip(
                    (1, 2, 3),
                    RECORDS,
                    ((2, None, None, None), (0, AT_NOON, AT_NOON, None), (2, None, None, AT_NOON)),
                    strict=True,
                )
            ],
        )
        connection.executemany("INSERT INTO bodies VALUES (?, ?)", enumerate(RECORDS, start=1))
        events = [("a", "created", 1), ("a", "updated", 2), ("c", "created", 1), ("c", "deleted", 2)]
        connection.executemany(
            "INSERT INTO events VALUES (NULL, 1, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (number, key, f"evt_{number}", f"dockbell.shipment.{change}", change, revision, AT_NOON, b'{"data":{}}')
                for number, (key, change, revision) in enumerate(events, start=1)
            ],
        )
        connection.execute("INSERT INTO positions VALUES ('erp', 1, 3), ('erp', 2, 0)")
        connection.execute("INSERT INTO blocked VALUES ('erp', 1, 'a', 2, 1, ?, 'HTTP 500')", (AT_NOON,))
        connection.execute("INSERT INTO dead_letters VALUES ('erp', 1, 1, 'a', 10, ?, 'HTTP 422')", (AT_NOON,))


def test_a_new_store_has_the_tables_that_the_migrations_come_to() -> None:
    assert find_tables(schema.read_schema()) == find_tables("".join(MIGRATIONS))


def find_tables(script: str) -> dict[str, str]:
    """Return the statement of each table and index that a script makes, without comments and line breaks."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script)
        found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {name: normalise(sql) for name, sql in found}


def normalise(sql: str) -> str:
    words = re.sub(r"--[^\n]*", "", sql).replace('"', "")  # what was renamed is quoted
    return re.sub(r" ?([(),]) ?", r"\1", " ".join(words.split()))


async def test_an_old_store_is_brought_up_to_date_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make_old(path)
    store = await SqliteStore.open(path, now=lambda: NOON)
    assert store.epoch == OLD_LIFE
    state = await store.feed(FEED).open()
    assert (state.id, state.shape, state.passes, state.sequence) == (1, Shape(("/id",), "/at", None), 3, 4)
    assert (state.first_asked_at, state.confirm_at, state.held) == (NOON, later(microseconds=3), 1)
    assert state.progress == Progress(later(microseconds=1), later(microseconds=2))
    assert (state.problem, state.read_settings, state.holds, state.emitted) == ("key refused", None, 0, None)
    assert state.full == RunRecord(RunKind.PASS, NOON, None, later(hours=4), 1, 2, 3)
    assert state.poll == RunRecord(RunKind.POLL, NOON, NOON, later(hours=2), 1, 2, 3)
    assert state.failing == {RunKind.POLL: Failing(1, later(hours=3), later(hours=3), "HTTP 503")}
    assert await store.sink("erp").load_queue() == ({FEED: 3, OTHER: 0}, [Blocked(FEED, "a", 2, 1, NOON, "HTTP 500")])
    assert await told(store) == ["a created 1", "a updated 2", "c created 1", "c deleted 2"]
    assert await store.feed(FEED).find_suspected() == [2]
    assert await store.feed(FEED).count_deleted(NOON) == 1
    await store.aclose()


async def test_the_keys_that_whole_passes_proved_are_proven_and_no_gap_is_stated(tmp_path: Path) -> None:
    make_old(tmp_path / "a.db")
    for _ in range(2):
        store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
        states = [await store.feed(feed).open() for feed in (FEED, OTHER, Feed("main", "items"))]
        assert [(state.proven, state.rebaselining, state.blind) for state in states] == [
            (True, False, ""),
            (False, False, ""),
            (False, False, ""),
        ]
        assert (await store.feed(Feed("main", "packages")).open()).blind == ""
        await store.aclose()


async def test_what_was_stored_is_what_the_next_page_is_compared_with(tmp_path: Path) -> None:
    make_old(tmp_path / "a.db")
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    state = await store.feed(FEED).open()
    committed = await commit(store, state, *RECORDS[:2])
    assert (committed.events, committed.page_diff.cleared) == (0, [2])
    await commit(store, state, *({"id": key, "x": 2} for key in "abcd"))
    assert await told(store, after=4) == ["a updated 3", "b updated 1", "c restored 3", "d created 1"]
    assert (await datas(store))[4]["before"] == json.loads(RECORDS[0])
    await store.aclose()


async def test_an_old_store_is_not_looked_at_before_it_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make_old(path)
    before = path.read_bytes()
    remedy = '"dockbell run" upgrades it'
    versions = f"has schema version 1, this dockbell needs {len(MIGRATIONS)}"
    with pytest.raises(StoreIncompatible, match=f"{versions}; {remedy}"):
        await SqliteReadStore.open(path)
    with pytest.raises(StoreIncompatible, match=remedy):
        await SqliteCommandStore.open(path)
    assert path.read_bytes() == before
    await (await SqliteStore.open(path, now=lambda: NOON)).aclose()
    await (await SqliteCommandStore.open(path)).aclose()
    read_store = await SqliteReadStore.open(path)
    assert await read_store.count_records() == {FEED: 2, OTHER: 0, Feed("main", "items"): 0}
    await read_store.aclose()


async def test_a_migration_that_breaks_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    make_old(path)
    with monkeypatch.context() as patch:
        script = MIGRATIONS[1] + "CREATE TABLE broken (x NONSENSE) STRICT;"
        patch.setattr(schema, "MIGRATIONS", (MIGRATIONS[0], script))
        with pytest.raises(StoreError, match="unknown datatype"):
            await SqliteStore.open(path, now=lambda: NOON)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (4,)
    store = await SqliteStore.open(path, now=lambda: NOON)  # nobody holds it, nor a lock in it
    assert (await store.feed(FEED).open()).sequence == 4
    await store.aclose()


async def test_what_sinks_had_settled_and_owed_stays_as_it_was_and_no_event_counts_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make_old(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM events WHERE sequence = 3")  # pruned: it was not owed like those around it
    store = await SqliteStore.open(path, now=lambda: NOON)
    assert (await store.find_extents())[FEED].pruned == 3
    assert (await store.find_extents())[OTHER].pruned == 0
    assert await store.sink("erp").enroll("state") == []
    assert await store.sink("erp").load_queue() == (
        {FEED: 3, OTHER: 0, Feed("main", "items"): 0},
        [Blocked(FEED, "a", 2, 1, NOON, "HTTP 500")],
    )
    begun = await store.sink("erp").load_starts()
    assert (begun[FEED].origin, begun[FEED].backfilled_to, begun[FEED].lost_since) == (0, None, None)
    controls = await store.sink("erp").load_controls()
    assert (controls.paused, controls.held, controls.replay_at) == (None, 0, None)
    await store.aclose()
    command_store = await SqliteCommandStore.open(path)
    ((sink, letter),) = [(each.sink, each.letter) for each in await command_store.read_dead(None, Selection(), 10)]
    assert (sink, letter) == ("erp", DeadLetter(FEED, "a", 1, 10, NOON, "HTTP 422"))
    await command_store.aclose()


async def test_rows_keep_their_numbers_when_they_become_those_of_a_feed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make_old(path)
    fingerprint = b"0123456789abcdef"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("".join(MIGRATIONS[1:6]) + "PRAGMA user_version = 6;")
        insert = (
            "INSERT INTO records (id, feed, key, raw_hash, fingerprint, revision, held) VALUES (?, ?, ?, ?, ?, 1, ?)"
        )
        keys = [(4, 2, "x,1"), (5, 1, " 5 d"), (6, 2, "y,1")]
        connection.executemany(
            insert, [(row, feed, key, fingerprint, fingerprint, row == 6) for row, feed, key in keys]
        )
        connection.executemany("INSERT INTO bodies VALUES (?, ?)", [(row, b"{}") for row, *_ in keys])
        connection.execute("INSERT INTO holds VALUES (6, ?, ?, ?)", (fingerprint, AT_NOON, b'{"n": 1}'))
        detail = "INSERT INTO details VALUES (4, 2, 'x,1', x'7b7d', 'updated', NULL, ?, NULL, 0, 'poll', 0, ?, 2, NULL)"
        connection.execute(detail, (AT_NOON, AT_NOON))
        connection.execute("UPDATE positions SET told = 4 WHERE feed = 2")
        connection.execute("INSERT INTO wishes (id, wish, feed, made_at) VALUES (7, 'APPROVE', 2, 1)")
        seen, shown = SeenRows(6), SeenRows(6)
        seen.add([4, 6])
        shown.add([6])
        packed = [zlib.compress(each.to_bytes()) for each in (seen, shown)]
        connection.execute("INSERT INTO checkpoints VALUES (2, 'c', '{}', ?, ?, ?)", (*packed, AT_NOON))
    store = await SqliteStore.open(path, now=lambda: NOON)
    handle = store.feed(OTHER)
    stock = await handle.open()
    assert stock.holds == 1
    (awaited,) = await handle.load_awaited(10)
    assert (awaited.row, awaited.pending.key, awaited.queued_at) == (4, "x,1", NOON)
    assert await handle.read_bodies([1, 4, 5, 6]) == {4: b"{}", 6: b"{}"}
    assert (await store.sink("erp").load_starts())[OTHER].backfilled_to == 4
    assert [(each.id, each.feed) for each in await store.commands.take()] == [(7, OTHER)]
    await store.feed(FEED).open()
    assert [row for row, *_ in (await store.feed(FEED).find_absent(SeenRows(6))).rows] == [1, 2, 5]
    stored, last = await store.read_stored(FEED, 0, 10)
    assert ([(each.row, each.key) for each in stored], last) == ([(1, "a"), (2, "b"), (3, "c"), (5, "d")], 5)
    # A pass that goes on takes what is new for new: no number that it may miss is given to it.
    checkpoint = await handle.load_checkpoint()
    assert checkpoint is not None
    assert (await commit(store, stock, {"id": "new"})).inserted == range(7, 8)
    assert (await commit(store, await store.feed(FEED).open(), {"id": "new"})).inserted == range(7, 8)
    assert (await handle.find_absent(checkpoint.seen)).rows == []
    assert [row for row, *_ in (await handle.find_absent(checkpoint.rows)).rows] == [4]
    await store.aclose()


def test_suspected_records_are_found_by_their_index_alone() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema.read_schema())
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT row FROM records WHERE feed = 1 AND suspected_at IS NOT NULL AND gone_at IS NULL"
            " ORDER BY row"
        ).fetchall()
    assert [step[-1] for step in plan] == ["SEARCH records USING INDEX records_suspected (feed=?)"]
