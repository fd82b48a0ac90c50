from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import hmac
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary, from_structured
from cloudevents.core.formats.json import JSONFormat
from pydantic import ValidationError
from standardwebhooks import Webhook
from svix.webhooks import Webhook as SvixWebhook

from dockbell.config import Secret, redacted, validate
from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.core.publishing.signature import sign_like_github
from dockbell.errors import ConfigError, SinkUnavailable
from dockbell.sinks.webhook import WebhookSettings
from dockbell.telemetry import SinkConnected
from tests.brokers import find_free_port
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.receiver import OK, OTHER, SECRET, Request, attempt, make_sink, receiving, respond

# The request ---------------------------------------------------------------------------------------------------------


async def test_an_event_is_posted_as_it_is_and_signed_so_that_the_reference_library_verifies_it() -> None:
    delivery = make_delivery(body='{"name":"Käse"}'.encode())
    async with receiving(OK) as receiver, running(make_sink(receiver.url)) as run:
        run.deliver(delivery)
        assert await run.until_settled(1) == [Outcome(OutcomeKind.DELIVERED, status=200, answer="thanks")]
    (request,) = receiver.requests
    assert (request.method, request.target, request.body) == ("POST", "/hooks?token=hush", delivery.event.body)
    assert request.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert request.headers["user-agent"].startswith("dockbell/")
    assert request.headers["webhook-id"] == "evt_1"
    assert abs(int(request.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 5
    assert "dockbell-replay" not in request.headers
    assert Webhook(SECRET).verify(request.body, request.headers) == {"name": "Käse"}
    SvixWebhook(SECRET).verify(request.body, request.headers)


async def test_what_arrives_is_a_structured_cloudevent_to_its_own_library() -> None:
    body = b"""{"specversion": "1.0", "id": "evt_1", "source": "dockbell://acme/main/shipments",
        "type": "dockbell.shipment.updated", "subject": "shp_1", "data": {"after": {"status": "shipped"}}}"""
    async with receiving(OK) as receiver, running(make_sink(receiver.url)) as run:
        run.deliver(make_delivery(body=body))
        await run.until_settled(1)
    (request,) = receiver.requests
    event = from_structured(HTTPMessage(request.headers, request.body), JSONFormat())
    assert event.get_id() == request.headers["webhook-id"]
    assert event.get_data() == {"after": {"status": "shipped"}}


async def test_while_secrets_rotate_each_of_them_verifies() -> None:
    async with receiving(OK) as receiver:
        await attempt(make_sink(receiver.url, secret=[OTHER, SECRET]))
    (request,) = receiver.requests
    assert request.headers["webhook-signature"].count("v1,") == 2
    for secret in (SECRET, OTHER):
        Webhook(secret).verify(request.body, request.headers)
        SvixWebhook(secret).verify(request.body, request.headers)


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


async def test_a_bearer_token_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERP_TOKEN", "abc.def~1==")
    async with receiving(OK) as receiver:
        await attempt(make_sink(receiver.url, bearer={"env": "ERP_TOKEN"}))
    assert receiver.requests[0].headers["authorization"] == "Bearer abc.def~1=="


async def test_a_host_of_the_settings_is_asked_for_in_the_place_of_the_url_s() -> None:
    async with receiving(OK) as receiver:
        await attempt(make_sink(receiver.url))
        await attempt(make_sink(receiver.url, headers={"Host": "erp.example.com"}))
    assert [request.headers["host"] for request in receiver.requests] == [
        f"127.0.0.1:{receiver.port}",
        "erp.example.com",
    ]


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
    assert run.fates == [OutcomeKind.DELIVERED] * 30
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
        assert run.fates == [OutcomeKind.DELIVERED]


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
        with pytest.raises(SinkUnavailable, match=r"timed out after 1 s"):
            await make_sink(receiver.url, timeout="1s").probe()


# Settings ------------------------------------------------------------------------------------------------------------


def test_the_window_is_the_number_of_lanes() -> None:
    assert make_sink("http://localhost/").window == 4
    assert make_sink("http://localhost/", lanes=9).window == 9


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "ftp://erp"}, 'must be a URL such as "https://erp.example.com/hooks/dockbell", got "ftp://erp"'),
        ({"url": "htps://erp/hush-hush?hush"}, r'got "htps://erp/\*\*\*"'),
        ({"url": "erp.example.com/hush-hush"}, r'got "\*\*\*"'),
        ({"proxy": "htps://erp/hush-hush"}, r'got "htps://erp/\*\*\*"'),
        ({"url": "https://me:secret@erp/"}, "must not contain a user or password; use headers"),
        ({"url": "https://☃.net/"}, "must be a valid URL, "),
        ({"proxy": "http://☃.net/"}, "must be a valid URL, "),
        ({"secret": []}, "must not be empty"),
        ({"lanes": 0}, "must be at least 1"),
        ({"requests_per_minute": 0}, "must be at least 1"),
        ({"dead_on": [200]}, "must be a status from 300 to 599, got 200"),
        ({"dead_on": [400, 410]}, "410 never concerns a single event; remove it"),
        ({"dead_on": [503]}, "503 never concerns a single event; remove it"),
        ({"dead_on": 400}, "must be a list, got a whole number"),
        ({"deny_networks": ["10.1.2.3/8"]}, 'must begin with the first address of its range, "10.0.0.0/8", got'),
        ({"deny_networks": ["lan"]}, 'must be a range of addresses such as "10.0.0.0/8" or "fd00::/8", got "lan"'),
        ({"deny_networks": [10]}, "must be text in quotes, got a whole number"),
        ({"cert_file": "a.pem", "url": "http://erp/"}, 'cert_file needs a url that begins with "https:"'),
        ({"key_file": "a.key"}, "key_file needs a cert_file"),
        ({"timeout": "0s"}, "must be longer than 0s"),
        ({"header": {}}, 'did you mean "headers"'),
    ],
)
def test_settings_that_cannot_work_are_told(settings: dict[str, Any], problem: str) -> None:
    values = {"type": "webhook", "url": "https://erp/", "secret": SECRET} | settings
    with pytest.raises(ValidationError, match=problem) as error:
        WebhookSettings.model_validate(values)
    assert "me:secret" not in str(error.value)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://erp.example.com:8443/hooks/hush?token=hush#hush", "https://erp.example.com:8443/***"),
        ("https://erp.example.com?token=hush", "https://erp.example.com/***"),
        ("https://erp.example.com", "https://erp.example.com"),
        ("http://[::1]:80/", "http://[::1]:80/"),
    ],
)
def test_a_printed_configuration_does_not_show_the_path_which_may_hold_a_token(url: str, shown: str) -> None:
    source = {"base_url": "https://api.example.com", "api_key": "k"}
    erp = {"type": "webhook", "url": url, "secret": SECRET}
    config = validate({"sources": {"main": source}, "sinks": {"erp": erp}}, lambda _: WebhookSettings)
    assert redacted(config)["sinks"]["erp"]["url"] == shown


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"secret": "hush-hush"}, r"\[sinks.erp\] secret: must be whsec_ followed by base64 of 24 to 64 bytes"),
        ({"headers": {"webhook-id": "1"}}, r"\[sinks.erp\] headers.webhook-id: dockbell sets this header; remove it"),
        (
            {"headers": {"Expect": "100-continue"}},
            r"headers.Expect: dockbell manages the connection; remove",
        ),
        ({"headers": {"upgrade": "h2c"}}, "headers.upgrade: dockbell manages the connection"),
        ({"headers": {"te": "trailers"}}, "headers.te: dockbell manages the connection"),
        ({"headers": {"keep-alive": "timeout=5"}}, "headers.keep-alive: dockbell manages the connection"),
        ({"headers": {"proxy-connection": "close"}}, "headers.proxy-connection: dockbell manages the connection"),
        ({"headers": {"a b": "1"}}, r"\[sinks.erp\] headers.a b: not a valid header name; rename it"),
        ({"headers": {"x-site": "Köln"}}, r"\[sinks.erp\] headers.x-site: must be printable ASCII"),
        (
            {"headers": {"Authorization": "x"}, "bearer": "y"},
            r"bearer: another key sets the header authorization; remove one of",
        ),
        ({"bearer": "Bearer hush"}, r"\[sinks.erp\] bearer: must be the token alone, without spaces"),
        ({"bearer": "hüsh"}, r"\[sinks.erp\] bearer: must be the token alone, without spaces"),
        ({"cert_file": "/no/such.pem"}, r"\[sinks.erp\]: cannot use the client certificate, no such file or directory"),
        ({"ca_file": "/no/such.pem"}, r"\[sinks.erp\]: cannot use ca_file, no such file or directory"),
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


