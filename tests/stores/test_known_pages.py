"""Which writes end that a page is known; each test runs on each database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from dockbell.core.comparing import deletion_rules
from dockbell.core.comparing.page_diff import Finding
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Change, Event, RunKind, Statement
from dockbell.core.publishing.statement import rebaselined
from dockbell.core.reading.shape import Shape
from dockbell.ports import FeedState, Store
from tests.fakes import NOON
from tests.stores.pages import COMPOSE, FEED, a_run, close_pass, commit, delete_records

pytestmark = pytest.mark.parametrize("make_place", ["sqlite", "postgres"], indirect=True)


async def change(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 9})


async def fail_to_change(store: Store, state: FeedState) -> None:
    def break_(item: Change | Statement, sequence: int) -> Sequence[Event]:
        raise RuntimeError("power is lost")

    with pytest.raises(RuntimeError):
        await commit(store, state, {"id": "a", "x": 9}, compose=break_)


async def suspect(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).suspect([1], NOON)


async def keep(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).keep([1], Finding.THERE)


async def end_suspicion(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).end_suspicion()


async def delete(store: Store, state: FeedState) -> None:
    await suspect(store, state)
    await delete_records(store, state, 1)


async def note_missing(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).note_missing([1])


async def note_found(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).note_found([1])


async def decide(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).decide(None, COMPOSE, 1)


async def learn_shape(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).save_shape(Shape(("/id",), None, None), proven=False)


async def read_otherwise(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).save_read_settings({}, rebaseline=rebaselined(FEED, NOON, ["key"]), compose=COMPOSE)


async def drop(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).mark_dropped(["/x"])


async def purge(store: Store, state: FeedState) -> None:
    await store.privacy.purge(state.feed, "a", partial(deletion_rules.purge, state.feed), COMPOSE)


WRITES = [
    change,
    fail_to_change,
    suspect,
    keep,
    end_suspicion,
    delete,
    note_missing,
    note_found,
    decide,
    learn_shape,
    read_otherwise,
    drop,
    purge,
]


@pytest.mark.parametrize("write", WRITES)
async def test_a_page_is_not_known_any_more_once_a_record_of_it_was_written(
    store: Store, state: FeedState, write: Callable[[Store, FeedState], Awaitable[None]]
) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    known = store.feed(state.feed).known_pages
    page_diff = (await commit(store, state, {"id": "a"}, {"id": "b"})).page_diff
    assert page_diff.is_known
    assert known.take(b"digest", page_diff, known.version)
    assert known.recall(b"digest") is not None
    await write(store, state)
    assert store.feed(state.feed).known_pages.recall(b"digest") is None


@pytest.mark.parametrize("write", WRITES)
async def test_what_is_absent_is_looked_for_again_once_a_record_was_written(
    store: Store, state: FeedState, write: Callable[[Store, FeedState], Awaitable[None]]
) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    feed, seen = store.feed(state.feed), SeenRows(2)
    seen.add([1, 2])
    found = await feed.find_absent(seen)
    assert (found.rows, found.stored) == ([], 2)
    assert await feed.find_absent(seen) is found
    assert [row for row, _, _ in (await feed.find_absent(SeenRows(2))).rows] == [1, 2]
    assert await feed.find_absent(seen) == found
    await write(store, state)
    again = await feed.find_absent(seen)
    assert again is not found
    assert (again.digest == found.digest) == (write not in {change, delete, purge, read_otherwise})


async def test_a_page_stays_known_while_only_others_and_runs_are_written(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    known = store.feed(state.feed).known_pages
    assert known.take(b"digest", (await commit(store, state, {"id": "a"})).page_diff, known.version)
    await commit(store, state, {"id": "b", "x": 9}, {"id": "c"})
    await store.feed(state.feed).suspect([2], NOON)
    await delete_records(store, state, 2)
    await store.feed(state.feed).close_run(a_run(RunKind.POLL))
    await close_pass(store, state)
    await store.feed(FEED).open()
    recalled = store.feed(state.feed).known_pages.recall(b"digest")
    assert recalled is not None
    assert (recalled.seen, recalled.dates) == ([1], {"a": None})


async def test_a_page_that_comes_while_a_record_of_it_is_suspected_is_not_taken_for_known(
    store: Store, state: FeedState
) -> None:
    """It shows the record, and must end the suspicion that is being stored."""
    await commit(store, state, {"id": "a"})
    known = store.feed(state.feed).known_pages
    assert known.take(b"digest", (await commit(store, state, {"id": "a"})).page_diff, known.version)
    async with anyio.create_task_group() as group:
        group.start_soon(store.feed(state.feed).suspect, [1], NOON)
        await anyio.lowlevel.checkpoint()
        assert known.recall(b"digest") is None
