"""Receivers that want to be asked before they are sent events."""

from __future__ import annotations

import asyncio

import pytest

from dockbell.core.model import OutcomeKind
from dockbell.sinks.webhook.permission import Permission
from tests.sinks.conftest import make_delivery, running
from tests.sinks.receiver import OK, Request, make_sink, receiving, respond

ORIGIN = "bell.example.com"


def answer_with(**headers: str) -> bytes:
    return respond("200 OK", b"", **{f"webhook_allowed_{name}": value for name, value in headers.items()})


@pytest.mark.parametrize("allowed", [ORIGIN, "*", "Bell.Example.com"])
async def test_a_receiver_is_asked_once_and_then_sent_events(allowed: str) -> None:
    async def permit(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer_with(origin=allowed) if request.method == "OPTIONS" else OK)

    async with receiving(permit) as receiver, running(make_sink(receiver.url, origin=ORIGIN)) as run:
        run.deliver(*map(make_delivery, range(1, 6)))
        await run.until_settled(5)
    assert run.fates == [OutcomeKind.DELIVERED] * 5
    first, *others = receiver.requests
    assert (first.method, first.headers["webhook-request-origin"], first.body) == ("OPTIONS", ORIGIN, b"")
    assert [request.method for request in others] == ["POST"] * 5


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (respond("200 OK"), "the receiver names no permitted origin in its answer to OPTIONS, HTTP 200"),
        (
            answer_with(origin="other.example.com"),
            'the receiver permits "other.example.com" in its answer to OPTIONS, HTTP 200',
        ),
        (
            respond("405 Method Not Allowed"),
            "the receiver names no permitted origin in its answer to OPTIONS, HTTP 405",
        ),
    ],
)
async def test_without_permission_nothing_is_sent_and_nothing_is_lost(answer: bytes, reason: str) -> None:
    async with receiving(answer) as receiver, running(make_sink(receiver.url, origin=ORIGIN)) as run:
        run.deliver(make_delivery())
        (outcome,) = await run.until_settled(1)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.UNREACHABLE, reason)
    assert [request.method for request in receiver.requests] == ["OPTIONS"]


async def test_a_receiver_that_does_not_answer_is_unreachable() -> None:
    async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    async with receiving(hang) as receiver, running(make_sink(receiver.url, origin=ORIGIN, timeout="200ms")) as run:
        run.deliver(make_delivery())
        (outcome,) = await run.until_settled(1)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.UNREACHABLE, "timed out after 0.2 s")


async def test_after_a_403_it_is_asked_again() -> None:
    async def permit(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer_with(origin="*") if request.method == "OPTIONS" else respond("403 Forbidden"))

    async with receiving(permit) as receiver, running(make_sink(receiver.url, origin=ORIGIN, lanes=1)) as run:
        run.deliver(make_delivery(1), make_delivery(2))
        await run.until_settled(2)
    assert [request.method for request in receiver.requests] == ["OPTIONS", "POST", "OPTIONS", "POST"]


async def test_no_more_requests_are_sent_than_are_permitted() -> None:
    permission, target = Permission(ORIGIN), object()
    headers = [(b"WebHook-Allowed-Origin", b"*"), (b"WebHook-Allowed-Rate", b"600")]
    assert permission.judge(target, 200, headers) is None
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(4):
        await permission.wait()
    assert loop.time() - began >= 0.3 - 0.01


@pytest.mark.parametrize("rate", [b"*", b"", b"0", b"many"])
async def test_a_rate_that_is_no_number_bounds_nothing(rate: bytes) -> None:
    permission = Permission(ORIGIN)
    permission.judge(target := object(), 200, [(b"webhook-allowed-origin", b"*"), (b"webhook-allowed-rate", rate)])
    assert permission.holds(target)
    async with asyncio.timeout(1):
        for _ in range(100):
            await permission.wait()


async def test_permission_lasts_for_an_hour_and_for_one_target(monkeypatch: pytest.MonkeyPatch) -> None:
    permission, target = Permission(ORIGIN), object()
    permission.judge(target, 204, [(b"webhook-allowed-origin", b"*")])
    assert permission.holds(target)
    assert not permission.holds(object())
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr("dockbell.sinks.webhook.permission.anyio.current_time", lambda: now + 3601)
    assert not permission.holds(target)
