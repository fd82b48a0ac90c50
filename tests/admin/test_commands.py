from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
import pytest

from dockbell.admin.commands import (
    AmbiguousFeed,
    HeldDrift,
    Result,
    UnknownFeed,
    await_commands,
    enqueue_commands,
    find_feeds,
    list_deletions,
    list_drift,
    read_result,
)
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import ClockSource, Feed, Page, RunKind, Via
from dockbell.core.publishing.event import Composer
from dockbell.ports import Command, CommandKind, CommandOutcome, RunRecord
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from tests.fakes import NOON

MAIN = Feed("main", "shipments")
STOCK = Feed("main", "stock")
OTHER = Feed("other", "shipments")
KNOWN = (MAIN, STOCK, OTHER)
ONE_PAGE = CommandOutcome("complete", {"pages": 1})


@pytest.mark.parametrize(
    ("names", "feeds"),
    [
        ((), KNOWN),
        (("stock",), (STOCK,)),
        (("other/shipments", "main/shipments"), (OTHER, MAIN)),
        (("stock", "main/stock"), (STOCK,)),
    ],
)
def test_feeds_are_named_in_full_or_by_a_resource_that_one_source_has(
    names: Sequence[str], feeds: Sequence[Feed]
) -> None:
    assert find_feeds(names, KNOWN) == feeds


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("stok", 'feed "stok" is not configured; did you mean "stock"?'),
        ("main/stok", 'feed "main/stok" is not configured; did you mean "main/stock"?'),
        ("zebra", 'feed "zebra" is not configured; available: shipments, stock'),
    ],
)
def test_a_name_of_no_feed_is_refused(name: str, told: str) -> None:
    with pytest.raises(UnknownFeed) as error:
        find_feeds([name], KNOWN)
    assert str(error.value) == told


def test_a_name_of_several_feeds_is_refused() -> None:
    told = '"shipments" is read from several sources; name one of main/shipments, other/shipments'
    with pytest.raises(AmbiguousFeed) as error:
        find_feeds(["shipments"], KNOWN)
    assert str(error.value) == told


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (None, Result(MAIN, "waiting", detail="the daemon has not run it yet")),
        (
            CommandOutcome("complete", {"pages": 3, "records": 600}),
            Result(MAIN, "complete", {"pages": 3, "records": 600}),
        ),
        (CommandOutcome("incomplete", detail="page 3: HTTP 500"), Result(MAIN, "incomplete", {}, "page 3: HTTP 500")),
    ],
)
def test_a_result_is_the_outcome_of_a_command_or_that_it_waits(outcome: CommandOutcome | None, result: Result) -> None:
    assert read_result(Command(1, CommandKind.RECONCILE, MAIN, outcome)) == result


def test_only_what_is_complete_is_done() -> None:
    assert read_result(Command(1, CommandKind.RECONCILE, MAIN, ONE_PAGE)).is_done
    assert not read_result(Command(1, CommandKind.RECONCILE, MAIN)).is_done


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON)
    await store.feed(MAIN).open()
    yield store
    await store.aclose()


@pytest.fixture
async def command_store(store: SqliteStore) -> AsyncIterator[SqliteCommandStore]:
    command_store = await SqliteCommandStore.open(store.path)
    yield command_store
    await command_store.aclose()


@pytest.fixture
async def read_store(store: SqliteStore) -> AsyncIterator[SqliteReadStore]:
    read_store = await SqliteReadStore.open(store.path)
    yield read_store
    await read_store.aclose()


async def test_a_wish_for_a_feed_that_was_never_read_fails_and_the_others_are_left(
    command_store: SqliteCommandStore,
) -> None:
    left, refused = await enqueue_commands(command_store, [MAIN, STOCK], CommandKind.RECONCILE, NOON)
    assert (left.feed, left.outcome) == (MAIN, None)
    assert str(refused.outcome) == 'failed: feed main/stock: was never read; "dockbell run" reads it first'


