"""Whether a store notices that its file is not the one that was there."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from dockbell.core.model import Event, Feed, StatementKind
from dockbell.errors import StoreError
from dockbell.ports import FeedState
from dockbell.stores.sql.life import STORE_LOST, STORE_RESTORED
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from dockbell.stores.sqlite.backup import back_up
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.stores.sqlite.epoch_file import EpochFile, EpochMark
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER, a_statement, commit, make_composer, told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    """Hold a store, with feeds that state what is to be stated first, as readers do."""
    store = await SqliteStore.open(path, now=lambda: NOON)
    try:
        yield store
    finally:
        await store.aclose()


async def begin(store: SqliteStore, feed: Feed = FEED) -> FeedState:
    """Open a feed as a reader does: state a gap first where one is to be stated."""
    state = await store.feed(feed).open()
    if state.blind:
        gap = a_statement(StatementKind.GAP, reason=state.blind)
        await store.feed(state.feed).publish([gap], make_composer(store.epoch))
    return state


async def write(store: SqliteStore, *values: int) -> None:
    """Let a record change."""
    state = await begin(store)
    for value in values:
        await commit(store, state, {"id": "a", "x": value}, compose=make_composer(store.epoch))


def read_life(path: Path) -> dict[str, object]:
    text = Path(f"{path}.life").read_bytes()
    assert text.endswith(b" \n")
    life: dict[str, object] = json.loads(text)
    return life


def lose(path: Path) -> None:
    """Delete a store; what stands beside it stays."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def copy(source: Path, target: Path) -> None:
    """Copy a store as a backup does, also one that is in use: then not all of it is in the file itself."""
    lose(target)
    for suffix in ("", "-wal"):
        if Path(f"{source}{suffix}").exists():
            shutil.copy(f"{source}{suffix}", f"{target}{suffix}")


def move(source: Path, target: Path) -> None:
    """Move a store that nobody holds, and nothing of what stands beside it."""
    source.rename(target)


async def all_events(store: SqliteStore) -> list[Event]:
    return list(await store.read_events(FEED, 0, 100))


async def test_a_store_says_after_each_commit_with_events_how_far_it_is(path: Path) -> None:
    async with opened(path) as store:
        assert read_life(path) == {"epoch": store.epoch, "entry": 0}
        await write(store, 1)
        assert read_life(path) == {"epoch": store.epoch, "entry": 1}
        await write(store, 1)
        await write(store, 2, 3)
        assert read_life(path) == {"epoch": store.epoch, "entry": 3}


async def test_a_new_store_has_missed_nothing(path: Path) -> None:
    for _ in range(2):
        async with opened(path) as store:
            await write(store, 1)
    async with opened(path) as store:
        assert await told(store) == ["a created 1"]


async def test_a_lost_store_begins_a_new_life_and_each_feed_states_the_gap_once(path: Path) -> None:
    async with opened(path) as store:
        await write(store, 1, 2)
        first, before = store.epoch, await all_events(store)
    lose(path)
    for values in ((1, 2), (2,), (2,)):
        async with opened(path) as store:
            second = store.epoch
            await write(store, *values)
            await begin(store, OTHER)
            assert await told(store) == ["gap 0", "a created 1", "a updated 2"]
            assert await told(store, OTHER) == ["gap 0"]
            after = await all_events(store)
    assert first != second
    assert not {event.id for event in before} & {event.id for event in after}
    assert json.loads(after[0].body)["data"]["reason"] == STORE_LOST


async def test_every_sink_hears_of_the_gap_of_a_lost_store(path: Path) -> None:
    async with opened(path) as store:
        await write(store, 1)
        await store.sink("erp").enroll("now")
        assert (await store.sink("erp").load_queue())[0] == {FEED: 1}
    lose(path)
    async with opened(path) as store:
        await begin(store)
        await store.sink("erp").enroll("now")
        assert (await store.sink("erp").load_queue())[0] == {FEED: 0}
    async with opened(path) as store:
        await store.sink("new").enroll("now")
        assert (await store.sink("new").load_queue())[0] == {FEED: 1}


