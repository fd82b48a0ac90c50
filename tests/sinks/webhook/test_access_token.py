"""Receivers that want an access token of OAuth 2.0."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from dockbell.config import Secret
from dockbell.core.model import OutcomeKind
from dockbell.errors import ConfigError, SinkUnavailable
from tests.sinks.conftest import make_delivery, running
from tests.sinks.receiver import OK, Receiver, Request, make_sink, receiving, respond


def grant(token: str, **more: Any) -> bytes:
    body = json.dumps({"access_token": token, "token_type": "Bearer"} | more).encode()
    return respond("200 OK", body, content_type="application/json")


def shown(receiver: Receiver) -> list[str]:
    """Return the Authorization header of each request."""
    return [request.headers.get("authorization", "") for request in receiver.requests]


def settings_of(server: Receiver, **more: Any) -> dict[str, Any]:
    known = {"token_url": server.url, "client_id": "dockbell", "client_secret": "s3cret/with?signs"}
    return {"oauth2": known | more}


@asynccontextmanager
async def granting(answers: Callable[[int], bytes]) -> AsyncIterator[Receiver]:
    """Run an authorization server that answers each request by its number."""
    count = 0

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        writer.write(answers(count))

    async with receiving(answer) as server:
        yield server


async def test_one_token_is_asked_for_and_borne_by_every_request() -> None:
    settings = {"scope": "events:write", "audience": "https://erp.example.com"}
    async with (
        granting(lambda number: grant(f"token-{number}", expires_in=3600)) as server,
        receiving(OK) as receiver,
        running(make_sink(receiver.url, lanes=4, **settings_of(server, **settings))) as run,
    ):
        run.deliver(*map(make_delivery, range(1, 9)))
        await run.until_settled(8)
    assert run.fates == [OutcomeKind.DELIVERED] * 8
    assert shown(receiver) == ["Bearer token-1"] * 8
    (asked,) = server.requests
    assert asked.method == "POST"
    pair = b64encode(b"dockbell:s3cret%2Fwith%3Fsigns").decode()
    assert asked.headers["authorization"] == f"Basic {pair}"
    assert parse_qs(asked.body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["events:write"],
        "audience": ["https://erp.example.com"],
    }


async def test_client_and_secret_may_stand_in_the_form() -> None:
    async with (
        granting(lambda _: grant("token")) as server,
        receiving(OK) as receiver,
        running(make_sink(receiver.url, **settings_of(server, client_auth="post"))) as run,
    ):
        run.deliver(make_delivery())
        await run.until_settled(1)
    (asked,) = server.requests
    assert "authorization" not in asked.headers
    assert parse_qs(asked.body.decode()) == {
        "grant_type": ["client_credentials"],
        "client_id": ["dockbell"],
        "client_secret": ["s3cret/with?signs"],
    }


async def test_another_token_is_asked_for_before_the_first_one_ends() -> None:
    async with (
        granting(lambda number: grant(f"token-{number}", expires_in="0.1")) as server,
        receiving(OK) as receiver,
        running(make_sink(receiver.url, lanes=1, **settings_of(server))) as run,
    ):
        for number in range(1, 4):
            run.deliver(make_delivery(number))
            await run.until_settled(number)
            await asyncio.sleep(0.06)
    assert shown(receiver) == ["Bearer token-1", "Bearer token-2", "Bearer token-3"]


async def test_a_token_that_the_receiver_does_not_take_any_more_is_replaced_within_the_same_attempt() -> None:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        has_ended = request.headers["authorization"] == "Bearer token-1" and len(receiver.requests) > 1
        writer.write(respond("401 Unauthorized") if has_ended else OK)

    async with (
        granting(lambda number: grant(f"token-{number}")) as server,
        receiving(answer) as receiver,
        running(make_sink(receiver.url, lanes=1, **settings_of(server))) as run,
    ):
        run.deliver(make_delivery(1), make_delivery(2))
        await run.until_settled(2)
    assert run.fates == [OutcomeKind.DELIVERED] * 2
    assert shown(receiver) == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


async def test_a_receiver_that_takes_no_token_is_not_asked_again_and_again() -> None:
    async with (
        granting(lambda number: grant(f"token-{number}")) as server,
        receiving(respond("401 Unauthorized")) as receiver,
        running(make_sink(receiver.url, lanes=1, **settings_of(server))) as run,
    ):
        run.deliver(make_delivery())
        (outcome,) = await run.until_settled(1)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.FAILED, "HTTP 401")
    assert len(receiver.requests) == len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (respond("401 Unauthorized", b'{"error": "invalid_client"}'), "HTTP 401: invalid_client"),
        (respond("500 Internal Server Error", b"s3cret/with?signs"), "HTTP 500"),
        (respond("400 Bad Request", b'{"error": "bad\\u0007"}'), "HTTP 400"),
        (respond("200 OK", b"<html>"), "its answer is not JSON with an access_token"),
        (respond("200 OK", b'{"error": "invalid_scope"}'), "its answer has no access_token: invalid_scope"),
        (grant("two words"), "its answer has no access_token"),
        (grant("token", token_type="mac"), "its answer has a token_type that is not Bearer"),
        (respond("200 OK", b" " * 70_000), "its answer is longer than 65,536 bytes"),
    ],
)
async def test_without_a_token_nothing_is_sent_and_nothing_is_lost(answer: bytes, reason: str) -> None:
    async with (
        receiving(answer) as server,
        receiving(OK) as receiver,
        running(make_sink(receiver.url, **settings_of(server))) as run,
    ):
        run.deliver(make_delivery())
        (outcome,) = await run.until_settled(1)
    place = server.url.split("/")[2]
    assert (outcome.kind, outcome.reason) == (OutcomeKind.UNREACHABLE, f"no access token from {place}: {reason}")
    assert receiver.requests == []


async def test_an_authorization_server_that_is_away_or_slow_is_told() -> None:
    async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    async with receiving(OK) as receiver, receiving(hang) as slow:
        async with receiving(OK) as server:
            pass
        for away, reason in ((server, "connection refused"), (slow, "timed out after 0.2 s")):
            async with running(make_sink(receiver.url, timeout="200ms", **settings_of(away))) as run:
                run.deliver(make_delivery())
                (outcome,) = await run.until_settled(1)
            assert outcome.kind is OutcomeKind.UNREACHABLE
            assert reason in outcome.reason
    assert receiver.requests == []


async def test_what_a_receiver_quotes_of_the_token_is_not_kept() -> None:
    answer = respond("400 Bad Request", b"who is Bearer token-of-ours?")
    async with (
        granting(lambda _: grant("token-of-ours")) as server,
        receiving(answer) as receiver,
        running(make_sink(receiver.url, **settings_of(server))) as run,
    ):
        run.deliver(make_delivery())
        (outcome,) = await run.until_settled(1)
    assert outcome.answer == "who is [redacted]?"


async def test_a_new_client_secret_is_used_for_the_next_token(tmp_path: Path) -> None:
    secret = tmp_path / "client.secret"
    secret.write_text("old")
    settings = {"client_secret": Secret(file=str(secret)), "client_auth": "post"}
    async with granting(lambda number: grant(f"token-{number}")) as server, receiving(OK) as receiver:
        sink = make_sink(receiver.url, **settings_of(server, **settings))
        secret.write_text("the new one")
        sink._reload(force=False)
        async with running(sink) as run:
            run.deliver(make_delivery())
            await run.until_settled(1)
    assert parse_qs(server.requests[0].body.decode())["client_secret"] == ["the new one"]


async def test_an_address_that_is_never_dialled_gives_no_token() -> None:
    async with receiving(OK) as receiver, granting(lambda _: grant("token")) as server:
        port = server.url.rpartition(":")[2]
        settings = {"token_url": f"http://127.0.0.2:{port}", "client_id": "dockbell", "client_secret": "secret"}
        sink = make_sink(receiver.url, oauth2=settings, deny_networks=["127.0.0.2/32"])
        async with running(sink) as run:
            run.deliver(make_delivery())
            (outcome,) = await run.until_settled(1)
    assert "dockbell never connects to 127.0.0.2: in deny_networks" in outcome.reason
    assert server.requests == []


async def test_a_probe_asks_for_a_token_too() -> None:
    async with granting(lambda _: grant("token")) as server, receiving(OK) as receiver:
        told = await make_sink(receiver.url, **settings_of(server)).probe()
    places = [each.url.split("/")[2] for each in (receiver, server)]
    assert told == f"{places[0]} answers OPTIONS with HTTP 200, {places[1]} grants a token"
    refused = respond("401 Unauthorized", b'{"error": "invalid_client"}')
    async with receiving(refused) as server, receiving(OK) as receiver:
        with pytest.raises(SinkUnavailable, match=r"^no access token from 127\.0\.0\.1:\d+: HTTP 401: invalid_client$"):
            await make_sink(receiver.url, **settings_of(server)).probe()
    assert receiver.requests == []


def test_what_else_shows_who_dockbell_is_cannot_stand_beside_it() -> None:
    told = r"^\[sinks.erp\] oauth2: another key sets the header authorization; remove one of them"
    settings = {"token_url": "https://login.example.com", "client_id": "dockbell", "client_secret": "secret"}
    with pytest.raises(ConfigError, match=told):
        make_sink("https://erp.example.com", bearer="token", oauth2=settings)
