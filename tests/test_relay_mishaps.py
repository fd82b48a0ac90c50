"""What goes wrong around a relay: its store, its clock, its sink, its configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.core.model import DELIVERED, Delivery, Fate, Outcome
from dockbell.core.publishing.settlement import Settlement
from dockbell.relay import Relay
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.desk import SqliteDesk
from dockbell.telemetry import AgentFails, EventDied
from tests.fakes import NOON, Clock, Ear, FakeSink
from tests.relaying import FAILED, FEED, UNREACHABLE, change, change_keys, drain, make_relay, opened, relaying, until


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with opened(tmp_path) as store:
        yield store


async def test_while_the_store_saves_nothing_what_was_sent_is_not_sent_again_and_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_keys(store, "abc")
    monkeypatch.setattr("dockbell.relay._RESTART_PAUSE", timedelta(seconds=0.01))
    monkeypatch.setattr("dockbell.relay._CHECKPOINT_EVERY", timedelta(seconds=0.01))
    settle, is_full = store.settle, True
    refused: list[Settlement] = []

    async def refuse(sink: str, settlement: Settlement) -> None:
        if is_full:
            refused.append(settlement)
            raise OSError("database or disk is full")
        await settle(sink, settlement)

    monkeypatch.setattr(store, "settle", refuse)
    sink = FakeSink()
    async with relaying(store, sink):
        await until(lambda: len(refused) > 10)
        assert sink.sequences == [1, 2, 3]
        is_full = False
        await change(store, {"id": "d"})
        await until(lambda: len(sink.got) == 4)
    assert sink.sequences == [1, 2, 3, 4]
    assert (await store.load_ledger("screen"))[0][FEED] == 4


async def test_a_sink_whose_run_ends_too_early_is_told_of_and_begun_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hasty(FakeSink):
        async def run(
            self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
        ) -> None:
            async for delivery in deliveries:
                self.got.append(delivery)
                settle(delivery, DELIVERED)
                return

    await change_keys(store, "abc")
    monkeypatch.setattr("dockbell.relay._RESTART_PAUSE", timedelta(0))
    sink, ear = Hasty(), Ear()
    async with relaying(store, sink, ear=ear):
        await until(lambda: {1, 2, 3} <= set(sink.sequences))
    assert any(isinstance(fact, AgentFails) and "returned before" in str(fact) for fact in ear.facts)


async def test_a_clock_that_is_set_back_by_hours_does_not_stop_a_sink_for_hours(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.relay._LOOK_EVERY", timedelta(seconds=0.01))
    await change_keys(store, "ab")
    clock, is_down = Clock(), True
    sink = FakeSink(answer=lambda _: UNREACHABLE if is_down else DELIVERED)
    async with relaying(store, sink, clock) as relay:
        await until(lambda: relay._ledger.breaker.is_open)
        is_down = False
        clock.pass_(-3 * 3600)
        await until(lambda: not relay._ledger.breaker.is_open)
        clock.pass_(6)
        relay._bell.ring()
        await until(lambda: not relay._ledger.owed and relay._ledger.frontier(FEED) == 2)
    assert await drain(store, FakeSink(), clock)


async def test_a_sink_that_was_narrowed_gets_nothing_more_of_what_it_was_owed(store: SqliteStore) -> None:
    clock = Clock()
    await change_keys(store, "aab")
    assert not await drain(store, FakeSink(answer=lambda each: FAILED if each.event.key == "a" else DELIVERED), clock)
    desk = await SqliteDesk.open(store.path)
    await desk.offer("screen", FEED, [(3, "b")], NOON)
    await desk.aclose()
    clock.pass_(10)
    sink, ear = FakeSink(), Ear()
    relay = make_relay(store, sink, clock, ear, resources=["stock"])
    with anyio.fail_after(5):
        assert await relay.drain(timedelta(seconds=1))
    assert sink.got == []
    dead = [(fact.sequence, fact.reason) for fact in ear.facts if isinstance(fact, EventDied)]
    assert dead == [(3, "held back by the sink's filters")]


async def test_an_operator_who_resumes_a_sink_need_not_wait_for_its_next_probe(store: SqliteStore) -> None:
    await change_keys(store, "ab")
    desk = await SqliteDesk.open(store.path)
    clock, is_down = Clock(), True
    busy = Outcome(Fate.FAILED, "HTTP 429", timedelta(hours=20))
    sink = FakeSink(answer=lambda _: busy if is_down else DELIVERED)
    async with relaying(store, sink, clock) as relay:
        await until(lambda: relay._ledger.breaker.is_open)
        await desk.pause("screen", "a break", NOON)
        await until(lambda: relay._is_paused, seconds=1)
        is_down = False
        await desk.resume("screen")
        await until(lambda: sorted({each.event.sequence for each in sink.got[-2:]}) == [1, 2], seconds=1.5)
    await desk.aclose()


async def test_a_relay_that_is_stopped_while_its_sink_breaks_does_not_wait_to_begin_again(store: SqliteStore) -> None:
    await change_keys(store, "a")
    ear = Ear()
    relay: list[Relay] = []

    def stop_and_break(_: Delivery) -> Outcome:
        relay[0].stop()
        raise ZeroDivisionError

    relay.append(make_relay(store, FakeSink(answer=stop_and_break), ear=ear))
    with anyio.fail_after(2):
        await relay[0].run()
    assert any(isinstance(fact, AgentFails) for fact in ear.facts)