async def test_a_wish_comes_back_with_its_outcome_once_the_daemon_has_done_it(
    store: SqliteStore, command_store: SqliteCommandStore
) -> None:
    commands = await enqueue_commands(command_store, [STOCK, MAIN], CommandKind.RECONCILE, NOON)
    told: list[Sequence[Command]] = []
    is_told = anyio.Event()

    def tell(waiting: Sequence[Command]) -> None:
        told.append(waiting)
        is_told.set()

    async def attend() -> None:
        await is_told.wait()
        (command,) = await store.commands.take()
        await store.commands.finish(command, ONE_PAGE)

    async with anyio.create_task_group() as group:
        group.start_soon(attend)
        done = await await_commands(command_store, commands, is_held=lambda: True, tell=tell)
    assert [(command.feed, command.outcome) for command in done] == [(STOCK, commands[0].outcome), (MAIN, ONE_PAGE)]
    assert [command.feed for command in told[0]] == [MAIN]


async def test_nobody_waits_for_a_daemon_that_has_ended(command_store: SqliteCommandStore) -> None:
    commands = await enqueue_commands(command_store, [MAIN], CommandKind.APPROVE, NOON)
    (waiting,) = await await_commands(command_store, commands, is_held=lambda: False, tell=lambda _: None)
    assert (waiting.kind, waiting.outcome) == (CommandKind.APPROVE, None)


async def test_held_deletions_are_listed_with_examples(store: SqliteStore, read_store: SqliteReadStore) -> None:
    compose = Composer(MAIN, name="acme", singular="shipment", epoch="epoch")
    state = await store.feed(MAIN).open()
    detector = ChangeDetector(MAIN, key=("/id",), updated_at=None, created_at=None, canon=Canon())
    raws = tuple(json.dumps({"id": key}).encode() for key in "abc")
    page = Page(raws, None, "shipments", NOON, ClockSource.DATE, NOON, NOON)
    await store.feed(state.feed).commit_page(
        partial(detector.detect, page, ReadContext(Via.PASS, NOON)), compose, via=Via.PASS
    )
    assert await list_deletions(read_store, KNOWN, most=2) == []
    await store.feed(state.feed).suspect([3], NOON - timedelta(minutes=1))
    await store.feed(state.feed).suspect([1, 2], NOON)
    run = RunRecord(RunKind.PASS, NOON, None, NOON, pages=1, records=0, events=0)
    await store.feed(state.feed).close_pass(
        run, held=3, confirm_at=None, proven=False, newest=None, lateness=None, statements=(), compose=compose
    )
    (held,) = await list_deletions(read_store, KNOWN, most=2)
    assert (held.feed, held.count, held.since) == (MAIN, 3, NOON - timedelta(minutes=1))
    assert [record.key for record in held.sample] == ["c", "a"]
    assert await list_deletions(read_store, [STOCK], most=2) == []


async def test_drift_is_listed_with_what_becomes_of_it(store: SqliteStore, read_store: SqliteReadStore) -> None:
    compose = Composer(MAIN, name="acme", singular="shipment", epoch="epoch")
    state = await store.feed(MAIN).open()
    detector = ChangeDetector(MAIN, key=("/id",), updated_at=None, created_at=None, canon=Canon())
    assert await list_drift(read_store, KNOWN) == []
    for fields in ({}, {"new": 1, "carbon": None}):
        raws = tuple(json.dumps({"id": key} | fields).encode() for key in "abc")
        page = Page(raws, None, "shipments", NOON, ClockSource.DATE, NOON, NOON)
        await store.feed(state.feed).commit_page(
            partial(detector.detect, page, ReadContext(Via.PASS, NOON)), compose, via=Via.PASS
        )
    found = HeldDrift(MAIN, ("/carbon", "/new"), 0, NOON, Decision.HOLD)
    assert await list_drift(read_store, KNOWN) == [found]
    await store.feed(state.feed).decide_drift(Decision.ABSORB)
    assert [each.decision for each in await list_drift(read_store, [MAIN])] == [Decision.ABSORB]
