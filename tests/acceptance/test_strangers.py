"""Strangers at the web server: however many they are, and whatever they do not take, the daemon does its work."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx
import pytest

from dockbell.core.model import Feed
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.stores.sqlite import SqliteStore
from tests.brokers import find_free_port
from tests.cli.programs import Program, run, started
from tests.oracle import Account
from tests.receivers import Receiver
from tests.stores import pages

pytestmark = pytest.mark.acceptance

SECRET: Final = "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LWEx"
DESCRIPTORS: Final = 256
EXPECTED: Final = {"Crowded", "FileExposed", "ListingChanged"}
"""What the log may warn of; the last: lists move while pages are read slowly."""
CONFIG: Final = """
[web]
listen = "127.0.0.1:{web}"

[sources.main]
base_url = "{api}"
api_key = "sandbox"
requests_per_minute = 6000

[resources.shipments]
every = "300ms"
first_pass = "emit"
key = "/id"

[sinks.erp]
type = "webhook"
url = "{receiver}"
secret = "{secret}"

[sinks.desk]
type = "webhook"
url = "{receiver}"
secret = "{secret}"
resources = ["notices"]
"""


class Strangers:
    """Those who connect, say something or nothing, and never read; whoever is hung up on comes again.

    Attributes:
        came: How many connected.
        most: How many were there at a time.
    """

    def __init__(self, port: int, number: int, words: bytes = b"") -> None:
        self.came = 0
        self.most = 0
        self._port = port
        self._words = words
        self._reads_nothing = len(words) > 1
        self._number = number
        self._sockets: list[socket.socket] = []

    async def come(self) -> None:
        """Come, again and again, until cancelled."""
        try:
            while True:
                self._sockets = [each for each in self._sockets if self._is_there(each)]
                self.most = max(self.most, len(self._sockets))
                for _ in range(min(10, self._number - len(self._sockets))):
                    await self._connect()
                await anyio.sleep(0.02)
        finally:
            for each in self._sockets:
                each.close()

    async def _connect(self) -> None:
        self.came += 1
        self._sockets.append(stranger := socket.socket())
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stranger.settimeout(0)
        stranger.connect_ex(("127.0.0.1", self._port))
        if self._words:
            with suppress(OSError):  # it was sent away
                await anyio.wait_writable(stranger)
                stranger.send(self._words)

    def _is_there(self, stranger: socket.socket) -> bool:
        try:
            is_there = self._reads_nothing or stranger.recv(1)
        except BlockingIOError:
            return True
        except OSError:
            is_there = b""
        if not is_there:
            stranger.close()
        return bool(is_there)


class House:
    """An API that moves, a receiver, a daemon, and strangers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.web = find_free_port()
        self.account = Account()
        self.receiver = Receiver(SECRET, self.account)
        self.sandbox = Sandbox(SandboxOptions(records=100, api_keys=("sandbox",), requests_per_minute=0, activity=600))

    def configure(self, api: str) -> None:
        """Write the configuration."""
        text = CONFIG.format(web=self.web, api=api, receiver=self.receiver.url, secret=SECRET)
        (self.folder / "dockbell.toml").write_text(text)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Let API and receiver be there."""
        async with serve(self.sandbox) as api, self.receiver.listening():
            self.configure(api)
            yield

    @contextmanager
    def running(self, descriptors: int | None = None) -> Iterator[Program]:
        """Let the daemon run inside, with so many file descriptors."""
        prefix = ("prlimit", f"--nofile={descriptors}:{descriptors}") if descriptors else ()
        with started(self.folder, "run", prefix=prefix) as daemon:
            daemon.until("web: answers at ")
            yield daemon

    async def ask(self, place: str) -> httpx.Response:
        """Ask on a connection of its own, as a probe does."""
        connection = HTTPConnection("127.0.0.1", self.web, timeout=5)
        try:
            # At once, in the thread of the strangers: a client that is silent while enough others connect is replaced.
            connection.request("GET", place)
            answer = await anyio.to_thread.run_sync(connection.getresponse)
            content = await anyio.to_thread.run_sync(answer.read)
        finally:
            connection.close()
        return httpx.Response(answer.status, headers=answer.getheaders(), content=content)

    async def until_delivered(self, more: int) -> None:
        """Return when so many more events were delivered."""
        enough = self.account.deliveries + more
        with anyio.fail_after(30):
            while self.account.deliveries < enough:  # noqa: ASYNC110  # the account has no event to wait for
                await anyio.sleep(0.02)


@pytest.fixture
async def house(tmp_path: Path) -> House:
    return House(tmp_path)


def count_descriptors(program: Program) -> int:
    return len(list(Path(f"/proc/{program.pid}/fd").iterdir()))


def read_memory(program: Program, name: str = "VmRSS") -> int:
    """Return how many MB a process has, or had at most: VmHWM."""
    (found,) = re.findall(rf"{name}:\s+(\d+) kB", Path(f"/proc/{program.pid}/status").read_text())
    return int(found) // 1024


def facts(program: Program) -> list[dict[str, Any]]:
    return [json.loads(line) for line in program.err.splitlines()]


async def crowd(house: House, daemon: Program, strangers: Strangers) -> dict[str, Any]:
    """Let strangers come; the daemon does its work meanwhile, and answers probes; return how it says that it stands."""
    async with anyio.create_task_group() as group:
        group.start_soon(strangers.come)
        await anyio.sleep(3)  # they have what there is
        for _ in range(5):
            for place in ("/healthz", "/readyz", "/metrics", "/status"):
                assert (await house.ask(place)).status_code == 200, place
            assert count_descriptors(daemon) < DESCRIPTORS * 3 // 4
            await house.until_delivered(10)
        answer = await house.ask("/status")
        group.cancel_scope.cancel()
    status: dict[str, Any] = answer.json()
    return status


async def test_silent_connections_stop_nothing(house: House) -> None:
    async with house.open():
        with house.running(DESCRIPTORS) as daemon:
            await house.until_delivered(20)
            await crowd(house, daemon, Strangers(house.web, 1_200))
            assert daemon.end() == 0
            log = facts(daemon)
    assert len(log) < 100
    told = [each for each in log if each["level"] in ("warning", "error")]
    assert [each for each in told if each.get("fact") not in EXPECTED] == []


async def test_connections_that_do_not_say_what_they_want_stop_nothing_and_are_told(house: House) -> None:
    async with house.open():
        with house.running(DESCRIPTORS) as daemon:
            await house.until_delivered(20)
            strangers = Strangers(house.web, 1_200, b"G")
            status = await crowd(house, daemon, strangers)
            (reason,) = status["reasons"]
            told = r"\d+ connections? refused or closed \(limit 96\), the last from 127\.0\.0\.1"
            remedy = r"restrict access to \[web\] listen with a firewall or a proxy"
            assert re.fullmatch(rf"web: \d+s ago, {told}; {remedy}", reason)
            assert status["web"]["reason"] in reason
            said = await anyio.to_thread.run_sync(lambda: run("status", cwd=house.folder))
            assert (said.returncode, "connections refused or closed" in said.stdout) == (1, True)
            assert "dockbell.notice.crowded" in {each["type"] for each in house.account.statements}
            assert (await house.ask("/readyz")).json() == {"status": "ready", "reasons": []}
            assert daemon.end() == 0
            log = facts(daemon)
    assert len(log) < 100
    assert {each["fact"] for each in log if each["level"] in ("warning", "error")} <= EXPECTED


async def test_streams_without_end_stop_nothing(house: House) -> None:
    asked = b"GET /feeds/main/shipments HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    async with house.open():
        with house.running(DESCRIPTORS * 4) as daemon:
            await house.until_delivered(20)
            async with anyio.create_task_group() as group:
                group.start_soon(Strangers(house.web, 1_000, asked).come)
                await anyio.sleep(3)  # they have what there is
                for _ in range(3):
                    for place in ("/healthz", "/readyz", "/metrics"):
                        assert (await house.ask(place)).status_code == 200, place
                    assert count_descriptors(daemon) < DESCRIPTORS * 3
                    await house.until_delivered(10)
                group.cancel_scope.cancel()
            assert read_memory(daemon, "VmHWM") < 250
            assert daemon.end() == 0
            log = facts(daemon)
    assert [each for each in log if "trace" in each] == []
    assert len(log) < 100


async def fill(folder: Path, *, events: int, size: int) -> None:
    """Make a store with so many events of at least so many bytes."""
    store = await SqliteStore.open(folder / "dockbell.db", now=lambda: datetime.now(UTC))
    state = await store.feed(Feed("main", "shipments")).open()
    for begin in range(0, events, 100):
        await pages.commit(store, state, *({"id": f"{begin + n}", "x": "x" * size} for n in range(100)))
    await store.aclose()


@pytest.mark.parametrize("place", ["/feeds/main/shipments?after=0&limit=1000", "/state/main/shipments?limit=1000"])
async def test_whoever_does_not_read_takes_no_memory(house: House, place: str) -> None:
    await fill(house.folder, events=1_000, size=6_000)
    house.configure(f"http://127.0.0.1:{find_free_port()}")
    with house.running() as daemon:
        feed = (await house.ask("/feeds")).json()["feeds"][0]
        asked = place.replace("after=0", f"after={feed['oldest']}")
        whole = await house.ask(asked)
        before = read_memory(daemon)
        strangers = Strangers(house.web, 150, f"GET {asked} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with anyio.create_task_group() as group:
            group.start_soon(strangers.come)
            with anyio.fail_after(20):
                while strangers.most < 150:  # noqa: ASYNC110  # nobody rings
                    await anyio.sleep(0.02)
            await anyio.sleep(3)  # they are sent what they take
            assert (await house.ask("/healthz")).status_code == 200
            answer = await house.ask(asked)
            group.cancel_scope.cancel()
        grown = read_memory(daemon, "VmHWM") - before
        assert len(whole.content) > 4_000_000
        if answer.status_code == 200:
            assert answer.content == whole.content
        else:
            problem = answer.json()["type"]
            assert (answer.status_code, problem) == (503, "urn:dockbell:problem:overloaded")
            assert answer.headers["retry-after"] == "5"
        assert grown < 150
        assert daemon.end() == 0
        assert [each for each in facts(daemon) if "trace" in each] == []
