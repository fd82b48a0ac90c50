from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import ValidationError
from standardwebhooks.webhooks import Webhook

from dockbell.config import Secret
from dockbell.core.model import Fate, Outcome
from dockbell.core.publishing.signature import mint
from dockbell.errors import ConfigError, SinkRejected, SinkUnavailable
from dockbell.sinks.webhook import WebhookSettings, WebhookSink, judge, parse_retry_after
from dockbell.telemetry import SinkConnected
from tests.brokers import find_free_port
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.receiver import Request, receiving, respond

SECRET = mint(bytes(24))
OTHER = mint(bytes(32))
NOW = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)


def make_sink(url: str, facts: Facts | None = None, *, secret: Any = SECRET, **settings: Any) -> WebhookSink:
    values = {"type": "webhook", "url": url, "secret": secret} | settings
    return WebhookSink("erp", WebhookSettings.model_validate(values), (facts or Facts()).telemetry)


OK = respond("200 OK", b"thanks")


async def attempt(sink: WebhookSink) -> Outcome:
    async with running(sink) as run:
        run.deliver(make_delivery())
        (outcome,) = await run.until_settled(1)
    return outcome


# The request ---------------------------------------------------------------------------------------------------------


async def test_an_event_is_posted_as_it_is_and_signed_so_that_the_reference_library_verifies_it() -> None:
    delivery = make_delivery(body='{"name":"Käse"}'.encode())
    async with receiving(OK) as receiver, running(make_sink(receiver.url)) as run:
        run.deliver(delivery)
        assert await run.until_settled(1) == [Outcome(Fate.DELIVERED)]
    (request,) = receiver.requests
    assert (request.method, request.target, request.body) == ("POST", "/hooks?token=hush", delivery.event.body)
    assert request.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert request.headers["user-agent"].startswith("dockbell/")
    assert request.headers["webhook-id"] == "evt_1"
    assert abs(int(request.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 5
    assert "dockbell-replay" not in request.headers
    assert Webhook(SECRET).verify(request.body, request.headers) == {"name": "Käse"}


async def test_while_secrets_rotate_each_of_them_verifies() -> None:
    async with receiving(OK) as receiver:
        await attempt(make_sink(receiver.url, secret=[OTHER, SECRET]))
    (request,) = receiver.requests
    assert request.headers["webhook-signature"].count("v1,") == 2
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(request.body, request.headers)


async def test_a_replayed_event_is_marked_outside_the_signed_body() -> None:
    async with receiving(OK) as receiver, running(make_sink(receiver.url)) as run:
        run.deliver(make_delivery(replayed=True))
        await run.until_settled(1)
    assert receiver.requests[0].headers["dockbell-replay"] == "true"


async def test_headers_of_the_settings_are_sent_and_may_be_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERP_TOKEN", "Bearer abc")
    headers = {"Authorization": {"env": "ERP_TOKEN"}, "X-Site": "dock 4", "User-Agent": "ours"}
    async with receiving(OK) as receiver:
        await attempt(make_sink(receiver.url, headers=headers))
    sent = receiver.requests[0].headers
    assert (sent["authorization"], sent["x-site"], sent["user-agent"]) == ("Bearer abc", "dock 4", "ours")


async def test_a_receiver_s_cookies_are_not_kept() -> None:
    answer = respond("200 OK", set_cookie="a=1")
    async with receiving(answer) as receiver, running(make_sink(receiver.url, lanes=1)) as run:
        run.deliver(make_delivery(1), make_delivery(2))
        await run.until_settled(2)
    assert not any("cookie" in request.headers for request in receiver.requests)


async def test_a_proxy_is_used_when_it_is_configured_and_none_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with receiving(OK) as receiver, receiving(OK) as proxy:
        assert (await attempt(make_sink(receiver.url))).fate is Fate.DELIVERED
        assert (await attempt(make_sink(receiver.url, proxy=f"http://127.0.0.1:{proxy.port}"))).fate is Fate.DELIVERED
    assert len(receiver.requests) == 1
    assert proxy.requests[0].target == receiver.url


# The answer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        ("200 OK", Fate.DELIVERED),
        ("202 Accepted", Fate.DELIVERED),
        ("204 No Content", Fate.DELIVERED),
        ("299 Fine", Fate.DELIVERED),
        ("302 Found", Fate.FAILED),
        ("400 Bad Request", Fate.REFUSED),
        ("401 Unauthorized", Fate.FAILED),
        ("404 Not Found", Fate.FAILED),
        ("410 Gone", Fate.FAILED),
        ("413 Content Too Large", Fate.REFUSED),
        ("415 Unsupported Media Type", Fate.REFUSED),
        ("422 Unprocessable Content", Fate.REFUSED),
        ("429 Too Many Requests", Fate.FAILED),
        ("500 Internal Server Error", Fate.FAILED),
        ("503 Service Unavailable", Fate.FAILED),
    ],
)
async def test_the_status_decides(status: str, fate: Fate) -> None:
    async with receiving(respond(status)) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome.fate is fate
    assert outcome.reason.startswith(f"HTTP {status[:3]}" if fate is not Fate.DELIVERED else "")


