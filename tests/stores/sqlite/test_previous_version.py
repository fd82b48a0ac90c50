"""A store that a released version has written opens, and nothing in it is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from dockbell.core.model import RunKind
from dockbell.core.publishing.settlement import Blocked, DeadLetter
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.ports import Command, CommandKind, CommandOutcome, Failing, Selection
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER, a_run, commit, datas, later, make_composer, told

WRITTEN = Path(__file__).with_name("written_by_d7f9d83.sql")
EPOCH = "0123456789abcdef"
IDS = [
    "evt_f1181c9ccc22380d056a78e628c0900b",
    "evt_7953ae7ad6981a73960afd20a41a7d1b",
    "evt_551f55c52fdaf9386cc1d731a47caf31",
    "evt_0a932eff31ce4b683d745488663c767d",
    "evt_6bde4f784b143e8b33c3b0a32c8593be",
    "evt_7bd74eb0a6d633a8aff01e14138913b8",
    "evt_4923a1740e86d37bc7a207ceb30d611e",
    "evt_54b8257bcbb643a145accb7848e4f6d9",
    "evt_9811d6ebb722ffcc5a2d116c064cad0b",
]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    path = tmp_path / "dockbell.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(WRITTEN.read_text(encoding="utf-8"))
    store = await SqliteStore.open(path, now=lambda: NOON)
    yield store
    await store.aclose()


@pytest.fixture
async def command_store(store: SqliteStore) -> AsyncIterator[SqliteCommandStore]:
    command_store = await SqliteCommandStore.open(store.path)
    yield command_store
    await command_store.aclose()


async def test_epoch_ids_and_sequences_stay_and_the_next_event_goes_on_after_them(store: SqliteStore) -> None:
    assert store.epoch == EPOCH
    assert [event.id for event in await store.read_events(FEED, 0, 100)] == IDS
    expected = [f"{key} created 1" for key in "abcde"]
    expected += ["a updated 2", "b updated 2", "a updated 3", "f created 1"]
    assert await told(store) == expected
    state = await store.feed(FEED).open()
    assert (await commit(store, state, {"id": "a", "x": 3})).events == 0  # stored as it is
    await commit(store, state, {"id": "c", "x": 2}, compose=make_composer(EPOCH))
    assert await told(store, after=9) == ["c updated 2"]
    assert (await datas(store))[9]["before"] == {"id": "c", "x": 1}


async def test_what_detection_knew_stays(store: SqliteStore) -> None:
    state = await store.feed(FEED).open()
    assert (state.shape, state.proven, state.passes, state.sequence) == (Shape(("/id",), "/at", None), True, 1, 9)
    assert state.progress == Progress(later(minutes=1), later(minutes=2), later(minutes=2))
    assert (state.first_asked_at, state.boundary, state.read_settings) == (NOON, NOON, {"key": None})
    assert (state.poll, state.full) == (a_run(RunKind.POLL), a_run())
    assert state.failing == {RunKind.POLL: Failing(1, later(hours=1), later(hours=1), "HTTP 503")}
    assert await store.feed(state.feed).find_suspected() == [5]


async def test_positions_blocked_keys_dead_letters_replays_and_pauses_stay(
    store: SqliteStore, command_store: SqliteCommandStore
) -> None:
    positions, blocked = await store.sink("erp").load_queue()
    assert positions == {FEED: 8, OTHER: 0}
    assert sorted(blocked, key=lambda each: each.key) == [
        Blocked(FEED, "a", 7, 1, later(minutes=5), "HTTP 500"),
        Blocked(FEED, "b", 2, 3, NOON, "HTTP 422", held=True),
    ]
    assert [each.letter for each in await command_store.read_dead("erp", Selection(), 10)] == [
        DeadLetter(FEED, "b", 2, 3, NOON, "HTTP 422"),
        DeadLetter(FEED, "c", 3, 3, NOON, "HTTP 410"),
    ]
    (replay,) = await store.sink("erp").load_replays(NOON, 10)
    assert (replay.feed, replay.sequence, replay.key, replay.attempts) == (FEED, 4, "d", 0)
    assert (await store.sink("shop").load_controls()).paused == "maintenance"


async def test_commands_stay_and_the_text_of_their_outcomes(
    store: SqliteStore, command_store: SqliteCommandStore
) -> None:
    assert await store.commands.take() == [Command(2, CommandKind.APPROVE, FEED)]
    done = await command_store.load_command(1)
    assert isinstance(done.outcome, CommandOutcome)
    text = "complete: 1 pages, 5 records, 0 created, 1 updated, 0 deleted, 0 restored"
    assert (done.kind, str(done.outcome)) == (CommandKind.RECONCILE, text)
