"""A broker that never acknowledges some publications, as one does that drops by its rules and says nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from dockbell.core.model import DELIVERED, Outcome, OutcomeKind
from dockbell.delivery.relay import Relay
from dockbell.sinks.mqtt import MqttSettings, MqttSink, acknowledgements, connection, flow
from dockbell.sinks.mqtt.acknowledgements import FIRST_ID, LAST_ID, Ack
from dockbell.sinks.mqtt.connecting import Login, connect
from dockbell.sinks.mqtt.packets import Publication
from dockbell.telemetry import SinkConnected, SinkFails, SinkOmits
from dockbell.testing.outbox import SHIPMENTS, open_outbox
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.mqtt.conftest import STATUS, Records, make_sink, until
from tests.sinks.mqtt.handmade import DISCONNECT, HandMade, listening
from tests.sinks.mqtt.whole import SENTINEL

pytestmark = pytest.mark.usefixtures("quick_backoff", "quick_patience", "quick_sentinel")

OVERTAKEN = Outcome(OutcomeKind.FAILED, "not acknowledged within 0.3 s, but later publications were", is_own=True)


@pytest.fixture
def quick_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for acknowledgements for a moment only."""
    monkeypatch.setattr(connection, "_TICK", timedelta(milliseconds=20))
    monkeypatch.setattr(acknowledgements, "DOUBT_AFTER", timedelta(milliseconds=100))
    monkeypatch.setattr(acknowledgements, "OVERTAKEN_LIMIT", timedelta(milliseconds=300))
    monkeypatch.setattr(acknowledgements, "ANSWER_LIMIT", timedelta(milliseconds=900))
    monkeypatch.setattr(flow, "_DRAIN_LIMIT", timedelta(milliseconds=50))


def silent_about(*numbers: int) -> Callable[[str], bool]:
    topics = {f"dockbell/event/main/shipments/shp_{number}/updated" for number in range(*numbers)}
    return topics.__contains__


async def test_what_is_never_acknowledged_has_failed_and_hundreds_of_others_flow_on_the_same_connection() -> None:
    facts = Facts()
    async with (
        listening(HandMade(silent=silent_about(30))) as broker,
        running(make_sink(broker.url, facts, state_topic="")) as run,
    ):
        run.deliver(*(make_delivery(number) for number in range(330)))
        await run.until_settled(330)
    assert run.fates == [OutcomeKind.FAILED] * 30 + [OutcomeKind.DELIVERED] * 300
    assert broker.connections == 1
    assert max(Counter(topic for topic in broker.topics if topic != STATUS).values()) == 1
    assert not facts.of(SinkFails)
    assert all(outcome == OVERTAKEN for delivery, outcome in run.settled if 20 <= delivery.event.sequence < 30)


async def test_where_the_whole_window_is_unanswered_the_status_is_said_again_to_hear_whether_the_broker_lives() -> None:
    facts = Facts()
    async with (
        listening(HandMade(silent=silent_about(20), receive_maximum=21)) as broker,
        running(make_sink(broker.url, facts)) as run,
    ):
        run.deliver(*(make_delivery(number, state=b"{}") for number in range(20)))
        outcomes = await run.until_settled(20)
        assert {each.kind for each in outcomes} == {OutcomeKind.FAILED}
        await until(lambda: broker.topics.count(STATUS) >= 2)
        online = {each.payload for each in broker.seen if each.topic == STATUS and each.connection == 1}
        assert len(online) == 1
    assert not facts.of(SinkFails)


async def test_only_what_others_have_overtaken_speaks_for_the_receiver() -> None:
    """Where nothing but our own words is acknowledged, it may be the broker that takes no events at all."""
    async with (
        listening(HandMade(silent=lambda topic: topic != STATUS)) as broker,
        running(make_sink(broker.url)) as run,
    ):
        run.deliver(make_delivery(1))
        (outcome,) = await run.until_settled(1)
    assert (outcome.kind, outcome.is_own) == (OutcomeKind.FAILED, False)


