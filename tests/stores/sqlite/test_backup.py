"""Copies of a store that somebody may be working on."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import pytest

from dockbell.core.moment import to_micros
from dockbell.errors import StoreError, StoreIncompatible
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore, copying
from dockbell.stores.sqlite.backup import back_up
from tests.fakes import NOON
from tests.stores.pages import FEED, commit, told
from tests.strangers import STRANGER, act, needs_root, share


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dockbell.db"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backup.db"


async def fill(path: Path) -> SqliteStore:
    store = await SqliteStore.open(path, now=lambda: NOON)
    state = await store.feed(FEED).open()
    await commit(store, state, *({"id": f"{number}", "x": "x" * 3000} for number in range(600)))
    return store


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await fill(path)
    yield store
    await store.aclose()


@contextmanager
def looking(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        yield connection


def count(path: Path) -> int:
    with looking(path) as connection:
        (number,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return int(number)


def size_of(path: Path) -> int:
    return path.stat().st_size


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def put(path: Path, content: bytes = b"other", mode: int = 0o600) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def spoil(path: Path) -> None:
    """Damage a store somewhere in its middle."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 20_000] = b"\xff" * 20_000
    path.write_bytes(content)


def begin_another(target: Path) -> Path:
    """Make the folder that a backup grows in, and return it."""
    part = Path(f"{target}.part")
    part.mkdir(0o700)
    return part


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir() if not each.name.startswith("dockbell.db")}


async def test_a_copy_of_a_store_in_use_is_one_file_for_its_owner_and_knows_that_it_is_one(
    store: SqliteStore, path: Path, target: Path
) -> None:
    copy = await back_up(path, target, at=NOON, force=False)
    assert (copy.path, copy.size) == (target, size_of(target))
    assert mode_of(target) == 0o600
    assert count(target) == count(path) == 600
    with looking(target) as connection:
        assert connection.execute("SELECT epoch, copied_at FROM life").fetchone() == (store.epoch, to_micros(NOON))
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert names(path.parent) == {"backup.db"}
    with looking(path) as connection:
        assert connection.execute("SELECT copied_at FROM life").fetchone() == (None,)


async def test_who_writes_meanwhile_neither_waits_nor_makes_it_begin_anew(
    store: SqliteStore, path: Path, target: Path
) -> None:
    heard: list[int] = []

    def write_beside(done: int, total: int) -> None:
        heard.append(done)
        assert done <= total
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:  # waits for nobody
            connection.execute("UPDATE records SET revision = revision + 1")

    await back_up(path, target, at=NOON, force=False, progress=write_beside)
    assert len(heard) > 3
    assert heard == sorted(heard)
    with looking(target) as connection:
        assert connection.execute("SELECT min(revision), max(revision) FROM records").fetchone() == (1, 1)
    with looking(path) as connection:
        assert connection.execute("SELECT min(revision) FROM records").fetchone() == (1 + len(heard),)
    assert len(await told(store)) == 600


async def test_nobody_needs_to_work_on_the_store(path: Path, target: Path) -> None:
    await (await fill(path)).aclose()
    await back_up(path, target, at=NOON, force=False)
    assert count(target) == 600


async def test_what_is_there_is_kept_unless_it_shall_be_replaced(store: SqliteStore, path: Path, target: Path) -> None:
    put(target, b"other", 0o644)
    with pytest.raises(StoreError, match="already exists; name another file, or replace it with --force"):
        await back_up(path, target, at=NOON, force=False)
    with pytest.raises(sqlite3.DatabaseError):
        count(target)
    await back_up(path, target, at=NOON, force=True)
    assert count(target) == count(path)
    assert mode_of(target) == 0o600


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".lock", ".life", ".reserve"])
async def test_a_store_is_never_its_own_backup(store: SqliteStore, path: Path, suffix: str) -> None:
    with pytest.raises(StoreError, match="belongs to the store itself"):
        await back_up(path, path.parent / "." / f"dockbell.db{suffix}", at=NOON, force=True)
    assert len(await told(store)) == 600


