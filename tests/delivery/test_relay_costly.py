"""Conditions that take long to judge, of records that somebody has made so: they delay nobody, and hide nothing."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Final

import anyio

from dockbell.config import Answer
from dockbell.stores.sqlite import SqliteStore
from dockbell.telemetry import EventDied, FilterUnanswered
from tests.fakes import Clock, Ear, FakeSink
from tests.relaying import STOCK, change, drain, make_relay, relaying, until

SUBSET: Final = "after.tags.exists(t, !(t in before.tags))"
HOSTILE: Final = [f"tag-{number}" for number in range(12_000)]


async def grow(store: SqliteStore, key: str, tags: list[str]) -> None:
    """Have a record appear, and change without getting another tag."""
    for number in range(2):
        await change(store, {"id": key, "n": number, "tags": tags})


async def test_what_takes_too_long_to_judge_is_delivered_and_the_loop_goes_on(store: SqliteStore) -> None:
    await grow(store, "hostile", HOSTILE)
    await grow(store, "tame", ["a"])
    ear, sink, pauses = Ear(), FakeSink(), [0.0]

    async def tick() -> None:
        while True:
            began_at = time.monotonic()
            await anyio.sleep(0.005)
            pauses.append(time.monotonic() - began_at)

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        assert await make_relay(store, sink, ear=ear, where=SUBSET).drain(timedelta(seconds=10))
        group.cancel_scope.cancel()
    assert [delivery.event.key for delivery in sink.got] == ["hostile"]  # the tame one has no other tag
    assert max(pauses) < 0.3
    assert not [fact for fact in ear.facts if isinstance(fact, EventDied)]
    (told,) = [fact for fact in ear.facts if isinstance(fact, FilterUnanswered) and fact.answer == Answer.COSTLY]
    assert (told.count, told.level) == (1, logging.WARNING)
    assert str(told) == "sink screen: where takes too long to judge of so large a record, for 1 event"


async def test_many_such_records_hold_up_others_for_seconds_only(store: SqliteStore) -> None:
    for number in range(40):
        await grow(store, f"hostile-{number}", [f"{number}-{tag}" for tag in HOSTILE])
    await change(store, {"id": "tame", "tags": ["a"]}, feed=STOCK)
    await change(store, {"id": "tame", "tags": ["b"]}, feed=STOCK)
    sink, began_at = FakeSink(), time.monotonic()
    async with relaying(store, sink, where=SUBSET):
        await until(lambda: len({each.event.key for each in sink.got}) == 41, seconds=20)
    assert time.monotonic() - began_at < 15


async def test_a_sink_that_keeps_state_is_shown_what_was_not_judged(store: SqliteStore) -> None:
    await grow(store, "hostile", HOSTILE)
    sink = FakeSink(keeps_state=True)
    with anyio.fail_after(20):
        assert await make_relay(store, sink, where=SUBSET, max_event_size=10**7).drain(timedelta(seconds=10))
    assert [(each.event.sequence, each.state_only) for each in sink.got] == [(1, True), (2, False)]


async def test_a_larger_record_that_can_be_judged_in_time_is(store: SqliteStore) -> None:
    await grow(store, "large", HOSTILE[:500])
    sink = FakeSink()
    assert await drain(store, sink, Clock(), where=SUBSET)
    assert sink.got == []
