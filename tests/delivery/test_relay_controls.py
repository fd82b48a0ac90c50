"""What is decided beside a running relay: pauses, replays, keys on hold; and what it makes of refusals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from dockbell.core.comparing.deletion_rules import purge
from dockbell.core.model import DELIVERED, Delivery, Event, Outcome, OutcomeKind
from dockbell.core.publishing.settlement import RecordId, Replay
from dockbell.ports import CommandStore
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.telemetry import EventDied, EventsTakenBack, SinkPaused, SinkResumed
from tests.fakes import NOON, Clock, Ear, FakeSink
from tests.relaying import (
    FAILED,
    FEED,
    STOCK,
    UNREACHABLE,
    PatientSink,
    change,
    change_keys,
    drain,
    make_composer,
    make_relay,
    relaying,
    until,
)

REFUSED = Outcome(OutcomeKind.REFUSED, "HTTP 422")
CLOSED = Outcome(OutcomeKind.CLOSED, "HTTP 410")


@pytest.fixture
async def command_store(store: SqliteStore) -> AsyncIterator[CommandStore]:
    """Return an operator's own connection to the store."""
    command_store = await SqliteCommandStore.open(store.path)
    yield command_store
    await command_store.aclose()


def refuse(*sequences: int) -> Callable[[Delivery], Outcome]:
    return lambda delivery: REFUSED if delivery.event.sequence in sequences else DELIVERED


# Pauses --------------------------------------------------------------------------------------------------------------


async def test_a_receiver_that_wants_no_more_is_left_alone_until_the_sink_is_resumed(
    store: SqliteStore, command_store: CommandStore
) -> None:
    await change_keys(store, "abc")
    ear, sink = Ear(), PatientSink(is_left=lambda _: True)
    async with relaying(store, sink, ear=ear):
        await until(lambda: len(sink.left) == 3)
        for _ in range(3):
            sink.finish(CLOSED)
        await until(lambda: any(isinstance(fact, SinkPaused) for fact in ear.facts))
        await change_keys(store, "d")
    assert [fact for fact in ear.facts if isinstance(fact, SinkPaused)] == [SinkPaused("screen", "HTTP 410")]
    after_restart = FakeSink()
    assert not await drain(store, after_restart)
    assert after_restart.got == []
    async with relaying(store, after_restart):
        assert await command_store.resume("screen", NOON)
        await until(lambda: len(after_restart.got) == 4, seconds=1)
    assert {(each.event.sequence, each.attempt) for each in after_restart.got} == {(each, 1) for each in range(1, 5)}


async def test_an_operators_pause_and_its_end_are_noticed_within_a_second(
    store: SqliteStore, command_store: CommandStore
) -> None:
    ear, sink = Ear(), FakeSink()
    async with relaying(store, sink, ear=ear) as relay:
        await change_keys(store, "a")
        await until(lambda: len(sink.got) == 1)
        await command_store.pause("screen", "paused by the operator", NOON)
        await until(lambda: relay.paused is not None, seconds=1)
        await change_keys(store, "bc")
        await anyio.sleep(0.05)
        assert len(sink.got) == 1
        await command_store.resume("screen", NOON)
        await until(lambda: len(sink.got) == 3, seconds=1)
    told = [type(fact) for fact in ear.facts if isinstance(fact, SinkPaused | SinkResumed)]
    assert told == [SinkPaused, SinkResumed]


async def test_what_waits_is_sent_within_a_second_when_an_operator_says_so(
    store: SqliteStore, command_store: CommandStore
) -> None:
    await change_keys(store, "ab")
    is_down = True
    sink = FakeSink(
        answer=lambda _: Outcome(OutcomeKind.FAILED, "HTTP 503", timedelta(hours=1)) if is_down else DELIVERED
    )
    async with relaying(store, sink) as relay:
        await until(lambda: relay._queue.breaker.is_open)
        is_down = False
        assert (await command_store.hurry("screen", NOON)).keys >= 0
        await until(lambda: not relay._queue.owed and relay._queue.frontier(FEED) == 2, seconds=2)
    assert {each.event.sequence for each in sink.got} == {1, 2}


