"""Messages to people, sent by the real Apprise to real servers on this machine."""

from __future__ import annotations

import email
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from email.message import EmailMessage, Message
from email.policy import default
from typing import Any

import anyio
import pytest
from aiosmtpd.controller import Controller

from dockbell.core.model import DELIVERED, NOTICES, Delivery, Event, NoticeKind, Outcome, OutcomeKind, Statement
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.event import test_event as make_test_event
from dockbell.core.publishing.statement import notice_key
from dockbell.errors import ConfigError, SinkRejected, SinkUnavailable
from dockbell.sinks.alert import AlertSettings, AlertSink
from dockbell.sinks.alert.sending import _tell_unreached
from dockbell.telemetry import Telemetry
from tests.brokers import find_free_port
from tests.fakes import NOON

COMPOSE = Composer(NOTICES, name="acme", singular="notice", epoch="epoch")


class Mailbox:
    """What an SMTP server takes."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.refuses = False

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802  # aiosmtpd calls it so
        if self.refuses:
            return "554 no thanks, my password is hush-hush"
        self.mails.append(email.message_from_bytes(envelope.content, _class=EmailMessage, policy=default))
        return "250 OK"

    @property
    def subjects(self) -> list[str]:
        return [str(mail["subject"]) for mail in self.mails]


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def port(mailbox: Mailbox) -> Iterator[int]:
    controller = Controller(mailbox, hostname="127.0.0.1", port=find_free_port())
    controller.start()
    yield controller.port
    controller.stop()


def make_sink(url: str, **settings: Any) -> AlertSink:
    return AlertSink("oncall", AlertSettings.model_validate({"type": "alert", "url": url, **settings}), Telemetry())


def mail_to(port: int) -> str:
    return f"mailto://127.0.0.1:{port}?from=dockbell@example.com&to=night@example.com"


def notice(kind: NoticeKind, subject: str, name: str, reason: str, *, number: int = 1, ends: bool = False) -> Event:
    details: dict[str, Any] = {subject: name, "reason": reason, "count": 1}
    said = NoticeKind.RECOVERED if ends else kind
    details |= {"resolves": kind} if ends else {}
    (event,) = COMPOSE(Statement(NOTICES, said, NOON, details, notice_key(kind, subject, name)), number)
    return event


def source_down(number: int = 1, reason: str = "GET /v1/stock: HTTP 503") -> Event:
    return notice(NoticeKind.UNREACHABLE, "source", "main", reason, number=number)


@asynccontextmanager
async def working(sink: AlertSink) -> AsyncIterator[Any]:
    """Yield what has one event attempted, and returns the outcome."""
    send, receive = anyio.create_memory_object_stream[Delivery](8)
    settled_send, settled = anyio.create_memory_object_stream[Outcome](8)

    async def attempt(event: Event, *, replayed: bool = False) -> Outcome:
        await send.send(Delivery(event, replayed=replayed))
        with anyio.fail_after(30):
            return await settled.receive()

    async with send, receive, settled_send, settled, anyio.create_task_group() as group:
        group.start_soon(sink.run, receive, lambda _, outcome: settled_send.send_nowait(outcome))
        yield attempt
        await send.aclose()


async def test_a_mail_says_what_happened_and_what_to_do(port: int, mailbox: Mailbox) -> None:
    async with working(make_sink(mail_to(port))) as attempt:
        assert await attempt(source_down()) == DELIVERED
    (mail,) = mailbox.mails
    assert (mail["to"], mail["from"]) == ("night@example.com", "dockbell@example.com")
    assert mail["subject"] == "dockbell acme: source main does not answer"
    assert isinstance(mail, EmailMessage)
    body = mail.get_body(("plain",))
    assert body is not None
    lines = body.get_content().splitlines()
    assert lines[0] == "GET /v1/stock: HTTP 503"
    assert "Nothing is lost" in lines[1]
    assert lines[-1].startswith("dockbell/notices/unreachable,source,main #1 evt_")


async def test_of_an_alert_that_is_not_over_one_message_is_sent_in_a_while(
    port: int, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(make_sink(mail_to(port), repeat="1h")) as attempt:
        for number in range(1, 4):
            assert await attempt(source_down(number)) == DELIVERED
        assert await attempt(notice(NoticeKind.PAUSED, "sink", "erp", "HTTP 410", number=4)) == DELIVERED
        assert len(mailbox.mails) == 2
        monkeypatch.setattr("dockbell.sinks.alert._clock", lambda: anyio.current_time() + 3601)
        assert await attempt(source_down(5)) == DELIVERED
        assert "2 more of this kind since the last message." in str(mailbox.mails[-1])
        over = notice(NoticeKind.UNREACHABLE, "source", "main", "answers again after 4m", number=6, ends=True)
        assert await attempt(over) == DELIVERED
        assert await attempt(source_down(7)) == DELIVERED
    assert mailbox.subjects == [
        "dockbell acme: source main does not answer",
        "dockbell acme: sink erp is paused",
        "dockbell acme: source main does not answer",
        "dockbell acme: resolved: source main does not answer",
        "dockbell acme: source main does not answer",
    ]


@pytest.mark.parametrize(("kind", "subject"), [(NoticeKind.GAP, "source"), (NoticeKind.DIED, "process")])
async def test_what_is_over_when_it_is_told_is_told_each_time(
    port: int, mailbox: Mailbox, kind: NoticeKind, subject: str
) -> None:
    async with working(make_sink(mail_to(port), repeat="1h")) as attempt:
        for number in range(1, 4):
            assert await attempt(notice(kind, subject, "main", "something", number=number)) == DELIVERED
    assert len(mailbox.mails) == 3


async def test_what_was_not_taken_is_not_held_back_the_next_time(port: int, mailbox: Mailbox) -> None:
    mailbox.refuses = True
    async with working(make_sink(mail_to(port))) as attempt:
        assert (await attempt(source_down())).kind is not OutcomeKind.DELIVERED
        mailbox.refuses = False
        assert await attempt(source_down()) == DELIVERED
    assert len(mailbox.mails) == 1


async def test_a_test_and_a_replay_are_always_sent(port: int, mailbox: Mailbox) -> None:
    async with working(make_sink(mail_to(port))) as attempt:
        assert await attempt(source_down()) == DELIVERED
        assert await attempt(source_down(), replayed=True) == DELIVERED
        assert await attempt(make_test_event("acme", "oncall", NOON, "nonce")) == DELIVERED
    assert len(mailbox.mails) == 3
    assert mailbox.subjects[-1] == "dockbell acme: a test of sink oncall"


async def test_a_service_that_refuses_is_told_by_its_status_alone() -> None:
    refusing = serving("HTTP/1.1 401 Unauthorized\r\ncontent-length: 9\r\n\r\nhush-hush")
    async with refusing as (port, _), working(make_sink(f"json://user:hush-hush@127.0.0.1:{port}/token")) as attempt:
        outcome = await attempt(source_down())
    assert (outcome.kind, outcome.reason) == (OutcomeKind.FAILED, "the service refused it, status 401")


async def test_a_message_to_ntfy_is_as_its_server_takes_it() -> None:
    taking = serving("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    async with taking as (port, bodies), working(make_sink(f"ntfy://127.0.0.1:{port}/night-shift")) as attempt:
        assert await attempt(source_down()) == DELIVERED
    (posted,) = map(json.loads, bodies)
    assert (posted["topic"], posted["title"]) == ("night-shift", "dockbell acme: source main does not answer")
    assert posted["message"].startswith("GET /v1/stock: HTTP 503\n")


@asynccontextmanager
async def serving(answer: str) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Yield the port of an HTTP server that answers all the same, and the bodies that it was sent."""
    bodies: list[bytes] = []

    async def take(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive()
            head, _, body = received.partition(b"\r\n\r\n")
            (length,) = [int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:")]
            while len(body) < length:
                body += await stream.receive()
            bodies.append(body)
            await stream.send(answer.encode())

    port = find_free_port()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, take)
        yield port, bodies
        group.cancel_scope.cancel()


async def test_a_probe_connects_and_sends_nothing(port: int, mailbox: Mailbox) -> None:
    sink = make_sink(mail_to(port))
    assert await sink.probe() == 'messages go to E-Mail; "dockbell test oncall" sends one'
    assert mailbox.mails == []


async def test_a_probe_tells_a_server_that_is_away_from_a_url_that_means_nothing() -> None:
    with pytest.raises(SinkUnavailable, match=r"JSON: 127\.0\.0\.1 cannot be reached"):
        await make_sink(f"json://127.0.0.1:{find_free_port()}/").probe()
    with pytest.raises(SinkRejected, match=r"does not understand the url; see docs/how-to/alerts\.md"):
        await make_sink("carrier-pigeon://coop").probe()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Apprise imports
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("json://me:hush@alerts.example.com/hush", "alerts.example.com cannot be reached"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/", "hooks.slack.com cannot be reached"),
        ("opsgenie://hush.hush.hush", "cannot be reached"),  # the key stands in the place of a host
    ],
)
def test_what_cannot_be_reached_is_named_without_a_secret(url: str, told: str) -> None:
    apprise = pytest.importorskip("apprise")
    assert _tell_unreached(apprise.Apprise.instantiate(url)) == told


def test_a_url_without_a_service_is_refused_before_the_start() -> None:
    with pytest.raises(ConfigError, match=r'^\[sinks\.oncall\] url: must begin with a service, such as "mailto://"'):
        make_sink("night@example.com")


def test_without_apprise_it_is_refused_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.sinks.alert.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"^\[sinks\.oncall\]: Apprise is not installed; pip install"):
        make_sink("json://127.0.0.1/")


async def test_a_secret_that_is_gone_is_no_fault_of_the_event(tmp_path: Any) -> None:
    path = tmp_path / "url"
    path.write_text("json://127.0.0.1:1/")
    sink = AlertSink("oncall", AlertSettings.model_validate({"type": "alert", "url": {"file": str(path)}}), Telemetry())
    path.unlink()
    async with working(sink) as attempt:
        outcome = await attempt(source_down())
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert "no such file" in outcome.reason
