"""The sink for RabbitMQ against Debian's RabbitMQ; what every sink promises is in ``test_conformance.py``."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from anyio import to_thread
from anyio.abc import SocketAttribute
from pydantic import ValidationError

from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.errors import ConfigError, SinkRejected, SinkUnavailable
from dockbell.sinks.queues.rabbitmq import RabbitMqSettings, RabbitMqSink
from dockbell.telemetry import SinkConnected
from tests.brokers import find_free_port
from tests.rabbitmq_server import RabbitMqServer
from tests.sinks.conftest import Facts, make_delivery, make_statement, publish, running

DELIVERED = Outcome(OutcomeKind.DELIVERED)


def make_sink(server: RabbitMqServer, facts: Facts | None = None, **settings: Any) -> RabbitMqSink:
    values = {"type": "amqp", "url": f"amqp://127.0.0.1:{server.port}", "timeout": "2s"} | settings
    return RabbitMqSink("bus", RabbitMqSettings.model_validate(values), (facts or Facts()).telemetry)


async def test_an_event_is_a_persistent_message_with_the_routing_key_of_its_feed(rabbitmq: RabbitMqServer) -> None:
    facts, exchange = Facts(), await rabbitmq.add_exchange()
    queue = await rabbitmq.add_queue(exchange, "dockbell.main.shipments.updated", "dockbell.*.stock.#")
    event = dataclasses.replace(make_delivery().event, key="A.1%2F2", type="dockbell.shipment.updated")
    await publish(make_sink(rabbitmq, facts, exchange=exchange), Delivery(event), make_statement(2))
    message, statement = await rabbitmq.read(queue, 2)
    assert message.body == event.body
    assert message.routing_key == "dockbell.main.shipments.updated"
    assert (message.message_id, message.type) == ("evt_1", "dockbell.shipment.updated")
    assert (message.content_type, message.app_id) == ("application/cloudevents+json; charset=utf-8", "dockbell")
    assert message.headers == {"key": "A.1%2F2"}
    assert message.delivery_mode == 2
    assert statement.routing_key == "dockbell.main.stock.gap"
    assert facts.of(SinkConnected) == [f"sink bus: connected, 127.0.0.1:{rabbitmq.port}"]


async def test_the_routing_key_may_be_chosen_and_a_dot_in_a_name_is_no_border_in_it(rabbitmq: RabbitMqServer) -> None:
    exchange = await rabbitmq.add_exchange()
    queue = await rabbitmq.add_queue(exchange, "#")
    sink = make_sink(rabbitmq, exchange=exchange, routing_key="{resource}.{key}")
    await publish(sink, Delivery(dataclasses.replace(make_delivery().event, key="A.1")))
    await publish(sink, make_statement(2))
    assert [message.routing_key for message in await rabbitmq.read(queue, 2)] == ["shipments.A%2E1", "stock.-"]


async def test_with_the_default_exchange_the_routing_key_names_the_queue(rabbitmq: RabbitMqServer) -> None:
    queue = await rabbitmq.add_queue("")
    assert await publish(make_sink(rabbitmq, exchange="", routing_key=queue), make_delivery()) == [DELIVERED]
    (message,) = await rabbitmq.read(queue, 1)
    assert message.message_id == "evt_1"


async def test_what_is_sent_again_on_request_says_so(rabbitmq: RabbitMqServer) -> None:
    exchange = await rabbitmq.add_exchange()
    queue = await rabbitmq.add_queue(exchange, "#")
    await publish(make_sink(rabbitmq, exchange=exchange), make_delivery(replayed=True))
    (message,) = await rabbitmq.read(queue, 1)
    assert message.headers == {"key": "shp_1", "replay": "true"}


async def test_without_a_queue_that_takes_it_an_event_waits(rabbitmq: RabbitMqServer) -> None:
    sink = make_sink(rabbitmq, exchange=await rabbitmq.add_exchange())
    (outcome,) = await publish(sink, make_delivery())
    assert outcome == Outcome(OutcomeKind.FAILED, "no queue is bound to the exchange for its routing key")


async def test_an_exchange_that_is_not_there_is_told(rabbitmq: RabbitMqServer) -> None:
    sink = make_sink(rabbitmq, exchange="nowhere")
    (outcome,) = await publish(sink, make_delivery())
    reason = "the server reports, NOT_FOUND - no exchange 'nowhere' in vhost '/'"
    assert outcome == Outcome(OutcomeKind.UNREACHABLE, reason)
    with pytest.raises(SinkUnavailable, match=reason):
        await sink.probe()


async def test_what_a_full_queue_does_not_take_waits(rabbitmq: RabbitMqServer) -> None:
    exchange = await rabbitmq.add_exchange()
    await rabbitmq.add_queue(exchange, "#", x_max_length=0, x_overflow="reject-publish")
    (outcome,) = await publish(make_sink(rabbitmq, exchange=exchange), make_delivery())
    assert outcome == Outcome(OutcomeKind.FAILED, "the server did not accept it (basic.nack)")


async def test_what_is_larger_than_the_server_takes_is_refused_and_others_go_on(rabbitmq: RabbitMqServer) -> None:
    exchange = await rabbitmq.add_exchange()
    queue = await rabbitmq.add_queue(exchange, "#")
    large = make_delivery(1, body=b'"' + b"x" * rabbitmq.largest + b'"')
    sink = make_sink(rabbitmq, exchange=exchange)
    async with running(sink) as run:
        run.deliver(large)
        assert await run.until_settled(1) == [
            Outcome(OutcomeKind.REFUSED, f"larger than the server accepts (max_message_size = {rabbitmq.largest})")
        ]
        run.deliver(make_delivery(2))
        assert (await run.until_settled(2))[1] == DELIVERED
    (message,) = await rabbitmq.read(queue, 1)
    assert message.message_id == "evt_2"


async def test_others_on_their_way_with_one_that_is_too_large_are_tried_again(rabbitmq: RabbitMqServer) -> None:
    exchange = await rabbitmq.add_exchange()
    await rabbitmq.add_queue(exchange, "#")
    large = make_delivery(1, body=b'"' + b"x" * rabbitmq.largest + b'"')
    outcomes = await publish(make_sink(rabbitmq, exchange=exchange), large, *map(make_delivery, range(2, 12)))
    kinds = [outcome.kind for outcome in outcomes]
    assert kinds.count(OutcomeKind.REFUSED) == 1
    assert {*kinds} <= {OutcomeKind.REFUSED, OutcomeKind.UNREACHABLE, OutcomeKind.DELIVERED}


async def test_a_routing_key_that_is_too_long_is_unfit(rabbitmq: RabbitMqServer) -> None:
    event = dataclasses.replace(make_delivery().event, key="k" * 256)
    sink = make_sink(rabbitmq, exchange=await rabbitmq.add_exchange(), routing_key="{key}")
    (outcome,) = await publish(sink, Delivery(event))
    assert outcome == Outcome(OutcomeKind.UNFIT, "its routing key has more than 255 bytes")


async def test_while_the_server_is_short_of_memory_events_wait(rabbitmq: RabbitMqServer) -> None:
    exchange = await rabbitmq.add_exchange()
    await rabbitmq.add_queue(exchange, "#")
    sink = make_sink(rabbitmq, exchange=exchange)
    async with running(sink) as run:
        await to_thread.run_sync(rabbitmq.control, "set_vm_memory_high_watermark", "0")
        try:
            run.deliver(make_delivery())
            (outcome,) = await run.until_settled(1)
        finally:
            await to_thread.run_sync(rabbitmq.control, "set_vm_memory_high_watermark", "0.4")
        reason = "the server accepts no messages: its memory or disk is nearly full"
        assert outcome == Outcome(OutcomeKind.UNREACHABLE, reason)
        run.deliver(make_delivery())
        assert (await run.until_settled(2))[1] == DELIVERED


# Credentials and TLS -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def having_user(server: RabbitMqServer, password: str, *permissions: str) -> AsyncIterator[str]:
    """Have a user with a password, who may configure, write and read what some patterns say; yield the name."""
    name = f"bell-{uuid4().hex}"
    await to_thread.run_sync(server.control, "add_user", name, password)
    await to_thread.run_sync(server.control, "set_permissions", name, *permissions)
    yield name
    await to_thread.run_sync(server.control, "delete_user", name)


async def test_a_password_is_shown_and_a_wrong_one_loses_nothing(rabbitmq: RabbitMqServer, tmp_path: Path) -> None:
    exchange = await rabbitmq.add_exchange()
    await rabbitmq.add_queue(exchange, "#")
    (tmp_path / "password").write_text("hush")
    async with having_user(rabbitmq, "open sesame", "", ".*", "") as user:
        sink = make_sink(rabbitmq, user=user, password={"file": str(tmp_path / "password")}, exchange=exchange)
        with pytest.raises(SinkRejected, match="ACCESS_REFUSED"):
            await sink.probe()
        (outcome,) = await publish(sink, make_delivery())
        assert outcome.kind is OutcomeKind.UNREACHABLE
        assert "hush" not in outcome.reason
        (tmp_path / "password").write_text("open sesame")
        assert await publish(sink, make_delivery()) == [DELIVERED]


async def test_a_user_who_may_not_write_is_told(rabbitmq: RabbitMqServer) -> None:
    exchange = await rabbitmq.add_exchange()
    async with having_user(rabbitmq, "open sesame", "", "", "") as user:
        (outcome,) = await publish(
            make_sink(rabbitmq, user=user, password="open sesame", exchange=exchange), make_delivery()
        )
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert "ACCESS_REFUSED" in outcome.reason
    assert exchange in outcome.reason


async def test_a_virtual_host_that_is_not_there_is_told(rabbitmq: RabbitMqServer) -> None:
    with pytest.raises(SinkRejected, match='virtual host "no/where" does not exist, or the user may not use it'):
        await make_sink(rabbitmq, url=f"amqp://127.0.0.1:{rabbitmq.port}/no%2Fwhere").probe()


async def test_it_speaks_tls_and_checks_the_certificate(rabbitmq: RabbitMqServer, certificate: Path) -> None:
    url = f"amqps://localhost:{rabbitmq.tls_port}"
    found = await make_sink(rabbitmq, url=url, ca_file=str(certificate)).probe()
    assert found.startswith(f"localhost:{rabbitmq.tls_port} answers as RabbitMQ 3.")
    with pytest.raises(SinkRejected, match="certificate"):
        await make_sink(rabbitmq, url=url).probe()


async def test_tls_where_none_is_spoken_and_the_reverse_are_told(rabbitmq: RabbitMqServer) -> None:
    with pytest.raises(SinkUnavailable, match="TLS"):
        await make_sink(rabbitmq, url=f"amqps://127.0.0.1:{rabbitmq.port}").probe()
    with pytest.raises(SinkUnavailable):
        await make_sink(rabbitmq, url=f"amqp://127.0.0.1:{rabbitmq.tls_port}").probe()


# Probing and settings ------------------------------------------------------------------------------------------------


async def test_a_probe_says_which_server_answers(rabbitmq: RabbitMqServer) -> None:
    assert (await make_sink(rabbitmq).probe()).startswith(f"127.0.0.1:{rabbitmq.port} answers as RabbitMQ 3.")
    with pytest.raises(SinkUnavailable, match="connection refused"):
        await make_sink(rabbitmq, url=f"amqp://127.0.0.1:{find_free_port()}").probe()


async def test_what_does_not_answer_is_given_up(rabbitmq: RabbitMqServer) -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as mute:
        port = mute.extra(SocketAttribute.local_port)  # noqa: S610  # not of Django
        with pytest.raises(SinkUnavailable, match=r"timed out after 0.2 s"):
            await make_sink(rabbitmq, url=f"amqp://127.0.0.1:{port}", timeout="200ms").probe()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "http://bus"}, 'must be a URL such as "amqps://rabbitmq.example.com/vhost"'),
        ({"url": "amqp://me:hush@bus"}, "must not contain a user or password; use the keys user and password"),
        ({"url": "amqp://bus/a/b"}, "must end with the host and port, or with the name of a virtual host"),
        ({"user": "me"}, "set both user and password, or neither"),
        ({"key_file": "a.key"}, "key_file needs a cert_file"),
        ({"ca_file": "ca.pem"}, 'ca_file and cert_file need a url that begins with "amqps:"'),
        ({"routing_key": "dockbell.{sink}"}, "must be text, which may contain {source}"),
    ],
)
def test_settings_that_cannot_work_are_told(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as error:
        RabbitMqSettings.model_validate({"type": "amqp", "url": "amqp://bus"} | settings)
    assert "hush" not in str(error.value)


def test_a_certificate_that_cannot_be_used_is_told_at_the_start() -> None:
    settings = RabbitMqSettings.model_validate({"type": "amqp", "url": "amqps://bus", "ca_file": "/no/such.pem"})
    with pytest.raises(ConfigError, match=r"\[sinks.bus\]: cannot use ca_file, no such file or directory"):
        RabbitMqSink("bus", settings, Facts().telemetry)
