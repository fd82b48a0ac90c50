"""The sink for Kafka against a broker of its protocol; what every sink promises is in ``test_conformance.py``."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.errors import ConfigError, SinkRejected, SinkUnavailable
from dockbell.sinks.queues.kafka import KafkaSettings, KafkaSink
from dockbell.telemetry import SinkConnected
from dockbell.testing.rig import until
from tests.brokers import find_free_port
from tests.sinks.conforming import KafkaReceiver
from tests.sinks.conftest import Facts, make_delivery, make_statement, publish, running

_DELIVERED: Final = Outcome(OutcomeKind.DELIVERED)
_NOT_LEADER: Final = 6
_UNKNOWN_TOPIC: Final = 3
_LEADER_NOT_AVAILABLE: Final = 5
_TOPIC_NOT_AUTHORIZED: Final = 29
_INVALID_RECORD: Final = 87


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[KafkaReceiver]:
    """Yield a broker, and the wire to it that asks for a user."""
    receiver = KafkaReceiver(tmp_path)
    await receiver.start()
    yield receiver
    await receiver.stop()


def make_sink(cluster: KafkaReceiver, facts: Facts | None = None, **settings: Any) -> KafkaSink:
    values = {**cluster.settings, "timeout": "5s"} | settings
    return KafkaSink("stream", KafkaSettings.model_validate(values), (facts or Facts()).telemetry)


def make_event(number: int, key: str | None = None) -> Delivery:
    """Return the delivery of an event that the wire can read."""
    delivery = make_delivery(number)
    key = delivery.event.key if key is None else key
    event = {"id": f"evt_{number}", "source": "/dockbell/tests/main/shipments", "subject": key, "sequence": str(number)}
    return Delivery(dataclasses.replace(delivery.event, key=key, body=json.dumps(event | {"data": {}}).encode()))


# Messages ------------------------------------------------------------------------------------------------------------


async def test_an_event_is_a_message_whose_key_is_its_partitionkey(cluster: KafkaReceiver) -> None:
    facts, event = Facts(), make_event(1, key="A.1%2F2")
    body = json.dumps({"id": "evt_2", "source": "/dockbell/tests/main/stock", "sequence": "2", "data": {}}).encode()
    statement = Delivery(dataclasses.replace(make_statement(2).event, body=body))
    assert await publish(make_sink(cluster, facts), event, statement) == [_DELIVERED] * 2
    (message,) = await cluster.server.read("dockbell.shipments", 1)
    assert (message.key, message.value) == (b"main/shipments/A.1%2F2", event.event.body)
    assert message.headers == (
        ("content-type", b"application/cloudevents+json; charset=utf-8"),
        ("dockbell-type", b"dockbell.shipment.updated"),
    )
    (stated,) = await cluster.server.read("dockbell.stock", 1)
    assert stated.key == b"main/stock"
    assert facts.of(SinkConnected) == [f"sink stream: connected, 127.0.0.1:{cluster.port}"]


async def test_a_replay_is_marked(cluster: KafkaReceiver) -> None:
    await publish(make_sink(cluster), replace(make_event(1), replayed=True))
    (message,) = await cluster.server.read("dockbell.shipments", 1)
    assert ("dockbell-replay", b"true") in message.headers


async def test_the_topic_may_be_chosen(cluster: KafkaReceiver) -> None:
    await publish(make_sink(cluster, topic="warehouse_{source}.{resource}"), make_event(1))
    assert len(await cluster.server.read("warehouse_main.shipments", 1)) == 1


async def test_all_events_of_a_record_are_in_one_partition_in_order(cluster: KafkaReceiver) -> None:
    await cluster.server.add_topic("dockbell.shipments", 4)
    sink = make_sink(cluster)
    for round_ in range(3):
        await publish(sink, *(make_event(20 * round_ + number, key=f"key_{number}") for number in range(20)))
    numbers: dict[tuple[bytes | None, int], list[int]] = {}
    for message in await cluster.server.read("dockbell.shipments", 60):
        assert message.value is not None
        numbers.setdefault((message.key, message.partition), []).append(int(json.loads(message.value)["sequence"]))
    assert sorted(numbers.values()) == [[number, number + 20, number + 40] for number in range(20)]
    assert {partition for _, partition in numbers} == {0, 1, 2, 3}, "keys spread over all partitions"


async def test_events_that_wait_for_the_broker_go_in_one_request(cluster: KafkaReceiver) -> None:
    await cluster.server.add_topic("dockbell.shipments", 1)
    assert await publish(make_sink(cluster), *map(make_event, range(40))) == [_DELIVERED] * 40
    assert sum(cluster.batches) == 40
    assert len(cluster.batches) < 5


# What the cluster refuses --------------------------------------------------------------------------------------------


async def test_what_is_too_large_is_refused_and_what_went_with_it_arrives(cluster: KafkaReceiver) -> None:
    await cluster.server.add_topic("dockbell.shipments", 1)
    await cluster.refuse("shp_7")
    async with running(make_sink(cluster)) as run:
        run.deliver(*map(make_event, range(20)))
        await run.until_settled(20)
    assert {kind: run.fates.count(kind) for kind in run.fates} == {OutcomeKind.DELIVERED: 19, OutcomeKind.REFUSED: 1}
    assert run.fates[7] is OutcomeKind.REFUSED
    assert len({message.key for message in await cluster.server.read("dockbell.shipments", 19)}) == 19


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (10, OutcomeKind.REFUSED, "larger than its topic accepts (max.message.bytes)"),
        (_INVALID_RECORD, OutcomeKind.REFUSED, "the topic does not accept it (INVALID_RECORD)"),
        (19, OutcomeKind.FAILED, "the server reports, NOT_ENOUGH_REPLICAS (19)"),
        (_TOPIC_NOT_AUTHORIZED, OutcomeKind.FAILED, "the server reports, TOPIC_AUTHORIZATION_FAILED (29)"),
    ],
)
async def test_what_the_cluster_says_of_an_event(
    cluster: KafkaReceiver, code: int, kind: OutcomeKind, reason: str
) -> None:
    cluster.produce_codes.append(code)
    sink = make_sink(cluster)
    assert await publish(sink, make_event(1)) == [Outcome(kind, reason)]
    assert await publish(sink, make_event(2)) == [_DELIVERED]


async def test_a_partition_that_has_moved_is_looked_for_again(cluster: KafkaReceiver) -> None:
    cluster.produce_codes += [_NOT_LEADER, _NOT_LEADER]
    assert await publish(make_sink(cluster), make_event(1)) == [_DELIVERED]
    assert cluster.batches == [1, 1, 1]


async def test_a_topic_that_is_being_made_is_waited_for(cluster: KafkaReceiver) -> None:
    cluster.codes += [_UNKNOWN_TOPIC, _LEADER_NOT_AVAILABLE]
    assert await publish(make_sink(cluster), make_event(1)) == [_DELIVERED]


async def test_without_a_topic_an_event_waits(cluster: KafkaReceiver) -> None:
    cluster.codes += [_UNKNOWN_TOPIC] * 4
    sink = make_sink(cluster)
    (outcome,) = await publish(sink, make_event(1))
    assert outcome == Outcome(OutcomeKind.FAILED, "the topic does not exist, and the cluster does not create it")
    assert await publish(sink, make_event(1)) == [_DELIVERED]


# Connections ---------------------------------------------------------------------------------------------------------


async def test_a_connection_that_the_broker_ended_is_opened_anew(cluster: KafkaReceiver) -> None:
    async with running(make_sink(cluster)) as run:
        run.deliver(make_event(1))
        await run.until_settled(1)
        await cluster.drop()  # as brokers do with idle ones
        await anyio.wait_all_tasks_blocked()
        run.deliver(make_event(2))
        assert (await run.until_settled(2))[1] == _DELIVERED


async def test_an_attempt_that_was_given_up_is_not_made_later(cluster: KafkaReceiver) -> None:
    async with running(make_sink(cluster, timeout="500ms")) as run:
        run.deliver(make_event(1))
        await run.until_settled(1)
        await cluster.hang()
        run.deliver(make_event(2), make_event(3))
        assert (await run.until_settled(3))[1:] == [_hanging(cluster)] * 2
        await until(lambda: cluster.connections == 1, "the connection for messages is ended")
        await cluster.resume()
        run.deliver(make_event(4))
        assert (await run.until_settled(4))[3] == _DELIVERED
    messages = await cluster.server.read("dockbell.shipments", 2)
    assert {message.key for message in messages} == {b"main/shipments/shp_1", b"main/shipments/shp_4"}


def _hanging(cluster: KafkaReceiver) -> Outcome:
    place = f"127.0.0.1:{cluster.port}"
    return Outcome(OutcomeKind.FAILED, f"{place}, which leads its partition: no answer in time")


async def test_another_broker_of_the_list_is_asked_where_the_first_is_away(cluster: KafkaReceiver) -> None:
    url = f"kafka://127.0.0.1:{find_free_port()},127.0.0.1:{cluster.port}"
    assert await publish(make_sink(cluster, url=url), make_event(1)) == [_DELIVERED]


async def test_a_broker_of_the_list_that_hangs_is_passed_over(cluster: KafkaReceiver) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read()
        writer.close()

    port = find_free_port()
    async with await asyncio.start_server(say_nothing, "127.0.0.1", port):
        sink = make_sink(cluster, url=f"kafka://127.0.0.1:{port},127.0.0.1:{cluster.port}", timeout="2s")
        assert await publish(sink, make_event(1)) == [_DELIVERED]
        assert (await sink.probe()).endswith("brokers: 1")


async def test_a_broker_that_refuses_us_is_told_though_another_is_away(cluster: KafkaReceiver) -> None:
    url = f"kafka://127.0.0.1:{cluster.port},127.0.0.1:{find_free_port()}"
    with pytest.raises(SinkRejected, match="SASL_AUTHENTICATION_FAILED"):
        await make_sink(cluster, url=url, password="wrong").probe()


async def test_what_a_broker_leads_waits_while_it_is_away_and_the_rest_goes_on(
    cluster: KafkaReceiver, tmp_path: Path
) -> None:
    await cluster.server.add_topic("dockbell.shipments", 2)
    other = KafkaReceiver(tmp_path)
    other.server = cluster.server  # one store, and two brokers that lead a partition each
    cluster.others = [other.port]
    async with running(make_sink(cluster)) as run:
        run.deliver(*map(make_event, range(20)))
        outcomes = await run.until_settled(20)
        away = [each for each in outcomes if each != _DELIVERED]
        assert 0 < len(away) < 20
        words = f"127.0.0.1:{other.port}, which leads its partition: connection refused"
        assert set(away) == {Outcome(OutcomeKind.FAILED, words)}
        await other.start_wire()
        run.deliver(*map(make_event, range(20, 40)))
        assert (await run.until_settled(40))[20:] == [_DELIVERED] * 20
        assert (cluster.connections, other.connections) == (2, 1), "one that asks, and one for each broker"
    await until(lambda: not cluster.connections and not other.connections, "all connections are ended")
    await other.stop_wire()


async def test_a_partition_whose_replicas_are_slow_does_not_hold_up_others(cluster: KafkaReceiver) -> None:
    await cluster.server.add_topic("dockbell.shipments", 2)
    cluster.slow = {0}
    async with running(make_sink(cluster, timeout="2s")) as run:
        run.deliver(*map(make_event, range(10)))
        outcomes = await run.until_settled(10)
    assert set(outcomes) == {_DELIVERED, Outcome(OutcomeKind.FAILED, "the server reports, REQUEST_TIMED_OUT (7)")}


async def test_a_batch_that_may_be_stored_is_not_sent_again_at_once(cluster: KafkaReceiver) -> None:
    await cluster.server.add_topic("dockbell.shipments", 1)
    async with running(make_sink(cluster)) as run:
        run.deliver(make_event(0))
        await run.until_settled(1)
        cluster.produce_codes += [20] * 5  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        run.deliver(*map(make_event, range(1, 20)))
        assert OutcomeKind.FAILED in {outcome.kind for outcome in await run.until_settled(20)}
    assert sum(cluster.batches) == 20, "each was sent once"


async def test_large_events_go_in_several_requests(cluster: KafkaReceiver) -> None:
    await cluster.server.add_topic("dockbell.shipments", 1)
    events = []
    for number in range(12):
        event = make_event(number).event
        events.append(Delivery(dataclasses.replace(event, body=event.body[:-1] + b', "x": "' + b"x" * 100_000 + b'"}')))
    assert await publish(make_sink(cluster), *events) == [_DELIVERED] * 12
    assert max(cluster.batches) == 2


async def test_a_cluster_that_asks_us_to_wait_is_given_the_time(cluster: KafkaReceiver) -> None:
    async with running(make_sink(cluster)) as run:
        cluster.throttle = 60_000
        run.deliver(make_event(1))
        await run.until_settled(1)
        run.deliver(make_event(2))
        outcome = (await run.until_settled(2))[1]
    assert (outcome.kind, outcome.reason) == (OutcomeKind.FAILED, "the cluster throttles us by its quota")
    assert outcome.retry_after is not None
    assert timedelta(seconds=50) < outcome.retry_after <= timedelta(seconds=60)
    assert cluster.batches == [1]


# Users and TLS -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_password_is_presented_and_a_wrong_one_loses_nothing(
    cluster: KafkaReceiver, tmp_path: Path, mechanism: str
) -> None:
    (tmp_path / "password").write_text("hush")
    sink = make_sink(cluster, mechanism=mechanism, password={"file": str(tmp_path / "password")})
    with pytest.raises(SinkRejected, match="the server reports, SASL_AUTHENTICATION_FAILED"):
        await sink.probe()
    (outcome,) = await publish(sink, make_event(1))
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert "hush" not in outcome.reason
    (tmp_path / "password").write_text("open sesame")
    assert await publish(sink, make_event(1)) == [_DELIVERED]


async def test_a_renewed_password_is_used_by_the_next_connection(cluster: KafkaReceiver, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open sesame")
    async with running(make_sink(cluster, password={"file": str(tmp_path / "password")})) as run:
        run.deliver(make_event(1))
        await run.until_settled(1)
        cluster.users["bell"] = "close sesame"
        (tmp_path / "password").write_text("close sesame")
        await cluster.drop()
        run.deliver(make_event(2))
        assert (await run.until_settled(2))[1] == _DELIVERED


async def test_a_login_that_the_listener_does_not_know_counts_against_no_event(cluster: KafkaReceiver) -> None:
    cluster.login_code = 34
    sink = make_sink(cluster)
    assert await publish(sink, make_event(1)) == [
        Outcome(OutcomeKind.UNREACHABLE, "the server reports, ILLEGAL_SASL_STATE (34)")
    ]
    with pytest.raises(SinkRejected, match="ILLEGAL_SASL_STATE"):
        await sink.probe()


async def test_a_mechanism_that_the_cluster_lacks_is_told(cluster: KafkaReceiver) -> None:
    with pytest.raises(SinkRejected, match="UNSUPPORTED_SASL_MECHANISM"):
        await make_sink(cluster, mechanism="SCRAM-SHA-256").probe()


async def test_it_speaks_tls_and_checks_the_certificate(tmp_path: Path, certificate: Path) -> None:
    receiver = KafkaReceiver(tmp_path)
    receiver.trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    receiver.trust.load_cert_chain(certificate)
    await receiver.start()
    try:
        url = f"kafka+ssl://localhost:{receiver.port}"
        assert await publish(make_sink(receiver, url=url, ca_file=str(certificate)), make_event(1)) == [_DELIVERED]
        with pytest.raises(SinkRejected, match="certificate not accepted"):
            await make_sink(receiver, url=url).probe()
        with pytest.raises(
            SinkUnavailable,
            match="the server closed the connection; it may want TLS",
        ):
            await make_sink(receiver).probe()
    finally:
        await receiver.stop()


# Probing and settings ------------------------------------------------------------------------------------------------


async def test_a_probe_says_which_cluster_answers(cluster: KafkaReceiver) -> None:
    place = f"127.0.0.1:{cluster.port}"
    assert await make_sink(cluster).probe() == f"{place} answers as Kafka, brokers: 1"
    await cluster.stop()
    with pytest.raises(SinkUnavailable, match=f"{place}: connection refused"):
        await make_sink(cluster).probe()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "http://kafka"}, r'must be a URL such as "kafka\+ssl://kafka-1.example.com:9093'),
        ({"url": "kafka://kafka,"}, "must be a URL such as"),
        ({"url": "kafka://me:hush@kafka"}, "must not contain a user or password; use the keys user and password"),
        ({"url": "kafka://me:hu,sh@kafka"}, "must not contain a user or password"),
        ({"url": "kafka://kafka/topic"}, "must end with the host and port"),
        ({"user": "me"}, "set both user and password, or neither"),
        ({"mechanism": "GSSAPI"}, "PLAIN"),
        ({"key_file": "a.key"}, "key_file needs a cert_file"),
        ({"ca_file": "ca.pem"}, r'ca_file and cert_file need a url that begins with "kafka\+ssl:"'),
        (
            {"topic": "dockbell.{key}"},
            "digits, dots, underscores and hyphens, which may contain {source} and {resource}",
        ),
        ({"topic": ""}, "must be a name of letters"),
        ({"topic": ".."}, "must be a name of letters"),
    ],
)
def test_settings_that_cannot_work_are_told(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as error:
        KafkaSettings.model_validate({"type": "kafka", "url": "kafka://kafka"} | settings)
    assert "hush" not in str(error.value)


def test_the_scheme_may_be_written_in_capitals() -> None:
    settings = KafkaSettings.model_validate({"type": "kafka", "url": "KAFKA+SSL://[::1]:93,kafka", "ca_file": "ca"})
    assert settings.is_tls


def test_a_certificate_that_cannot_be_used_is_told_at_the_start() -> None:
    settings = KafkaSettings.model_validate({"type": "kafka", "url": "kafka+ssl://kafka", "ca_file": "/no/such.pem"})
    with pytest.raises(ConfigError, match=r"\[sinks.stream\]: cannot use ca_file, no such file or directory"):
        KafkaSink("stream", settings, Facts().telemetry)
