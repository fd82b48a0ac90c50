"""What is particular to a store in one file."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from dockbell.app import now
from dockbell.core.model import RunKind
from dockbell.errors import StoreError, StoreFull, StoreIncompatible, StoreInUse
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from dockbell.stores.sqlite.migrations import MIGRATIONS
from tests.fakes import NOON
from tests.stores.pages import FEED, a_run, commit, later, told

ROOT = Path(__file__).parents[2]
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


async def test_the_log_does_not_grow_with_the_ends_of_quiet_runs(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=now)
    feed = store.feed(FEED)
    await feed.open()
    for _ in range(1000):  # each writes some 13 kB to the log
        await feed.close_run(a_run(RunKind.POLL))
    log = (await anyio.Path(f"{store.path}-wal").stat()).st_size
    assert log < 5_000_000  # SQLite moves it into the store at 1000 pages of 4 kB
    await store.aclose()


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
        await SqliteReadStore.open(path)


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreIncompatible, match="belongs to another program"):
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


async def test_a_store_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(StoreError, match="not a database"):
        await SqliteReadStore.open(tmp_path / "a.db")


async def test_a_store_that_cannot_be_opened_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    (tmp_path / "a.db").touch()
    monkeypatch.setattr(sqlite3, "connect", refuse)  # as for who may not read it; root may read everything
    with pytest.raises(StoreError, match="unable to open database file; check its permissions"):
        await SqliteReadStore.open(tmp_path / "a.db")


async def test_only_its_owner_can_read_a_store(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=now)
    await store.feed(FEED).open()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.glob("a.db*"))}  # noqa: ASYNC240
    assert modes.keys() >= {"a.db", "a.db-wal", "a.db.lock", "a.db.life"}
    assert set(modes.values()) == {0o600}
    await store.aclose()


async def test_looking_at_no_store_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="dockbell run"):
        await SqliteReadStore.open(tmp_path / "a.db")
    assert not (tmp_path / "a.db").exists()


async def test_a_store_is_let_go_although_its_user_was_cancelled(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        store = await SqliteStore.open(tmp_path / "dockbell.db", now=now)
        scope.cancel()
        await store.aclose()
    await (await SqliteStore.open(tmp_path / "dockbell.db", now=now)).aclose()


async def test_a_full_disk_loses_nothing_and_what_comes_after_it_is_stored(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=now)
    state = await store.feed(FEED).open()
    store.engine.writer.execute("PRAGMA max_page_count = 120")
    stored = 0
    with suppress(StoreFull):
        while stored < 1000:
            await commit(store, state, {"id": str(stored), "x": "x" * 5000}, {"id": "same", "x": stored})
            stored += 1
    assert 10 < stored < 1000
    for _ in range(2):
        with pytest.raises(StoreFull, match="disk full; free some space"):
            await commit(store, state, {"id": "one", "x": "x" * 500_000})
    assert (await store.feed(FEED).open()).sequence == len(await told(store)) == 2 * stored
    assert (await commit(store, state, {"id": "same", "x": stored - 1})).events == 0
    store.engine.writer.execute("PRAGMA max_page_count = 100000")
    assert (await commit(store, state, {"id": "one"}, {"id": "same", "x": "at last"})).events == 2
    assert await told(store, after=2 * stored) == ["one created 1", f"same updated {stored + 1}"]
    await store.aclose()


FILL = """
import pathlib, resource, sys
import anyio
from dockbell.app import now
from dockbell.stores.sqlite import SqliteStore
from tests.stores.pages import FEED, OTHER, commit, later, told

async def fill():
    path = pathlib.Path(sys.argv[1])
    store = await SqliteStore.open(path, now=now)
    state = await store.feed(FEED).open()
    size = path.with_name(path.name + "-wal").stat().st_size + 200_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    stored = failed = 0
    for number in range(1000):
        try:
            await commit(store, state, {"id": str(number), "x": "x" * 20_000}, {"id": "same", "x": number})
            stored += 1
        except Exception as error:
            print(type(error).__name__, error, file=sys.stderr)
            failed += 1
            if failed == 3:
                break
    assert len(await told(store)) == 2 * stored
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await commit(store, state, {"id": "same", "x": "at last"})
    print(stored, failed, len(await told(store)) - 2 * stored)
    await store.aclose()

anyio.run(fill)
"""


async def test_a_write_that_breaks_when_it_is_committed_loses_nothing_either(tmp_path: Path) -> None:
    """The log of the database cannot grow any more: what fails is the commit, not a statement before it."""
    path = tmp_path / "dockbell.db"
    done = await anyio.run_process([sys.executable, "-c", FILL, str(path)], cwd=ROOT)
    stored, failed, after = map(int, done.stdout.split())
    assert stored > 0
    assert (failed, after) == (3, 1)
    assert done.stderr.count(b"StoreUnavailable store %b: disk I/O error; check its disk" % bytes(path)) == 3
    store = await SqliteStore.open(path, now=now)
    assert len(await told(store)) == 2 * stored + 1
    await store.aclose()


async def test_what_is_pruned_is_not_used_any_more(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON)
    state = await store.feed(FEED).open()
    await commit(store, state, *({"id": str(number), "x": "x" * 1000} for number in range(300)))
    full = await store.retention.measure()
    assert full.disk > full.used > 300_000
    await store.retention.prune_events(later(days=9), [], 1000)
    assert (await store.retention.measure()).used < full.used - 200_000
    await store.aclose()
