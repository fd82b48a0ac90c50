"""A lane's connection: used again while it is sound, and replaced without a word where it is not."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from dockbell.core.model import Outcome, OutcomeKind
from tests.sinks.conftest import make_delivery, running
from tests.sinks.receiver import OK, Receiver, Request, make_sink, receiving, respond
from tests.sinks.webhook.test_secret_reload_rotation import mint_certificate, serving


async def deliver(receiver: Receiver, count: int, *, url: str = "", ca_file: str | None = None) -> list[Outcome]:
    """Return what comes of deliveries one after the other on one lane."""
    outcomes: list[Outcome] = []
    async with running(make_sink(url or receiver.url, lanes=1, ca_file=ca_file)) as run:
        for number in range(count):
            run.deliver(make_delivery(number))
            outcomes = await run.until_settled(number + 1)
    return outcomes


def closing_at(*numbers: int, begin: bytes = b"") -> Receiver:
    """Return a receiver that closes instead of answering its n-th requests."""

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        if len(receiver.requests) in numbers:
            writer.write(begin)
            await writer.drain()
            writer.close()
        else:
            writer.write(OK)

    receiver = Receiver(answer)
    return receiver


async def test_a_connection_is_used_again() -> None:
    async with receiving(OK) as receiver:
        await deliver(receiver, 3)
        assert receiver.connections == 1


async def test_a_request_that_a_used_connection_does_not_answer_goes_out_again_at_once() -> None:
    closing = closing_at(2)
    async with receiving(closing.answer) as receiver:
        closing.requests = receiver.requests
        outcomes = await deliver(receiver, 2)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DELIVERED] * 2
    assert [request.headers["webhook-id"] for request in receiver.requests] == ["evt_0", "evt_1", "evt_1"]
    assert receiver.connections == 2


async def test_a_request_that_a_fresh_connection_does_not_answer_has_failed() -> None:
    closing = closing_at(1)
    async with receiving(closing.answer) as receiver:
        closing.requests = receiver.requests
        (outcome,) = await deliver(receiver, 1)
    assert outcome.kind is OutcomeKind.FAILED
    assert len(receiver.requests) == 1


async def test_it_is_sent_again_only_once() -> None:
    closing = closing_at(2, 3)
    async with receiving(closing.answer) as receiver:
        closing.requests = receiver.requests
        outcomes = await deliver(receiver, 2)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DELIVERED, OutcomeKind.FAILED]
    assert len(receiver.requests) == 3


async def test_an_answer_that_breaks_off_has_failed_although_the_connection_was_used() -> None:
    closing = closing_at(2, begin=b"HTTP/1.1 2")
    async with receiving(closing.answer) as receiver:
        closing.requests = receiver.requests
        outcomes = await deliver(receiver, 2)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DELIVERED, OutcomeKind.FAILED]
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("extra", [OK, respond("500 Oops"), b"X"])
@pytest.mark.parametrize("encoding", ["length", "chunked"])
async def test_a_connection_with_bytes_left_over_is_not_used_again(extra: bytes, encoding: str) -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    async with receiving((OK if encoding == "length" else chunked) + extra) as receiver:
        outcomes = await deliver(receiver, 3)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DELIVERED] * 3
    assert [request.connection for request in receiver.requests] == [1, 2, 3]


async def test_a_second_answer_is_not_taken_for_that_to_the_next_event() -> None:
    async def refuse_the_second(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + OK if len(receiver.requests) == 1 else respond("422 No"))

    async with receiving(refuse_the_second) as receiver:
        outcomes = await deliver(receiver, 2)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DELIVERED, OutcomeKind.REFUSED]


async def test_an_old_connection_is_replaced_by_one_to_where_the_receiver_is_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with receiving(OK) as receiver:
        await deliver(receiver, 2)
        assert receiver.connections == 1
        monkeypatch.setattr("dockbell.sinks.webhook.connections._AGE_MOST", timedelta(0))
        await deliver(receiver, 3)
        assert receiver.connections == 4


async def test_by_tls_it_is_the_same(tmp_path: Path) -> None:
    certificate = mint_certificate(tmp_path / "a.pem", "erp")
    closing = closing_at(2)
    async with receiving(closing.answer, tls=serving(certificate)) as receiver:
        closing.requests = receiver.requests
        outcomes = await deliver(receiver, 3, url=f"https://localhost:{receiver.port}/", ca_file=str(certificate))
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DELIVERED] * 3
    assert receiver.connections == 2