async def test_without_a_word_to_ask_with_the_unanswered_come_last_on_the_next_connection_and_fail_there() -> None:
    facts = Facts()
    broker = HandMade(silent=silent_about(20))
    async with listening(broker), running(make_sink(broker.url, facts, status_topic="", state_topic="")) as run:
        run.deliver(*(make_delivery(number) for number in range(320)))
        await run.until_settled(320)
    assert run.fates == [OutcomeKind.FAILED] * 20 + [OutcomeKind.DELIVERED] * 300
    assert {each.connection for each in broker.seen if not broker.silent(each.topic)} == {2}
    assert len(facts.of(SinkFails)) <= 3
    assert max(Counter(broker.topics).values()) == 2
    first = [each.topic for each in broker.seen if each.connection == 2][:300]
    assert not any(map(broker.silent, first))


async def test_a_broker_that_takes_one_at_a_time_is_asked_twice_and_others_flow_meanwhile() -> None:
    broker = HandMade(silent=silent_about(2), receive_maximum=1)
    async with listening(broker), running(make_sink(broker.url, state_topic="")) as run:
        run.deliver(*(make_delivery(number) for number in range(52)))
        await run.until_settled(52)
    assert run.fates == [OutcomeKind.FAILED] * 2 + [OutcomeKind.DELIVERED] * 50
    assert broker.most_in_flight == 1


async def test_a_broker_that_acknowledges_nothing_is_left_and_nobody_is_blamed() -> None:
    facts, is_ill = Facts(), True
    broker = HandMade(silent=lambda _: is_ill)
    async with listening(broker), running(make_sink(broker.url, facts)) as run:
        run.deliver(*(make_delivery(number) for number in range(3)))
        await facts.until(SinkFails, 1)
        assert not run.settled
        outcomes = await run.until_settled(3)
        assert {(each.kind, each.retry_after, each.is_own) for each in outcomes} == {
            (OutcomeKind.FAILED, timedelta(seconds=1), False)
        }
        is_ill = False
        run.deliver(*(make_delivery(number) for number in range(10, 13)))
        assert (await run.until_settled(6))[3:] == [DELIVERED] * 3


