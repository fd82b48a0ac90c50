from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dockbell.core.model import Feed
from dockbell.stores.handles.read_store import SqlReadStore
from dockbell.stores.handles.store import SqlStore
from dockbell.stores.sql import browsing
from tests.fakes import NOON, Clock
from tests.stores import pages
from tests.stores.places import Place, open_read_store, open_store

STOCK = Feed("main", "stock")
OTHER = Feed("spare", "stock")


@pytest.fixture
async def store(place: Place) -> AsyncIterator[SqlStore]:
    store = await open_store(place, now=Clock())
    yield store
    await store.aclose()


@pytest.fixture
async def read_store(store: SqlStore, place: Place) -> AsyncIterator[SqlReadStore]:
    read_store = await open_read_store(place)
    yield read_store
    await read_store.aclose()


async def put(store: SqlStore, feed: Feed, *keys: str, n: int = 0) -> None:
    await pages.commit(store, await store.feed(feed).open(), *({"id": key, "n": n} for key in keys))


async def read(
    read_store: SqlReadStore, before: int | None = None, limit: int = 100, **wanted: Any
) -> tuple[list[str], int | None]:
    """Return what is found, as text, and from where to go on."""
    found, following = await read_store.read_earlier(before, limit, **wanted)
    assert [place for place, _ in found] == sorted((place for place, _ in found), reverse=True)
    return [f"{event.feed.source}/{event.key}#{event.sequence} {event.change}" for _, event in found], following


async def test_events_are_found_newest_first(store: SqlStore, read_store: SqlReadStore) -> None:
    assert await read(read_store) == ([], None)
    await put(store, STOCK, "a", "b")
    await put(store, OTHER, "a")
    await put(store, STOCK, "a", n=1)
    assert await read(read_store) == (
        ["main/a#3 updated", "spare/a#1 created", "main/b#2 created", "main/a#1 created"],
        None,
    )
    assert await read(read_store, limit=3) == (["main/a#3 updated", "spare/a#1 created", "main/b#2 created"], 2)
    assert await read(read_store, before=2, limit=3) == (["main/a#1 created"], None)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"feeds": [OTHER]}, ["spare/a#1 created"]),
        ({"feeds": [STOCK, OTHER], "keys": ["a"]}, ["main/a#3 updated", "spare/a#1 created", "main/a#1 created"]),
        ({"feeds": []}, []),
        ({"feeds": [Feed("main", "nothing")]}, []),
        ({"keys": ["b", "x"]}, ["main/b#2 created"]),
        ({"change": "created", "feeds": [STOCK]}, ["main/b#2 created", "main/a#1 created"]),
        ({"type_": "dockbell.shipment.updated"}, ["main/a#3 updated"]),
        ({"type_": "dockbell.shipment.updated", "change": "created"}, []),
    ],
)
async def test_only_what_is_asked_for_is_found(
    store: SqlStore, read_store: SqlReadStore, wanted: dict[str, Any], expected: list[str]
) -> None:
    await put(store, STOCK, "a", "b")
    await put(store, OTHER, "a")
    await put(store, STOCK, "a", n=1)
    assert (await read(read_store, **wanted))[0] == expected


async def test_an_event_is_found_by_its_number(store: SqlStore, read_store: SqlReadStore) -> None:
    await put(store, STOCK, "a", "b")
    found = await read_store.find_event(STOCK, 2)
    assert found is not None
    assert (found[0], found[1].key, found[1].sequence) == (NOON, "b", 2)
    assert await read_store.find_event(STOCK, 3) is None
    assert await read_store.find_event(OTHER, 1) is None


async def test_the_last_change_of_a_record_is_no_statement(store: SqlStore, read_store: SqlReadStore) -> None:
    await put(store, STOCK, "a")
    state = await store.feed(OTHER).open()
    await pages.close_pass(store, state, statements=[pages.a_statement()])
    assert await read_store.find_last_changes() == {STOCK: NOON}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 3), st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=40),
    feeds=st.none() | st.sets(st.integers(1, 3)),
    keys=st.none() | st.sets(st.sampled_from("abc"), min_size=1),
    change=st.sampled_from([None, "created"]),
    limit=st.integers(1, 5),
    looked=st.integers(1, 6),
)
def test_page_by_page_all_is_found_once_however_little_is_looked_through(
    *,
    rows: Sequence[tuple[int, str, bool, bool]],
    feeds: set[int] | None,
    keys: set[str] | None,
    change: str | None,
    limit: int,
    looked: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(browsing, "LOOKED_MOST", looked)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(
        """
        CREATE TABLE feeds (id INTEGER PRIMARY KEY, source TEXT, resource TEXT);
        CREATE TABLE events (entry INTEGER PRIMARY KEY, feed, sequence, key, id, type, change, revision, recorded_at,
            body, UNIQUE (feed, sequence));
        CREATE INDEX events_key ON events (feed, key, sequence);
        INSERT INTO feeds VALUES (1, 's', '1'), (2, 's', '2'), (3, 's', '3');
        """
    )
    sequences = {1: 0, 2: 0, 3: 0}
    expected = []
    for place, (feed, key, is_created, is_pruned) in enumerate(rows, start=1):
        sequences[feed] += 1
        if is_pruned:
            continue
        kind = "created" if is_created else "updated"
        event = (place, feed, sequences[feed], key, "", "", kind, 1, 0, b"")
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", event)
        if (feeds is None or feed in feeds) and (keys is None or key in keys) and change in (None, kind):
            expected.append(place)
    wanted = browsing.Wanted(
        None if feeds is None else [Feed("s", str(feed)) for feed in feeds],
        None if keys is None else sorted(keys),
        None,
        change,
    )
    found: list[int] = []
    before: int | None = None
    for _ in range(len(rows) + 2):
        portion, before = browsing.read_earlier(connection, before, limit, wanted)
        assert len(portion) <= limit
        found += [place for place, _ in portion]
        if before is None:
            break
    assert before is None
    assert found == sorted(expected, reverse=True)