async def test_what_was_looked_up_before_the_receiver_closed_does_not_resume_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_keys(store, "a")
    ear, sink = Ear(), PatientSink(is_left=lambda _: True)
    load = store.sink("screen").load_controls
    async with relaying(store, sink, ear=ear) as relay:
        await until(lambda: len(sink.left) == 1)
        looks = 0

        async def load_and_close() -> object:
            nonlocal looks
            controls = await load()
            looks += 1
            if looks == 1:
                sink.finish(CLOSED)
                await until(lambda: relay.paused is not None)
            return controls

        monkeypatch.setattr(store.sink("screen"), "load_controls", load_and_close)
        await until(lambda: looks == 2)  # what the first found is applied by then
        assert relay.paused is not None
    assert not [fact for fact in ear.facts if isinstance(fact, SinkResumed)]


# Purges --------------------------------------------------------------------------------------------------------------


async def test_what_was_read_ahead_and_is_purged_is_delivered_without_content(store: SqliteStore) -> None:
    sink = PatientSink(window=1, is_left=lambda delivery: delivery.event.key == "a", farewell=DELIVERED)
    async with relaying(store, sink):
        await change_keys(store, "ab")
        await until(lambda: len(sink.left) == 1)  # the next waits for its turn in memory
        await store.privacy.purge(FEED, "b", partial(purge, FEED), make_composer())
        await until(lambda: len(sink.got) == 3)
    told = [json.loads(each.event.body)["data"] for each in sink.got]
    assert [(data["key"], data["change"], data.get("purged", False)) for data in told] == [
        ("a", "created", False),
        ("b", "created", True),
        ("b", "deleted", False),
    ]