@pytest.mark.parametrize(
    ("text", "settings", "problem"),
    [
        ("https://me:hush@erp/", {}, "file .*/url must not contain a user or password"),
        ("erp.example.com/hush", {}, r'file .*/url must be a URL such as .*, got "\*\*\*"$'),
        ("http://erp/hush", {"cert_file": "a.pem"}, r'\[sinks.erp\] cert_file needs a url that begins with "https:"'),
        ("http://169.254.169.254/hush", {}, r"\[sinks.erp\] url: dockbell never connects to 169.254.169.254"),
    ],
)
def test_a_url_in_a_file_is_checked_at_the_start_as_well(
    tmp_path: Path, text: str, settings: dict[str, Any], problem: str
) -> None:
    (tmp_path / "url").write_text(text)
    with pytest.raises(ConfigError, match=problem) as error:
        make_sink({"file": str(tmp_path / "url")}, **settings)
    assert "hush" not in str(error.value)


async def test_in_binary_mode_the_attributes_are_headers_and_the_data_is_the_body() -> None:
    async with receiving(OK) as receiver, running(make_sink(receiver.url, mode="binary")) as run:
        body = '{"specversion":"1.0","id":"evt_1","source":"dockbell://a/main/stock","type":"t","subject":"Größe 5%,1",'
        body += '"time":"2026-11-21T12:00:00.000Z","sequence":"00012","data":{"n":1.10}}'
        event = dataclasses.replace(make_delivery().event, body=body.encode())
        run.deliver(Delivery(event))
        await run.until_settled(1)
    (request,) = receiver.requests
    heard = from_binary(HTTPMessage(request.headers, request.body), JSONFormat())
    assert heard.get_subject() == "Größe 5%,1"
    assert heard.get_id() == "evt_1"
    assert heard.get_extension("sequence") == "00012"
    assert request.body == b'{"n":1.10}'
    assert request.headers["content-type"] == "application/json"
    assert "ce-data" not in request.headers
    Webhook(SECRET).verify(request.body, request.headers)