async def test_a_feed_that_is_added_later_has_missed_nothing(path: Path) -> None:
    async with opened(path) as store:
        await write(store, 1)
    lose(path)
    async with opened(path) as store:
        await begin(store)
    async with opened(path) as store:
        assert (await begin(store, OTHER)).blind == ""
        assert await told(store, OTHER) == []


async def test_a_gap_is_not_forgotten_when_the_first_process_dies_before_it_knows_its_feeds(path: Path) -> None:
    async with opened(path) as store:
        await write(store, 1)
    lose(path)
    for _ in range(2):
        async with opened(path):
            pass
    async with opened(path) as store:
        assert (await begin(store)).blind == STORE_LOST
        assert (await store.feed(FEED).open()).blind == ""


async def test_a_gap_is_not_forgotten_when_the_first_process_dies_before_it_opens_all_feeds(path: Path) -> None:
    async with opened(path) as store:
        await write(store, 1)
    lose(path)
    async with opened(path) as store:
        await store.add_feeds([FEED, OTHER])
        await begin(store)
    async with opened(path) as store:
        assert (await begin(store, OTHER)).blind == STORE_LOST


async def test_a_gap_waits_until_it_is_stated(path: Path) -> None:
    async with opened(path) as store:
        await write(store, 1)
    lose(path)
    for _ in range(2):
        async with opened(path) as store:
            assert (await store.feed(FEED).open()).blind == STORE_LOST


@pytest.mark.parametrize("in_use", [False, True])
async def test_a_restored_backup_begins_a_new_life_and_goes_on_from_what_it_holds(path: Path, in_use: bool) -> None:
    backup = path.with_name("backup.db")
    async with opened(path) as store:
        await write(store, 1, 2)
        if in_use:
            copy(path, backup)
    if not in_use:
        copy(path, backup)
    async with opened(path) as store:
        await store.sink("erp").enroll("now")
        await write(store, 3, 4)
        first, before = store.epoch, await all_events(store)
    copy(backup, path)
    for values in ((3, 4), (4,)):
        async with opened(path) as store:
            second = store.epoch
            await write(store, *values)
            assert await told(store) == ["a created 1", "a updated 2", "gap 0", "a updated 3", "a updated 4"]
            after = await all_events(store)
    assert first != second
    assert {event.id for event in before} & {event.id for event in after} == {event.id for event in before[:2]}
    assert json.loads(after[2].body)["data"]["reason"] == STORE_RESTORED


async def test_a_backup_that_is_as_new_as_the_store_is_the_store(path: Path) -> None:
    backup = path.with_name("backup.db")
    async with opened(path) as store:
        await write(store, 1)
        epoch = store.epoch
    copy(path, backup)
    copy(backup, path)
    async with opened(path) as store:
        assert (store.epoch, (await begin(store)).blind) == (epoch, "")


async def test_another_store_in_its_place_begins_a_new_life(path: Path) -> None:
    other = path.with_name("other.db")
    async with opened(path) as store:
        await write(store, 1)
    async with opened(other) as store:
        await write(store, 1, 2, 3)
        epoch = store.epoch
    copy(other, path)
    async with opened(path) as store:
        assert store.epoch != epoch
        assert (await begin(store)).blind == STORE_RESTORED


async def test_a_store_that_moved_without_its_life_file_goes_on(path: Path) -> None:
    async with opened(path) as store:
        await write(store, 1)
        epoch = store.epoch
    moved = path.with_name("moved.db")
    move(path, moved)
    async with opened(moved) as store:
        assert (store.epoch, (await begin(store)).blind) == (epoch, "")
        assert read_life(moved) == {"epoch": epoch, "entry": 1}


async def test_a_store_whose_events_are_all_pruned_is_not_taken_for_a_backup(path: Path) -> None:
    async with opened(path) as store:
        await write(store, 1, 2)
        epoch = store.epoch
        await store.retention.prune_events(NOON + timedelta(days=1), [], 10)
    async with opened(path) as store:
        assert (store.epoch, (await begin(store)).blind) == (epoch, "")


