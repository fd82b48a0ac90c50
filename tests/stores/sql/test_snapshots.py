"""What the committing of pages costs, and what it stores of records that are no change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.stores.handles.store import SqlStore
from dockbell.stores.sqlite import SqliteStore
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER, commit
from tests.stores.places import Place, open_store
from tests.stores.standings import read


@pytest.fixture
async def store(place: Place) -> AsyncIterator[SqlStore]:
    store = await open_store(place, now=lambda: NOON)
    yield store
    await store.aclose()


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Return a store of which can be told what is written."""
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON)
    yield store
    await store.aclose()


def read_times(path: Path) -> dict[str, int]:
    """Return when what belongs to a store was written last."""
    return {f"{path}{suffix}": Path(f"{path}{suffix}").stat().st_mtime_ns for suffix in ("", "-wal", ".life")}


async def test_no_row_is_written_for_a_page_that_changes_nothing(file: SqliteStore) -> None:
    state = await file.feed(FEED).open()
    records = [{"id": str(number), "at": NOON.isoformat()} for number in range(200)]
    await commit(file, state, *records)
    written, files = file.engine.writer.total_changes, read_times(file.path)
    for start in range(0, 200, 20):
        await commit(file, state, *records[start : start + 20])
    assert await file.feed(state.feed).last_row() == 200
    await file.feed(state.feed).find_absent(SeenRows(200))
    assert file.engine.writer.total_changes == written
    assert read_times(file.path) == files


async def test_a_page_is_as_dear_as_what_changed_on_it(file: SqliteStore) -> None:
    state = await file.feed(FEED).open()
    records = [{"id": str(number)} for number in range(200)]
    await commit(file, state, *records)
    written = file.engine.writer.total_changes
    await commit(file, state, *records[:-1], {"id": "199", "x": 1})
    assert file.engine.writer.total_changes - written <= 6  # record, body, event, its number, finding, and no more


async def test_the_body_of_a_bad_record_is_kept_up_to_a_size(place: Place, store: SqlStore) -> None:
    state = await store.feed(FEED).open()
    await commit(store, state, b'{"name": "' + b"x" * 70_000 + b'"}')
    assert read(place, "SELECT length(body) FROM quarantine") == [(65_536,)]


async def test_what_was_met_first_and_last_is_kept_of_a_bad_record(place: Place) -> None:
    moments = [NOON]
    store = await open_store(place, now=lambda: moments[-1])
    state = await store.feed(FEED).open()
    for number in range(3):
        moments.append(NOON.replace(second=number))
        await commit(store, state, {"id": "a", "x": 1}, {"id": "a", "x": 2})
    assert read(place, "SELECT key, last_at - first_at FROM quarantine") == [("a", 2_000_000)]
    await store.aclose()


async def test_so_many_bad_records_are_kept_and_no_more_the_last_met_first(place: Place) -> None:
    moments = [NOON]
    store = await open_store(place, now=lambda: moments[-1])
    state, other = await store.feed(FEED).open(), await store.feed(OTHER).open()
    await commit(store, other, {"name": "of another feed"})
    for number in range(12):
        moments.append(NOON.replace(second=number))
        await commit(store, state, *({"name": f"{number} {each}"} for each in range(100)))
    assert (await store.feed(FEED).open()).quarantined == 1000
    assert (await store.feed(OTHER).open()).quarantined == 1
    again = await commit(store, state, {"name": "0 0"}, {"name": "2 0"})
    assert [bad.known for bad in again.page_diff.bad] == [False, True]
    await store.aclose()
