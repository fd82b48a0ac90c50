from __future__ import annotations

import json
import signal
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.config import Secret
from dockbell.core.model import Outcome, OutcomeKind
from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.sinks import mqtt
from dockbell.sinks.mqtt import acknowledgements, connecting, connection
from dockbell.telemetry import SinkConnected, SinkFails
from tests.brokers import MOSQUITTO, Broker, Iotcore, Mosquitto, Subscriber, started
from tests.sinks.conftest import Facts, make_delivery, make_statement, running
from tests.sinks.mqtt.conftest import STATUS, Records, make_sink, needs_mosquitto, open_mosquitto

# Delivering ----------------------------------------------------------------------------------------------------------


async def test_an_event_is_published_and_settled_by_its_puback(each_broker: Broker) -> None:
    delivery = make_delivery(7, state=b'{"id":"shp_7"}')
    with Subscriber(each_broker, "dockbell/event/#") as subscriber:
        async with running(make_sink(each_broker.url, expiry=timedelta(hours=1))) as run:
            run.deliver(delivery)
            assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
        (received,) = await subscriber.until(len)
    assert received.topic == "dockbell/event/main/shipments/shp_7/updated"
    assert received.payload == delivery.event.body
    assert (received.qos, received.retain) == (1, False)
    assert received.properties.pop("MessageExpiryInterval") in (3599, 3600)
    assert received.properties == {
        "ContentType": "application/cloudevents+json; charset=utf-8",
        "PayloadFormatIndicator": 1,
    }


async def test_a_statement_has_a_topic_of_its_own_and_no_state(each_broker: Broker) -> None:
    statement = make_statement()
    with Subscriber(each_broker) as subscriber:
        async with running(make_sink(each_broker.url, status_topic="")) as run:
            run.deliver(statement, make_delivery(1, state=b"{}"))
            assert await run.until_settled(2) == [Outcome(OutcomeKind.DELIVERED)] * 2
        received = await subscriber.until(lambda received: len(received) == 3)
    first, *others = received
    assert (first.topic, first.payload) == ("dockbell/feed/main/stock/gap", statement.event.body)
    assert (first.qos, first.retain) == (1, False)
    assert {each.topic for each in others} == {
        "dockbell/event/main/shipments/shp_1/updated",
        "dockbell/state/main/shipments/shp_1",
    }


async def test_the_topic_of_statements_can_be_chosen(each_broker: Broker) -> None:
    with Subscriber(each_broker, "about/#") as subscriber:
        async with running(make_sink(each_broker.url, feed_topic="about/{resource}")) as run:
            run.deliver(make_statement())
            await run.until_settled(1)
        (received,) = await subscriber.until(len)
    assert received.topic == "about/stock"


async def test_the_latest_state_is_retained_and_cleared_when_the_record_is_gone(each_broker: Broker) -> None:
    async with running(make_sink(each_broker.url, status_topic="")) as run:
        run.deliver(make_delivery(1, state=b'{"v":1}'), make_delivery(2, state=b'{"v":2}'))
        await run.until_settled(2)
        with Subscriber(each_broker) as subscriber:
            await subscriber.until(lambda received: len(received) == 2)
            assert subscriber.retained() == {
                "dockbell/state/main/shipments/shp_1": b'{"v":1}',
                "dockbell/state/main/shipments/shp_2": b'{"v":2}',
            }
            assert {each.retain for each in subscriber.received} == {True}
            assert subscriber.received[0].properties == {"ContentType": "application/json", "PayloadFormatIndicator": 1}
        run.deliver(make_delivery(3, state=b'{"v":3}'))
        gone = make_delivery(1, state=None)
        run.deliver(gone)
        await run.until_settled(4)
    with Subscriber(each_broker) as subscriber:
        await subscriber.until(lambda received: len(received) == 2)
        assert sorted(subscriber.retained().values()) == [b'{"v":2}', b'{"v":3}']


async def test_the_status_is_online_while_it_runs_and_offline_after_a_clean_end(each_broker: Broker) -> None:
    with Subscriber(each_broker, STATUS) as subscriber:
        async with running(make_sink(each_broker.url)):
            await subscriber.until(len)
            with Subscriber(each_broker, STATUS) as late:
                (retained,) = await late.until(len)
            assert retained.retain
        birth, goodbye = await subscriber.until(lambda received: len(received) == 2)
    assert json.loads(birth.payload)["online"] is True
    assert json.loads(goodbye.payload)["online"] is False
    assert birth.payload == retained.payload
    moments = [datetime.fromisoformat(json.loads(each.payload)["timestamp"]) for each in (birth, goodbye)]
    assert moments[0] <= moments[1]


