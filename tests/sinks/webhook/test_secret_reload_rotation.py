"""Secrets and certificates that are replaced while the sink runs, and certificates of both sides."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from dockbell.core.model import OutcomeKind
from dockbell.errors import ConfigError, SinkRejected, SinkUnavailable
from dockbell.sinks import webhook as module
from dockbell.sinks.webhook.secret_reload import NotRenewed, Renewed
from tests.sinks.conftest import Facts, make_delivery, running
from tests.sinks.receiver import OK, OTHER, SECRET, Request, attempt, make_sink, receiving, respond


def mint_certificate(path: Path, name: str, *, expired: bool = False) -> Path:
    """Write a self-signed certificate for ``localhost`` and its key to one file."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -addext"
    names = [f"subjectAltName=DNS:localhost,DNS:{name}", "-subj", f"/CN={name}"]
    files = ["-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    if expired:
        command = f"openssl x509 -in {path}.crt -signkey {path} -days -1 -out {path}.crt"
        subprocess.run(command.split(), check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


def copy(source: Path, to: Path, *, share: float = 1) -> None:
    """Write what a file holds, or its beginning, over another."""
    content = source.read_bytes()
    to.write_bytes(content[: int(share * len(content))])


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mint_certificate(tmp_path_factory.mktemp("ours") / "ours.pem", "dockbell")


@pytest.fixture(scope="module")
def renewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mint_certificate(tmp_path_factory.mktemp("renewed") / "renewed.pem", "renewed")


async def test_a_receiver_that_wants_tls_and_gets_none_is_told_by_what_to_change(certificate: Path) -> None:
    async with receiving(OK, tls=serving(certificate)) as receiver:
        sink = make_sink(f"http://127.0.0.1:{receiver.port}/")
        outcome = await attempt(sink)
        with pytest.raises(SinkUnavailable, match=r"; if it uses TLS on this port, url must begin with https:$"):
            await sink.probe()
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.reason.endswith("; if it uses TLS on this port, url must begin with https:")


def serving(certificate: Path, *clients: Path) -> ssl.SSLContext:
    """Return the side of a server; where clients are named, it knows no others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    for client in clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client)
    return context


@contextmanager
def demanding(certificate: Path, client: Path, version: str) -> Iterator[int]:
    """Run a server that knows one client; asyncio's own would not say what it refuses one for."""
    command = f"openssl s_server -accept 127.0.0.1:0 -cert {certificate} -key {certificate} -CAfile {client} {version}"
    demand = "-Verify 1 -verify_return_error"
    pipe = subprocess.PIPE
    with subprocess.Popen([*command.split(), *demand.split()], stdin=pipe, stdout=pipe, stderr=pipe) as server:
        assert server.stdout is not None
        line = next(line for line in server.stdout if line.startswith(b"ACCEPT"))
        try:
            yield int(line.rpartition(b":")[2])
        finally:
            server.kill()


@pytest.fixture
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY", timedelta(milliseconds=20))
    monkeypatch.setattr(module, "_LOOK_PAUSE", timedelta(0))


@pytest.fixture
def looking_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY", timedelta(hours=1))


# Secrets -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("looking_often")
async def test_a_new_secret_signs_the_next_attempt_without_a_restart(tmp_path: Path) -> None:
    path, facts = tmp_path / "secret", Facts()
    path.write_text(SECRET)
    async with receiving(OK) as receiver:
        sink = make_sink(receiver.url, facts, secret=[{"file": str(path)}])
        async with running(sink) as run:
            run.deliver(make_delivery(1))
            await run.until_settled(1)
            path.write_text(OTHER)
            await facts.until(Renewed, 1)
            run.deliver(make_delivery(2))
            await run.until_settled(2)
    first, second = receiver.requests
    Webhook(SECRET).verify(first.body, first.headers)
    Webhook(OTHER).verify(second.body, second.headers)
    assert facts.of(Renewed) == ["sink erp: secret changed; the new value is in use"]


@pytest.mark.usefixtures("looking_often")
async def test_a_url_in_a_file_is_where_the_next_attempt_goes_once_it_changes(tmp_path: Path) -> None:
    path, facts = tmp_path / "url", Facts()
    async with receiving(OK) as receiver, receiving(OK) as other:
        path.write_text(f"http://127.0.0.1:{receiver.port}/hooks/token-one")
        async with running(make_sink({"file": str(path)}, facts, lanes=1)) as run:
            run.deliver(make_delivery(1))
            await run.until_settled(1)
            path.write_text("http://me:hush@127.0.0.1/")
            await facts.until(NotRenewed, 1)
            path.write_text(f"http://127.0.0.1:{other.port}/hooks/token-two")
            await facts.until(Renewed, 1)
            run.deliver(make_delivery(2))
            await run.until_settled(2)
    assert [each.target for each in receiver.requests] == ["/hooks/token-one"]
    assert [(each.target, each.headers["host"]) for each in other.requests] == [
        ("/hooks/token-two", f"127.0.0.1:{other.port}")
    ]
    assert facts.of(Renewed) == ["sink erp: url or proxy changed; the new value is in use"]
    assert "hush" not in str(facts.of(NotRenewed))


@pytest.mark.usefixtures("looking_often")
async def test_so_is_a_proxy(tmp_path: Path) -> None:
    path, facts = tmp_path / "proxy", Facts()
    async with receiving(OK) as proxy:
        path.write_text(f"http://me:one@127.0.0.1:{proxy.port}")
        sink = make_sink("http://erp.example.com/hooks", facts, lanes=1, proxy={"file": str(path)})
        async with running(sink) as run:
            run.deliver(make_delivery(1))
            await run.until_settled(1)
            path.write_text(f"http://me:two@127.0.0.1:{proxy.port}")
            await facts.until(Renewed, 1)
            run.deliver(make_delivery(2))
            await run.until_settled(2)
    shown = [b64decode(each.headers["proxy-authorization"].removeprefix("Basic ")) for each in proxy.requests]
    assert shown == [b"me:one", b"me:two"]


@pytest.mark.usefixtures("looking_often")
async def test_a_file_that_is_being_written_stops_no_deliveries(tmp_path: Path) -> None:
    path, facts = tmp_path / "secret", Facts()
    path.write_text(SECRET)
    async with receiving(OK) as receiver, running(make_sink(receiver.url, facts, secret={"file": str(path)})) as run:
        path.write_text(OTHER[:20])
        await facts.until(NotRenewed, 1)
        run.deliver(make_delivery(1))
        await run.until_settled(1)
        path.write_text(OTHER)
        await facts.until(Renewed, 1)
    assert run.fates == [OutcomeKind.DELIVERED]
    Webhook(SECRET).verify(receiver.requests[0].body, receiver.requests[0].headers)
    (told,) = facts.of(NotRenewed)
    assert told.endswith(f"the old one stays in use: [sinks.erp] secret: {told.partition('secret: ')[2]}")
    assert OTHER[6:20] not in told


@pytest.mark.usefixtures("looking_never")
@pytest.mark.parametrize("refusal", ["401 Unauthorized", "403 Forbidden"])
async def test_after_a_refusal_the_new_secret_is_looked_for_at_once(tmp_path: Path, refusal: str) -> None:
    path, facts = tmp_path / "token", Facts()
    path.write_text("old")

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(OK if request.headers["authorization"] == "Bearer new" else respond(refusal))

    async with (
        receiving(answer) as receiver,
        running(make_sink(receiver.url, facts, bearer={"file": str(path)})) as run,
    ):
        path.write_text("new")
        run.deliver(make_delivery(1))
        (outcome,) = await run.until_settled(1)
        assert (outcome.kind, outcome.reason) == (OutcomeKind.FAILED, f"HTTP {refusal[:3]}")
        await facts.until(Renewed, 1)
        run.deliver(make_delivery(2))
        await run.until_settled(2)
    assert run.fates == [OutcomeKind.FAILED, OutcomeKind.DELIVERED]
    assert facts.of(Renewed) == ["sink erp: headers, bearer or basic changed; the new value is in use"]


@pytest.mark.usefixtures("looking_often")
async def test_a_variable_and_a_header_are_renewed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts()
    monkeypatch.setenv("ERP_SITE", "dock 4")
    headers = {"X-Site": {"env": "ERP_SITE"}}
    async with receiving(OK) as receiver, running(make_sink(receiver.url, facts, headers=headers)) as run:
        monkeypatch.setenv("ERP_SITE", "dock 5")
        await facts.until(Renewed, 1)
        run.deliver(make_delivery())
        await run.until_settled(1)
    assert receiver.requests[0].headers["x-site"] == "dock 5"


# Certificates --------------------------------------------------------------------------------------------------------


async def test_a_certificate_of_an_unknown_authority_is_not_accepted(certificate: Path) -> None:
    async with receiving(OK, tls=serving(certificate)) as receiver:
        url = f"https://localhost:{receiver.port}/"
        assert (await attempt(make_sink(url, ca_file=str(certificate)))).kind is OutcomeKind.DELIVERED
        outcome = await attempt(make_sink(url))
        assert outcome.kind is OutcomeKind.UNREACHABLE
        assert outcome.reason.startswith("certificate not accepted, self")
        assert outcome.reason.endswith("; set ca_file to the authority that signed it")
        with pytest.raises(SinkRejected, match=r"localhost:\d+: certificate not accepted"):
            await make_sink(url).probe()
        plain = await attempt(make_sink(f"http://localhost:{receiver.port}/"))
        assert plain.kind is OutcomeKind.FAILED


async def test_a_certificate_that_has_expired_or_is_another_s_is_not_accepted(tmp_path: Path) -> None:
    expired = mint_certificate(tmp_path / "expired.pem", "erp", expired=True)
    async with receiving(OK, tls=serving(expired)) as receiver:
        outcome = await attempt(make_sink(f"https://localhost:{receiver.port}/", ca_file=str(expired)))
        assert outcome.kind is OutcomeKind.UNREACHABLE
        assert outcome.reason == "certificate not accepted, certificate has expired"
        outcome = await attempt(make_sink(f"https://127.0.0.1:{receiver.port}/", ca_file=str(expired)))
        assert outcome.kind is OutcomeKind.UNREACHABLE


async def test_our_certificate_is_shown_to_who_asks_for_it(certificate: Path, ours: Path) -> None:
    seen: list[Any] = []

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peercert")["subject"])
        writer.write(OK)

    async with receiving(answer, tls=serving(certificate, ours)) as receiver:
        sink = make_sink(f"https://localhost:{receiver.port}/", ca_file=str(certificate), cert_file=str(ours))
        assert (await attempt(sink)).kind is OutcomeKind.DELIVERED
    assert seen == [((("commonName", "dockbell"),),)]


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
async def test_a_receiver_that_wants_our_certificate_and_gets_none_or_another_judged_nothing(
    certificate: Path, ours: Path, renewed: Path, version: str
) -> None:
    shown: list[dict[str, str]] = [{}, {"cert_file": str(renewed)}]
    with demanding(certificate, ours, version) as port:
        for settings in shown:
            sink = make_sink(f"https://localhost:{port}/", None, ca_file=str(certificate), **settings)
            outcome = await attempt(sink)
            assert outcome.kind is OutcomeKind.UNREACHABLE
            assert outcome.reason.startswith("TLS, ")
            with pytest.raises(SinkRejected, match="TLS, "):
                await sink.probe()


@pytest.mark.usefixtures("looking_often")
async def test_a_new_certificate_of_ours_is_shown_without_a_restart(
    certificate: Path, ours: Path, renewed: Path, tmp_path: Path
) -> None:
    path, facts, seen = tmp_path / "client.pem", Facts(), list[str]()
    copy(ours, path)

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peercert")["subject"][0][0][1])
        writer.write(OK)

    async with receiving(answer, tls=serving(certificate, ours, renewed)) as receiver:
        url = f"https://localhost:{receiver.port}/"
        sink = make_sink(url, facts, lanes=1, ca_file=str(certificate), cert_file=str(path))
        async with running(sink) as run:
            run.deliver(make_delivery(1))
            await run.until_settled(1)
            copy(renewed, path, share=0.5)
            await facts.until(NotRenewed, 1)
            run.deliver(make_delivery(2))
            await run.until_settled(2)
            copy(renewed, path)
            await facts.until(Renewed, 1)
            run.deliver(make_delivery(3))
            await run.until_settled(3)
    assert run.fates == [OutcomeKind.DELIVERED] * 3
    assert seen == ["dockbell", "dockbell", "renewed"]
    assert receiver.connections == 2


@pytest.mark.usefixtures("looking_often")
async def test_a_new_authority_is_trusted_without_a_restart(certificate: Path, ours: Path, tmp_path: Path) -> None:
    path, facts = tmp_path / "ca.pem", Facts()
    copy(ours, path)
    async with receiving(OK, tls=serving(certificate)) as receiver:
        sink = make_sink(f"https://localhost:{receiver.port}/", facts, ca_file=str(path))
        async with running(sink) as run:
            run.deliver(make_delivery(1))
            await run.until_settled(1)
            copy(certificate, path)
            await facts.until(Renewed, 1)
            run.deliver(make_delivery(2))
            await run.until_settled(2)
    assert run.fates == [OutcomeKind.UNREACHABLE, OutcomeKind.DELIVERED]


def test_a_key_of_another_certificate_is_told_at_the_start(ours: Path, renewed: Path) -> None:
    crt = f"{ours}.crt"
    with pytest.raises(
        ConfigError, match=r"\[sinks.erp\]: cannot use the client certificate, TLS, key values mismatch"
    ):
        make_sink("https://erp/", cert_file=crt, key_file=str(renewed))
    make_sink("https://erp/", cert_file=crt, key_file=str(ours))


def test_an_encrypted_key_is_told_and_nobody_is_asked_for_its_password(ours: Path, tmp_path: Path) -> None:
    path = tmp_path / "encrypted.key"
    command = f"openssl pkcs8 -topk8 -in {ours} -out {path} -passout pass:hush"
    subprocess.run(command.split(), check=True, capture_output=True)
    with pytest.raises(ConfigError, match="the key is encrypted, store it without a passphrase"):
        make_sink("https://erp/", cert_file=f"{ours}.crt", key_file=str(path))