async def test_a_crash_between_a_commit_and_the_life_file_is_harmless(path: Path) -> None:
    async with opened(path) as store:
        await write(store, 1, 2, 3)
        epoch = store.epoch
    life = EpochFile(path)
    life.write(EpochMark(epoch, 1))
    life.close()
    async with opened(path) as store:
        assert (store.epoch, (await begin(store)).blind) == (epoch, "")
        assert read_life(path) == {"epoch": epoch, "entry": 3}


Spoil = Callable[[bytes], bytes]


def spoil_life(path: Path, spoil: Spoil) -> None:
    file = Path(f"{path}.life")
    file.write_bytes(spoil(file.read_bytes()))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda _: b"", id="nothing of it is left"),
        pytest.param(lambda text: text[:20], id="a part of it is left"),
        pytest.param(lambda text: bytes(len(text)), id="zeros"),
        pytest.param(lambda _: b"\xff" * 129, id="garbage"),
        pytest.param(lambda _: b'{"epoch": "\xff", "entry": 1}', id="garbage in a string"),
        pytest.param(lambda _: b'{"epoch": 7, "entry": 1}', id="another type"),
        pytest.param(lambda _: b"[]", id="another shape"),
    ],
)
async def test_a_life_file_that_a_power_loss_has_spoilt_is_written_anew(path: Path, spoil: Spoil) -> None:
    async with opened(path) as store:
        await write(store, 1)
        epoch = store.epoch
    spoil_life(path, spoil)
    async with opened(path) as store:
        assert (store.epoch, (await begin(store)).blind) == (epoch, "")
        assert read_life(path) == {"epoch": epoch, "entry": 1}


async def test_a_crash_right_after_a_new_life_began_states_the_gap_once(path: Path) -> None:
    async with opened(path) as store:
        await write(store, 1)
    life = EpochFile(path)
    old = life.read()
    lose(path)
    async with opened(path) as store:
        pass
    assert old is not None
    life.write(old)  # the new life was committed, and not written beside the store any more
    life.close()
    async with opened(path) as store:
        await write(store, 1)
        assert await told(store) == ["gap 0", "a created 1"]
        assert store.epoch != old.epoch


@pytest.mark.parametrize("is_known", [True, False])
async def test_who_begins_from_a_backup_begins_a_new_life_wherever_that_is(path: Path, is_known: bool) -> None:
    backup, place = path.with_name("backup.db"), path.with_name("place.db")
    async with opened(path) as store:
        await write(store, 1, 2)
        await back_up(path, backup, at=NOON, force=False)
        epoch = store.epoch
    shutil.copy(backup, place)
    if is_known:
        shutil.copy(f"{path}.life", f"{place}.life")
    async with opened(place) as store:
        second = store.epoch
        assert (await begin(store)).blind == STORE_RESTORED
    async with opened(place) as store:
        assert (store.epoch, (await begin(store)).blind) == (second, "")
    assert second != epoch
    async with opened(path) as store:
        assert store.epoch == epoch


def take_log(path: Path) -> bytes:
    log = Path(f"{path}-wal").read_bytes()
    assert log
    return log


def leave_log(path: Path, log: bytes) -> None:
    """Leave the log of a store as kill -9 does."""
    Path(f"{path}-wal").write_bytes(log)


async def test_the_log_of_a_store_is_not_written_into_the_backup_that_takes_its_place(path: Path) -> None:
    backup = path.with_name("backup.db")
    async with opened(path) as store:
        await write(store, 1)
        await back_up(path, backup, at=NOON, force=False)
        await write(store, 2, 3)
        log = take_log(path)
    lose(path)
    shutil.copy(backup, path)
    leave_log(path, log)
    for open_beside in (SqliteReadStore.open, SqliteCommandStore.open):
        with pytest.raises(
            StoreError, match='is a backup, beside the write-ahead log of an earlier store; "dockbell run"'
        ):
            await open_beside(path)
    async with opened(path) as store:
        assert (await begin(store)).blind == STORE_RESTORED
        assert await told(store) == ["a created 1", "gap 0"]
        await write(store, 3)
    read_store = await SqliteReadStore.open(path)
    await read_store.aclose()
