"""Two processes that write one store, because the lock of its file does not keep them apart."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.page_diff import Finding
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Change, Feed, RunKind
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.errors import LeaseLost
from dockbell.ports import Checkpoint, FeedStore
from dockbell.stores.handles.store import SqlStore
from dockbell.stores.postgres import PostgresStore
from dockbell.stores.postgres.engine import PostgresEngine, load_outbox
from dockbell.stores.postgres.line import Line
from dockbell.stores.sqlite.files import Lock
from dockbell.telemetry import Telemetry
from tests.fakes import NOON
from tests.stores.pages import (
    COMPOSE,
    DETAILED,
    DETECTOR,
    FEED,
    OTHER,
    a_run,
    a_statement,
    close_pass,
    commit,
    delete_records,
    told,
)
from tests.stores.places import Place, open_store
from tests.stores.standings import dump, read

Write = Callable[[FeedStore], Awaitable[object]]
QUERY_ONLY: Final = tuple(f"PRAGMA query_only = {each}" for each in ("false", "true"))
READ_ONLY: Final = tuple(f"SET default_transaction_read_only = {each}" for each in ("off", "on"))
CHECKPOINT: Final = Checkpoint("c", b"{}", SeenRows(3), SeenRows(3), NOON)


def never(*_: object) -> Change:
    raise AssertionError


@pytest.fixture
async def store(place: Place) -> AsyncIterator[SqlStore]:
    """Return the store of the process that came first: two records, one suspected, and a change that waits."""
    store = await open_store(place, now=lambda: NOON)
    state = await store.feed(FEED).open()
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await commit(store, state, {"id": "c"}, detector=DETAILED)
    await close_pass(store, state, suspected=[2])
    await store.feed(FEED).mark_dropped(["/x"])
    yield store
    await store.aclose()


@pytest.fixture
async def second(place: Place, store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqlStore]:
    """Return the store of a second process, which the lock has let in."""
    if isinstance(place, Path):
        other = os.open(place.with_suffix(".other"), os.O_RDWR | os.O_CREAT)
        monkeypatch.setattr("dockbell.stores.sqlite.files.take_lock", lambda _: Lock(other, ""))
        second = await open_store(place, now=lambda: NOON)
    else:
        second = await open_beside(place, store)
    yield second
    await second.aclose()


async def open_beside(url: str, store: SqlStore) -> PostgresStore:
    """Return a store that works under the row of another one: as if both were let in."""
    assert isinstance(store.engine, PostgresEngine)
    holder = store.engine.holder
    reader = Line(url, "beside")
    epoch, bell = await reader.do(load_outbox)
    lines = (Line(url, "beside", holder.fence()), reader)
    engine = PostgresEngine("beside", lines, holder, bell, epoch=epoch, now=lambda: NOON, telemetry=Telemetry())
    return PostgresStore(engine)


def read_token(place: Place) -> int:
    ((token,),) = read(place, "SELECT token FROM feeds")
    return int(str(token))


WRITES: Final[dict[str, Write]] = {
    "begin_feed": lambda feed: feed.begin_feed(NOON),
    "save_read_settings": lambda feed: feed.save_read_settings({"key": None}),
    "save_shape": lambda feed: feed.save_shape(Shape(("/id",), None, None), proven=True),
    "save_listing_profile": lambda feed: feed.save_listing_profile("{}"),
    "save_problem": lambda feed: feed.save_problem("refused"),
    "close_run": lambda feed: feed.close_run(a_run(RunKind.POLL)),
    "close_run with progress": lambda feed: feed.close_run(a_run(RunKind.POLL), Progress(NOON)),
    "publish": lambda feed: feed.publish([a_statement()], COMPOSE),
    "save_checkpoint": lambda feed: feed.save_checkpoint(CHECKPOINT),
    "drop_checkpoint": lambda feed: feed.drop_checkpoint(),
    "suspect": lambda feed: feed.suspect([1], NOON),
    "decide": lambda feed: feed.decide(None, COMPOSE, 10),
    "end_baseline": lambda feed: feed.end_baseline(proven=True, newest=None),
    "keep": lambda feed: feed.keep([2], Finding.KEPT),
    "keep what is there": lambda feed: feed.keep([2], Finding.THERE, ignored_until_seen=True),
    "complete": lambda feed: feed.complete(3, lambda *_: None, COMPOSE),
    "complete_overdue": lambda feed: feed.complete_overdue([NOON], lambda *_: None, COMPOSE, 10),
    "begin_emitting": lambda feed: feed.begin_emitting(),
    "decide_drift": lambda feed: feed.decide_drift(Decision.ABSORB),
    "mark_dropped": lambda feed: feed.mark_dropped(["/y"]),
    "clean": lambda feed: feed.clean(Erasure(["/x"], "epoch"), None, 10),
    "end_cleaning": lambda feed: feed.end_cleaning(),
    "note_missing": lambda feed: feed.note_missing([2]),
    "note_found": lambda feed: feed.note_found([2]),
    "postpone": lambda feed: feed.postpone(3),
}


@pytest.mark.parametrize("name", WRITES)
async def test_what_the_first_writes_is_refused_once_the_second_has_taken_the_feed(
    place: Place, store: SqlStore, second: SqlStore, name: str
) -> None:
    await second.feed(FEED).open()
    before = dump(place)
    with pytest.raises(LeaseLost, match="feed main/shipments: another process took it over, and nothing was"):
        await WRITES[name](store.feed(FEED))
    assert dump(place) == before


async def test_pages_passes_and_deletions_of_the_first_are_refused_whole(
    place: Place, store: SqlStore, second: SqlStore
) -> None:
    stale = await store.feed(FEED).open()
    state = await second.feed(FEED).open()
    before = dump(place)
    for records, detector in (
        ([{"id": "a", "x": 1}], DETECTOR),
        ([{"id": "new"}], DETECTOR),
        ([{"id": "b"}], DETECTOR),
    ):
        with pytest.raises(LeaseLost):
            await commit(store, stale, *records, detector=detector)
    with pytest.raises(LeaseLost):
        await commit(store, stale, {"id": "d"}, detector=DETAILED)
    with pytest.raises(LeaseLost):
        await delete_records(store, stale, 2)
    with pytest.raises(LeaseLost):
        await store.privacy.purge(FEED, "a", never, COMPOSE)
    with pytest.raises(LeaseLost):
        await close_pass(store, stale)
    assert dump(place) == before
    await commit(second, state, {"id": "a", "x": 2})
    assert (await told(second))[-1] == "a updated 2"


async def test_each_feed_is_taken_by_itself_and_opening_it_again_takes_it_from_nobody(
    store: SqlStore, second: SqlStore
) -> None:
    state = await second.feed(OTHER).open()
    assert await second.feed(OTHER).open() == state
    await commit(store, await store.feed(FEED).open(), {"id": "a", "x": 1})
    await commit(second, state, {"id": "a"})


async def test_a_record_of_a_feed_that_was_never_opened_here_is_erased_and_takes_it(
    store: SqlStore, second: SqlStore
) -> None:
    assert not (await second.privacy.purge(Feed("main", "nothing"), "a", never, COMPOSE)).is_known
    assert (await second.privacy.purge(FEED, "z", never, COMPOSE)).events == 0
    with pytest.raises(LeaseLost):
        await commit(store, await store.feed(FEED).open(), {"id": "a", "x": 1})


async def test_an_idle_page_of_the_first_is_no_commit(store: SqlStore, second: SqlStore) -> None:
    stale = await store.feed(FEED).open()
    await second.feed(FEED).open()
    assert (await commit(store, stale, {"id": "a"})).events == 0


async def test_a_feed_that_cannot_be_taken_yet_is_opened_and_taken_at_the_next_look(place: Place) -> None:
    first = await open_store(place, now=lambda: NOON)
    await first.feed(FEED).open()
    await first.aclose()
    store = await open_store(place, now=lambda: NOON)
    before = read_token(place)
    off, on = QUERY_ONLY if isinstance(place, Path) else READ_ONLY
    await store.engine.write(lambda writer: writer.execute(on).rowcount)
    assert (await store.feed(FEED).open()).sequence == 0
    await store.engine.write(lambda writer: writer.execute(off).rowcount)
    await commit(store, await store.feed(FEED).open(), {"id": "a"})
    assert read_token(place) == before + 1
    await store.aclose()