@pytest.mark.parametrize("receive_maximum", [5, 20])
async def test_what_was_given_up_uses_up_the_receive_maximum_until_the_connection_is_renewed_without_a_flap(
    receive_maximum: int,
) -> None:
    facts = Facts()
    broker = HandMade(silent=silent_about(30), receive_maximum=receive_maximum)
    async with listening(broker), running(make_sink(broker.url, facts, state_topic="")) as run:
        run.deliver(*(make_delivery(number) for number in range(330)))
        await run.until_settled(330)
        ends = broker.kinds.count(DISCONNECT)
        assert ends == broker.connections - 1  # each with a goodbye: no will, no "offline"
    assert run.fates == [OutcomeKind.FAILED] * 30 + [OutcomeKind.DELIVERED] * 300
    assert broker.most_in_flight <= receive_maximum
    assert 1 < broker.connections <= 2 + 30 / max(1, receive_maximum // 2)
    assert not facts.of(SinkFails)
    assert len(facts.of(SinkConnected)) == 1


async def test_a_stream_that_ends_while_a_connection_is_renewed_ends_with_a_goodbye() -> None:
    broker = HandMade(silent=silent_about(2), receive_maximum=5, lingers=True)
    async with listening(broker), running(make_sink(broker.url, state_topic="")) as run:
        run.deliver(*(make_delivery(number) for number in range(10)))
        await run.until_settled(10)  # nothing is owed any more
        await until(lambda: DISCONNECT in broker.kinds)
        assert broker.connections == 1
    assert broker.connections == 2
    assert [json.loads(each.payload)["online"] for each in broker.seen if each.topic == STATUS] == [True, True, False]


async def test_a_late_acknowledgement_of_what_was_given_up_is_harmless_and_taken_for_nothing_else() -> None:
    async with listening(HandMade(silent=silent_about(3))) as broker:
        line = await connect(Login("127.0.0.1", broker.port, "test", timedelta(seconds=30)), lambda: None)
        try:
            given_up = [
                line.publish(Publication(f"dockbell/event/main/shipments/shp_{n}/updated", b"")) for n in (0, 1)
            ]
            assert given_up == [FIRST_ID, FIRST_ID + 1]
            acks = await take(line, Publication("other", b""), 3)
            third = FIRST_ID + 2
            assert sorted((ack.packet_id, ack.code) for ack in acks) == [
                *((each, None) for each in given_up),
                (third, 0),
            ]
            assert line.quota == 65_533
            line._acknowledgements._last_id = LAST_ID  # as after so many publications
            # The first two packet ids are still in use.
            assert line.publish(Publication("dockbell/event/main/shipments/shp_2/updated", b"")) == third
            broker.silent = lambda _: False
            broker.relent()
            assert [(ack.packet_id, ack.code) for ack in await take(line, None, 1)] == [(third, 0)]
            await until(lambda: line.quota == 65_535)
            assert not line.lost
        finally:
            line.close()


async def take(line: connection.Connection, publication: Publication | None, count: int) -> list[Ack]:
    """Publish something, and return so many acknowledgements."""
    if publication is not None:
        line.publish(publication)
    acks: list[Ack] = []
    with anyio.fail_after(5):
        while len(acks) < count:
            acks += line.take_acks()
            await anyio.sleep(0.01)
    return acks


async def test_a_status_that_is_never_acknowledged_is_left_out_and_told() -> None:
    facts = Facts()
    async with (
        listening(HandMade(silent=lambda topic: topic == STATUS)) as broker,
        running(make_sink(broker.url, facts, state_topic="")) as run,
    ):
        run.deliver(*(make_delivery(number) for number in range(3)))
        assert await run.until_settled(3) == [DELIVERED] * 3
        await facts.until(SinkOmits, 1)
        broker.drop()
        run.deliver(make_delivery(7))
        await run.until_settled(4)
        assert broker.topics.count(STATUS) == 1
        assert broker.wills == [True, False]
    reason = 'the broker never acknowledges it; allow it at the broker, or set status_topic = ""'
    assert facts.of(SinkOmits) == [f"sink floor: publishes nothing to {STATUS}, {reason}"]


async def test_a_state_that_is_never_acknowledged_does_not_hold_up_the_repair_of_the_others() -> None:
    records = Records()
    records.fill(50)
    bad = {f"dockbell/state/main/shipments/shp_{number}" for number in range(15)}
    async with listening(HandMade(silent=bad.__contains__)) as broker:
        sink = make_sink(broker.url)
        sink.attach(records)
        async with running(sink):
            expected = {topic: body for topic, body in records.states().items() if topic not in bad}
            await until(lambda: expected.items() <= broker.retained.items())
        assert broker.connections == 1


async def test_a_connection_that_is_renewed_has_nothing_to_repair() -> None:
    records = Records()
    records.fill(30)
    async with listening(HandMade(silent=silent_about(100, 130), receive_maximum=10)) as broker:
        sink = make_sink(broker.url)
        sink.attach(records)
        async with running(sink) as run:
            await until(lambda: broker.retained.get(SENTINEL, b"").endswith(b" 30/0"))
            run.deliver(*(make_delivery(number) for number in range(100, 140)))
            await run.until_settled(40)
            assert broker.connections > 2
            records.fill(31)
            await until(lambda: broker.retained[SENTINEL].endswith(b" 61/0"))  # it is kept up all the same
    assert records.read == [""]


async def test_hundreds_of_keys_flow_from_the_store_while_the_unanswered_ones_wait_for_another_attempt(
    tmp_path: Path,
) -> None:
    facts, broker = Facts(), HandMade(silent=silent_about(35), receive_maximum=20)
    async with listening(broker), open_outbox(tmp_path, "floor") as outbox:
        settings = MqttSettings(type="mqtt", url=broker.url, start="beginning")
        sink = MqttSink("floor", settings, facts.telemetry)
        relay = Relay(sink, settings, store=outbox.store, telemetry=facts.telemetry, now=lambda: datetime.now(UTC))
        await outbox.change(*(f"shp_{number}" for number in range(335)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay.run)
            good = {f"dockbell/event/main/shipments/shp_{number}/created" for number in range(35, 335)}
            broker.silent = lambda topic: topic.endswith("/created") and topic not in good
            with anyio.fail_after(20):
                await until(lambda: good <= set(broker.topics), 20)
                _, blocked = await outbox.store.sink("floor").load_queue()
                while len(blocked) != 35 or not all(entry.attempts for entry in blocked):
                    await anyio.sleep(0.05)
                    _, blocked = await outbox.store.sink("floor").load_queue()
            assert {entry.key for entry in blocked} == {f"shp_{number}" for number in range(35)}
            assert {entry.feed for entry in blocked} == {SHIPMENTS}
            relay.stop()
    assert broker.most_in_flight <= 20
    assert not [text for text in facts.of(SinkFails) if "connection" in text]