async def test_another_store_that_is_worked_on_is_not_replaced(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    other = await SqliteStore.open(tmp_path / "other.db", now=lambda: NOON)
    with pytest.raises(StoreError, match=f"is a store that process {os.getpid()} works on"):
        await back_up(path, other.path, at=NOON, force=True)
    await other.aclose()


async def test_a_folder_is_no_backup(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder; name a file in it"):
        await back_up(path, tmp_path, at=NOON, force=True)


async def test_where_there_is_no_store_or_no_folder_nothing_is_made(path: Path, target: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not found"):
        await back_up(path, target, at=NOON, force=False)
    await (await fill(path)).aclose()
    with pytest.raises(StoreError, match=r"nowhere/b.db: no such file or directory; check its disk"):
        await back_up(path, tmp_path / "nowhere" / "b.db", at=NOON, force=False)
    assert names(tmp_path) == set()


async def test_the_store_of_a_newer_dockbell_is_refused(path: Path, target: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1000")
    with pytest.raises(StoreIncompatible, match="upgrade dockbell"):
        await back_up(path, target, at=NOON, force=False)


async def test_a_disk_without_room_is_told_before_anything_is_written(
    store: SqliteStore, path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "find_room", lambda _: 1_000_000)
    with pytest.raises(StoreError, match=r"needs \d+\.\d MB, 1\.0 MB are free"):
        await back_up(path, target, at=NOON, force=False)
    assert names(path.parent) == set()


async def test_what_a_killed_backup_has_left_is_written_over(store: SqliteStore, path: Path, target: Path) -> None:
    part = begin_another(target)
    put(part / "copy", b"left" * 2_000_000, 0o644)
    put(part / "copy-journal", b"left")
    await back_up(path, target, at=NOON, force=False)
    assert names(path.parent) == {"backup.db"}
    assert mode_of(target) == 0o600
    assert count(target) == 600


async def test_so_is_what_one_of_older_times_has_left(store: SqliteStore, path: Path, target: Path) -> None:
    put(Path(f"{target}.part"), b"left" * 2_000_000, 0o644)
    await back_up(path, target, at=NOON, force=False)
    assert names(path.parent) == {"backup.db"}


async def test_two_backups_at_once_do_not_mix(store: SqliteStore, path: Path, target: Path) -> None:
    part = os.open(begin_another(target) / "copy", os.O_RDWR | os.O_CREAT)
    fcntl.flock(part, fcntl.LOCK_EX)
    with pytest.raises(StoreError, match="another process is writing it"):
        await back_up(path, target, at=NOON, force=False)
    assert names(path.parent) == {"backup.db.part"}
    os.close(part)


@needs_root
@pytest.mark.parametrize(
    "plant",
    [
        "ln -s {precious} backup.db.part",
        "ln {precious} backup.db.part",
        "mkdir -m 0777 backup.db.part; ln -s {precious} backup.db.part/copy",
        "echo planted >backup.db.part; chmod 0666 backup.db.part",
        "mkfifo -m 0666 backup.db.part",
    ],
)
async def test_what_a_stranger_has_planted_in_its_place_is_neither_followed_nor_filled(
    store: SqliteStore, path: Path, tmp_path: Path, plant: str
) -> None:
    shared, precious = share(tmp_path / "shared"), tmp_path / "precious"
    put(precious, b"kept", 0o666)  # or the kernel lets nobody link it
    act(shared, plant.format(precious=precious))
    there = os.lstat(shared / "backup.db.part")
    with pytest.raises(StoreError, match=r"backup\.db\.part (belongs to user 12345|is not a folder|is a file with)"):
        await back_up(path, shared / "backup.db", at=NOON, force=False)
    assert precious.read_bytes() == b"kept"
    assert os.lstat(shared / "backup.db.part").st_ino == there.st_ino
    assert names(shared) == {"backup.db.part"}


@needs_root
async def test_a_journal_that_a_stranger_has_planted_does_not_get_into_the_copy(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    shared = share(tmp_path / "shared")
    act(shared, "for each in -journal -wal; do echo x >backup.db.part$each; done")
    await back_up(path, shared / "backup.db", at=NOON, force=False)
    assert mode_of(shared / "backup.db") == 0o600
    assert names(shared) == {"backup.db", "backup.db.part-journal", "backup.db.part-wal"}
    for log in ("-journal", "-wal"):
        act(shared, f"echo x >other.db{log}")
        with pytest.raises(StoreError, match=f"other.db{log} exists, which SQLite would write into the copy"):
            await back_up(path, shared / "other.db", at=NOON, force=True)
        act(shared, f"rm other.db{log}")


@needs_root
async def test_a_folder_in_which_others_could_replace_it_gets_no_backup(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    shared = share(tmp_path / "shared", 0o777)
    with pytest.raises(StoreError, match=f"folder {shared}: everybody can replace the files in it"):
        await back_up(path, shared / "backup.db", at=NOON, force=False)
    os.chown(shared, STRANGER, STRANGER)
    with pytest.raises(StoreError, match=f"folder {shared}: its owner, user 12345, can replace the files"):
        await back_up(path, shared / "backup.db", at=NOON, force=False)
    os.chown(path.parent, STRANGER, STRANGER)  # who could replace the store itself
    shared.chmod(0o700)
    await back_up(path, shared / "backup.db", at=NOON, force=False)
    assert names(shared) == {"backup.db"}


async def test_one_that_is_cancelled_leaves_nothing(store: SqliteStore, path: Path, target: Path) -> None:
    with anyio.CancelScope() as scope:
        await back_up(path, target, at=NOON, force=False, progress=lambda *_: anyio.from_thread.run_sync(scope.cancel))
    assert scope.cancelled_caught
    assert names(path.parent) == set()
    assert len(await told(store)) == 600


async def test_a_damaged_store_gives_no_backup(path: Path, target: Path) -> None:
    await (await fill(path)).aclose()
    spoil(path)
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        await back_up(path, target, at=NOON, force=False)
    assert names(path.parent) == set()


async def test_a_copy_can_be_looked_at_where_it_is(store: SqliteStore, path: Path, target: Path) -> None:
    await back_up(path, target, at=NOON, force=False)
    read_store = await SqliteReadStore.open(target)
    assert await read_store.count_records() == {FEED: 600}
    await read_store.aclose()
    assert names(path.parent) == {"backup.db"}