async def test_a_receiver_may_verify_as_it_does_for_github() -> None:
    secret = "It's a Secret to Everybody"
    async with receiving(OK) as receiver, running(make_sink(receiver.url, github_secret=secret)) as run:
        run.deliver(make_delivery())
        await run.until_settled(1)
    (request,) = receiver.requests
    expected = hmac.new(secret.encode(), request.body, hashlib.sha256).hexdigest()
    assert request.headers["x-hub-signature-256"] == f"sha256={expected}"
    Webhook(SECRET).verify(request.body, request.headers)


def test_the_signature_of_github_is_that_of_its_own_example() -> None:
    # https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    told = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert sign_like_github(b"It's a Secret to Everybody", b"Hello, World!") == told


async def test_a_user_and_a_password_are_shown_as_a_browser_shows_them(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret:ü\n")
    basic = {"user": "dockbell", "password": {"file": str(tmp_path / "password")}}
    async with receiving(OK) as receiver, running(make_sink(receiver.url, basic=basic)) as run:
        run.deliver(make_delivery())
        await run.until_settled(1)
    (request,) = receiver.requests
    scheme, _, pair = request.headers["authorization"].partition(" ")
    assert (scheme, b64decode(pair).decode()) == ("Basic", "dockbell:s3cret:ü")
    with pytest.raises(ConfigError, match="basic: another key sets the header authorization; remove one of them"):
        make_sink("http://127.0.0.1:9", basic={"user": "a", "password": "b"}, bearer="c")
