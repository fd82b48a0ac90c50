"""The relay between a real store and a sink that does what it is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.config import Expression, SinkSettings
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import DELIVERED, ClockSource, Delivery, Feed, Outcome, OutcomeKind, Page, Via
from dockbell.core.publishing.event import NamedEvent
from dockbell.core.publishing.settlement import Settlement, Verdict
from dockbell.delivery.relay import Relay
from dockbell.ports import Store
from dockbell.stores.sqlite import SqliteReadStore
from dockbell.telemetry import AgentFails, EventDied, SinkConnected, SinkFails
from tests.fakes import NOON, Clock, Ear, FakeSink
from tests.relaying import (
    FAILED,
    FEED,
    STOCK,
    UNREACHABLE,
    change,
    change_keys,
    drain,
    make_composer,
    make_relay,
    relaying,
    state_gap,
    until,
)


async def test_what_is_in_the_outbox_is_delivered_in_order_and_the_place_is_kept(store: Store) -> None:
    await change_keys(store, "abcab")
    sink = FakeSink()
    assert await drain(store, sink)
    assert sink.sequences == [1, 2, 3, 4, 5]
    again = FakeSink()
    assert await drain(store, again)
    assert again.got == []


async def test_what_comes_while_the_relay_runs_is_delivered_at_once(store: Store) -> None:
    sink = FakeSink()
    async with relaying(store, sink):
        for count, key in enumerate("aba", start=1):
            await change(store, {"id": key, "n": count})
            await until(lambda count=count: len(sink.got) == count)  # type: ignore[misc]
    assert sink.sequences == [1, 2, 3]


@pytest.mark.parametrize("looks", range(1, 6))
async def test_what_comes_while_the_relay_begins_is_delivered_at_once(store: Store, looks: int) -> None:
    await change_keys(store, "a")
    end = store.outbox.ends.pop(FEED)  # as if its commit had not been announced yet
    sink, moments = FakeSink(), 0

    def now() -> datetime:
        nonlocal moments
        moments += 1
        return NOON

    relay = make_relay(store, sink, now=now)
    async with anyio.create_task_group() as group:
        group.start_soon(relay.run)
        for _ in range(looks):  # a task that is always ready comes between any two steps of the relay's
            before = moments
            with anyio.move_on_after(0.2):
                while moments == before:  # the turn itself is what the test is about
                    await anyio.lowlevel.checkpoint()
        store.outbox.announce(FEED, end)
        await until(lambda: len(sink.got) == 1)
        relay.stop()


async def test_other_feeds_are_numbered_by_themselves(store: Store) -> None:
    await change_keys(store, "ab")
    await change(store, {"id": "x"}, feed=STOCK)
    sink = FakeSink()
    assert await drain(store, sink)
    assert {(delivery.event.feed, delivery.event.sequence) for delivery in sink.got} == {
        (FEED, 1),
        (FEED, 2),
        (STOCK, 1),
    }


@pytest.mark.parametrize(
    ("settings", "got"),
    [
        ({"resources": ["stock"]}, [(STOCK, "created")]),
        ({"changes": ["updated"]}, [(FEED, "updated")]),
        ({"sources": ["other"]}, []),
        ({"sources": ["main"], "resources": ["shipments"], "changes": ["created"]}, [(FEED, "created")]),
    ],
)
async def test_filters_let_through_what_they_name_and_settle_the_rest(
    store: Store, settings: dict[str, Any], got: list[tuple[Feed, str]]
) -> None:
    await change_keys(store, "aa")
    await change(store, {"id": "x"}, feed=STOCK)
    sink = FakeSink()
    assert await drain(store, sink, **settings)
    assert [(delivery.event.feed, delivery.event.change) for delivery in sink.got] == got
    assert (await store.sink("screen").load_queue())[0] == {FEED: 2, STOCK: 1}


@pytest.mark.parametrize(
    ("settings", "got"),
    [
        ({}, ["created", "gap", "gap"]),
        ({"resources": ["stock"]}, ["gap"]),
        ({"changes": ["created"]}, ["created"]),
        ({"changes": ["gap", "held"], "resources": ["shipments"]}, ["gap"]),
    ],
)
async def test_statements_pass_the_filters_like_any_event(
    store: Store, settings: dict[str, Any], got: list[str]
) -> None:
    await change_keys(store, "a")
    await state_gap(store)
    await state_gap(store, STOCK)
    sink = FakeSink()
    assert await drain(store, sink, **settings)
    assert sorted(delivery.event.change for delivery in sink.got) == got


async def test_a_statement_that_fails_holds_up_later_statements_of_its_feed_and_nothing_else(store: Store) -> None:
    clock, is_down = Clock(), True
    await state_gap(store)
    await change_keys(store, "a")
    await state_gap(store)
    await state_gap(store, STOCK)
    sink = FakeSink(
        keeps_state=True,
        answer=lambda delivery: (
            FAILED if is_down and (delivery.event.feed, delivery.event.key) == (FEED, "") else DELIVERED
        ),
    )
    assert not await drain(store, sink, clock)
    assert sorted((str(delivery.event.feed), delivery.event.sequence) for delivery in sink.got) == [
        ("main/shipments", 1),
        ("main/shipments", 2),
        ("main/stock", 1),
    ]
    is_down = False
    clock.pass_(5)
    async with relaying(store, sink, clock):
        await until(lambda: len(sink.got) == 5)
    assert sink.sequences[3:] == [1, 3]
    assert {delivery.event.key: delivery.state for delivery in sink.got} == {"": None, "a": b'{"id": "a", "n": 0}'}


async def test_named_events_are_delivered_behind_their_change_to_those_who_take_the_change(store: Store) -> None:
    detector = ChangeDetector(FEED, key=("/id",), updated_at=None, created_at=None, canon=Canon())
    page = Page((b'{"id":"a","n":3}',), None, "shipments", NOON, ClockSource.DATE, NOON, NOON)
    composer = make_composer(named=[NamedEvent("low", Expression("after.n < 10"))])
    detect = partial(detector.detect, page, ReadContext(Via.POLL, NOON))
    await store.feed(FEED).commit_page(detect, composer, via=Via.POLL)
    await change_keys(store, "b")
    sink = FakeSink()
    assert await drain(store, sink, changes=["created"])
    assert [delivery.event.type for delivery in sink.got if delivery.event.key == "a"] == [
        "dockbell.shipment.created",
        "dockbell.shipment.low",
    ]
    assert sorted(sink.sequences) == [1, 2, 3]


async def test_a_long_backlog_that_the_filters_hold_back_is_passed_without_waiting_for_news(store: Store) -> None:
    await change(store, *({"id": str(number)} for number in range(2500)))
    await change(store, {"id": "7", "n": 1})
    sink = FakeSink()
    async with relaying(store, sink, changes=["updated"]):
        await until(lambda: sink.sequences == [2501])


async def test_events_that_were_pruned_before_the_sink_came_are_not_waited_for(store: Store) -> None:
    await change_keys(store, "ab")
    await store.retention.prune_events(NOON + timedelta(days=8), (), 100)
    assert await drain(store, FakeSink())
    assert (await store.sink("screen").load_queue())[0][FEED] == 2


async def test_a_failing_key_waits_and_the_others_go_on(store: Store) -> None:
    await change_keys(store, "abab")
    sink = FakeSink(answer=lambda delivery: FAILED if delivery.event.key == "a" else DELIVERED)
    assert not await drain(store, sink)
    assert sink.sequences == [1, 2, 4]
    positions, (blocked,) = await store.sink("screen").load_queue()
    assert positions[FEED] == 4
    assert (blocked.key, blocked.sequence, blocked.attempts, blocked.error) == ("a", 1, 1, "HTTP 500")
    assert blocked.due == NOON + timedelta(seconds=5)


async def test_a_blocked_key_goes_on_in_order_when_its_time_has_come(store: Store) -> None:
    await change_keys(store, "abaa")
    clock = Clock()
    refused = FakeSink(answer=lambda delivery: FAILED if delivery.event.key == "a" else DELIVERED)
    await drain(store, refused, clock)
    clock.pass_(5)
    sink = FakeSink()
    async with relaying(store, sink, clock) as relay:
        await until(lambda: len(sink.got) == 3 and not relay._queue.owed)
    assert [(delivery.event.sequence, delivery.attempt) for delivery in sink.got] == [(1, 2), (3, 1), (4, 1)]
    assert (await store.sink("screen").load_queue())[1] == []


async def test_an_event_that_is_refused_is_a_dead_letter_and_its_key_goes_on(store: Store) -> None:
    await change_keys(store, "aa")
    ear = Ear()
    sink = FakeSink(
        answer=lambda each: Outcome(OutcomeKind.REFUSED, "HTTP 422") if each.event.sequence == 1 else DELIVERED
    )
    assert await make_relay(store, sink, Clock(), ear).drain(timedelta(seconds=10))
    assert sink.sequences == [1, 2]
    assert [fact.reason for fact in ear.facts if isinstance(fact, EventDied)] == ["HTTP 422"]


async def test_attempts_are_kept_the_last_of_them(store: Store, tmp_path: Path) -> None:
    await change_keys(store, "aaab")
    sink = FakeSink(answer=lambda each: FAILED if each.event.key == "b" else DELIVERED)
    async with relaying(store, sink, keep_attempts=3):
        await until(lambda: len(sink.got) == 4)
    async with aclosing(await SqliteReadStore.open(tmp_path / "dockbell.db")) as read_store:
        kept = {key: await read_store.read_attempts(FEED, key, 10) for key in "ab"}
    assert [each.sequence for each in kept["a"]["screen"]] == [2, 3]
    (failed,) = kept["b"]["screen"]
    assert (failed.verdict, failed.error, failed.took) == (Verdict.RETRY, "HTTP 500", timedelta(0))


async def test_a_sink_that_nobody_answers_for_is_left_alone_and_owes_everything(store: Store) -> None:
    await change_keys(store, "abcdefgh")
    sink = FakeSink(window=2, answer=lambda _: UNREACHABLE)
    assert not await drain(store, sink)
    assert len(sink.got) <= 2
    clock = Clock()
    clock.pass_(1)
    back = FakeSink()
    assert await drain(store, back, clock)
    assert sorted(back.sequences) == list(range(1, 9))


async def test_it_is_told_when_a_sink_takes_nothing_and_when_it_takes_events_again(store: Store) -> None:
    await change_keys(store, "ab")
    clock, ear = Clock(), Ear()
    sink = FakeSink(answer=lambda _: UNREACHABLE if clock() == NOON else DELIVERED)
    relay = make_relay(store, sink, clock, ear)
    async with anyio.create_task_group() as group:
        group.start_soon(relay.run)
        await until(lambda: relay._queue.breaker.is_open)
        clock.pass_(1)
        await until(lambda: not relay._queue.breaker.is_open)
        relay.stop()
    told = [str(fact) for fact in ear.facts if isinstance(fact, SinkFails | SinkConnected)]
    assert told == [
        "sink screen: connection refused; retrying in 1 s",
        "sink screen: connected, accepts events again",
    ]


async def test_deliveries_carry_the_latest_state_to_sinks_that_keep_it(store: Store) -> None:
    await change_keys(store, "aa")
    sink = FakeSink(keeps_state=True)
    await drain(store, sink)
    assert [json.loads(delivery.state or b"null") for delivery in sink.got] == [{"id": "a", "n": 1}] * 2


async def test_a_crash_repeats_what_was_not_saved_under_the_same_ids(store: Store) -> None:
    await change_keys(store, "abc")
    sink = FakeSink()
    relay = make_relay(store, sink, Clock(), Ear())
    async with anyio.create_task_group() as group:
        group.start_soon(relay.run)
        await until(lambda: len(sink.got) == 3)
        relay._checkpoint = _crash  # type: ignore[method-assign]
        group.cancel_scope.cancel()
    again = FakeSink()
    assert await drain(store, again)
    assert [each.event.id for each in again.got] == [each.event.id for each in sink.got]


async def _crash() -> None:
    """Stand in for the checkpoint of a process that is gone."""


async def test_after_a_checkpoint_that_failed_no_later_one_passes_what_was_in_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_keys(store, "a")
    sink = FakeSink(answer=lambda delivery: FAILED if delivery.event.key == "a" else DELIVERED)
    ear = Ear()
    relay = make_relay(store, sink, Clock(), ear)
    settle = store.sink("screen").settle
    failed: list[Settlement] = []

    async def fail_once(settlement: Settlement) -> None:
        if failed:
            await settle(settlement)
            return
        failed.append(settlement)
        await change(store, {"id": "b"})  # is delivered meanwhile, and would move the position past a
        await until(lambda: len(sink.got) == 2)
        raise OSError("database or disk is full")

    monkeypatch.setattr(store.sink("screen"), "settle", fail_once)
    monkeypatch.setattr("dockbell.delivery.relay._CHECKPOINT_EVERY", timedelta(seconds=0.02))
    async with anyio.create_task_group() as group:
        group.start_soon(relay.run)
        await until(lambda: any(isinstance(fact, AgentFails) for fact in ear.facts))
        assert (await store.sink("screen").load_queue())[0][FEED] == 0
        relay.stop()


async def test_to_drain_ends_when_the_store_cannot_be_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse_to_load() -> None:
        raise OSError("disk I/O error")

    monkeypatch.setattr(store.sink("screen"), "load_queue", refuse_to_load)
    with anyio.fail_after(5):
        assert not await make_relay(store, FakeSink(), Clock(), Ear()).drain(timedelta(seconds=0.1))


async def test_a_sink_that_breaks_begins_again_from_what_is_saved(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_keys(store, "ab")
    broken: list[Delivery] = []

    def answer(delivery: Delivery) -> Outcome:
        if not broken:
            broken.append(delivery)
            raise ZeroDivisionError
        return DELIVERED

    monkeypatch.setattr("dockbell.delivery.relay._RESTART_PAUSE", timedelta(0))
    sink, ear = FakeSink(answer=answer), Ear()
    assert await make_relay(store, sink, Clock(), ear).drain(timedelta(seconds=10))
    assert sink.sequences == [1, 1, 2]
    assert [type(fact) for fact in ear.facts if isinstance(fact, AgentFails)] == [AgentFails]


async def test_a_backlog_larger_than_what_is_read_ahead_is_delivered_whole(store: Store) -> None:
    await change(store, *({"id": str(number)} for number in range(2500)))
    sink = FakeSink(window=20)
    assert await drain(store, sink)
    assert sink.sequences == list(range(1, 2501))


async def test_stopping_settles_what_is_in_flight(store: Store) -> None:
    await change_keys(store, "ab")
    sink = FakeSink()
    async with relaying(store, sink):
        await until(lambda: len(sink.got) == 2)
    assert (await store.sink("screen").load_queue())[0][FEED] == 2


async def test_of_a_feed_whose_arrays_have_no_order_no_event_is_told_by_its_patch_alone(store: Store) -> None:
    for status in ("open", "shipped"):
        for feed in (FEED, STOCK):
            await change(store, {"id": "a", "status": status, "big": "x" * 3000}, feed=feed)
    sink, settings = FakeSink(), SinkSettings(type="fake", max_event_size=2000, changes=("updated",))
    relay = Relay(sink, settings, store=store, telemetry=Ear().telemetry, now=Clock(), unordered={FEED})
    assert await relay.drain(timedelta(seconds=10))
    bodies = {delivery.event.feed: json.loads(delivery.event.body)["data"] for delivery in sink.got}
    assert {feed: data["omitted"] for feed, data in bodies.items()} == {
        FEED: ["before", "after", "patch", "changed"],
        STOCK: ["before", "after"],
    }


@dataclass
class Counting(FakeSink):
    """Counts its connections."""

    connections: int = 0

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        self.connections += 1
        await super().run(deliveries, settle)


OTHER = Feed("other", "shipments")


async def test_a_feed_that_begins_while_it_runs_is_delivered_by_the_connection_that_is_there(store: Store) -> None:
    sink = Counting()
    await change_keys(store, "a")
    async with relaying(store, sink):
        await until(lambda: len(sink.got) == 1)
        await store.feed(OTHER).open()
        await store.sink("screen").enroll("now")
        await change(store, {"id": "b", "n": 1}, feed=OTHER)
        await until(lambda: len(sink.got) == 2)
    assert [delivery.event.feed for delivery in sink.got] == [FEED, OTHER]
    assert sink.connections == 1


async def test_a_sink_that_breaks_ever_again_is_given_up_by_whoever_waits_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.delivery.relay._RESTART_PAUSE", timedelta(milliseconds=5))

    class Broken(FakeSink):
        async def run(self, deliveries: object, settle: object) -> None:
            raise KeyError(str(deliveries) + str(settle))

    await store.sink("screen").enroll("now")
    await change_keys(store, "a")
    with anyio.fail_after(5):
        assert not await make_relay(store, Broken()).drain(timedelta(seconds=60))


async def test_a_sink_that_was_resumed_while_it_was_down_is_told_to_be_back_when_it_takes_an_event(
    store: Store,
) -> None:
    ear, answers = Ear(), [UNREACHABLE]
    sink = FakeSink(answer=lambda _: answers[0])
    async with relaying(store, sink, ear=ear) as relay:
        await change_keys(store, "a")
        await until(lambda: any(isinstance(fact, SinkFails) for fact in ear.facts))
        answers[0] = DELIVERED
        relay._queue.breaker.reset()
        relay._bell.ring()
        await until(lambda: any(isinstance(fact, SinkConnected) for fact in ear.facts))
