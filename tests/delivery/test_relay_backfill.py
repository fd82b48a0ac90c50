"""Sinks that begin with what is stored, and sinks that have lost events and begin again with it."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from dockbell.core.model import DELIVERED, NOTICES, Delivery, Feed, NoticeKind, Outcome, OutcomeKind, Statement
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.settlement import Settlement
from dockbell.ports import CommandStore
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.telemetry import EventDied
from tests.fakes import NOON, Clock, Ear, FakeSink
from tests.relaying import (
    FAILED,
    FEED,
    STOCK,
    UNREACHABLE,
    PatientSink,
    change,
    drain,
    make_relay,
    opened,
    relaying,
    until,
)
from tests.stores.pages import close_pass, delete_records, later


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Return a store of records a, b, c, none of which the sink was told of; a has changed once."""
    async with opened(tmp_path) as store:
        await change(store, *({"id": key, "n": 0} for key in "abc"))
        await change(store, {"id": "a", "n": 1})
        for feed in (FEED, STOCK):
            await close_pass(store, await store.feed(feed).open())
        await store.engine.write(lambda writer: writer.execute("DELETE FROM positions").rowcount)
        await store.sink("screen").enroll("state")
        yield store


async def delete(store: SqliteStore, row: int) -> None:
    """Let a pass find that a record is gone."""
    state = await store.feed(FEED).open()
    await close_pass(store, state, suspected=[row])
    await delete_records(store, state, row)


def told(deliveries: Sequence[Delivery]) -> list[tuple[Any, ...]]:
    """Return what deliveries say, each as its number, its key, its change, its revision and the record's ``n``."""
    return [
        (
            each.event.sequence,
            each.event.key,
            each.event.change,
            each.event.revision,
            (json.loads(each.event.body)["data"].get("after") or {}).get("n"),
        )
        for each in deliveries
    ]


def tell_backfilled(sink: FakeSink) -> list[tuple[Any, ...]]:
    """Return what was attempted of a gap and of the state that follows it."""
    attempts = told(sink.got)
    gaps = [number for number, each in enumerate(attempts) if each[2] == "gap"]
    return attempts[gaps[0] :] if gaps else []


STORED = [(4, "a", "snapshot", 2, 1), (4, "b", "snapshot", 1, 0), (4, "c", "snapshot", 1, 0)]


async def test_each_stored_record_is_told_once_and_what_follows_after_it(store: SqliteStore) -> None:
    sink = FakeSink()
    async with relaying(store, sink):
        await until(lambda: len(sink.got) == 3)
        await change(store, {"id": "b", "n": 5})
        await until(lambda: len(sink.got) == 4)
    assert told(sink.got) == [*STORED, (5, "b", "updated", 2, 5)]
    again = FakeSink()
    assert await drain(store, again)
    assert again.got == []


async def test_records_are_told_as_they_were_when_the_sink_began_whatever_became_of_them(store: SqliteStore) -> None:
    await change(store, {"id": "b", "n": 5}, {"id": "new", "n": 9})
    await delete(store, 3)
    await change(store, {"id": "b", "n": 6})
    sink = FakeSink()
    assert await drain(store, sink)
    assert sorted(told(sink.got)) == sorted(
        [
            *STORED,
            (5, "b", "updated", 2, 5),
            (6, "new", "created", 1, 9),
            (7, "c", "deleted", 2, None),
            (8, "b", "updated", 3, 6),
        ]
    )
    assert [each[0] for each in told(sink.got) if each[1] == "b"] == [4, 5, 8]


