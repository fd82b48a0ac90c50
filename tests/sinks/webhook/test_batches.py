"""Which deliveries go together in one request, and what becomes of each when the receiver does not take all of them."""

from __future__ import annotations

import asyncio
import gzip
import json
from datetime import timedelta
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from pydantic import ValidationError
from standardwebhooks import Webhook

from dockbell.core.model import Delivery, OutcomeKind
from dockbell.core.publishing.signature import sign_like_github
from dockbell.sinks.webhook import WebhookSettings
from dockbell.sinks.webhook.batches import gather
from dockbell.subscriber import parse_batch
from tests.sinks.conftest import make_delivery, running
from tests.sinks.receiver import OK, SECRET, Request, make_sink, receiving, respond

EVENT = {
    "specversion": "1.0",
    "source": "dockbell://acme/main/shipments",
    "type": "dockbell.shipment.created",
    "time": "2026-11-21T12:00:00.000Z",
    "partitionkey": "shipments/shp",
    "sequence": "1",
    "data": {"schema": 1, "after": {"n": 1}},
}


def make_event(number: int) -> Delivery:
    """Return the delivery of a whole event, as large as it is by itself."""
    body = json.dumps(EVENT | {"id": f"evt_{number}", "subject": f"shp_{number}"}, separators=(",", ":")).encode()
    return make_delivery(number, body=body)


def ids_of(request: Request) -> list[str]:
    return [event["id"] for event in json.loads(request.body)]


async def collect(deliveries: list[Delivery], most: int, linger: timedelta = timedelta(0)) -> list[list[int]]:
    """Return the sequences of each batch that is gathered of deliveries which wait already."""
    send, receive = anyio.create_memory_object_stream[Delivery](1000)
    async with send, receive:
        for delivery in deliveries:
            send.send_nowait(delivery)
        send.close()
        return [[each.event.sequence for each in batch] async for batch in gather(receive, most, linger)]


# What goes together --------------------------------------------------------------------------------------------------


async def test_what_waits_goes_together_in_its_order() -> None:
    assert await collect(list(map(make_delivery, range(7))), 3) == [[0, 1, 2], [3, 4, 5], [6]]


async def test_without_batches_each_goes_alone() -> None:
    assert await collect(list(map(make_delivery, range(3))), 1) == [[0], [1], [2]]


async def test_what_is_attempted_again_or_replayed_goes_alone() -> None:
    again = replace(make_delivery(2), attempt=2)
    deliveries = [make_delivery(1), again, make_delivery(3), make_delivery(4, replayed=True), make_delivery(5)]
    assert await collect(deliveries, 10) == [[1], [2], [3], [4], [5]]


async def test_a_batch_is_no_larger_than_servers_take() -> None:
    large = [make_delivery(number, body=b'"' + b"x" * 400_000 + b'"') for number in range(5)]
    assert await collect(large, 100) == [[0, 1], [2, 3], [4]]


async def test_a_batch_that_lingers_takes_what_comes_meanwhile() -> None:
    send, receive = anyio.create_memory_object_stream[Delivery](10)
    async with send, receive, anyio.create_task_group() as group:
        send.send_nowait(make_delivery(1))

        async def send_later() -> None:
            await anyio.sleep(0.02)
            send.send_nowait(make_delivery(2))

        group.start_soon(send_later)
        batches = gather(receive, 10, timedelta(seconds=0.3))
        assert [each.event.sequence for each in await anext(batches)] == [1, 2]


# The request ---------------------------------------------------------------------------------------------------------


async def test_a_batch_is_a_signed_list_of_cloudevents_that_subscribers_read() -> None:
    async with receiving(OK) as receiver:
        sink = make_sink(receiver.url, batch=100, lanes=1)
        assert sink.window == 100
        async with running(sink) as run:
            run.deliver(*map(make_event, range(1, 4)))
            await run.until_settled(3)
    assert run.fates == [OutcomeKind.DELIVERED] * 3
    (request,) = receiver.requests
    assert request.headers["content-type"] == "application/cloudevents-batch+json; charset=utf-8"
    assert request.headers["webhook-id"].startswith("batch_")
    Webhook(SECRET).verify(request.body, request.headers)
    assert [event.id for event in parse_batch(request.body)] == ["evt_1", "evt_2", "evt_3"]


async def test_one_event_is_a_list_too_and_its_request_has_its_id() -> None:
    async with receiving(OK) as receiver, running(make_sink(receiver.url, batch=2)) as run:
        run.deliver(make_event(1))
        await run.until_settled(1)
    (request,) = receiver.requests
    assert ids_of(request) == ["evt_1"]
    assert request.headers["webhook-id"] == "evt_1"