async def test_the_will_tells_of_a_sudden_end_with_the_timestamp_of_the_birth(each_broker: Broker) -> None:
    send, receive = anyio.create_memory_object_stream[Any](1)
    with Subscriber(each_broker, STATUS) as subscriber:
        async with send, receive, anyio.create_task_group() as tasks:
            tasks.start_soon(make_sink(each_broker.url).run, receive, lambda *_: None)
            await subscriber.until(len)
            tasks.cancel_scope.cancel()
        birth, will = await subscriber.until(lambda received: len(received) == 2)
    assert json.loads(will.payload) == json.loads(birth.payload) | {"online": False}


async def test_home_assistant_is_shown_the_status_where_that_is_asked_for(mosquitto: Broker) -> None:
    sink = make_sink(mosquitto.url, client_id="dock.4", discovery_prefix="homeassistant")
    async with running(sink) as run:
        run.deliver(make_delivery())
        await run.until_settled(1)
    with Subscriber(mosquitto, "homeassistant/#") as subscriber:
        (told,) = await subscriber.until(len)
    sensor = json.loads(told.payload)
    assert (told.topic, told.retain) == ("homeassistant/binary_sensor/dock_4/config", True)
    assert (sensor["unique_id"], sensor["device_class"]) == ("dock_4", "connectivity")
    assert sensor["state_topic"] == "dockbell/status/dock.4"
    assert sensor["value_template"] == "{{ 'ON' if value_json.online else 'OFF' }}"


async def test_a_replayed_event_leaves_the_state_alone(each_broker: Broker) -> None:
    with Subscriber(each_broker) as subscriber:
        async with running(make_sink(each_broker.url, status_topic="")) as run:
            run.deliver(make_delivery(1, state=b"{}", replayed=True))
            await run.until_settled(1)
        await subscriber.until(len)
    assert subscriber.topics == ["dockbell/event/main/shipments/shp_1/updated"]
    assert subscriber.received[0].properties["UserProperty"] == [("dockbell-replay", "true")]


async def test_topics_follow_their_templates_and_state_and_status_can_be_off(mosquitto: Broker) -> None:
    sink = make_sink(mosquitto.url, topic="x/{change}/{key}", state_topic="", status_topic="")
    assert not sink.keeps_state
    with Subscriber(mosquitto) as subscriber:
        async with running(sink) as run:
            run.deliver(make_delivery(1, state=b"{}"))
            await run.until_settled(1)
        await subscriber.until(len)
    assert subscriber.topics == ["x/updated/shp_1"]


async def test_many_are_delivered_each_settled_once(mosquitto: Broker) -> None:
    count = 500
    with Subscriber(mosquitto, "dockbell/event/#") as subscriber:
        async with running(make_sink(mosquitto.url, in_flight=100)) as run:
            run.deliver(*(make_delivery(number, state=b"{}") for number in range(count)))
            await run.until_settled(count)
        await subscriber.until(lambda received: len(received) == count)
    assert run.fates == [OutcomeKind.DELIVERED] * count
    assert subscriber.topics == [f"dockbell/event/main/shipments/shp_{number}/updated" for number in range(count)]


# Connecting ----------------------------------------------------------------------------------------------------------


@needs_mosquitto
async def test_no_more_are_in_flight_than_the_broker_grants(tmp_path: Path) -> None:
    facts = Facts()
    with open_mosquitto(tmp_path, "max_inflight_messages 1") as broker:  # it drops who sends more
        sink = make_sink(broker.url, facts)
        async with running(sink) as run:
            run.deliver(*(make_delivery(number, state=b"{}") for number in range(100)))
            await run.until_settled(100)
        assert await sink.probe() == f"127.0.0.1:{broker.port}, MQTT 5, 1 in flight"
    assert run.fates == [OutcomeKind.DELIVERED] * 100
    assert not facts.of(SinkFails)