async def test_a_replay_that_was_read_and_is_purged_is_sent_without_content(
    store: SqliteStore, command_store: CommandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_keys(store, "a")
    await drain(store, FakeSink())
    await command_store.offer("screen", FEED, [(1, "a")], NOON)
    load_replays = store.sink("screen").load_replays

    async def purge_and_load(*args: Any) -> Sequence[Replay]:
        replays = await load_replays(*args)
        read_events = store.read_events

        async def read_and_purge(*place: Any, **choice: Any) -> Sequence[Event]:
            events = await read_events(*place, **choice)
            if not store.purges:
                await store.privacy.purge(FEED, "a", partial(purge, FEED), make_composer())
            return events

        monkeypatch.setattr(store, "read_events", read_and_purge)
        return replays

    monkeypatch.setattr(store.sink("screen"), "load_replays", purge_and_load)
    sink = FakeSink()
    async with relaying(store, sink):
        await until(lambda: {each.replayed for each in sink.got} == {True, False})
    assert b'"n":' not in b"".join(each.event.body for each in sink.got)


async def test_a_state_that_is_purged_between_is_not_published(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FakeSink(keeps_state=True)
    read_states = store.read_states

    async def read_and_purge(places: Sequence[RecordId]) -> Mapping[RecordId, bytes]:
        states = await read_states(places)
        if not store.purges:
            await store.privacy.purge(FEED, "a", partial(purge, FEED), make_composer())
        return states

    monkeypatch.setattr(store, "read_states", read_and_purge)
    await change_keys(store, "a")
    async with relaying(store, sink):
        await until(lambda: len(sink.got) == 2)
    assert [each.state for each in sink.got] == [None, None]
    assert [json.loads(each.event.body)["data"].get("after") for each in sink.got] == [None, None]


# Refusals ------------------------------------------------------------------------------------------------------------


async def test_a_deploy_that_refuses_all_for_a_minute_burns_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.delivery.relay._CHECKPOINT_EVERY", timedelta(seconds=0.02))
    keys = [f"{key}" for _ in range(4) for key in range(12)]
    await change_keys(store, keys)
    clock, ear = Clock(), Ear()
    taken: list[Delivery] = []

    def answer(delivery: Delivery) -> Outcome:
        if clock() < NOON + timedelta(minutes=1):
            return REFUSED
        taken.append(delivery)
        return DELIVERED

    sink = FakeSink(window=4, answer=answer)
    async with relaying(store, sink, clock, ear) as relay:
        for _ in range(70):
            tried = len(sink.got)
            clock.pass_(1)
            relay._bell.ring()
            with anyio.move_on_after(0.02):
                await until(lambda tried=tried: len(sink.got) > tried)  # type: ignore[misc]
        clock.pass_(30)
        relay._bell.ring()
        await until(lambda: len(taken) == len(keys))
    assert 5 < len(sink.got) - len(taken) < 30
    for key in set(keys):
        sequences = [each.event.sequence for each in taken if each.event.key == key]
        assert sequences == sorted(sequences)
    assert sum(fact.count for fact in ear.facts if isinstance(fact, EventsTakenBack)) == 4
    assert (await store.sink("screen").load_queue())[0][FEED] == len(keys)
    with_dead = await store.engine.read(lambda reader: reader.execute("SELECT count(*) FROM dead_letters").fetchone())
    assert with_dead == (0,)


async def test_one_event_that_is_refused_among_many_dies_alone(store: SqliteStore) -> None:
    await change_keys(store, [*"abcdefgh", *"abcdefgh"])
    ear, sink = Ear(), FakeSink(answer=refuse(3))
    assert await make_relay(store, sink, ear=ear).drain(timedelta(seconds=10))
    assert sorted(sink.sequences) == list(range(1, 17))
    assert [fact.sequence for fact in ear.facts if isinstance(fact, EventDied)] == [3]


async def test_what_cannot_be_written_for_a_sink_is_dead_and_its_key_goes_on(store: SqliteStore) -> None:
    await change(store, {"id": "k" * 900})
    await change_keys(store, "ab")
    ear, sink = Ear(), FakeSink()
    assert await make_relay(store, sink, ear=ear, max_event_size=1024).drain(timedelta(seconds=10))
    assert sorted(sink.sequences) == [2, 3]
    (died,) = [fact for fact in ear.facts if isinstance(fact, EventDied)]
    assert died.sequence == 1
    assert "max_event_size = 1024" in died.reason


async def test_where_an_event_cannot_be_written_the_state_of_its_record_is_kept_all_the_same(
    store: SqliteStore,
) -> None:
    await change(store, {"id": "k" * 900})
    ear, sink = Ear(), FakeSink(keeps_state=True)
    assert await make_relay(store, sink, ear=ear, max_event_size=1024).drain(timedelta(seconds=10))
    (kept,) = sink.got
    assert (kept.state_only, kept.event.body, len(kept.state or b"")) == (True, b"", 910)
    assert [fact.sequence for fact in ear.facts if isinstance(fact, EventDied)] == [1]


async def test_a_condition_that_breaks_is_a_dead_letter_and_one_that_finds_nothing_is_a_no(store: SqliteStore) -> None:
    for record in ({"id": "a", "n": 0}, {"id": "b"}, {"id": "c", "n": 1}, {"id": "d", "n": 2}):
        await change(store, record)
    ear, sink = Ear(), FakeSink()
    assert await make_relay(store, sink, ear=ear, where="1 / after.n == 1").drain(timedelta(seconds=10))
    assert sink.sequences == [3]
    assert [(fact.sequence, fact.reason) for fact in ear.facts if isinstance(fact, EventDied)] == [
        (1, "where cannot be evaluated")
    ]


async def test_a_sink_that_keeps_state_gets_the_state_of_what_its_filters_hold_back(store: SqliteStore) -> None:
    for record in ({"id": "a", "n": 0}, {"id": "b"}, {"id": "c", "n": 1}, {"id": "d", "n": 2}):
        await change(store, record)
    sink = FakeSink(keeps_state=True)
    assert await drain(store, sink, where="1 / after.n == 1")
    assert [(each.event.key, each.state_only, json.loads(each.state or b"null")["id"]) for each in sink.got] == [
        ("a", True, "a"),
        ("b", True, "b"),
        ("c", False, "c"),
        ("d", True, "d"),
    ]


async def test_a_record_that_leaves_the_filter_says_goodbye_once_and_in_order(store: SqliteStore) -> None:
    for status in ("open", "shipped", "lost", "found", "shipped"):
        await change(store, {"id": "a", "status": status})
    where = "after.status == 'shipped'"
    skipping, sending = FakeSink(), FakeSink()
    assert await drain(store, skipping, where=where)
    assert skipping.sequences == [2, 5]
    await store.sink("other").enroll("beginning")
    sending.name = "other"
    assert await drain(store, sending, where=where, on_leave="send")
    assert sending.sequences == [2, 3, 5]
    assert sending.got[0].event == skipping.got[0].event  # the same for every sink


async def test_a_sink_that_keeps_state_is_never_left_with_that_of_a_record_that_left_its_filter(
    store: SqliteStore,
) -> None:
    sink = FakeSink(keeps_state=True)
    for status in ("shipped", "lost"):
        await change(store, {"id": "a", "status": status})
    assert await drain(store, sink, where="after.status == 'shipped'", on_leave="send")
    assert [(each.event.sequence, each.state_only, json.loads(each.state or b"")["status"]) for each in sink.got] == [
        (1, False, "lost"),
        (2, False, "lost"),
    ]


# Keys on hold --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_discarded", "got"), [(False, [1, 3]), (True, [3])])
async def test_a_key_on_hold_goes_on_within_a_second_when_an_operator_has_decided(
    store: SqliteStore,
    command_store: CommandStore,
    is_discarded: bool,
    got: list[int],
) -> None:
    await change_keys(store, "aba")
    refused = FakeSink(answer=refuse(1))
    assert not await drain(store, refused, on_dead="hold")
    assert refused.sequences == [1, 2]
    sink = FakeSink()
    async with relaying(store, sink, on_dead="hold") as relay:
        await anyio.sleep(0.05)
        assert sink.got == []
        if is_discarded:
            assert await command_store.discard("screen", FEED, [(1, "a")], NOON) == 1
        else:
            assert (await command_store.offer("screen", FEED, [(1, "a")], NOON)).released == 1
        await until(lambda: len(sink.got) == len(got) and not relay._queue.owed, seconds=1)
    assert sink.sequences == got
    assert (await store.sink("screen").load_queue())[1] == []


async def test_a_key_that_has_just_gone_on_hold_is_not_released_by_what_was_stored_of_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change_keys(store, "a")
    clock = Clock()
    await drain(store, FakeSink(answer=lambda _: FAILED), clock)
    clock.pass_(6)
    sink = PatientSink(is_left=lambda _: True)
    async with relaying(store, sink, clock, on_dead="hold") as relay:
        await until(lambda: len(sink.left) == 1)
        monkeypatch.setattr(relay._bell, "ring", lambda: None)  # the checkpoint of the pump comes late
        sink.finish(REFUSED)
        await relay._look()
        assert [entry.held for entry in relay._queue.owed.values()] == [True]
        monkeypatch.undo()
    assert [entry.held for entry in (await store.sink("screen").load_queue())[1]] == [True]


# Replays -------------------------------------------------------------------------------------------------------------


async def test_what_an_operator_replays_is_sent_marked_and_unchanged_and_never_with_state(
    store: SqliteStore, command_store: CommandStore
) -> None:
    await change_keys(store, "aab")
    first = FakeSink(keeps_state=True)
    await drain(store, first)
    sink = FakeSink(keeps_state=True)
    async with relaying(store, sink):
        await anyio.sleep(0.05)
        await command_store.offer("screen", FEED, [(1, "a"), (3, "b")], NOON)
        await until(lambda: len(sink.got) == 2, seconds=1)
    assert [(each.event, each.replayed, each.state, each.attempt) for each in sink.got] == [
        (each.event, True, None, 1) for each in first.got if each.event.sequence != 2
    ]
    assert (await store.sink("screen").load_controls()).replay_at is None


async def test_replays_wait_for_live_events_and_live_events_of_a_key_for_its_replay(
    store: SqliteStore, command_store: CommandStore
) -> None:
    await change_keys(store, "ab")
    await drain(store, FakeSink())
    sink = PatientSink(window=1, is_left=lambda _: True)
    async with relaying(store, sink):
        await change_keys(store, "cd")
        await until(lambda: len(sink.left) == 1)
        await command_store.offer("screen", FEED, [(1, "a"), (2, "b")], NOON)
        await anyio.sleep(0.6)  # it has looked
        await change(store, {"id": "a", "n": 9})
        for _ in range(5):
            await until(lambda: len(sink.left) == 1)
            sink.finish()
    assert [(each.event.sequence, each.replayed) for each in sink.got] == [
        (3, False),
        (4, False),
        (5, False),
        (1, True),
        (2, True),
    ]


async def test_more_replays_than_are_read_at_once_are_sent_each_once(
    store: SqliteStore, command_store: CommandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.delivery.outbox_reader._REPLAYS_AT_ONCE", 10)
    await change(store, *({"id": str(number)} for number in range(35)))
    await drain(store, FakeSink())
    sink = FakeSink()
    async with relaying(store, sink):
        await command_store.offer("screen", FEED, [(number + 1, str(number)) for number in range(35)], NOON)
        await until(lambda: len(sink.got) == 35, seconds=1.5)
    assert sink.sequences == list(range(1, 36))


async def test_a_replay_is_tried_again_and_a_dead_letter_in_the_end_and_one_that_is_gone_is_one_at_once(
    store: SqliteStore, command_store: CommandStore
) -> None:
    await change_keys(store, "abc")
    await drain(store, FakeSink())
    await command_store.offer("screen", FEED, [(1, "a"), (2, "b"), (3, "c")], NOON)
    await store.engine.write(lambda writer: writer.execute("DELETE FROM events WHERE sequence = 3").rowcount)
    clock, ear = Clock(), Ear()
    sink = FakeSink(answer=lambda each: FAILED if each.attempt == 1 else refuse(2)(each))
    assert not await make_relay(store, sink, clock, ear).drain(timedelta(seconds=1))
    assert (await store.sink("screen").load_controls()).replay_at == NOON + timedelta(seconds=5)
    clock.pass_(6)
    assert await make_relay(store, sink, clock, ear).drain(timedelta(seconds=10))
    assert [(each.event.sequence, each.attempt) for each in sink.got] == [(1, 1), (2, 1), (1, 2), (2, 2)]
    dead = [(fact.sequence, fact.reason) for fact in ear.facts if isinstance(fact, EventDied)]
    assert dead == [(3, "no longer kept"), (2, "HTTP 422")]


async def test_replays_alone_find_out_that_a_sink_is_back(store: SqliteStore, command_store: CommandStore) -> None:
    await change_keys(store, "ab")
    await drain(store, FakeSink())
    await command_store.offer("screen", FEED, [(1, "a"), (2, "b")], NOON)
    clock = Clock()
    sink = FakeSink(window=1, answer=lambda _: UNREACHABLE if clock() == NOON else DELIVERED)
    async with relaying(store, sink, clock) as relay:
        await until(lambda: relay._queue.breaker.is_open)
        clock.pass_(1)
        await until(lambda: len(sink.got) == 3, seconds=3)
    assert sorted(each.event.sequence for each in sink.got[1:]) == [1, 2]


# Turns ---------------------------------------------------------------------------------------------------------------


async def test_no_backlog_of_one_feed_delays_another(store: SqliteStore) -> None:
    await change(store, *({"id": str(number)} for number in range(3000)))
    await change(store, {"id": "x"}, feed=STOCK)
    sink = FakeSink()
    await drain(store, sink)
    assert [each.event.feed for each in sink.got].index(STOCK) < 1000


async def test_a_slow_key_with_many_events_makes_room_for_others(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.delivery.relay._CHECKPOINT_EVERY", timedelta(seconds=0.05))
    clock = Clock()
    await change(store, {"id": "a", "n": -1})
    sink = PatientSink(is_left=lambda each: each.event.key == "a")
    async with relaying(store, sink, clock) as relay:
        relay._queue.read_ahead = 10
        await until(lambda: len(sink.left) == 1)
        clock.pass_(1)
        await change_keys(store, "a" * 12 + "b")
        await anyio.sleep(0.07)
        clock.pass_(1)
        await until(lambda: sink.got[-1].event.key == "b")
        assert len(sink.got) == 2


@pytest.mark.parametrize("state", ["idle", "blocked", "on hold", "paused", "down", "replays later", "replay in flight"])
async def test_a_relay_that_can_do_nothing_sleeps(store: SqliteStore, command_store: CommandStore, state: str) -> None:
    await change_keys(store, "ab")
    answers = {"blocked": FAILED, "on hold": REFUSED, "paused": CLOSED, "down": UNREACHABLE, "replays later": FAILED}
    if state.startswith("replay"):
        await drain(store, FakeSink())
        await command_store.offer("screen", FEED, [(1, "a"), (2, "b")], NOON)
    sink = PatientSink(
        window=1, is_left=lambda _: state == "replay in flight", answer=lambda _: answers.get(state, DELIVERED)
    )
    async with relaying(store, sink, on_dead="hold") as relay:
        await until(lambda: len(sink.got) >= 1)
        await anyio.sleep(0.15)
        turns = relay._turns.rings
        await anyio.sleep(0.55)
        assert relay._turns.rings - turns <= 4


@pytest.mark.parametrize("answer", [FAILED, REFUSED, CLOSED, UNREACHABLE])
async def test_to_drain_ends_where_something_stays_owed(store: SqliteStore, answer: Outcome) -> None:
    await change_keys(store, "ab")
    with anyio.fail_after(2):
        assert not await drain(store, FakeSink(answer=lambda _: answer), on_dead="hold")
