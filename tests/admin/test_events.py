from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.admin import events as operation
from dockbell.admin.events import Choice, find_catalogue, find_last, follow
from dockbell.config import Config
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import ClockSource, Event, Feed, Page, Statement, Via
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.statement import GapReason, gap
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FEEDS = Feed("main", "items"), Feed("main", "stock")


class Recorder:
    """A store, and what looks at it."""

    def __init__(self, store: SqliteStore, read_store: SqliteReadStore) -> None:
        self._store = store
        self.read_store = read_store

    async def record(self, feed: Feed, *keys: str) -> None:
        """Record a ``created`` event for each new key, ``updated`` for others, in one page."""
        self._version = getattr(self, "_version", 0) + 1
        records = tuple(json.dumps({"id": key, "version": self._version}).encode() for key in keys)
        page = Page(records, None, feed.resource, NOON, ClockSource.DATE, NOON, NOON)
        detector = ChangeDetector(feed, key=("/id",), updated_at=None, created_at=None, canon=Canon())
        await self._store.feed(feed).open()
        compose = Composer(feed, name="acme", singular="thing", epoch="epoch")
        detect = partial(detector.detect, page, ReadContext(Via.POLL, NOON))
        await self._store.feed(feed).commit_page(detect, compose, via=Via.POLL)

    async def state(self, *statements: Statement) -> None:
        """Record statements about one feed."""
        feed = statements[0].feed
        compose = Composer(feed, name="acme", singular="thing", epoch="epoch")
        await self._store.feed(feed).open()
        await self._store.feed(feed).publish(statements, compose)


@pytest.fixture
async def recorder(tmp_path: Path) -> AsyncIterator[Recorder]:
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON, epoch="epoch")
    read_store = await SqliteReadStore.open(tmp_path / "a.db")
    yield Recorder(store, read_store)
    await read_store.aclose()
    await store.aclose()


def keys(events: Sequence[Event]) -> list[str]:
    return [event.key for event in events]


async def test_the_last_events_of_all_feeds_are_found_oldest_first(recorder: Recorder) -> None:
    await recorder.record(FEEDS[0], "a", "b")
    await recorder.record(FEEDS[1], "c")
    await recorder.record(FEEDS[0], "d")
    assert keys((await find_last(recorder.read_store, Choice(), 3))[0]) == ["b", "c", "d"]
    assert keys((await find_last(recorder.read_store, Choice(), 9))[0]) == ["a", "b", "c", "d"]


async def test_without_events_there_are_none(recorder: Recorder) -> None:
    assert await find_last(recorder.read_store, Choice(), 9) == ([], 0)


async def test_the_last_events_that_are_asked_for_are_found_however_far_back(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "_AT_ONCE", 3)
    await recorder.record(FEEDS[1], "x", "y", "z")
    await recorder.record(FEEDS[0], *(f"item{number}" for number in range(20)))
    assert keys((await find_last(recorder.read_store, Choice(resources=("stock",)), 2))[0]) == ["y", "z"]
    assert keys((await find_last(recorder.read_store, Choice(), 5))[0]) == [f"item{number}" for number in range(15, 20)]


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (Choice(), ["a", "b", "a"]),
        (Choice(sources=("main",)), ["a", "b", "a"]),
        (Choice(sources=("other",)), []),
        (Choice(resources=("stock", "items")), ["a", "b", "a"]),
        (Choice(resources=("stock",)), ["b"]),
        (Choice(keys=("a",)), ["a", "a"]),
        (Choice(types=("dockbell.thing.created",)), ["a", "b"]),
        (Choice(changes=("updated",)), ["a"]),
        (Choice(keys=("b",), changes=("updated",)), []),
    ],
)
async def test_events_are_chosen(recorder: Recorder, choice: Choice, found: list[str]) -> None:
    await recorder.record(FEEDS[0], "a")
    await recorder.record(FEEDS[1], "b")
    await recorder.record(FEEDS[0], "a")
    assert keys((await find_last(recorder.read_store, choice, 9))[0]) == found


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (Choice(), ["dockbell.thing.created", "dockbell.feed.gap"]),
        (Choice(resources=("stock",)), ["dockbell.thing.created", "dockbell.feed.gap"]),
        (Choice(resources=("items",)), []),
        (Choice(changes=("gap", "updated")), ["dockbell.feed.gap"]),
        (Choice(types=("dockbell.feed.gap",)), ["dockbell.feed.gap"]),
        (Choice(keys=("a",)), ["dockbell.thing.created"]),
    ],
)
async def test_statements_are_chosen_like_events_of_records(
    recorder: Recorder, choice: Choice, found: list[str]
) -> None:
    await recorder.record(FEEDS[1], "a")
    await recorder.state(gap(FEEDS[1], NOON, began_at=None, ended_at=NOON, reason=GapReason.DOWN))
    events, _ = await find_last(recorder.read_store, choice, 9)
    assert [event.type for event in events] == found


async def test_events_are_followed_from_where_the_last_were_found(recorder: Recorder) -> None:
    await recorder.record(FEEDS[0], "a")
    _, end = await find_last(recorder.read_store, Choice(), 1)
    await recorder.record(FEEDS[1], "left out")
    await recorder.record(FEEDS[0], "b", "c")
    got: list[Event] = []
    with anyio.fail_after(10):
        async for event in follow(recorder.read_store, Choice(resources=("items",)), end):
            got.append(event)
            if event.key == "c":
                await recorder.record(FEEDS[0], "d")
            if event.key == "d":
                break
    assert keys(got) == ["b", "c", "d"]
    assert all(one.sequence < other.sequence for one, other in pairwise(got))


SOURCE = {"base_url": "http://127.0.0.1:9", "api_key": "key"}
CONFIG = Config.model_validate({"name": "acme", "sources": {"main": SOURCE}, "sinks": {"out": {"type": "stdout"}}})
FEED = Feed("main", "items")


async def find_record_schema(read_store: Any, resource: str) -> Any:
    document = (await find_catalogue(CONFIG, read_store)).write_document()
    return document["components"]["schemas"][f"{resource}.record"]


async def test_records_are_learned_from_what_is_stored(recorder: Recorder) -> None:
    await recorder.record(FEED, "a", "b", "c")
    schema = await find_record_schema(recorder.read_store, "item")
    assert schema["properties"] == {"id": {"type": "string"}, "version": {"type": "integer"}}
    assert schema["required"] == ["id", "version"]
    assert schema["description"] == "A record of items, learned from 6 readings."  # three, each with its event
    assert "properties" not in await find_record_schema(recorder.read_store, "stock")


async def test_records_are_learned_from_what_the_last_events_show_too(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "_EVENTS_MOST", 2)
    await recorder.record(FEED, "a")
    await recorder.record(FEED, "a")
    await recorder.record(FEED, "a")
    schema = await find_record_schema(recorder.read_store, "item")
    assert "from 5 readings" in schema["description"]  # one record, and before and after of two events


async def test_records_are_read_in_portions_and_not_without_end(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "_RECORDS_AT_ONCE", 2)
    monkeypatch.setattr(operation, "_EVENTS_MOST", 0)
    await recorder.record(FEED, *"abcde")
    assert "from 5 readings" in (await find_record_schema(recorder.read_store, "item"))["description"]
    monkeypatch.setattr(operation, "_RECORDS_MOST", 3)
    assert "from 4 readings" in (await find_record_schema(recorder.read_store, "item"))["description"]


async def test_without_a_store_records_may_be_anything() -> None:
    assert await find_record_schema(None, "item") == {
        "title": "ItemRecord",
        "type": "object",
        "description": "A record of items, learned from 0 readings.",
    }
