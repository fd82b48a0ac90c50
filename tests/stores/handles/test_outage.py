"""One outage for all who need the store: told once, looked at by one, over for all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import anyio
import psycopg
import pytest

from dockbell.errors import StoreError, StoreFull, StoreUnavailable
from dockbell.stores.handles.outage import Outage
from dockbell.stores.sqlite import SqliteStore
from dockbell.telemetry import StoreFails, StoreMended
from tests.fakes import NOON, Ear
from tests.stores.pages import FEED, commit, told
from tests.stores.places import Place, open_store

FULL = StoreFull("store a.db: disk full; free some space")


class Disk:
    """A disk that is full for some looks, and time that passes only while somebody waits for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        self.pauses: list[float] = []
        self.ear = Ear()
        self.looks = 0
        self.outage = Outage(self._look, self.ear.telemetry)
        monkeypatch.setattr("dockbell.stores.handles.outage.anyio", self)
        self.Lock = anyio.Lock

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds
        await anyio.lowlevel.checkpoint()

    def current_time(self) -> float:
        return self.time

    async def _look(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.looks:
            self.looks -= 1
            raise FULL

    async def fail(self, looks: int) -> list[float]:
        """Be full for some looks; return how long was waited before each."""
        self.looks = looks
        self.pauses.clear()
        self.outage.begin(FULL)
        with anyio.fail_after(5):
            await self.outage.over()
        assert self.outage.reason is None
        return list(self.pauses)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_while_nothing_is_wrong_nobody_waits(disk: Disk) -> None:
    await disk.outage.over()
    assert disk.pauses == []


async def test_it_is_told_once_and_over_for_all_at_once(disk: Disk) -> None:
    disk.looks = 3
    for _ in range(5):
        disk.outage.begin(FULL)
    assert disk.outage.began.rings == 1
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(disk.outage.over)
    assert len(disk.pauses) == 4
    told = [str(fact) for fact in disk.ear.facts]
    assert told == [
        "store a.db: disk full; free some space; reading and delivery wait and resume automatically",
        "store: writable again after 12 s; reading and delivery resume",
    ]


async def test_it_is_looked_at_every_few_seconds(disk: Disk) -> None:
    assert await disk.fail(looks=6) == [1, 2, 4, 5, 5, 5, 5]


async def test_outages_that_follow_each_other_closely_are_given_more_and_more_time(disk: Disk) -> None:
    assert [await disk.fail(looks=0) for _ in range(6)] == [[1], [10], [20], [40], [60], [60]]
    assert await disk.fail(looks=2) == [60, 60, 60]
    disk.time += 200
    assert await disk.fail(looks=0) == [1]


async def test_who_no_longer_waits_does_not_keep_others_from_looking(disk: Disk) -> None:
    disk.outage.begin(FULL)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await disk.outage.over()
    await disk.outage.over()
    assert disk.outage.reason is None


async def test_a_store_that_was_full_goes_on_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = Ear()
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON, telemetry=ear.telemetry)
    reserve = tmp_path / "a.db.reserve"
    state = await store.feed(FEED).open()
    assert reserve_of(reserve) == 8 * 1024 * 1024
    monkeypatch.setattr("dockbell.stores.handles.outage._FIRST", 0.01)
    monkeypatch.setattr("dockbell.stores.sqlite.engine.find_room", lambda _: 0)
    monkeypatch.setattr("dockbell.stores.sqlite.disk_reserve.os.posix_fallocate", refuse)
    store.engine.writer.execute("PRAGMA max_page_count = 100")
    with pytest.raises(StoreFull, match=r"a\.db: disk full; free some space"):
        await commit(store, state, {"id": "a", "x": 1, "y": "y" * 500_000})
    assert is_full(store)
    assert reserve_of(reserve) == 0
    assert store.health.stalled.rings == 1
    store.engine.writer.execute("PRAGMA max_page_count = 100000")
    with anyio.move_on_after(0.2):
        await store.health.recovered()
    assert is_full(store), "there is no room for the next page"
    monkeypatch.undo()
    monkeypatch.setattr(store.engine.outage, "_pause", 0.01)
    with anyio.fail_after(5):
        await store.health.recovered()
    assert not is_full(store)
    assert reserve_of(reserve) == 8 * 1024 * 1024
    await commit(store, state, {"id": "a", "x": 1, "y": "y" * 500_000})
    assert await told(store) == ["a created 1"]
    assert [type(fact) for fact in ear.facts] == [StoreFails, StoreMended]
    await store.aclose()


async def test_room_in_the_store_itself_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.stores.sqlite.engine.find_room", lambda _: 0)
    monkeypatch.setattr("dockbell.stores.sqlite.disk_reserve.os.posix_fallocate", refuse)
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    assert store.health.trouble is not None
    monkeypatch.setattr(store.engine.outage, "_pause", 0.01)
    store.engine.writer.execute("CREATE TABLE filling (x)")
    store.engine.writer.execute("INSERT INTO filling VALUES (zeroblob(10000000))")
    store.engine.writer.execute("DROP TABLE filling")
    with anyio.fail_after(5):
        await store.health.recovered()
    await store.aclose()


async def test_our_own_errors_are_no_outage(place: Place) -> None:
    ear = Ear()
    store = await open_store(place, now=lambda: NOON, telemetry=ear.telemetry)
    with pytest.raises((sqlite3.OperationalError, psycopg.errors.UndefinedTable), match="nowhere"):
        await store.engine.write(lambda writer: writer.execute("SELECT * FROM nowhere"))
    assert store.health.trouble is None
    assert ear.facts == []
    await store.aclose()


async def test_what_only_one_reading_meets_is_no_outage_of_all(tmp_path: Path) -> None:
    ear = Ear()
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON, telemetry=ear.telemetry)
    state = await store.feed(FEED).open()
    await commit(store, state, *[{"id": f"k{number}", "text": "x" * 900} for number in range(50)])
    store.engine.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (page,) = store.engine.writer.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'bodies'").fetchone()
    (size,) = store.engine.writer.execute("PRAGMA page_size").fetchone()
    with (tmp_path / "a.db").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(StoreError, match="database disk image is malformed") as caught:
        await store.feed(FEED).read_bodies([1])
    assert not isinstance(caught.value, StoreUnavailable)
    assert (store.health.trouble, store.health.stalled.rings, ear.facts) == (None, 0, [])
    await store.feed(state.feed).save_listing_profile("{}")
    await store.aclose()


async def test_a_store_that_another_program_locks_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    state = await store.feed(FEED).open()
    monkeypatch.setattr("dockbell.stores.handles.outage._FIRST", 0.01)
    store.engine.writer.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="database is locked; stop the other program that locks it"):
        await commit(store, state, {"id": "a"})
    other.close()
    with anyio.fail_after(5):
        await store.health.recovered()
    await commit(store, state, {"id": "a"})
    await store.aclose()


def refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


def is_full(store: SqliteStore) -> bool:
    return isinstance(store.health.trouble, StoreFull)


def reserve_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_what_is_wrong_with_the_store_is_an_error_of_the_store() -> None:
    assert issubclass(StoreFull, StoreUnavailable)
    assert issubclass(StoreUnavailable, StoreError)