async def test_a_redirect_is_not_followed() -> None:
    async with receiving(OK) as elsewhere, receiving(respond("307 Moved", location=elsewhere.url)) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome == Outcome(Fate.FAILED, "HTTP 307, redirects are not followed")
    assert not elsewhere.requests


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_a_receiver_s_wish_to_wait_is_passed_on(status: str) -> None:
    async with receiving(respond(status, retry_after="120")) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome == Outcome(Fate.FAILED, f"HTTP {status[:3]}", timedelta(minutes=2))


def test_only_429_and_503_may_ask_to_wait() -> None:
    assert judge(500, {"retry-after": "120"}, NOW) == Outcome(Fate.FAILED, "HTTP 500")


@pytest.mark.parametrize(
    ("value", "pause"),
    [
        ("0", timedelta(0)),
        ("120", timedelta(minutes=2)),
        ("999999999", timedelta(hours=24)),
        ("Sat, 21 Nov 2026 02:31:00 GMT", timedelta(minutes=1)),
        ("Sat, 21 Nov 2026 02:31:00 -0000", timedelta(minutes=1)),
        ("Sat, 21 Nov 2026 02:29:00 GMT", timedelta(0)),
        ("Sat, 28 Nov 2026 02:29:00 GMT", timedelta(hours=24)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("Sat, 99 Nov 2026 02:31:00 GMT", None),
        ("9" * 5000, None),
    ],
)
def test_both_forms_of_retry_after_are_read_and_bounded_by_a_day(value: str, pause: timedelta | None) -> None:
    assert parse_retry_after(value, NOW) == pause


async def test_a_body_without_end_does_not_hold_up_the_lane() -> None:
    async def flood(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with receiving(flood) as receiver, running(make_sink(receiver.url, lanes=1)) as run:
        run.deliver(make_delivery(1), make_delivery(2))
        with anyio.fail_after(2):
            await run.until_settled(2)
    assert run.fates == [Fate.DELIVERED] * 2
    assert receiver.connections == 2


async def test_a_body_that_trickles_is_cut_off_after_a_second() -> None:
    async def trickle(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 1000\r\nretry-after: 9\r\n\r\nx")

    async with receiving(trickle) as receiver:
        with anyio.fail_after(3):
            outcome = await attempt(make_sink(receiver.url))
    assert outcome == Outcome(Fate.FAILED, "HTTP 503", timedelta(seconds=9))


async def test_a_broken_body_does_not_change_what_the_status_said() -> None:
    async def break_off(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nx")
        writer.close()

    async with receiving(break_off) as receiver:
        assert (await attempt(make_sink(receiver.url))).fate is Fate.DELIVERED


async def test_a_compressed_body_is_not_unpacked() -> None:
    async with receiving(respond("200 OK", b"no gzip at all", content_encoding="gzip")) as receiver:
        assert (await attempt(make_sink(receiver.url))).fate is Fate.DELIVERED


# No answer -----------------------------------------------------------------------------------------------------------


async def test_a_receiver_that_hangs_is_left_after_the_timeout() -> None:
    async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await anyio.sleep(3600)

    async with receiving(hang) as receiver:
        outcome = await attempt(make_sink(receiver.url, timeout="300ms"))
    assert outcome == Outcome(Fate.FAILED, "timed out after 0.3 s")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "server disconnected without sending a response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "illegal status line"),
    ],
)
async def test_what_is_no_answer_in_http_is_a_failure(answer: bytes, reason: str) -> None:
    async def answer_and_close(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with receiving(answer_and_close) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome.fate is Fate.FAILED
    assert outcome.reason.startswith(reason)


async def test_where_nobody_listens_nobody_judged_the_event() -> None:
    outcome = await attempt(make_sink(f"http://127.0.0.1:{find_free_port()}"))
    assert outcome == Outcome(Fate.UNREACHABLE, "connection refused")
    assert await attempt(make_sink("http://localhost:9/")) == outcome
    outcome = await attempt(make_sink("http://no-such-host.invalid/"))
    assert outcome == Outcome(Fate.UNREACHABLE, "host name not found")


async def test_a_certificate_of_an_unknown_authority_is_not_accepted(certificate: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    async with receiving(OK, tls=server) as receiver:
        url = f"https://localhost:{receiver.port}/"
        assert (await attempt(make_sink(url, ca_file=str(certificate)))).fate is Fate.DELIVERED
        outcome = await attempt(make_sink(url))
        assert outcome.fate is Fate.UNREACHABLE
        assert outcome.reason.startswith("certificate not accepted, self")
        with pytest.raises(SinkRejected, match=r"localhost:\d+: certificate not accepted"):
            await make_sink(url).probe()
        plain = await attempt(make_sink(f"http://localhost:{receiver.port}/"))
        assert plain.fate is Fate.FAILED


async def test_a_server_without_tls_is_unreachable_by_https() -> None:
    async with receiving(b"what?\r\n\r\n") as receiver:
        outcome = await attempt(make_sink(f"https://127.0.0.1:{receiver.port}/", timeout="600ms"))
    assert outcome == Outcome(Fate.UNREACHABLE, "no answer in time")


# Lanes ---------------------------------------------------------------------------------------------------------------


async def test_lanes_run_side_by_side_each_on_one_connection() -> None:
    together = anyio.Event()

    async def answer_together(_request: Request, writer: asyncio.StreamWriter) -> None:
        if len(receiver.requests) == 3:
            together.set()
        await together.wait()
        writer.write(OK)

    async with receiving(answer_together) as receiver, running(make_sink(receiver.url, lanes=3)) as run:
        run.deliver(*map(make_delivery, range(30)))
        await run.until_settled(30)
    assert run.fates == [Fate.DELIVERED] * 30
    assert receiver.connections == 3
    assert {request.connection for request in receiver.requests} == {1, 2, 3}


async def test_a_slow_answer_holds_up_no_other_lane() -> None:
    release = anyio.Event()

    async def answer_first_late(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.headers["webhook-id"] == "evt_1":
            await release.wait()
        writer.write(OK)

    async with receiving(answer_first_late) as receiver, running(make_sink(receiver.url, lanes=2)) as run:
        run.deliver(*map(make_delivery, range(1, 11)))
        await run.until_settled(9)
        assert "evt_1" not in {delivery.event.id for delivery, _ in run.settled}
        release.set()
        await run.until_settled(10)


async def test_what_is_in_flight_at_the_end_is_still_settled() -> None:
    async def answer_late(_request: Request, writer: asyncio.StreamWriter) -> None:
        await anyio.sleep(0.2)
        writer.write(OK)

    async with receiving(answer_late) as receiver:
        async with running(make_sink(receiver.url)) as run:
            run.deliver(make_delivery())
            await receiver.until_asked(1)
        assert run.fates == [Fate.DELIVERED]


async def test_it_is_told_when_the_receiver_answers_for_the_first_time_and_again_after_an_absence() -> None:
    facts = Facts()
    async with receiving(respond("500 Oops")) as receiver:
        sink = make_sink(receiver.url, facts)
        await attempt(sink)
        await attempt(sink)
        port = receiver.port
    told = [f"sink erp: connected, 127.0.0.1:{port}"]
    assert facts.of(SinkConnected) == told
    assert "hush" not in "".join(map(str, facts.told))


# Probing -------------------------------------------------------------------------------------------------------------


async def test_a_probe_delivers_nothing_and_says_what_answers() -> None:
    async with receiving(respond("405 Method Not Allowed")) as receiver:
        found = await make_sink(receiver.url).probe()
    assert found == f"127.0.0.1:{receiver.port} answers OPTIONS with HTTP 405"
    assert [request.method for request in receiver.requests] == ["OPTIONS"]


async def test_a_probe_says_when_nobody_answers() -> None:
    port = find_free_port()
    with pytest.raises(SinkUnavailable, match=f"127.0.0.1:{port}: connection refused"):
        await make_sink(f"http://127.0.0.1:{port}/?token=hush").probe()


async def test_a_probe_does_not_wait_for_ever() -> None:
    async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await anyio.sleep(3600)

    async with receiving(hang) as receiver:
        with pytest.raises(SinkUnavailable, match=r"timed out after 0\.2 s"):
            await make_sink(receiver.url, timeout="200ms").probe()


# Settings ------------------------------------------------------------------------------------------------------------


def test_the_window_is_the_number_of_lanes() -> None:
    assert make_sink("http://localhost/").window == 4
    assert make_sink("http://localhost/", lanes=9).window == 9


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "ftp://erp"}, 'must be a URL such as "https://erp.example.com/hooks/dockbell", got "ftp://erp"'),
        ({"url": "https://me:secret@erp/"}, "must not hold a user or password; use headers"),
        ({"url": "https://☃.net/"}, "cannot be used, "),
        ({"secret": []}, "must not be empty"),
        ({"lanes": 0}, "must be at least 1"),
        ({"timeout": "0s"}, "must be longer than 0s"),
        ({"header": {}}, 'did you mean "headers"'),
    ],
)
def test_settings_that_cannot_work_are_told(settings: dict[str, Any], problem: str) -> None:
    values = {"type": "webhook", "url": "https://erp/", "secret": SECRET} | settings
    with pytest.raises(ValidationError, match=problem) as error:
        WebhookSettings.model_validate(values)
    assert "me:secret" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"secret": "hush-hush"}, r"\[sinks.erp\] secret: must be whsec_ followed by base64 of 24 to 64 bytes"),
        ({"headers": {"webhook-id": "1"}}, r"\[sinks.erp\] headers.webhook-id: is set by dockbell; remove it"),
        ({"headers": {"a b": "1"}}, r"\[sinks.erp\] headers.a b: is no name of a header"),
        ({"headers": {"x-site": "Köln"}}, r"\[sinks.erp\] headers.x-site: must be printable ASCII"),
        ({"ca_file": "/no/such.pem"}, r"\[sinks.erp\]: ca_file cannot be used, no such file or directory"),
    ],
)
def test_secrets_headers_and_files_are_checked_at_the_start(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        make_sink("https://erp/", **settings)
    assert "hush" not in str(error.value)


def test_a_missing_secret_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"):
        make_sink("https://erp/", secret=Secret(env="NO_SUCH_VARIABLE"))