@needs_mosquitto
async def test_a_broker_that_retains_nothing_is_told_and_gets_the_events_and_the_status(tmp_path: Path) -> None:
    facts, records = Facts(), Records()
    records.fill(3)
    send, receive = anyio.create_memory_object_stream[Any](1)
    with open_mosquitto(tmp_path, "retain_available false") as broker, Subscriber(broker) as subscriber:
        sink = make_sink(broker.url, facts)
        sink.attach(records)
        async with running(sink) as run:
            run.deliver(make_delivery(1, state=b"{}"))
            assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
        assert (await sink.probe()).endswith(
            "the broker retains nothing: no states, and the status only for connected subscribers"
        )
        async with send, receive, anyio.create_task_group() as tasks:
            tasks.start_soon(make_sink(broker.url).run, receive, lambda *_: None)
            await subscriber.until(lambda received: len(received) == 4)
            tasks.cancel_scope.cancel()
        await subscriber.until(lambda received: len(received) == 5)
    assert subscriber.topics == [STATUS, "dockbell/event/main/shipments/shp_1/updated", STATUS, STATUS, STATUS]
    told = [json.loads(each.payload)["online"] for each in subscriber.received if each.topic == STATUS]
    assert told == [True, False, True, False]
    assert len(facts.of(SinkConnected)) == 1
    assert "the broker retains nothing" in facts.of(SinkConnected)[0]
    assert not facts.of(SinkFails)
    assert not records.read


@pytest.mark.usefixtures("quick_backoff")
async def test_a_broker_that_is_absent_at_first_is_awaited(tmp_path: Path) -> None:
    facts = Facts()
    broker = Iotcore(tmp_path) if MOSQUITTO is None else Mosquitto(tmp_path)
    async with running(make_sink(broker.url, facts)) as run:
        run.deliver(make_delivery())
        await facts.until(SinkFails, 2)
        assert facts.of(SinkFails)[0].startswith(f"sink floor: 127.0.0.1:{broker.port}: connection refused; retrying")
        assert not run.settled
        with started(broker):
            assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]


@needs_mosquitto
@pytest.mark.usefixtures("quick_backoff")
async def test_a_restart_of_the_broker_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    count, facts = 300, Facts()
    keep = ("persistence true", f"persistence_location {tmp_path}/", "max_inflight_messages 5")
    with open_mosquitto(tmp_path, *keep) as broker:
        async with running(make_sink(broker.url, facts, status_topic="")) as run:
            for outage in (1, 2):
                run.deliver(*(make_delivery(number, state=b"%d" % number) for number in range(100 * outage)[-100:]))
                await run.until_settled(100 * outage - 70)
                broker.stop()
                await facts.until(SinkFails, outage)
                broker.start()
            run.deliver(*(make_delivery(number, state=b"%d" % number) for number in range(200, count)))
            await run.until_settled(count)
        assert run.fates == [OutcomeKind.DELIVERED] * count
        assert len(facts.of(SinkConnected)) == 3
        with Subscriber(broker) as subscriber:
            await subscriber.until(lambda received: len(received) == count)
            assert sorted(map(int, subscriber.retained().values())) == list(range(count))


@needs_mosquitto
@pytest.mark.usefixtures("quick_backoff")
async def test_a_broker_that_stops_acknowledging_is_left_and_its_deliveries_are_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TICK", timedelta(milliseconds=50))
    monkeypatch.setattr(acknowledgements, "ANSWER_LIMIT", timedelta(milliseconds=300))
    monkeypatch.setattr(connecting, "_CONNECT_LIMIT", timedelta(milliseconds=300))
    facts = Facts()
    with open_mosquitto(tmp_path) as broker:
        async with running(make_sink(broker.url, facts)) as run:
            run.deliver(make_delivery(1))
            await run.until_settled(1)
            broker.signal(signal.SIGSTOP)
            run.deliver(*(make_delivery(number, body=b"x" * 100_000) for number in range(2, 102)))  # fills the socket
            await facts.until(SinkFails, 2)
            broker.signal(signal.SIGCONT)
            await run.until_settled(101)
    assert run.fates == [OutcomeKind.DELIVERED] * 101
    assert "no acknowledgement within 0.3 s; retrying" in facts.of(SinkFails)[0]
    assert "no answer in time; retrying" in facts.of(SinkFails)[1]


@needs_mosquitto
async def test_a_full_socket_is_waited_for(tmp_path: Path) -> None:
    facts = Facts()
    with open_mosquitto(tmp_path) as broker:
        async with running(make_sink(broker.url, facts)) as run:
            run.deliver(make_delivery(0))
            await run.until_settled(1)
            broker.signal(signal.SIGSTOP)
            # More than both socket buffers hold, and no more than the broker takes at once: nothing else will push.
            run.deliver(*(make_delivery(number, body=b"x" * 4_000_000) for number in range(1, 9)))
            await anyio.sleep(0.1)
            broker.signal(signal.SIGCONT)
            await run.until_settled(9)
    assert run.fates == [OutcomeKind.DELIVERED] * 9
    assert not facts.of(SinkFails)


