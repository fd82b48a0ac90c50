"""What is particular to a store in one file."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest

from dockbell.app import now
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.judge import Judge, Reading
from dockbell.core.model import Change, ClockSource, Event, Feed, Page, Via
from dockbell.core.publishing.event import compose
from dockbell.core.publishing.ledger import Blocked, Settlement
from dockbell.errors import StoreError, StoreIncompatible, StoreInUse
from dockbell.stores.sqlite import SqliteStore, SqliteView
from dockbell.stores.sqlite.schema import MIGRATIONS

FEED = Feed("main", "shipments")
HOLD = """
import pathlib, sys, time
import anyio
from dockbell.app import now
from dockbell.stores.sqlite import SqliteStore

async def hold():
    store = await SqliteStore.open(pathlib.Path(sys.argv[1]), now=now)
    print("held", flush=True)
    time.sleep(60)

anyio.run(hold)
"""


async def test_one_process_holds_a_store(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=now)
    with pytest.raises(StoreInUse, match=f"held by process {os.getpid()}"):
        await SqliteStore.open(tmp_path / "a.db", now=now)
    await store.aclose()
    await (await SqliteStore.open(tmp_path / "a.db", now=now)).aclose()


async def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with await anyio.open_process([sys.executable, "-c", HOLD, str(path)], stderr=None) as process:
        assert process.stdout is not None
        assert await process.stdout.receive()
        with pytest.raises(StoreInUse):
            await SqliteStore.open(path, now=now)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    await (await SqliteStore.open(path, now=now)).aclose()


async def test_the_epoch_is_the_same_for_the_whole_life_of_a_file(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=now)
    epoch = store.epoch
    await store.aclose()
    store = await SqliteStore.open(tmp_path / "a.db", now=now)
    assert store.epoch == epoch
    await store.aclose()
    other = await SqliteStore.open(tmp_path / "b.db", now=now)
    assert other.epoch != epoch
    await other.aclose()


async def test_a_store_of_a_newer_dockbell_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await (await SqliteStore.open(path, now=now)).aclose()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(StoreIncompatible, match="upgrade dockbell"):
        await SqliteStore.open(path, now=now)
    with pytest.raises(StoreIncompatible, match="upgrade dockbell"):
        await SqliteView.open(path)


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreIncompatible, match="another program's database"):
        await SqliteStore.open(path, now=now)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_text("hello " * 1000)
    with pytest.raises(StoreIncompatible, match="name another file"):
        await SqliteStore.open(path, now=now)


async def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check"):
        await SqliteStore.open(tmp_path / "none" / "a.db", now=now)


async def test_a_store_can_be_looked_at_while_it_is_held(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=now)
    await store.open_feed(FEED)
    await store.enroll("screen", "now")
    view = await SqliteView.open(tmp_path / "a.db")
    assert [state.feed for state in await view.load_feeds()] == [FEED]
    assert [(sink.name, sink.owed) for sink in await view.load_sinks()] == [("screen", 0)]
    assert await view.count_records() == {FEED: 0}
    assert await view.read_latest(-10, 10) == []
    assert view.epoch == store.epoch
    await view.aclose()
    await store.aclose()


async def test_a_blocked_key_owes_its_events_though_the_position_has_passed_them(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=now)
    state = await store.open_feed(FEED)
    await store.enroll("erp", "beginning")
    judge = Judge(FEED, key=("/id",), updated_at=None, created_at=None, canon=Canon())
    for version in (b'{"id":"a"}', b'{"id":"a","n":1}', b'{"id":"b"}'):
        page = Page((version,), None, "shipments", now(), ClockSource.DATE, now(), now())
        await store.commit_page(state.id, partial(judge.judge, page, Reading(Via.POLL, now())), number)
    await store.settle("erp", Settlement({FEED: 2}, {(FEED, "a"): Blocked(FEED, "a", 1, 1, now(), "HTTP 500")}))
    view = await SqliteView.open(tmp_path / "a.db")
    (sink,) = await view.load_sinks()
    assert (sink.owed, sink.blocked, sink.error) == (3, 1, "HTTP 500")
    await view.aclose()
    await store.aclose()


def number(change: Change, sequence: int) -> Event:
    return compose(change, name="acme", singular="shipment", epoch="epoch", sequence=sequence)


async def test_only_its_owner_can_read_a_store(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=now)
    await store.open_feed(FEED)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.glob("a.db*"))}  # noqa: ASYNC240
    assert modes.keys() >= {"a.db", "a.db-wal", "a.db.lock"}
    assert set(modes.values()) == {0o600}
    await store.aclose()


async def test_looking_at_no_store_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="dockbell run"):
        await SqliteView.open(tmp_path / "a.db")
    assert not (tmp_path / "a.db").exists()


async def test_a_store_is_let_go_although_its_user_was_cancelled(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        store = await SqliteStore.open(tmp_path / "dockbell.db", now=now)
        scope.cancel()
        await store.aclose()
    await (await SqliteStore.open(tmp_path / "dockbell.db", now=now)).aclose()


async def test_a_full_disk_is_told_as_such_and_what_comes_after_it_is_stored(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=now)
    store._writer.execute("PRAGMA max_page_count = 1")  # SQLite takes this for as many as there are
    with pytest.raises(sqlite3.OperationalError, match="full"):
        await store.open_feed(Feed("main", "x" * 1_000_000))
    store._writer.execute("PRAGMA max_page_count = 100000")
    assert (await store.open_feed(FEED)).feed == FEED
    await store.aclose()
