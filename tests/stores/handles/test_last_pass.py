"""What the end of a pass need not look at is as if it had looked; each test of a store runs on each database."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from dockbell.core.comparing import known_pages
from dockbell.core.comparing.page_diff import Finding, PageDiff
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.ports import Absentees, FeedState, Store
from dockbell.stores.handles.last_pass import LastPass
from dockbell.stores.sql import absence
from tests.fakes import NOON
from tests.stores.pages import commit, delete_records

NOTHING = Absentees([], "0" * 32, 2)


def see(*rows: int, last_row: int = 2) -> SeenRows:
    seen = SeenRows(last_row)
    seen.add(rows)
    return seen


class Looks:
    """Counts how often all that is stored is looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.look = absence.find_absent
        monkeypatch.setattr(absence, "find_absent", self._look)

    def _look(self, *args: Any) -> Absentees:
        self.count += 1
        return self.look(*args)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


# In a store ----------------------------------------------------------------------------------------------------------


async def pass_over(store: Store, state: FeedState, looks: Looks, ids: dict[str, int], shown: set[str]) -> None:
    """End a pass that has shown some records; what it comes to is what a look comes to."""
    seen = SeenRows(await store.feed(state.feed).last_row())
    seen.add(sorted(ids[each] for each in shown))
    found = await store.feed(state.feed).find_absent(seen)
    assert found == await store.engine.read(looks.look, state.id, seen)  # type: ignore[attr-defined]


@pytest.mark.parametrize("make_place", ["sqlite", "postgres"], indirect=True)
async def test_new_content_of_records_needs_no_look(store: Store, state: FeedState, looks: Looks) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    feed, found = store.feed(state.feed), await store.feed(state.feed).find_absent(see(1, 2))
    for number in range(3):
        await commit(store, state, {"id": "a", "x": number}, {"id": "b"})
        before, found = found, await feed.find_absent(see(1, 2))
        assert found.digest != before.digest
    assert looks.count == 1
    await commit(store, state, {"id": "a"}, {"id": "b"})
    assert await feed.find_absent(see(1, 2)) == await store.engine.read(looks.look, state.id, see(1, 2))  # type: ignore[attr-defined]
    assert looks.count == 1


@pytest.mark.parametrize("make_place", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("seed", range(5))
async def test_passes_come_to_what_a_look_comes_to(store: Store, state: FeedState, looks: Looks, seed: int) -> None:
    dice, ids, there = random.Random(seed), dict[str, int](), set[str]()
    passes, deleted, acts = 0, 0, {"put": 20, "pass": 20, "add": 2, "turn": 2, "keep": 1, "delete": 4}
    for number in range(150):
        (act,), some = dice.choices(list(acts), list(acts.values())), sorted(there)
        if act == "add" or not there:
            key = f"r{len(ids)}"
            ids[key] = len(ids) + 1
            there.add(key)
            await commit(store, state, {"id": key})
        elif act == "put":
            await commit(store, state, *({"id": each, "x": number} for each in dice.sample(some, min(3, len(some)))))
        elif act == "turn":  # it is gone, or comes back
            key = dice.choice(list(ids))
            there ^= {key}
            if key in there:
                await commit(store, state, {"id": key, "x": number})
        elif act == "keep":
            await store.feed(state.feed).keep([ids[dice.choice(some)]], Finding.THERE, ignored_until_seen=True)
        elif act == "delete":
            gone = [row for key, row in ids.items() if key not in there]
            await store.feed(state.feed).suspect(gone, NOON)
            deleted += await delete_records(store, state, *gone)
        else:
            passes += 1
            await pass_over(store, state, looks, ids, there)
    assert deleted
    assert 0 < looks.count < passes


@pytest.mark.parametrize("make_place", ["sqlite", "postgres"], indirect=True)
async def test_a_look_beside_a_commit_is_not_relied_on(
    store: Store, state: FeedState, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the look shows the page is not known, and its change would be counted twice."""
    await commit(store, state, {"id": "a"}, {"id": "b"})
    feed, write = store.feed(state.feed), type(store.engine).write  # type: ignore[attr-defined]
    is_written, may_tell = anyio.Event(), anyio.Event()

    async def write_and_wait(*args: Any, **named: Any) -> Any:
        written = await write(*args, **named)
        is_written.set()
        await may_tell.wait()
        return written

    joined = feed._engine.joined  # type: ignore[attr-defined]
    monkeypatch.setattr(joined, "_call", lambda *args: write_and_wait(store.engine, *args))  # type: ignore[attr-defined]
    async with anyio.create_task_group() as group:
        group.start_soon(commit, store, state, {"id": "a", "x": 1})
        await is_written.wait()
        await feed.find_absent(see(1, 2))
        may_tell.set()
    assert await feed.find_absent(see(1, 2)) == await store.engine.read(looks.look, state.id, see(1, 2))  # type: ignore[attr-defined]
    assert looks.count == 2


# By itself -----------------------------------------------------------------------------------------------------------


def test_a_look_is_relied_on_while_the_same_rows_were_seen() -> None:
    last = LastPass()
    assert last.find(0, see(1, 2)) is None
    assert last.take(last.begin_look(), 0, see(1, 2), NOTHING)
    assert last.find(0, see(1, 2)) is NOTHING
    assert last.find(1, see(1, 2)) is None
    assert last.find(0, see(1)) is None
    assert last.find(0, see(1, 3, last_row=3)) is None
    assert last.find(0, see(1, 2, last_row=3)) is None
    last.forget()
    assert last.find(0, see(1, 2)) is None


def test_a_tombstone_that_was_seen_does_not_stand_for_a_record_that_was_not() -> None:
    last = LastPass()
    assert last.take(last.begin_look(), 0, see(1, 2, 3, last_row=3), NOTHING)  # two are there, and a tombstone
    assert last.find(0, see(1, 3, last_row=3)) is None


def test_a_pass_that_missed_records_is_not_relied_on() -> None:
    last = LastPass()
    assert last.take(last.begin_look(), 0, see(1, 2), Absentees([(3, None, 0)], "0" * 32, 2))
    assert last.find(0, see(1, 2)) is None


def test_now_and_then_all_is_looked_at_and_must_be_what_was_expected() -> None:
    last = LastPass()
    assert last.take(last.begin_look(), 0, see(1, 2), NOTHING)
    count = 0
    while last.find(0, see(1, 2)):
        count += 1
    assert known_pages.PROBED // 2 <= count < known_pages.PROBED
    assert last.take(last.begin_look(), 0, see(1, 2), NOTHING)
    assert last.find(0, see(1, 2)) is NOTHING
    assert not last.take(last.begin_look(), 0, see(1, 2), Absentees([], "1" * 32, 2))


def test_a_page_of_another_version_changes_nothing() -> None:
    last = LastPass()
    assert last.take(last.begin_look(), 0, see(1, 2), NOTHING)
    last.follow(1, 2, PageDiff())
    assert last.find(0, see(1, 2)) is NOTHING
    last.follow(0, 1, PageDiff(cleared=[1]))
    assert last.find(1, see(1, 2)) is None
    assert last.find(0, see(1, 2)) is NOTHING
