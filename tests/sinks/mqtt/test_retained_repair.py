"""What a broker retains is what is stored, whatever it forgot."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.sinks.mqtt import MqttSink, flow, retained_repair
from dockbell.telemetry import AgentFails, SinkConnected, SinkFails, SinkOmits, StateRepaired
from tests.brokers import Broker, Subscriber
from tests.sinks.conftest import Facts, make_delivery, make_statement, running
from tests.sinks.mqtt.conftest import STATUS, Records, make_sink, needs_mosquitto, open_mosquitto, until
from tests.sinks.mqtt.handmade import HandMade, listening

pytestmark = pytest.mark.usefixtures("quick_backoff", "quick_sentinel")

STATES = "dockbell/state/main/shipments/"
SENTINEL = "dockbell/positions/dockbell-floor"


def keeping(url: str, records: Records, facts: Facts | None = None, **settings: Any) -> MqttSink:
    """Return a sink that keeps the state of records."""
    sink = make_sink(url, facts, **settings)
    sink.attach(records)
    return sink


def states(retained: dict[str, bytes]) -> dict[str, bytes]:
    """Return what is retained of records."""
    return {topic: payload for topic, payload in retained.items() if topic.startswith("dockbell/state/")}


def find_told(facts: Facts) -> list[str]:
    """Return what was told of states that were published again."""
    return [text for text in facts.of(StateRepaired) if "states" in text]


async def retained_at(broker: Broker, count: int) -> dict[str, bytes]:
    """Return what a broker retains, which is so much."""
    with Subscriber(broker, "dockbell/#") as subscriber:
        await subscriber.until(lambda _: len(subscriber.retained()) == count)
        return subscriber.retained()


async def test_an_empty_broker_gets_every_state_once_then_only_what_changed(each_broker: Broker) -> None:
    facts, records = Facts(), Records(portion=30)
    records.fill(80)  # a new subscriber gets no more than 100 retained messages from iotcore
    records.put("shp_7", None)
    async with running(keeping(each_broker.url, records, facts)):
        await until(lambda: records.read == [""])
        retained = await retained_at(each_broker, 81)  # 79 states, the status, the sentinel
        assert states(retained) == records.states()
    with Subscriber(each_broker, "dockbell/state/#") as subscriber:
        await subscriber.until(lambda received: len(received) == 79)
        async with running(keeping(each_broker.url, records, facts)):
            await until(lambda: records.read == ["", "81/0"])
        records.put("shp_3", b'{"new":1}')
        records.put("shp_4", None)
        async with running(keeping(each_broker.url, records, facts)):
            await subscriber.until(lambda received: len(received) == 81)
            await until(lambda: len(find_told(facts)) == 2)  # it is told once the broker has acknowledged them
        assert {topic: subscriber.retained().get(topic) for topic in subscriber.topics[79:]} == {
            "dockbell/state/main/shipments/shp_3": b'{"new":1}',
            "dockbell/state/main/shipments/shp_4": None,
        }
        assert subscriber.retained() == records.states()
    assert records.read == ["", "81/0", "81/0"]
    assert find_told(facts) == [
        "sink floor: state, published 80 states: the broker had none",
        "sink floor: state, published 2 states again that differed from the store",
    ]
    assert not facts.of(SinkFails)


async def test_states_of_a_first_pass_are_not_told_as_published_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_repair, "_WRITE_EVERY", timedelta(seconds=0.05))
    facts, records = Facts(), Records()
    async with listening(HandMade()) as broker, running(keeping(broker.url, records, facts)):
        await until(lambda: SENTINEL in broker.retained)
        records.fill(1)
        records.baselines += 1
        await until(lambda: bool(facts.of(StateRepaired)))
    (told,) = facts.of(StateRepaired)
    assert told == "sink floor: state, published 1 state of records that were stored without events, as in a first pass"


async def test_the_sentinel_follows_what_is_settled_and_is_written_only_when_that_changes() -> None:
    records = Records()
    async with listening(HandMade()) as broker, running(keeping(broker.url, records)):
        for count in (3, 7):
            records.fill(count - len(records.changed))
            await until(lambda count=count: broker.retained.get(SENTINEL, b"").endswith(b" %d/0" % count))
        await anyio.sleep(0.1)
        written = [each.payload.split()[-1] for each in broker.seen if each.topic == SENTINEL and each.retain]
    assert written[-2:] == [b"3/0", b"7/0"]
    assert len(written) <= 3  # one may be from before there was anything
    assert broker.topics[0] == STATUS


async def test_the_sentinel_is_written_at_a_clean_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_repair, "_WRITE_EVERY", timedelta(hours=1))
    records = Records()
    records.fill(1)
    async with listening(HandMade()) as broker:
        async with running(keeping(broker.url, records)):
            await until(lambda: broker.retained.get(SENTINEL, b"").endswith(b" 1/0"))
            records.fill(2)
        assert broker.retained[SENTINEL].endswith(b" 3/0")
        assert broker.topics[-2:] == [SENTINEL, STATUS]


@pytest.mark.parametrize("sentinel", [b"", b"\xff\xfe", b"1 2 3", b"nonsense"])
async def test_a_sentinel_that_says_nothing_makes_everything_be_published(sentinel: bytes) -> None:
    records = Records()
    records.fill(5)
    async with listening(HandMade(retained={SENTINEL: sentinel})) as broker, running(keeping(broker.url, records)):
        await until(lambda: records.states().items() <= broker.retained.items())
    assert records.read == [""]


async def test_with_another_state_topic_every_state_is_published_there() -> None:
    records = Records()
    records.fill(2)
    async with listening(HandMade()) as broker:
        async with running(keeping(broker.url, records)):
            await until(lambda: broker.retained.get(SENTINEL, b"").endswith(b" 2/0"))
        async with running(keeping(broker.url, records, state_topic="other/{source}/{resource}/{key}")):
            await until(lambda: broker.retained.keys() >= {"other/main/shipments/shp_0", "other/main/shipments/shp_1"})
    assert records.read == ["", ""]


@pytest.mark.parametrize("grants", [1, 0x87])
async def test_states_that_are_stored_without_events_are_published_when_they_come(grants: int) -> None:
    records = Records()
    records.fill(2)
    async with listening(HandMade(grants=grants)) as broker:
        async with running(keeping(broker.url, records)):
            await until(lambda: len(states(broker.retained)) == 2)
            records.bodies["shp_9"] = b"{}"
            records.baselines += 1
            await until(lambda: len(states(broker.retained)) == 3)
            if grants == 1:
                await until(lambda: broker.retained[SENTINEL].endswith(b" 2/1"))
            records.bodies["shp_10"] = b"{}"
            records.baselines += 1
        assert (SENTINEL in broker.retained) == (grants == 1)
        assert broker.retained.get(SENTINEL, b" 2/1").endswith(b" 2/1")  # unless the last were still published


async def test_beside_a_delivery_there_is_one_repair_at_a_time_and_else_half_a_window_of_them() -> None:
    records = Records(portion=1000)
    records.fill(300)
    late = "dockbell/feed/main/stock/gap"
    async with listening(HandMade(delay=0.005, late=late)) as broker, running(keeping(broker.url, records)) as run:
        await until(lambda: len(broker.seen) > 50)
        assert broker.most_in_flight == 10
        run.deliver(make_statement())
        await until(lambda: late in broker.topics)
        begun = len(broker.seen)
        await run.until_settled(1)
        meanwhile = broker.seen[begun + 5 : -10]  # not what was under way, nor what came when it was settled
        assert len(meanwhile) > 5
        assert {each.beside for each in meanwhile} == {1}
        await until(lambda: records.states().items() <= broker.retained.items())


async def test_more_is_repaired_when_nothing_is_delivered_or_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(portion=1)
    records.fill(2)
    late = "dockbell/feed/main/stock/gap"
    async with listening(HandMade(late=late)) as broker:
        for limit, is_first in ((timedelta(hours=1), True), (timedelta(milliseconds=20), False)):
            monkeypatch.setattr(flow, "_LULL_LIMIT", limit)
            broker.retained.clear()
            async with running(keeping(broker.url, records)) as run:
                run.deliver(make_statement())
                await run.until_settled(1)
                assert (records.states().items() <= broker.retained.items()) is not is_first
                await until(lambda: records.states().items() <= broker.retained.items())


async def test_a_delivery_that_comes_while_states_are_read_is_not_overwritten() -> None:
    records = Records()
    records.fill(1)
    async with listening(HandMade()) as broker:
        sink = keeping(broker.url, records, topic="event/{key}")
        async with running(sink) as run:

            async def deliver_meanwhile() -> None:
                run.deliver(make_delivery(0, state=b"newer"))
                await run.until_settled(1)

            records.before_portion = deliver_meanwhile  # type: ignore[method-assign]
            await until(lambda: SENTINEL in broker.retained)
        assert broker.retained["dockbell/state/main/shipments/shp_0"] == b"newer"
        assert broker.topics.count("dockbell/state/main/shipments/shp_0") == 1


async def test_a_connection_that_is_lost_in_the_middle_leaves_the_old_sentinel_and_the_next_begins_anew() -> None:
    records, facts = Records(), Facts()
    records.fill(300)
    async with listening(HandMade(delay=0.002)) as broker, running(keeping(broker.url, records, facts)):
        await until(lambda: len(broker.seen) > 50)
        broker.drop()
        assert SENTINEL not in broker.retained
        broker.delay = 0
        await until(lambda: SENTINEL in broker.retained)
        assert states(broker.retained) == records.states()
    assert records.read == ["", ""]


async def test_a_state_on_which_the_broker_closes_the_connection_is_left_out_and_told() -> None:
    records, facts = Records(), Facts()
    records.fill(30)
    bad = "dockbell/state/main/shipments/shp_11"
    async with listening(HandMade(poison=lambda topic: topic == bad)) as broker:
        async with running(keeping(broker.url, records, facts)) as run:
            run.deliver(*(make_delivery(number) for number in range(100, 120)))
            await until(lambda: any(text.endswith("1 of them refused") for text in facts.of(StateRepaired)))
            assert await run.until_settled(20) == [Outcome(OutcomeKind.DELIVERED)] * 20
        expected = records.states()
        del expected[bad]
        assert states(broker.retained).items() >= expected.items()
    assert len(facts.of(SinkFails)) == 3
    assert SENTINEL not in broker.retained  # in another life it is tried again


async def test_a_state_that_cannot_be_published_now_leaves_the_old_sentinel() -> None:
    records, facts = Records(), Facts()
    records.fill(3)
    broker = HandMade(verdict=lambda topic: 0x97 * topic.endswith("shp_1"))
    async with listening(broker), running(keeping(broker.url, records, facts)):
        await until(lambda: facts.of(StateRepaired))
        await anyio.sleep(0.1)
        assert SENTINEL not in broker.retained
        broker.verdict = lambda _: 0
        broker.drop()
        await until(lambda: SENTINEL in broker.retained)
    assert records.read == ["", ""]


@needs_mosquitto
@pytest.mark.parametrize(
    "denied", ["topic write dockbell/#", "topic readwrite dockbell/#\ntopic deny dockbell/positions/#"]
)
async def test_where_the_sentinel_cannot_be_read_every_state_is_published_once_in_a_life(
    tmp_path: Path, denied: str
) -> None:
    rules = tmp_path / "acl"
    rules.write_text(denied + "\n")
    facts, records = Facts(), Records()
    records.fill(5)
    with open_mosquitto(tmp_path, f"acl_file {rules}") as broker:
        async with running(keeping(broker.url, records, facts)) as run:
            await until(lambda: any("at each start" in text for text in facts.of(StateRepaired)))
            broker.stop()
            broker.start()
            await until(lambda: sum("MQTT 5" in text for text in facts.of(SinkConnected)) == 2)
            run.deliver(make_delivery(100, state=b"{}"))
            await run.until_settled(1)
            await anyio.sleep(0.6)
    assert records.read == ["", "5/0"]  # and what has changed since
    (told,) = [text for text in facts.of(StateRepaired) if "at each start" in text]
    reason = "not authorized (0x87)" if "deny" in denied else "the broker delivers no message"
    assert told == (
        f"sink floor: state, dockbell publishes all states again at each start, 5 now: cannot read {SENTINEL}, {reason}"
    )


@pytest.mark.parametrize(
    ("broker", "reason"),
    [
        (HandMade(grants=0x87), "not authorized (0x87)"),
        (HandMade(grants=None), "the broker closes the connection when dockbell subscribes"),
        (HandMade(echoes=False), "the broker delivers no message"),
        (HandMade(verdict=lambda topic: 0x87 * (topic == SENTINEL)), "not authorized (0x87)"),
    ],
)
async def test_a_broker_that_does_not_let_us_read_costs_nothing_else(broker: HandMade, reason: str) -> None:
    facts, records = Facts(), Records()
    records.fill(5)
    async with listening(broker), running(keeping(broker.url, records, facts)) as run:
        run.deliver(make_delivery(100, state=b"{}"))
        assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
        await until(lambda: any(reason in text for text in facts.of(StateRepaired)))
        assert records.states().items() <= broker.retained.items()
        assert SENTINEL not in broker.retained


async def test_a_sentinel_that_may_be_read_but_not_kept_is_told() -> None:
    facts, records = Facts(), Records()
    records.fill(1)
    broker = HandMade()
    broker.verdict = lambda topic: 0x87 * (topic == SENTINEL and broker.seen[-1].retain)
    async with listening(broker), running(keeping(broker.url, records, facts)):
        await until(lambda: any("publishes again what the broker lost" in text for text in facts.of(StateRepaired)))


async def test_a_store_that_cannot_be_read_does_not_stop_deliveries() -> None:
    facts, records = Facts(), Records()
    records.fill(1)

    async def fail() -> None:
        raise OSError("disk I/O error")

    records.before_portion = fail  # type: ignore[method-assign]
    async with listening(HandMade()) as broker, running(keeping(broker.url, records, facts)) as run:
        await facts.until(AgentFails, 1)
        run.deliver(make_delivery(1, state=b"{}"))
        assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
    assert facts.of(AgentFails) == ["sink floor: state: OSError: disk I/O error"]
    assert SENTINEL not in broker.retained


async def test_without_states_or_without_a_topic_there_is_no_sentinel() -> None:
    records = Records()
    records.fill(1)
    async with listening(HandMade()) as broker:
        for name in ("state_topic", "positions_topic"):
            async with running(keeping(broker.url, records, Facts(), **{name: ""})):
                await until(lambda: broker.seen)
    assert set(broker.topics) == {STATUS}
    assert not records.read


@needs_mosquitto
async def test_a_record_that_the_broker_does_not_take_has_no_state_rather_than_an_old_one(tmp_path: Path) -> None:
    facts, records = Facts(), Records()
    records.fill(3)
    with open_mosquitto(tmp_path, "max_packet_size 1000") as broker:
        async with running(keeping(broker.url, records)):
            assert states(await retained_at(broker, 5)) == records.states()
        records.put("shp_1", b"x" * 2000)
        async with running(keeping(broker.url, records, facts)):
            await until(lambda: facts.of(StateRepaired))  # before, a part of the five is as many as are left
            assert states(await retained_at(broker, 4)).keys() == records.states().keys() - {f"{STATES}shp_1"}
    told = f"sink floor: publishes nothing to {STATES}shp_1, larger than the broker accepts (1000 bytes)"
    assert facts.of(SinkOmits) == [told]
    assert not facts.of(SinkFails)


async def test_a_record_whose_topic_is_too_long_is_passed_over() -> None:
    records = Records()
    records.fill(2)
    records.put("x" * 65_535, b"{}")
    async with listening(HandMade()) as broker:
        async with running(keeping(broker.url, records)):
            await until(lambda: SENTINEL in broker.retained)
        assert len(states(broker.retained)) == 2
