"""The sink for NATS JetStream against Debian's NATS; what every sink promises is in ``test_conformance.py``."""

from __future__ import annotations

import dataclasses
import json
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import nkeys
import pytest
from nats.aio.msg import Msg
from pydantic import ValidationError

from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.errors import ConfigError, SinkRejected, SinkUnavailable
from dockbell.sinks.queues.jetstream import JetStreamSettings, JetStreamSink
from dockbell.telemetry import SinkConnected
from tests.nats_server import NatsServer
from tests.sinks.conftest import Facts, make_delivery, make_statement, publish

Start = Callable[..., NatsServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield what starts a server with some lines in its file; all end with the test."""
    servers: list[NatsServer] = []

    def start_one(*lines: str) -> NatsServer:
        folder = tmp_path / f"nats-{len(servers)}"
        folder.mkdir()
        servers.append(server := NatsServer(folder, *lines))
        server.start()
        return server

    yield start_one
    for server in servers:
        server.stop()


def make_sink(server: NatsServer, facts: Facts | None = None, **settings: Any) -> JetStreamSink:
    values = {"type": "nats", "url": f"nats://127.0.0.1:{server.port}", "timeout": "2s"} | settings
    return JetStreamSink("bus", JetStreamSettings.model_validate(values), (facts or Facts()).telemetry)


async def read(server: NatsServer, count: int) -> list[Msg]:
    """Return so many messages of the stream, in its order."""
    async with server.connecting() as client:
        consumer = await client.jetstream().pull_subscribe("", durable=None, stream="dock")
        return await consumer.fetch(count, timeout=5)


async def test_an_event_is_a_message_on_the_subject_of_its_record(start: Start) -> None:
    server, facts = start(), Facts()
    await server.add_stream("dockbell.>")
    event = dataclasses.replace(make_delivery().event, key="A.1%2F2", type="dockbell.shipment.updated")
    await publish(make_sink(server, facts), Delivery(event))
    await publish(make_sink(server), make_statement(2))
    message, statement = await read(server, 2)
    assert message.subject == "dockbell.main.shipments.A%2E1%2F2.updated"
    assert message.data == event.body
    assert message.headers == {
        "Content-Type": "application/cloudevents+json; charset=utf-8",
        "Dockbell-Type": "dockbell.shipment.updated",
        "Nats-Msg-Id": "evt_1",
    }
    assert statement.subject == "dockbell.main.stock.-.gap"
    assert facts.of(SinkConnected) == [f"sink bus: connected, 127.0.0.1:{server.port}"]


async def test_what_is_sent_again_is_stored_once_but_a_replay_is_stored(start: Start) -> None:
    server = start()
    await server.add_stream("dockbell.>")
    for delivery in (make_delivery(), make_delivery(), make_delivery(replayed=True)):
        assert await publish(make_sink(server), delivery) == [Outcome(OutcomeKind.DELIVERED)]
    first, replay = await read(server, 2)
    assert first.headers is not None
    assert replay.headers is not None
    assert "Dockbell-Replay" not in first.headers
    assert replay.headers["Dockbell-Replay"] == "true"
    async with server.connecting() as client:
        assert (await client.jetstream().stream_info("dock")).state.messages == 2


async def test_the_subject_may_be_chosen(start: Start) -> None:
    server = start()
    await server.add_stream("warehouse.>")
    await publish(make_sink(server, subject="warehouse.{resource}"), make_delivery())
    (message,) = await read(server, 1)
    assert message.subject == "warehouse.shipments"


async def test_without_a_stream_an_event_waits(start: Start) -> None:
    (outcome,) = await publish(make_sink(start()), make_delivery())
    assert outcome == Outcome(OutcomeKind.FAILED, "no JetStream stream accepts its subject")


async def test_what_is_larger_than_the_server_takes_is_unfit_and_others_go_on(start: Start) -> None:
    server = start("max_payload: 2KB")
    await server.add_stream("dockbell.>")
    large = make_delivery(1, body=b'"' + b"x" * 3000 + b'"')
    outcomes = await publish(make_sink(server, in_flight=1), large, make_delivery(2))
    assert outcomes == [
        Outcome(OutcomeKind.UNFIT, "larger than the server accepts (max_payload)"),
        Outcome(OutcomeKind.DELIVERED),
    ]


async def test_what_is_larger_than_its_stream_takes_is_refused(start: Start) -> None:
    server = start()
    await server.add_stream("dockbell.>", max_msg_size=500)
    (outcome,) = await publish(make_sink(server), make_delivery(1, body=b'"' + b"x" * 3000 + b'"'))
    assert outcome.kind is OutcomeKind.REFUSED
    assert "message size exceeds maximum allowed" in outcome.reason


# Credentials and TLS -------------------------------------------------------------------------------------------------


async def test_a_password_is_shown_and_a_wrong_one_loses_nothing(start: Start, tmp_path: Path) -> None:
    server = start('authorization { user: bell, password: "open sesame" }')
    async with server.connecting(user="bell", password="open sesame") as client:
        await client.jetstream().add_stream(name="dock", subjects=["dockbell.>"])
    (tmp_path / "password").write_text("hush")
    sink = make_sink(server, user="bell", password={"file": str(tmp_path / "password")})
    with pytest.raises(SinkRejected, match=r"(?i)authorization violation"):
        await sink.probe()
    (outcome,) = await publish(sink, make_delivery())
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert "hush" not in outcome.reason
    (tmp_path / "password").write_text("open sesame")
    assert await publish(sink, make_delivery()) == [Outcome(OutcomeKind.DELIVERED)]


async def test_a_token_is_shown(start: Start) -> None:
    server = start('authorization { token: "open sesame" }')
    assert await make_sink(server, token="open sesame").probe()


def make_credentials(folder: Path) -> tuple[tuple[str, ...], Path, Path]:
    """Return the lines of a server that trusts an operator, and the credentials of its user and of a stranger."""

    def sign(issuer: Any, subject: Any, name: str, **facts: Any) -> str:
        claims = {"jti": name, "iat": 1_700_000_000, "iss": issuer.public_key.decode(), "name": name}
        claims |= {"sub": subject.public_key.decode(), "nats": {**facts, "version": 2}}
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        parts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, claims)]
        signature = urlsafe_b64encode(issuer.sign(b".".join(parts))).rstrip(b"=")
        return b".".join((*parts, signature)).decode()

    def write(name: str, signer: Any) -> Path:
        seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
        token = sign(signer, nkeys.from_seed(bytearray(seed)), name, type="user", subs=-1, data=-1, payload=-1)
        path = folder / f"{name}.creds"
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed.decode()}\n------END USER NKEY SEED------\n"
        )
        return path

    prefixes = nkeys.PREFIX_BYTE_OPERATOR, *[nkeys.PREFIX_BYTE_ACCOUNT] * 3
    operator, account, system, other = (
        nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), prefix))) for prefix in prefixes
    )
    basic = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1) | {"wildcards": True}
    stored = basic | dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    tokens = [
        f"{each.public_key.decode()}: {sign(operator, each, 'account', type='account', limits=limits)}"
        for each, limits in ((account, stored), (system, basic))
    ]
    lines = (
        f"operator: {sign(operator, operator, 'operator', type='operator')}",
        f"system_account: {system.public_key.decode()}",
        "resolver: MEMORY",
        "resolver_preload {",
        *tokens,
        "}",
    )
    return lines, write("bell", account), write("stranger", other)


async def test_credentials_of_nsc_are_shown_and_read_anew(start: Start, tmp_path: Path) -> None:
    lines, user, stranger = make_credentials(tmp_path)
    server = start(*lines)
    async with server.connecting(user_credentials=user) as client:
        await client.jetstream().add_stream(name="dock", subjects=["dockbell.>"])
    (tmp_path / "used.creds").write_bytes(stranger.read_bytes())
    sink = make_sink(server, credentials_file=str(tmp_path / "used.creds"))
    with pytest.raises(SinkRejected, match=r"(?i)authorization violation"):
        await sink.probe()
    (tmp_path / "used.creds").write_bytes(user.read_bytes().replace(b"\n", b"\r\n"))  # as Windows writes them
    assert await publish(sink, make_delivery()) == [Outcome(OutcomeKind.DELIVERED)]


def test_credentials_that_cannot_be_used_are_told_at_the_start(tmp_path: Path) -> None:
    settings = {"type": "nats", "url": "nats://nats", "credentials_file": str(tmp_path / "bus.creds")}
    with pytest.raises(ConfigError, match=r"\[sinks.bus\]: credentials_file cannot be read, no such file or directory"):
        JetStreamSink("bus", JetStreamSettings.model_validate(settings), Facts().telemetry)
    (tmp_path / "bus.creds").write_text("-----BEGIN NATS USER JWT-----\nsecret\n")
    with pytest.raises(ConfigError, match="must contain a NATS USER JWT and a USER NKEY SEED") as error:
        JetStreamSink("bus", JetStreamSettings.model_validate(settings), Facts().telemetry)
    assert "secret" not in str(error.value)


async def test_it_speaks_tls_and_checks_the_certificate(start: Start, certificate: Path) -> None:
    server = start(f'tls {{ cert_file: "{certificate}", key_file: "{certificate}" }}')
    url = f"tls://localhost:{server.port}"
    found = await make_sink(server, url=url, ca_file=str(certificate)).probe()
    assert found.startswith(f"localhost:{server.port} answers as NATS 2.")
    with pytest.raises(SinkRejected, match="certificate"):
        await make_sink(server, url=url).probe()


# Probing and settings ------------------------------------------------------------------------------------------------


async def test_a_probe_says_which_server_answers(start: Start) -> None:
    server = start()
    await server.add_stream("dockbell.>")
    found = await make_sink(server).probe()
    assert found.startswith(f"127.0.0.1:{server.port} answers as NATS 2.")
    assert found.endswith(", streams: 1")
    server.stop()
    with pytest.raises(SinkUnavailable, match="connection refused"):
        await make_sink(server).probe()


async def test_a_server_without_jetstream_is_told(start: Start) -> None:
    server = start("accounts { A { users: [{ user: bell, password: x }] } }")  # JetStream is off for this account
    with pytest.raises(SinkUnavailable, match=r"(?i)jetstream"):
        await make_sink(server, user="bell", password="x").probe()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "http://nats"}, 'must be a URL such as "tls://nats.example.com:4222"'),
        (
            {"url": "nats://me:hush@nats"},
            "must not contain a user, password or token; use the keys user, password and token",
        ),
        ({"url": "nats://nats/path"}, "must end with the host and port"),
        ({"user": "me"}, "set both user and password, or neither"),
        ({"key_file": "a.key"}, "key_file needs a cert_file"),
        ({"ca_file": "ca.pem"}, 'ca_file and cert_file need a url that begins with "tls:"'),
        ({"subject": "dockbell.{sink}"}, "must be a subject without wildcards, which may contain {source}"),
        ({"subject": "dockbell.>"}, "must be a subject without wildcards"),
        ({"subject": "dockbell..x"}, "must be a subject without wildcards"),
    ],
)
def test_settings_that_cannot_work_are_told(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as error:
        JetStreamSettings.model_validate({"type": "nats", "url": "nats://nats"} | settings)
    assert "hush" not in str(error.value)


def test_a_certificate_that_cannot_be_used_is_told_at_the_start() -> None:
    settings = JetStreamSettings.model_validate({"type": "nats", "url": "tls://nats", "ca_file": "/no/such.pem"})
    with pytest.raises(ConfigError, match=r"\[sinks.bus\]: cannot use ca_file, no such file or directory"):
        JetStreamSink("bus", settings, Facts().telemetry)


def test_two_ways_to_present_ourselves_are_told_at_the_start() -> None:
    values = {"type": "nats", "url": "nats://nats", "token": "hush", "user": "bell", "password": "hush"}
    with pytest.raises(ConfigError, match=r"\[sinks.bus\] user and token exclude each other"):
        JetStreamSink("bus", JetStreamSettings.model_validate(values), Facts().telemetry)


async def test_a_broken_connection_is_closed_though_what_waits_cannot_be_sent(start: Start) -> None:
    """A connection may break between two publications: the library then tries to send the second as it closes."""
    sink = make_sink(start())
    client = await sink._open()
    transport: Any = client._transport
    assert transport is not None
    transport._io_writer.transport.abort()
    await anyio.lowlevel.checkpoint()
    await client._send_command(b"PUB dockbell.main.stock 2\r\n{}\r\n")

    await client._process_op_err(ConnectionResetError("broken"))

    assert client.is_closed
    assert transport._io_writer.is_closing()
