"""Which writes end that a page is known; each test runs on each database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import pytest

from dockbell.core.comparing import deletion_rules
from dockbell.core.comparing.page_diff import Finding
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import DIGEST_SIZE, Change, Event, RunKind, Statement
from dockbell.core.publishing.statement import rebaselined
from dockbell.core.reading.shape import Shape
from dockbell.ports import FeedState, Store
from tests.fakes import NOON
from tests.stores.pages import COMPOSE, FEED, a_run, close_pass, commit, delete_records

pytestmark = pytest.mark.parametrize("make_place", ["sqlite", "postgres"], indirect=True)


TEXTS: Final = {key: bytes([number]) * DIGEST_SIZE for number, key in enumerate("abc", start=1)}
"""What stands for the hash of each record's text."""


async def learn(store: Store, state: FeedState, *keys: str) -> None:
    """Let a page be known that shows records as they are stored."""
    page = [{"id": key} for key in keys]
    await commit(store, state, *page)
    known_pages = store.feed(state.feed).known_pages
    lookup = known_pages.look([TEXTS[key] for key in keys])
    assert known_pages.take(lookup, (await commit(store, state, *page)).page_diff)


def known_keys(store: Store, state: FeedState) -> Sequence[str]:
    """Return which records of a page that shows all are known."""
    known = store.feed(state.feed).known_pages.look([*TEXTS.values()]).known()
    return [] if known is None else known.keys


def knows(store: Store, state: FeedState, *keys: str) -> bool:
    """Return whether it is known what a page comes to that shows these records."""
    return store.feed(state.feed).known_pages.look([TEXTS[key] for key in keys]).page_diff is not None


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
    await learn(store, state, "a", "b")
    assert knows(store, state, "a", "b")
    await write(store, state)
    assert not knows(store, state, "a", "b")
    assert "a" not in known_keys(store, state)


async def test_the_other_records_of_a_page_stay_known(store: Store, state: FeedState) -> None:
    await learn(store, state, "a", "b")
    await note_missing(store, state)
    assert known_keys(store, state) == ["b"]


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


async def test_what_is_absent_is_looked_for_again_after_a_pass_that_met_new_records(
    store: Store, state: FeedState
) -> None:
    """That pass has seen one record of two, and the next one sees one, too."""
    feed, seen, later = store.feed(state.feed), SeenRows(1), SeenRows(2)
    await commit(store, state, {"id": "a"})
    await commit(store, state, {"id": "b"})
    for each in (seen, later):
        each.add([1])
    assert (await feed.find_absent(seen)).rows == []
    assert [row for row, _, _ in (await feed.find_absent(later)).rows] == [2]


async def test_a_page_stays_known_while_only_others_and_runs_are_written(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await learn(store, state, "a")
    await commit(store, state, {"id": "b", "x": 9}, {"id": "c"})
    await store.feed(state.feed).suspect([2], NOON)
    await delete_records(store, state, 2)
    await store.feed(state.feed).close_run(a_run(RunKind.POLL))
    await close_pass(store, state)
    await store.feed(FEED).open()
    page_diff = store.feed(state.feed).known_pages.look([TEXTS["a"]]).page_diff
    assert page_diff is not None
    assert (page_diff.seen, page_diff.dates) == ([1], {"a": None})


async def test_a_page_that_comes_while_a_record_of_it_is_suspected_is_not_taken_for_known(
    store: Store, state: FeedState
) -> None:
    """It shows the record, and must end the suspicion that is being stored."""
    await learn(store, state, "a")
    async with anyio.create_task_group() as group:
        group.start_soon(store.feed(state.feed).suspect, [1], NOON)
        await anyio.lowlevel.checkpoint()
        assert not knows(store, state, "a")


async def test_what_was_looked_up_before_a_record_is_suspected_is_not_known_afterwards(
    store: Store, state: FeedState
) -> None:
    await learn(store, state, "a")
    lookup = store.feed(state.feed).known_pages.look([TEXTS["a"], TEXTS["b"]])
    known = lookup.known()
    assert known is not None
    assert known.keys == ["a"]
    await suspect(store, state)
    assert lookup.known() is None
