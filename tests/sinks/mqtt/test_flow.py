"""What goes out when, and who is to blame when the broker closes the connection."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import anyio
import pytest

from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.sinks.mqtt import flow
from dockbell.telemetry import SinkConnected, SinkFails, SinkOmits
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.mqtt.conftest import STATUS, Records, make_sink, until
from tests.sinks.mqtt.handmade import HandMade, Seen, listening, packet

pytestmark = pytest.mark.usefixtures("quick_backoff")

CULPRIT = "the broker closes the connection when it gets this message, with nothing else in flight"


def event(number: int) -> str:
    return f"dockbell/event/main/shipments/shp_{number}/updated"


def state(number: int) -> str:
    return f"dockbell/state/main/shipments/shp_{number}"


def after(seen: list[Seen], connection: int) -> list[str]:
    """Return what a connection saw, but the status."""
    return [each.topic for each in seen if each.connection == connection and each.topic != STATUS]


async def test_no_more_are_in_flight_than_the_broker_takes_nor_after_a_drop() -> None:
    facts = Facts()
    async with (
        listening(HandMade(receive_maximum=5, delay=0.002)) as broker,
        running(make_sink(broker.url, facts, in_flight=100)) as run,
    ):
        run.deliver(*(make_delivery(number, state=b"{}") for number in range(100)))
        await run.until_settled(20)
        broker.drop()
        await run.until_settled(100)
    assert run.fates == [OutcomeKind.DELIVERED] * 100
    assert broker.most_in_flight == 4  # one place is kept for a question
    assert len(facts.of(SinkConnected)) == 2
    assert set(broker.topics) >= {event(number) for number in range(100)} | {state(number) for number in range(100)}


async def test_no_more_are_in_flight_than_configured_counting_states() -> None:
    async with listening(HandMade(delay=0.002)) as broker, running(make_sink(broker.url, in_flight=3)) as run:
        run.deliver(*(make_delivery(number, state=b"{}") for number in range(20)))
        await run.until_settled(20)
        assert broker.most_in_flight == 3


async def test_states_are_not_repaired_between_deliveries_that_follow_each_other() -> None:
    """Each of them brings its own state, which would be read and published twice."""
    records = Records()
    records.fill(50)
    async with listening(HandMade()) as broker:
        sink = make_sink(broker.url)
        sink.attach(records)
        async with running(sink) as run:
            for number in range(50):
                run.deliver(make_delivery(number, state=b"{}"))
                await run.until_settled(number + 1)
                await anyio.sleep(0.01)  # as long as the relay reads the next ones
            assert Counter(broker.topics)[state(49)] == 1
            await until(lambda: Counter(broker.topics)[state(49)] == 2)


@pytest.mark.parametrize("farewell", ["silence", "a reason"])
async def test_what_makes_the_broker_close_the_connection_is_found_and_nothing_else_dies(farewell: str) -> None:
    facts = Facts()
    poisonous = HandMade(poison=lambda topic: topic == event(7), delay=0.001)
    if farewell == "a reason":
        poisonous.farewell = packet(14, b"\x99\0")
    async with listening(poisonous) as broker, running(make_sink(broker.url, facts)) as run:
        run.deliver(*(make_delivery(number, state=b"{}") for number in range(15)))
        await run.until_settled(15)
        assert run.fates == [OutcomeKind.REFUSED if number == 7 else OutcomeKind.DELIVERED for number in range(15)]
        assert [outcome.reason for _, outcome in run.settled if outcome.reason] == [CULPRIT]
        assert len(facts.of(SinkFails)) == 3  # with others, alone, alone again
        assert [each.alone for each in broker.seen if each.topic == event(7)][1:] == [True, True]
        assert state(7) in broker.retained  # its topic is none that the broker minds
        run.deliver(*(make_delivery(number) for number in range(20, 40)))
        await run.until_settled(35)
        assert len(facts.of(SinkFails)) == 3


async def test_the_others_do_not_wait_for_the_culprit_twice() -> None:
    async with (
        listening(HandMade(poison=lambda topic: topic == event(0), delay=0.001)) as broker,
        running(make_sink(broker.url, state_topic="")) as run,
    ):
        run.deliver(*(make_delivery(number) for number in range(4)))
        await run.until_settled(4)
    assert after(broker.seen, 2) == [event(0)]
    assert after(broker.seen, 3) == [event(1), event(2), event(3), event(0)]
    assert [delivery.event.sequence for delivery, _ in run.settled] == [1, 2, 3, 0]


async def test_a_drop_with_others_in_flight_is_not_held_against_the_first_of_them() -> None:
    broker = HandMade(delay=0.001)
    broker.poison = lambda topic: topic == event(0) and broker.topics.count(event(0)) <= 2
    async with listening(broker), running(make_sink(broker.url, state_topic="", status_topic="")) as run:
        run.deliver(*(make_delivery(number) for number in range(4)))
        assert await run.until_settled(4) == [Outcome(OutcomeKind.DELIVERED)] * 4


async def test_who_is_accused_waits_for_a_connection_that_lasts_and_the_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow, "_PROVEN", timedelta(hours=1))
    facts = Facts()
    broker = HandMade(poison=lambda topic: topic == event(0))
    async with listening(broker), anyio.create_task_group() as tasks:
        send, receive = anyio.create_memory_object_stream[Delivery](100)
        settled: list[int] = []
        with send, receive:
            run = make_sink(broker.url, facts, state_topic="", status_topic="").run
            tasks.start_soon(run, receive, lambda delivery, _: settled.append(delivery.event.sequence))
            send.send_nowait(make_delivery(0))
            await facts.until(SinkFails, 1)
            for number in range(1, 50):
                send.send_nowait(make_delivery(number))
            await until(lambda: len(settled) == 49)
            tasks.cancel_scope.cancel()
    assert settled == list(range(1, 50))
    assert broker.topics.count(event(0)) == 1


async def test_two_culprits_are_both_found() -> None:
    bad = {event(3), state(5)}
    async with (
        listening(HandMade(poison=bad.__contains__, delay=0.001)) as broker,
        running(make_sink(broker.url)) as run,
    ):
        run.deliver(*(make_delivery(number, state=b"{}") for number in range(8)))
        await run.until_settled(8)
    assert [number for number, kind in enumerate(run.fates) if kind is not OutcomeKind.DELIVERED] == [3, 5]


async def test_a_suspect_waits_until_the_connection_has_proved_itself() -> None:
    facts, is_dying = Facts(), False
    broker = HandMade(poison=lambda topic: is_dying and topic == STATUS, crashes=True)
    async with listening(broker), running(make_sink(broker.url, facts, state_topic="")) as run:
        await until(lambda: broker.seen)
        broker.delay = 10
        run.deliver(*(make_delivery(number) for number in range(5)))
        await until(lambda: len(broker.seen) == 6)
        is_dying = True
        broker.drop()
        await facts.until(SinkFails, 6)
        assert set(broker.topics[6:]) == {STATUS}
        is_dying, broker.delay = False, 0
        assert await run.until_settled(5) == [Outcome(OutcomeKind.DELIVERED)] * 5
    assert not facts.of(SinkOmits)


POSITIONS = "dockbell/positions/dockbell-floor"


@pytest.mark.parametrize(("topic", "key"), [(STATUS, "status_topic"), (POSITIONS, "positions_topic")])
@pytest.mark.parametrize("delay", [0, 0.02])
async def test_a_word_on_which_the_broker_closes_the_connection_is_left_out_and_told(
    topic: str, key: str, delay: float
) -> None:
    facts, records = Facts(), Records()
    records.fill(3)
    async with listening(HandMade(poison=lambda each: each == topic, delay=delay)) as broker:
        sink = make_sink(broker.url, facts)
        sink.attach(records)
        async with running(sink) as run:
            number = 100
            while not facts.of(SinkOmits):  # the line is never idle
                run.deliver(*(make_delivery(each, state=b"{}") for each in range(number, number + 10)))
                number += 10
                await run.until_settled(number - 105)
            await until(lambda: records.states().items() <= broker.retained.items())
            await run.until_settled(number - 100)
            dropped = broker.topics.count(topic)
            broker.drop()
            run.deliver(make_delivery(1))
            await run.until_settled(number - 99)
            assert {outcome.kind for _, outcome in run.settled} == {OutcomeKind.DELIVERED}
        assert broker.topics.count(topic) == dropped <= 3  # with others in flight, alone, alone again
        assert broker.wills[-1] is (topic != STATUS)
    reason = f'the broker closes the connection when it gets this message; allow it at the broker, or set {key} = ""'
    assert facts.of(SinkOmits) == [f"sink floor: publishes nothing to {topic}, {reason}"]


async def test_a_broker_that_closes_everything_again_and_again_costs_only_whom_it_closed_on() -> None:
    async with (
        listening(HandMade(poison=lambda topic: "event" in topic)) as broker,
        running(make_sink(broker.url, state_topic="")) as run,
    ):
        run.deliver(*(make_delivery(number) for number in range(3)))
        await run.until_settled(3)
    assert run.fates == [OutcomeKind.REFUSED] * 3
    assert Counter(each.topic for each in broker.seen if each.alone and "event" in each.topic) >= Counter(
        {event(number): 2 for number in range(3)}
    )


@pytest.mark.parametrize(("crashes", "kind"), [(3, OutcomeKind.DELIVERED), (5, OutcomeKind.REFUSED)])
async def test_a_broker_that_goes_down_on_an_event_is_given_more_chances(crashes: int, kind: OutcomeKind) -> None:
    broker = HandMade(crashes=True)
    broker.poison = lambda topic: topic == event(1) and broker.topics.count(event(1)) <= crashes
    async with listening(broker), running(make_sink(broker.url, state_topic="", status_topic="")) as run:
        run.deliver(make_delivery(1))
        await run.until_settled(1)
    assert run.fates == [kind]
    assert broker.topics.count(event(1)) == crashes + (kind is OutcomeKind.DELIVERED)


@pytest.mark.parametrize("farewell", [packet(14, b"\x8b\0"), packet(14, b"\x98\0")])
async def test_a_broker_that_gives_a_reason_of_its_own_accuses_nobody(farewell: bytes) -> None:
    facts = Facts()
    down = True
    broker = HandMade(poison=lambda topic: down and "event" in topic, farewell=farewell)
    async with listening(broker), running(make_sink(broker.url, facts)) as run:
        run.deliver(make_delivery())
        await facts.until(SinkFails, 5)
        down = False
        assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]


async def test_a_drop_long_after_it_was_sent_is_not_held_against_a_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "_SOON", timedelta(milliseconds=20))
    facts = Facts()
    async with listening(HandMade()) as broker, running(make_sink(broker.url, facts)) as run:
        await until(lambda: broker.seen)
        broker.delay = 10
        run.deliver(make_delivery())
        for drops in range(1, 5):
            await until(lambda drops=drops: broker.topics.count(event(1)) == drops)
            await anyio.sleep(0.05)
            broker.delay = 0.0 if drops == 4 else 10
            broker.early = STATUS
            broker.drop()
            await facts.until(SinkFails, drops)
        assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]


async def test_the_filters_may_leave_the_state_alone_to_be_published() -> None:
    async with listening(HandMade()) as broker:
        async with running(make_sink(broker.url)) as run:
            run.deliver(make_delivery(1, state=b"{}", state_only=True))
            assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
        async with running(make_sink(broker.url, state_topic="")) as run:
            run.deliver(make_delivery(1, state=b"{}", state_only=True))
            assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
    assert [topic for topic in broker.topics if topic != STATUS] == [state(1)]


async def test_a_broker_that_retains_nothing_gets_events_without_states() -> None:
    facts = Facts()
    async with (
        listening(HandMade(properties=b"\x25\0")) as broker,
        running(make_sink(broker.url, facts, status_topic="")) as run,
    ):
        run.deliver(make_delivery(1, state=b"{}"), make_delivery(2, state=b"{}", state_only=True))
        assert await run.until_settled(2) == [Outcome(OutcomeKind.DELIVERED)] * 2
    assert broker.topics == [event(1)]
    (connected,) = facts.of(SinkConnected)
    assert connected.endswith("; the broker retains nothing: no states, and the status only for connected subscribers")
    assert not facts.of(SinkOmits)


async def test_a_state_that_is_left_out_is_sent_when_another_connection_takes_it() -> None:
    small = b"\x27" + (200).to_bytes(4, "big")
    broker = HandMade(properties=small, delay=10)
    async with listening(broker), running(make_sink(broker.url, status_topic="")) as run:
        run.deliver(make_delivery(1, state=b"x" * 200))
        await until(lambda: broker.topics == [event(1), state(1)])
        broker.properties, broker.delay = b"", 0
        broker.drop()
        assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
    assert broker.retained[state(1)] == b"x" * 200