async def test_after_a_crash_what_was_not_saved_is_told_again_under_the_same_ids_and_what_followed_too(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = PatientSink(is_left=lambda each: each.event.key == "a")
    relay = make_relay(store, sink)
    async with anyio.create_task_group() as group:
        group.start_soon(relay.run)
        await until(lambda: len(sink.got) == 3)
        await change(store, {"id": "b", "n": 5})
        await until(lambda: len(sink.got) == 4)
        await relay._checkpoint()
        monkeypatch.setattr(relay._checkpoints, "_unsaved", Settlement())  # nothing is saved any more
        group.cancel_scope.cancel()
    again = FakeSink()
    assert await drain(store, again)
    assert sorted(told(again.got)) == sorted([*STORED, (5, "b", "updated", 2, 5)])
    assert {each.event.id for each in again.got} == {each.event.id for each in sink.got}


async def test_a_record_that_is_not_taken_at_first_is_told_the_same_later_and_before_what_followed(
    store: SqliteStore,
) -> None:
    clock = Clock()
    sink = FakeSink(answer=lambda each: FAILED if each.attempt == 1 and each.event.key == "b" else DELIVERED)
    assert not await drain(store, sink, clock)
    await change(store, {"id": "b", "n": 5})
    clock.pass_(6)
    sink.answer = lambda _: DELIVERED
    assert await drain(store, sink, clock)
    first, second, followed = [each.event for each in sink.got if each.event.key == "b"]
    assert first == second
    assert followed.sequence == 5


async def test_a_record_that_is_refused_is_a_dead_letter_that_can_be_replayed(store: SqliteStore) -> None:
    ear = Ear()
    refused = Outcome(OutcomeKind.REFUSED, "HTTP 422")
    sink = FakeSink(answer=lambda each: refused if each.event.key == "b" and not each.replayed else DELIVERED)
    assert await make_relay(store, sink, ear=ear).drain(timedelta(seconds=10))
    assert [(fact.key, fact.sequence) for fact in ear.facts if isinstance(fact, EventDied)] == [("b", 4)]
    await change(store, {"id": "b", "n": 5})
    await drain(store, sink)
    command_store: CommandStore = await SqliteCommandStore.open(store.path)
    await command_store.offer("screen", FEED, [(4, "b")], NOON)
    await command_store.aclose()
    assert await drain(store, sink)
    assert sink.got[-1].replayed
    assert sink.got[-1].event == sink.got[1].event


async def test_a_feed_that_was_never_read_whole_is_not_told_of_yet(tmp_path: Path) -> None:
    async with opened(tmp_path, start="state") as store:
        await change(store, {"id": "a", "n": 0})
        sink = FakeSink()
        async with relaying(store, sink):
            await anyio.sleep(0.05)
            assert sink.got == []
            await close_pass(store, await store.feed(FEED).open())
            await change(store, {"id": "a", "n": 1})
            await until(lambda: len(sink.got) == 2)
        assert [(each.event.sequence, each.event.change) for each in sink.got] == [(1, "created"), (2, "updated")]


async def test_filters_hold_back_records_too_but_not_for_being_no_change(store: SqliteStore) -> None:
    sink = FakeSink()
    assert await drain(store, sink, changes=["updated"], where="after.n == 1")
    assert told(sink.got) == STORED[:1]


async def test_a_sink_that_is_overrun_while_it_waits_hears_of_the_gap_the_state_and_what_follows(
    store: SqliteStore,
) -> None:
    clock = Clock()
    assert await drain(store, FakeSink(), clock)
    is_down = True
    sink = FakeSink(answer=lambda _: UNREACHABLE if is_down else DELIVERED)
    async with relaying(store, sink, clock):
        await change(store, {"id": "a", "n": 2})
        await delete(store, 2)
        assert await store.sink("screen").overrun(later(days=1)) == {FEED: NOON}
        assert await store.retention.prune_events(later(days=1), ["screen"], 100) == 6
        await until(lambda: len(tell_backfilled(sink)) == 4, seconds=1)
        sink.got.clear()
        is_down = False
        await change(store, {"id": "c", "n": 7})
        clock.pass_(60)
        await until(lambda: len(sink.got) == 5)
    assert told(sink.got)[0] == (6, "", "gap", 0, None)
    assert sorted(told(sink.got)) == sorted(
        [
            (6, "", "gap", 0, None),
            (6, "a", "snapshot", 3, 2),
            (6, "b", "deleted", 2, None),
            (6, "c", "snapshot", 1, 0),
            (7, "c", "updated", 2, 7),
        ]
    )
    assert await drain(store, FakeSink(), clock)
    assert (await store.sink("screen").load_queue())[0][FEED] == 7


async def test_a_gap_that_is_not_taken_at_once_delays_no_record(store: SqliteStore) -> None:
    clock = Clock()
    assert await drain(store, FakeSink(), clock)
    await change(store, {"id": "a", "n": 2})
    await store.sink("screen").overrun(later(days=1))
    outcomes = iter([FAILED])
    sink = FakeSink(answer=lambda each: next(outcomes, DELIVERED) if each.event.change == "gap" else DELIVERED)
    async with relaying(store, sink, clock):
        await until(lambda: len(sink.got) == 4)
        clock.pass_(60)
        await until(lambda: len(sink.got) == 5)
    assert [each.event.change for each in sink.got] == ["gap", "snapshot", "snapshot", "snapshot", "gap"]


async def test_what_is_settled_of_what_the_sink_has_lost_moves_nothing(store: SqliteStore) -> None:
    """Until its relay notices, the sink may be delivered what follows, which must come again after the state."""
    sink = PatientSink(is_left=lambda each: each.event.key == "a")
    async with relaying(store, sink) as relay:
        await until(lambda: len(sink.got) == 3)
        await change(store, {"id": "c", "n": 5})
        await until(lambda: len(sink.got) == 4)
        await store.sink("screen").overrun(later(days=1))
        await change(store, {"id": "b", "n": 5})
        await until(lambda: len(sink.got) == 5)
        sink.finish(FAILED)
        await relay._checkpoint()
        assert (await store.sink("screen").load_queue())[0][FEED] == 5
        assert (await store.sink("screen").load_queue())[1] == []
        sink.is_left = lambda _: False
        await until(lambda: len(sink.got) == 10, seconds=2)
    assert sink.got[5].event.change == "gap"
    assert sorted(told(sink.got[5:])) == sorted(
        [
            (5, "", "gap", 0, None),
            (5, "a", "snapshot", 2, 1),
            (5, "b", "snapshot", 1, 0),
            (5, "c", "snapshot", 2, 5),
            (6, "b", "updated", 2, 5),
        ]
    )


async def test_a_sink_that_begins_with_the_state_hears_of_notices_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        notices = await store.feed(NOTICES).open()
        await store.sink("new").enroll("state")
        statement = Statement(NOTICES, NoticeKind.PAUSED, NOON, {"sink": "x", "reason": "HTTP 410", "count": 1})
        compose = Composer(NOTICES, name="acme", singular="notice", epoch="epoch")
        await store.feed(notices.feed).publish([statement], compose)
        sink = FakeSink(name="new")
        async with relaying(store, sink, resources=["notices"]):
            await until(lambda: len(sink.got) == 1)


async def test_a_feed_that_begins_while_the_store_is_busy_is_delivered(store: SqliteStore) -> None:
    items, sink = Feed("main", "items"), FakeSink()
    free = threading.Event()

    async def hold() -> None:
        await store.engine.write(lambda _: free.wait(10))

    async with relaying(store, sink) as relay, anyio.create_task_group() as group:
        await until(lambda: len(sink.got) == 3)
        await store.feed(items).open()
        group.start_soon(hold)
        await anyio.lowlevel.checkpoint()
        group.start_soon(store.sink("screen").enroll, "now")
        for _ in range(3):  # it looks while the enrolment waits for the writer
            await relay._look()
        free.set()
        await until(lambda: items in relay._starts, seconds=5)
        await change(store, {"id": "i", "n": 0}, feed=items)
        await until(lambda: sink.got[-1].event.feed == items)
