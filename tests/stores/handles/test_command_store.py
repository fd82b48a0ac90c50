"""Wishes: left in the store beside the process that holds it, and seen to by that one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from dockbell.core.model import Feed
from dockbell.errors import StoreError
from dockbell.ports import Command, CommandKind, CommandOutcome
from dockbell.stores.handles.command_store import SqlCommandStore
from dockbell.stores.handles.store import SqlStore
from tests.fakes import NOON
from tests.stores.pages import FEED, OTHER
from tests.stores.places import Place, open_command_store, open_store
from tests.stores.standings import write

DONE = CommandOutcome("complete", detail="done")


@pytest.fixture
async def store(place: Place) -> AsyncIterator[SqlStore]:
    store = await open_store(place, now=lambda: NOON)
    await store.feed(FEED).open()
    await store.feed(OTHER).open()
    yield store
    await store.aclose()


@pytest.fixture
async def command_store(place: Place, store: SqlStore) -> AsyncIterator[SqlCommandStore]:  # it is there
    command_store = await open_command_store(place)
    yield command_store
    await command_store.aclose()


async def test_wishes_wait_in_their_order_until_they_are_fulfilled(
    store: SqlStore, command_store: SqlCommandStore
) -> None:
    numbers = [await command_store.make_command(feed, kind, NOON) for feed in (FEED, OTHER) for kind in CommandKind]
    commands = await store.commands.take()
    assert [command.id for command in commands] == numbers
    assert [(command.feed, command.kind) for command in commands] == [
        (feed, kind) for feed in (FEED, OTHER) for kind in CommandKind
    ]
    assert await command_store.load_command(numbers[3]) == commands[3]
    for command in commands[1:]:
        await store.commands.finish(command, DONE)
    assert await store.commands.take() == [commands[0]]
    assert (await command_store.load_command(numbers[0])).outcome is None
    assert (await command_store.load_command(numbers[1])).outcome == DONE


async def test_a_wish_outlives_the_process_that_it_was_left_for(place: Place) -> None:
    store = await open_store(place, now=lambda: NOON)
    await store.feed(FEED).open()
    await store.aclose()
    command_store = await open_command_store(place)
    number = await command_store.make_command(FEED, CommandKind.REJECT, NOON)
    await command_store.aclose()
    store = await open_store(place, now=lambda: NOON)
    assert await store.commands.take() == [Command(number, CommandKind.REJECT, FEED)]
    await store.aclose()


async def test_a_wish_of_a_feed_that_was_never_read_is_refused(command_store: SqlCommandStore) -> None:
    with pytest.raises(StoreError, match='feed main/nothing: was never read; "dockbell run" reads it first'):
        await command_store.make_command(Feed("main", "nothing"), CommandKind.APPROVE, NOON)


async def test_fulfilled_wishes_go_with_the_history_and_waiting_ones_stay(
    store: SqlStore, command_store: SqlCommandStore
) -> None:
    kept, done = [await command_store.make_command(FEED, CommandKind.RECONCILE, NOON) for _ in range(2)]
    await store.commands.finish(Command(done, CommandKind.RECONCILE, FEED), DONE)
    assert await store.retention.prune_history(NOON, 10) == 0
    assert await store.retention.prune_history(NOON + timedelta(seconds=1), 10) == 1
    assert [command.id for command in await store.commands.take()] == [kept]
    assert await command_store.make_command(FEED, CommandKind.RECONCILE, NOON) > done  # no number is given twice


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("complete: 3 pages, 600 records", CommandOutcome("complete", detail="3 pages, 600 records")),
        (
            "failed: KeyError: 'row'; see the log for details",
            CommandOutcome("failed", detail="KeyError: 'row'; see the log for details"),
        ),
    ],
)
async def test_an_outcome_that_an_older_version_stored_as_text_reads_as_it_did(
    place: Place, command_store: SqlCommandStore, text: str, outcome: CommandOutcome
) -> None:
    number = await command_store.make_command(FEED, CommandKind.RECONCILE, NOON)
    write(place, "UPDATE commands SET done_at = 1, outcome = ?", text)
    found = (await command_store.load_command(number)).outcome
    assert found == outcome
    assert str(found) == text
