"""What the broker, or MQTT, does not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.sinks.mqtt.acknowledgements import Ack
from dockbell.sinks.mqtt.sending import judge
from dockbell.telemetry import SinkConnected, SinkFails, SinkOmits
from tests.brokers import Broker, Subscriber
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.mqtt.conftest import make_sink, needs_mosquitto, open_mosquitto


@needs_mosquitto
async def test_an_event_that_the_broker_s_rules_deny_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic write #\ntopic deny dockbell/event/main/shipments/shp_2/#\n")
    with open_mosquitto(tmp_path, f"acl_file {rules}") as broker:
        async with running(make_sink(broker.url)) as run:
            run.deliver(*(make_delivery(number, state=b"{}") for number in (1, 2, 3)))
            await run.until_settled(3)
    assert run.fates == [OutcomeKind.DELIVERED, OutcomeKind.REFUSED, OutcomeKind.DELIVERED]
    assert [outcome.reason for _, outcome in run.settled if outcome.reason] == ["not authorized (0x87)"]


@needs_mosquitto
async def test_an_event_is_refused_as_well_when_only_its_state_is_denied(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic write #\ntopic deny dockbell/state/#\n")
    with open_mosquitto(tmp_path, f"acl_file {rules}") as broker:
        async with running(make_sink(broker.url)) as run:
            run.deliver(make_delivery(state=b"{}"))
            assert await run.until_settled(1) == [Outcome(OutcomeKind.REFUSED, "not authorized (0x87)")]


@needs_mosquitto
async def test_what_is_larger_than_the_broker_takes_is_unfit_and_costs_no_connection(tmp_path: Path) -> None:
    facts = Facts()
    with open_mosquitto(tmp_path, "max_packet_size 10000") as broker:
        async with running(make_sink(broker.url, facts, state_topic="")) as run:
            run.deliver(make_delivery(1, body=b"x" * 10_000), make_delivery(2, body=b"x" * 9_000))
            await run.until_settled(2)
    assert run.fates == [OutcomeKind.UNFIT, OutcomeKind.DELIVERED]
    assert run.settled[0][1].reason == "larger than the broker accepts (10000 bytes)"
    assert len(facts.of(SinkConnected)) == 1


@needs_mosquitto
async def test_the_size_of_a_packet_is_known_to_the_byte(tmp_path: Path) -> None:
    facts = Facts()
    with open_mosquitto(tmp_path, "max_packet_size 300") as broker, Subscriber(broker, "t/#") as subscriber:
        async with running(make_sink(broker.url, facts, state_topic="", topic="t/{key}")) as run:
            run.deliver(*(make_delivery(number, body=b"x" * number) for number in range(1, 300)))
            await run.until_settled(299)
        await subscriber.until(lambda received: len(received) == run.fates.count(OutcomeKind.DELIVERED))
    # Fixed header 3, topic 2 + 9, packet id 2, properties 1 + 2 + 3 + 43, payload 235.
    assert run.fates == [OutcomeKind.DELIVERED] * 235 + [OutcomeKind.UNFIT] * 64
    assert not facts.of(SinkFails)


async def test_what_has_a_topic_too_long_for_mqtt_is_unfit(mosquitto: Broker) -> None:
    async with running(make_sink(mosquitto.url, topic="/".join(["x" * 60_000, "{key}" * 2000]))) as run:
        run.deliver(make_delivery())
        assert await run.until_settled(1) == [Outcome(OutcomeKind.UNFIT, "topic: has 70001 bytes, MQTT allows 65535")]


async def test_the_state_of_a_record_is_kept_also_when_its_event_is_unfit(mosquitto: Broker) -> None:
    async with running(make_sink(mosquitto.url, topic="/".join(["x" * 60_000, "{key}" * 2000]))) as run:
        run.deliver(make_delivery(1, state=b"{}"))
        assert (await run.until_settled(1))[0].kind is OutcomeKind.UNFIT
        with Subscriber(mosquitto, "dockbell/state/#") as subscriber:
            (state,) = await subscriber.until(len)
    assert state.payload == b"{}"


async def test_an_event_is_delivered_also_when_the_topic_of_its_state_is_too_long(mosquitto: Broker) -> None:
    facts, template = Facts(), "x" * 65_520 + "/{source}/{resource}/{key}"
    async with running(make_sink(mosquitto.url, facts, state_topic=template)) as run:
        run.deliver(make_delivery(1, state=b"{}"), make_delivery(2, state=b"{}", state_only=True))
        run.deliver(make_delivery(1, state=b"{}"))
        assert await run.until_settled(3) == [Outcome(OutcomeKind.DELIVERED)] * 3
    assert facts.of(SinkOmits) == [
        f"sink floor: publishes nothing to main/shipments/shp_{number}, topic: has 65541 bytes, MQTT allows 65535"
        for number in (1, 2)
    ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (0x00, OutcomeKind.DELIVERED),
        (0x10, OutcomeKind.DELIVERED),
        (0x80, OutcomeKind.FAILED),
        (0x83, OutcomeKind.FAILED),
        (0x87, OutcomeKind.REFUSED),
        (0x90, OutcomeKind.REFUSED),
        (0x91, OutcomeKind.FAILED),
        (0x95, OutcomeKind.REFUSED),
        (0x97, OutcomeKind.FAILED),
        (0x99, OutcomeKind.REFUSED),
    ],
)
def test_a_puback_s_code_decides(code: int, kind: OutcomeKind) -> None:
    assert judge(Ack(1, code, "why")) == (Outcome(kind, "why") if kind is not OutcomeKind.DELIVERED else Outcome(kind))