@pytest.mark.usefixtures("quick_backoff")
async def test_the_end_is_not_held_up_by_a_broker_that_is_absent(tmp_path: Path) -> None:
    port = Mosquitto(tmp_path).port
    with anyio.fail_after(2):
        async with running(make_sink(f"mqtt://127.0.0.1:{port}")) as idle:
            pass
        async with running(make_sink(f"mqtt://127.0.0.1:{port}")) as run:
            run.deliver(make_delivery(1), make_delivery(2))
    assert not idle.settled
    unreachable = Outcome(OutcomeKind.UNREACHABLE, f"127.0.0.1:{port}: connection refused")
    assert [outcome for _, outcome in run.settled] == [unreachable, unreachable]


@needs_mosquitto
async def test_the_end_is_not_held_up_by_a_broker_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "_GOODBYE_LIMIT", timedelta(milliseconds=200))
    with open_mosquitto(tmp_path) as broker:
        async with running(make_sink(broker.url)) as run:
            run.deliver(make_delivery())
            await run.until_settled(1)
            broker.signal(signal.SIGSTOP)
        broker.signal(signal.SIGCONT)
        with Subscriber(broker, STATUS) as subscriber:
            (status,) = await subscriber.until(len)
    assert json.loads(status.payload)["online"] is False  # by the will, or by what the broker read when it woke


@needs_mosquitto
async def test_deliveries_handed_over_before_the_end_are_still_delivered(tmp_path: Path) -> None:
    with open_mosquitto(tmp_path) as broker:
        async with running(make_sink(broker.url)) as run:
            run.deliver(*(make_delivery(number) for number in range(50)))
    assert run.fates == [OutcomeKind.DELIVERED] * 50


@needs_mosquitto
@pytest.mark.usefixtures("quick_backoff")
async def test_a_wrong_password_is_told_with_the_broker_s_reason_and_tried_again(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("dock:right\n")
    await anyio.run_process(["mosquitto_passwd", "-U", str(passwords)])
    facts = Facts()
    secret = tmp_path / "secret"
    secret.write_text("wrong\n")
    with open_mosquitto(tmp_path, "allow_anonymous false", f"password_file {passwords}") as broker:
        sink = make_sink(broker.url, facts, username="dock", password=Secret(file=str(secret)))
        with pytest.raises(SinkRejected, match=r"127.0.0.1:\d+: refused by the broker, not authorized \(0x87\)"):
            await sink.probe()
        async with running(sink) as run:
            run.deliver(make_delivery())
            await facts.until(SinkFails, 1)
            secret.write_text("right\n")
            assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED)]
        assert await sink.probe()
    assert "refused by the broker, not authorized (0x87); retrying" in facts.of(SinkFails)[0]
    assert "wrong" not in "".join(map(str, facts.told))


async def test_a_probe_does_not_disturb_the_connection_that_runs(mosquitto: Broker) -> None:
    facts = Facts()
    with Subscriber(mosquitto, STATUS) as subscriber:
        async with running(make_sink(mosquitto.url, facts)) as run:
            await subscriber.until(len)
            await make_sink(mosquitto.url).probe()
            run.deliver(make_delivery())
            await run.until_settled(1)
            assert len(subscriber.received) == 1
    assert len(facts.of(SinkConnected)) == 1


async def test_a_probe_says_when_nobody_answers(tmp_path: Path) -> None:
    port = Mosquitto(tmp_path).port
    with pytest.raises(SinkUnavailable, match=f"127.0.0.1:{port}: connection refused"):
        await make_sink(f"mqtt://127.0.0.1:{port}").probe()
    with pytest.raises(SinkUnavailable, match="host name not found"):
        await make_sink("mqtt://no-such-host.invalid").probe()


async def test_a_probe_says_when_the_other_side_does_not_speak_mqtt() -> None:
    async def speak_http(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 100\r\n\r\n" + b"x" * 100)
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, speak_http)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610  # no Django here
        with pytest.raises(SinkUnavailable, match="did not answer in MQTT 5"):
            await make_sink(f"mqtt://127.0.0.1:{port}").probe()
        tasks.cancel_scope.cancel()
