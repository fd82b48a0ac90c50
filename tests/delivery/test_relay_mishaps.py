"""What goes wrong around a relay: its store, its clock, its sink, its configuration."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.core.model import DELIVERED, Delivery, Outcome, OutcomeKind
from dockbell.core.publishing.settlement import Settlement
from dockbell.delivery.relay import Relay
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.telemetry import AgentFails, EventDied
from tests.fakes import NOON, Clock, Ear, FakeSink
from tests.relaying import FAILED, FEED, UNREACHABLE, change, change_keys, drain, make_relay, relaying, until


async def test_while_the_store_saves_nothing_what_was_sent_is_not_sent_again_and_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_keys(store, "abc")
    monkeypatch.setattr("dockbell.delivery.relay._RESTART_PAUSE", timedelta(seconds=0.01))
    monkeypatch.setattr("dockbell.delivery.relay._CHECKPOINT_EVERY", timedelta(seconds=0.01))
    settle, is_full = store.sink("screen").settle, True
    refused: list[Settlement] = []

    async def refuse(settlement: Settlement) -> None:
        if is_full:
            refused.append(settlement)
            raise OSError("database or disk is full")
        await settle(settlement)

    monkeypatch.setattr(store.sink("screen"), "settle", refuse)
    sink = FakeSink()
    async with relaying(store, sink):
        await until(lambda: len(refused) > 10 and len(sink.got) >= 3)
        assert sink.sequences == [1, 2, 3]
        is_full = False
        await change(store, {"id": "d"})
        await until(lambda: len(sink.got) == 4)
    assert sink.sequences == [1, 2, 3, 4]
    assert (await store.sink("screen").load_queue())[0][FEED] == 4


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
    monkeypatch.setattr("dockbell.delivery.relay._RESTART_PAUSE", timedelta(0))
    sink, ear = Hasty(), Ear()
    async with relaying(store, sink, ear=ear):
        await until(lambda: {1, 2, 3} <= set(sink.sequences))
    assert any(isinstance(fact, AgentFails) and "returned before" in str(fact) for fact in ear.facts)


async def test_a_clock_that_is_set_back_by_hours_does_not_stop_a_sink_for_hours(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.delivery.relay._LOOK_EVERY", timedelta(seconds=0.01))
    await change_keys(store, "ab")
    clock, is_down = Clock(), True
    sink = FakeSink(answer=lambda _: UNREACHABLE if is_down else DELIVERED)
    async with relaying(store, sink, clock) as relay:
        await until(lambda: relay._queue.breaker.is_open)
        is_down = False
        clock.pass_(-3 * 3600)
        await until(lambda: not relay._queue.breaker.is_open)
        clock.pass_(6)
        relay._bell.ring()
        await until(lambda: not relay._queue.owed and relay._queue.frontier(FEED) == 2)
    assert await drain(store, FakeSink(), clock)


async def drain_busy(store: SqliteStore, clock: Clock) -> FakeSink:
    """Let a receiver ask for ten minutes, and a relay end after it."""
    sink = FakeSink(answer=lambda _: Outcome(OutcomeKind.FAILED, "HTTP 503", timedelta(minutes=10)))
    assert not await drain(store, sink, clock)
    assert len(sink.got) == 1
    return sink


@pytest.mark.parametrize("step", [0, -7200, 7200])
async def test_a_pause_that_a_receiver_asks_for_outlasts_a_restart_and_a_clock_that_is_set(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    monkeypatch.setattr("dockbell.delivery.relay._LOOK_EVERY", timedelta(seconds=0.01))
    await change_keys(store, "a")
    clock = Clock()
    await drain_busy(store, clock)
    clock.pass_(60)
    sink, ear = FakeSink(), Ear()
    async with relaying(store, sink, clock, ear) as relay:
        await until(lambda: relay._has_turned)
        looked_at = relay._clock.looked_at
        clock.step(step)
        await until(lambda: relay._clock.looked_at != looked_at or not step)
        clock.pass_(530)
        relay._bell.ring()
        await anyio.sleep(0.05)
        assert not sink.got
        clock.pass_(600)
        relay._bell.ring()
        await until(lambda: len(sink.got) == 1)
    assert "sink screen: its receiver asked for a pause; retrying in 540 s" in ear.texts()


async def test_deliveries_are_spaced_as_the_sink_says_also_over_a_new_session(store: SqliteStore) -> None:
    await change_keys(store, "abcd")
    clock, sink = Clock(), FakeSink()
    async with relaying(store, sink, clock, requests_per_minute=6) as relay:
        await until(lambda: len(sink.got) == 1)
        clock.pass_(9.9)
        relay._bell.ring()
        await anyio.sleep(0.05)
        assert len(sink.got) == 1
        clock.pass_(0.2)
        relay._bell.ring()
        await until(lambda: len(sink.got) == 2)
        relay._begin_again()
        await anyio.sleep(0.05)
        assert len(sink.got) == 2
        clock.pass_(10)
        relay._bell.ring()
        await until(lambda: len(sink.got) == 3)


async def test_several_processes_divide_what_a_receiver_allows(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.delivery.relay._LOOK_EVERY", timedelta(seconds=0.01))
    await change_keys(store, "abcd")
    clock, sink, processes = Clock(), FakeSink(), 2
    async with relaying(store, sink, clock, requests_per_minute=6, processes=lambda: processes) as relay:
        await until(lambda: len(sink.got) == 1)
        clock.pass_(19.9)
        relay._bell.ring()
        await anyio.sleep(0.05)
        assert len(sink.got) == 1
        processes = 1
        await until(lambda: relay._queue._flights.spacing == timedelta(seconds=10))
        clock.pass_(0.2)
        relay._bell.ring()
        await until(lambda: len(sink.got) == 2)
        clock.pass_(10)
        relay._bell.ring()
        await until(lambda: len(sink.got) == 3)


async def test_what_waits_to_be_spaced_waits_for_the_end_of_a_pause_as_well(store: SqliteStore) -> None:
    await change_keys(store, "abcd")
    clock = Clock()
    sink = FakeSink(answer=lambda _: Outcome(OutcomeKind.FAILED, "HTTP 503", timedelta(minutes=10)))
    async with relaying(store, sink, clock, requests_per_minute=60) as relay:
        await until(lambda: len(sink.got) == 1)
        for _ in range(5):
            clock.pass_(60)
            relay._bell.ring()
            await anyio.sleep(0.01)
        assert len(sink.got) == 1


async def test_a_sink_that_was_narrowed_gets_nothing_more_of_what_it_was_owed(store: SqliteStore) -> None:
    clock = Clock()
    await change_keys(store, "aab")
    assert not await drain(store, FakeSink(answer=lambda each: FAILED if each.event.key == "a" else DELIVERED), clock)
    command_store = await SqliteCommandStore.open(store.path)
    await command_store.offer("screen", FEED, [(3, "b")], NOON)
    await command_store.aclose()
    clock.pass_(10)
    sink, ear = FakeSink(), Ear()
    relay = make_relay(store, sink, clock, ear, resources=["stock"])
    with anyio.fail_after(5):
        assert await relay.drain(timedelta(seconds=10))
    assert sink.got == []
    dead = [(fact.sequence, fact.reason) for fact in ear.facts if isinstance(fact, EventDied)]
    assert dead == [(3, "held back by the sink's filters")]


async def test_an_operator_who_resumes_a_sink_need_not_wait_for_its_next_probe(store: SqliteStore) -> None:
    await change_keys(store, "ab")
    command_store = await SqliteCommandStore.open(store.path)
    clock, is_down = Clock(), True
    busy = Outcome(OutcomeKind.FAILED, "HTTP 429", timedelta(hours=20))
    sink = FakeSink(answer=lambda _: busy if is_down else DELIVERED)
    async with relaying(store, sink, clock) as relay:
        await until(lambda: relay._queue.breaker.is_open)
        await command_store.pause("screen", "a break", NOON)
        await until(lambda: relay.paused is not None, seconds=1)
        is_down = False
        await command_store.resume("screen", NOON)
        await until(lambda: sorted({each.event.sequence for each in sink.got[-2:]}) == [1, 2], seconds=1.5)
    await command_store.aclose()


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