async def test_of_a_refused_batch_only_those_are_refused_that_are_refused_alone() -> None:
    async def refuse_the_second(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(respond("422 Unprocessable Content") if "evt_2" in ids_of(request) else OK)

    async with receiving(refuse_the_second) as receiver, running(make_sink(receiver.url, batch=9, lanes=1)) as run:
        run.deliver(*map(make_event, range(1, 4)))
        await run.until_settled(3)
    assert run.fates == [OutcomeKind.DELIVERED, OutcomeKind.REFUSED, OutcomeKind.DELIVERED]
    assert list(map(ids_of, receiver.requests)) == [["evt_1", "evt_2", "evt_3"], ["evt_1"], ["evt_2"], ["evt_3"]]


async def test_a_failure_is_one_of_all_events_of_the_batch() -> None:
    async with receiving(respond("500 Oops")) as receiver, running(make_sink(receiver.url, batch=9)) as run:
        run.deliver(make_event(1), make_event(2))
        await run.until_settled(2)
    assert run.fates == [OutcomeKind.FAILED] * 2
    assert len(receiver.requests) == 1


# A body of the receiver's own form -----------------------------------------------------------------------------------


async def test_a_body_of_one_s_own_is_json_of_what_its_expression_says() -> None:
    body = '{"text": key + " is new", "n": after.n, "event": id, "at": time}'
    async with receiving(OK) as receiver, running(make_sink(receiver.url, body=body)) as run:
        run.deliver(make_event(1))
        await run.until_settled(1)
    (request,) = receiver.requests
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == {"text": "shp_1 is new", "n": 1, "event": "evt_1", "at": EVENT["time"]}
    Webhook(SECRET).verify(request.body, request.headers)


async def test_a_text_is_the_body_as_it_is() -> None:
    sink: dict[str, Any] = {"body": '"<shipment>" + key + "</shipment>"', "content_type": "text/xml"}
    async with receiving(OK) as receiver, running(make_sink(receiver.url, **sink)) as run:
        run.deliver(make_event(1))
        await run.until_settled(1)
    (request,) = receiver.requests
    assert (request.headers["content-type"], request.body) == ("text/xml", b"<shipment>shp_1</shipment>")


async def test_where_the_body_is_null_nothing_is_sent() -> None:
    async with receiving(OK) as receiver, running(make_sink(receiver.url, body="null")) as run:
        run.deliver(make_event(1))
        await run.until_settled(1)
    assert run.fates == [OutcomeKind.DELIVERED]
    assert receiver.requests == []


async def test_an_event_of_which_no_body_can_be_made_is_unfit_and_others_go_on() -> None:
    body = 'key == "shp_1" ? string(after.weight) : "fine"'
    async with receiving(OK) as receiver, running(make_sink(receiver.url, body=body)) as run:
        run.deliver(make_event(1), make_event(2))
        await run.until_settled(2)
    assert run.fates == [OutcomeKind.UNFIT, OutcomeKind.DELIVERED]
    (unfit,) = [outcome for delivery, outcome in run.settled if delivery.event.sequence == 1]
    assert unfit.reason.startswith("body: names a member that is not there: ")
    assert "weight" in unfit.reason


# Compression ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 10])
async def test_a_compressed_body_is_signed_as_it_is_when_decompressed(batch: int) -> None:
    sink: dict[str, Any] = {"compression": "gzip", "batch": batch, "github_secret": "both know it"}
    async with receiving(OK) as receiver, running(make_sink(receiver.url, **sink)) as run:
        run.deliver(make_event(1))
        await run.until_settled(1)
    (request,) = receiver.requests
    assert request.headers["content-encoding"] == "gzip"
    body = gzip.decompress(request.body)
    assert len(request.body) < len(body)
    Webhook(SECRET).verify(body, request.headers)
    assert request.headers["x-hub-signature-256"] == sign_like_github(b"both know it", body)


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"batch": 0}, "must be at least 1"),
        ({"batch": 501}, "must be at most 500"),
        ({"linger": "1s"}, "linger waits for more events of a batch; set batch, or remove linger"),
        ({"batch": 2, "mode": "binary"}, 'batch sends a list of CloudEvents, but mode = "binary" sends each'),
        ({"batch": 2, "body": "key"}, "batch sends a list of CloudEvents, but body sends each event by itself"),
        ({"body": "key", "mode": "binary"}, 'body replaces the event that mode = "binary" sends'),
        ({"content_type": "text/xml"}, "content_type describes body; set body, or remove content_type"),
        ({"body": "key +"}, "must be CEL, got"),
        ({"body": "kye"}, 'unknown variable "kye"; did you mean "key"'),
        ({"compression": "zip"}, '"none" or "gzip"'),
    ],
)
def test_settings_that_do_not_go_together_are_told(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        WebhookSettings.model_validate({"type": "webhook", "url": "https://erp/", "secret": SECRET} | settings)
