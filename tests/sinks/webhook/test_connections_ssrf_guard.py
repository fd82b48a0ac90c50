"""Which addresses are dialled, and how; names are looked up by a name server of the test's own."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import httpcore
import pytest
from pydantic import ValidationError

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.core.publishing.addresses import AddressRules
from dockbell.errors import SinkRejected
from dockbell.sinks.webhook import connections
from tests.brokers import find_free_port
from tests.sinks.conftest import make_delivery, running
from tests.sinks.receiver import OK, Request, attempt, make_sink, receiving, respond

METADATA = "169.254.169.254"


@dataclass
class Names:
    """A name server for ``erp.test``: each look-up gets the next of its answers, the last one again and again."""

    answers: list[list[str]] = field(default_factory=list)
    asked: int = 0
    silence: threading.Event | None = None

    def look_up(self) -> list[str]:
        self.asked += 1
        if self.silence is not None:
            self.silence.wait()
        return self.answers[min(self.asked, len(self.answers)) - 1]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    server, system = Names(), socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if host != "erp.test":
            return system(host, port, *args, **kwargs)
        return [found for address in server.look_up() for found in system(address, port, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield server
    if server.silence is not None:
        server.silence.set()


# What is refused -----------------------------------------------------------------------------------------------------


NEVER = [
    METADATA,
    "0.0.0.0",  # noqa: S104  # dialled, it is this machine
    "::",
    "::ffff:a9fe:a9fe",
    "64:ff9b::a9fe:a9fe",
    "fd00:ec2::254",
    "100.100.100.200",
]


@pytest.mark.parametrize("address", NEVER)
async def test_metadata_and_link_local_addresses_are_never_dialled(names: Names, address: str) -> None:
    names.answers = [[address]]
    async with receiving(OK) as receiver:
        outcome = await attempt(make_sink(f"http://erp.test:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert "dockbell never connects to " in outcome.reason
    assert not receiver.connections


@pytest.mark.parametrize("proxy", [None, "http://127.0.0.1:3128"])
@pytest.mark.parametrize(
    "host",
    [*(f"[{each}]" if ":" in each else each for each in NEVER), "2852039166", "0xa9.254.0251.0376", "169.254.7."],
)
def test_a_url_with_such_an_address_is_refused_at_the_start_though_a_proxy_would_dial_it(
    host: str, proxy: str | None
) -> None:
    with pytest.raises(ValidationError, match="dockbell never connects to "):
        make_sink(f"http://{host}:8080/", proxy=proxy)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"deny_networks": ["127.0.0.0/8"]},
            "dockbell never connects to 127.0.0.1: in deny_networks (127.0.0.0/8)",
        ),
        ({"strict": True}, "dockbell never connects to 127.0.0.1: not public, loopback (127.0.0.0/8)"),
    ],
)
def test_a_url_with_an_address_that_the_settings_deny_is_refused_at_the_start(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(f"url: {reason}")):
        make_sink("http://127.0.0.1/", **settings)


async def test_a_name_that_stands_for_a_refused_address_is_told_with_both(names: Names) -> None:
    names.answers = [[METADATA]]
    sink = make_sink("http://erp.test/?token=hush")
    reason = "dockbell never connects to erp.test (169.254.169.254): link-local (169.254.0.0/16)"
    assert await attempt(sink) == Outcome(OutcomeKind.UNREACHABLE, reason)
    with pytest.raises(SinkRejected) as error:
        await sink.probe()
    assert str(error.value) == f"erp.test: {reason}"


async def test_of_several_addresses_those_that_may_be_dialled_are(names: Names) -> None:
    names.answers = [[METADATA, "fe80::1", "127.0.0.1"]]
    async with receiving(OK) as receiver:
        assert (await attempt(make_sink(f"http://erp.test:{receiver.port}/"))).kind is OutcomeKind.DELIVERED


async def test_what_was_judged_is_what_is_dialled(names: Names) -> None:
    names.answers = [["127.0.0.1"], [METADATA]]  # as a name server answers that means harm
    closing = respond("200 OK", connection="close")
    async with receiving(closing) as receiver, running(make_sink(f"http://erp.test:{receiver.port}/", lanes=1)) as run:
        run.deliver(make_delivery(1))
        await run.until_settled(1)
        assert names.asked == 1
        run.deliver(make_delivery(2))
        first, second = await run.until_settled(2)
    assert first.kind is OutcomeKind.DELIVERED
    assert second.reason.startswith("dockbell never connects to erp.test (169.254.169.254)")
    assert names.asked == 2
    assert receiver.connections == 1


async def test_a_redirect_to_a_private_address_is_no_way_around(names: Names) -> None:
    names.answers = [["127.0.0.1"]]
    async with receiving(OK) as private:
        redirect = respond("307 Temporary Redirect", location=f"http://127.0.0.1:{private.port}/")
        async with receiving(redirect) as receiver:
            outcome = await attempt(make_sink(f"http://erp.test:{receiver.port}/"))
    assert outcome == Outcome(OutcomeKind.FAILED, "HTTP 307, dockbell does not follow redirects", status=307)
    assert (names.asked, private.connections) == (1, 0)


async def test_private_addresses_are_dialled_unless_they_are_denied(names: Names) -> None:
    names.answers = [["127.0.0.1"]]
    async with receiving(OK) as receiver:
        url = f"http://erp.test:{receiver.port}/"
        assert (await attempt(make_sink(url, deny_networks=["10.0.0.0/8"]))).kind is OutcomeKind.DELIVERED
        outcome = await attempt(make_sink(url, deny_networks=["10.0.0.0/8", "127.0.0.0/8"]))
    reason = "dockbell never connects to erp.test (127.0.0.1): in deny_networks (127.0.0.0/8)"
    assert outcome == Outcome(OutcomeKind.UNREACHABLE, reason)
    assert receiver.connections == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.7", "fd12::7", "64:ff9b::8.8.8.8", "100.64.0.1"])
async def test_strict_dials_nothing_that_is_not_public(names: Names, address: str) -> None:
    names.answers = [[address]]
    outcome = await attempt(make_sink("http://erp.test/", strict=True))
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert ": not public, " in outcome.reason


# How it is dialled ---------------------------------------------------------------------------------------------------


async def test_an_address_that_refuses_is_followed_by_the_next(names: Names) -> None:
    names.answers = [["::1", "127.0.0.2", "127.0.0.1"]]
    async with receiving(OK) as receiver:
        assert (await attempt(make_sink(f"http://erp.test:{receiver.port}/"))).kind is OutcomeKind.DELIVERED


async def test_a_silent_address_is_followed_by_the_next_before_it_has_timed_out(names: Names) -> None:
    names.answers = [["127.0.0.2", "127.0.0.1"]]
    with socket.socket() as silent, socket.socket() as first, socket.socket() as second:
        async with receiving(OK) as receiver:
            silent.bind(("127.0.0.2", receiver.port))
            silent.listen(0)
            for sock in (first, second):  # with its queue full the kernel lets further connections wait
                sock.settimeout(0)
                sock.connect_ex(silent.getsockname())
            with anyio.fail_after(3):
                outcome = await attempt(make_sink(f"http://erp.test:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.DELIVERED


async def test_of_two_that_answer_in_the_same_moment_one_is_taken_and_the_other_hung_up_on(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_STAGGER", timedelta(0))
    names.answers = [["127.0.0.2", "127.0.0.1"]]
    dialled, hung_up, both = list[str](), list[str](), anyio.Event()

    class Stream(httpcore.AsyncNetworkStream):
        def __init__(self, host: str) -> None:
            self.host = host

        async def aclose(self) -> None:
            hung_up.append(self.host)

    class Network(httpcore.AsyncNetworkBackend):
        async def connect_tcp(self, host: str, *_: Any, **__: Any) -> Stream:
            dialled.append(host)
            if len(dialled) == 2:
                both.set()
            with anyio.CancelScope(shield=True):
                await both.wait()
            return Stream(host)

    backend = connections.GuardedBackend(AddressRules())
    monkeypatch.setattr(backend, "_backend", Network())
    taken = await backend.connect_tcp("erp.test", 80, timeout=5)
    assert isinstance(taken, Stream)
    assert (taken.host, hung_up) == ("127.0.0.2", ["127.0.0.1"])


async def test_where_no_address_answers_the_first_is_told(names: Names) -> None:
    names.answers = [["127.0.0.2", "127.0.0.1"]]
    outcome = await attempt(make_sink(f"http://erp.test:{find_free_port()}/"))
    assert outcome == Outcome(OutcomeKind.UNREACHABLE, "connection refused")


async def test_a_dead_name_server_makes_a_receiver_unreachable(names: Names) -> None:
    names.silence = threading.Event()
    outcome = await attempt(make_sink("http://erp.test/", timeout="300ms"))
    assert outcome == Outcome(OutcomeKind.UNREACHABLE, "no answer in time")


async def test_a_dead_name_server_of_one_sink_holds_up_no_other(names: Names) -> None:
    names.silence = threading.Event()
    names.answers = [["127.0.0.1"]]
    async with receiving(OK) as receiver, running(make_sink(f"http://erp.test:{receiver.port}/", lanes=64)) as stuck:
        stuck.deliver(*map(make_delivery, range(64)))
        with anyio.fail_after(4):  # before the look-ups of the other end
            assert (await attempt(make_sink(f"http://localhost:{receiver.port}/"))).kind is OutcomeKind.DELIVERED
        assert not stuck.settled
        names.silence.set()
        await stuck.until_settled(64)


async def test_tls_proves_the_name_not_the_address(names: Names, certificate: Path) -> None:
    names.answers = [["127.0.0.1"]]
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    asked: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: asked.append(name)
    async with receiving(OK, tls=server) as receiver:
        outcome = await attempt(make_sink(f"https://erp.test:{receiver.port}/", ca_file=str(certificate)))
    assert outcome.kind is OutcomeKind.UNREACHABLE
    reason = "certificate not accepted, hostname mismatch, certificate is not valid for 'erp.test'"
    assert outcome.reason == reason
    assert asked == ["erp.test"]


# Proxies -------------------------------------------------------------------------------------------------------------


async def test_a_proxy_is_used_when_it_is_configured_and_none_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with receiving(OK) as receiver, receiving(OK) as proxy:
        assert (await attempt(make_sink(receiver.url))).kind is OutcomeKind.DELIVERED
        sink = make_sink(receiver.url, proxy=f"http://me:hush@127.0.0.1:{proxy.port}")
        assert (await attempt(sink)).kind is OutcomeKind.DELIVERED
    assert len(receiver.requests) == 1
    assert proxy.requests[0].target == receiver.url
    assert proxy.requests[0].headers["proxy-authorization"] == "Basic bWU6aHVzaA=="


async def test_tls_goes_through_a_proxy_and_the_proxy_looks_the_name_up(names: Names, certificate: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)

    async def tunnel(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await writer.start_tls(server)
        else:
            writer.write(OK)

    async with receiving(tunnel) as proxy:
        settings: dict[str, Any] = {"proxy": f"http://127.0.0.1:{proxy.port}", "ca_file": str(certificate)}
        outcome = await attempt(make_sink("https://localhost/hooks", **settings))
    assert outcome.kind is OutcomeKind.DELIVERED
    assert [request.target for request in proxy.requests] == ["localhost:443", "/hooks"]
    assert not names.asked


async def test_of_a_proxy_only_what_is_never_dialled_is_refused() -> None:
    async with receiving(OK) as proxy:
        url = "http://erp.example.com/"
        assert (await attempt(make_sink(url, proxy=f"http://127.0.0.1:{proxy.port}"))).kind is OutcomeKind.DELIVERED
        outcome = await attempt(make_sink(url, proxy=f"http://{METADATA}:{proxy.port}"))
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert outcome.reason.startswith(f"dockbell never connects to {METADATA}: link-local")


@pytest.mark.parametrize(("key", "value"), [("strict", True), ("deny_networks", ["10.0.0.0/8"])])
def test_what_a_proxy_dials_cannot_be_denied_here(key: str, value: Any) -> None:
    settings: dict[str, Any] = {"proxy": "http://127.0.0.1:3128", key: value}
    with pytest.raises(ValidationError, match=f"{key} has no effect with a proxy, which connects by itself"):
        make_sink("http://erp.example.com/", **settings)


async def test_a_proxy_that_lets_nobody_through_is_told() -> None:
    async with receiving(respond("407 Proxy Authentication Required")) as proxy:
        outcome = await attempt(make_sink("https://erp.example.com/", proxy=f"http://127.0.0.1:{proxy.port}"))
    assert outcome.kind is OutcomeKind.UNREACHABLE
    assert outcome.reason.startswith("407")
