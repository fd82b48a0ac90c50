from __future__ import annotations

import fcntl
import socket
import sys
import termios
import time
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from dockbell import __version__
from dockbell.app.next_time import next_time
from dockbell.config import Secret, WebSettings
from dockbell.errors import ConfigError
from dockbell.stores.sqlite import SqliteReadStore
from dockbell.web import Site
from tests.fakes import Ear
from tests.stores import pages
from tests.web.sites import Served, serve


def open_site(served: Served, listen: str, ear: Ear | None = None) -> Site:
    telemetry = (ear or Ear()).telemetry
    settings = WebSettings(listen=listen, token=Secret(value="t") if listen.startswith("192") else None)
    return Site(
        settings,
        config=lambda: served.config,
        read_store=served.read_store,
        page_read_store=served.read_store,
        command_store=served.command_store,
        recent=served.recent,
        outbox=served.store.outbox,
        telemetry=telemetry,
        now=served.clock,
        next_time=next_time,
    )


async def test_the_index_tells_what_there_is(served: Served) -> None:
    await served.store.feed(pages.FEED).open()
    state = await served.store.feed(pages.FEED).open()
    await pages.commit(served.store, state, {"id": "a"}, {"id": "b"})
    epoch = served.store.epoch
    for place in ("/", "/feeds"):
        answer = await served.client.get(place)
        assert answer.json() == {
            "name": "acme",
            "version": __version__,
            "feeds": [
                {
                    "name": "main/shipments",
                    "oldest": f"{epoch}.0",
                    "last": f"{epoch}.2",
                    "feed": "feeds/main/shipments",
                    "state": "state/main/shipments",
                }
            ],
        }
        for name in ("feed", "state"):
            there = answer.request.url.join(answer.json()["feeds"][0][name])
            assert (await served.client.get(there)).status_code == 200


async def test_its_health_can_be_asked_for(shared: Served) -> None:
    assert (await shared.client.get("/healthz")).json() == {"status": "ok"}


@pytest.mark.parametrize(
    "place", ["/nowhere", "/feeds/", "/feeds/main", "/feeds/main/a/b", "/state/main/a/b/c", "//", "/feeds//stock/"]
)
async def test_where_there_is_nothing_it_says_what_there_is(shared: Served, place: str) -> None:
    answer = await shared.client.get(shared.client.base_url.copy_with(path=place))
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"].startswith(f"{place}: does not exist; try /feeds/")


async def test_an_error_that_nobody_foresaw_is_a_problem_too(
    shared: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr(SqliteReadStore, "load_feeds", fail)
    answer = await shared.client.get("/feeds")
    assert answer.status_code == 500
    assert answer.json()["detail"] == "dockbell: internal error, got RuntimeError; its log has more"
    assert "the disk is gone" in caplog.text


async def test_an_address_that_is_taken_is_told_as_an_error_of_the_configuration(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConfigError) as error:
            open_site(served, listen)
    wanted = f"[web] listen: address already in use, got {listen}; end what listens there, or choose another"
    assert str(error.value) == wanted
    with pytest.raises(ConfigError, match=r"^\[web\] listen: cannot assign requested address, got 192.0.2.1:0"):
        open_site(served, "192.0.2.1:0")


def has_ipv6() -> bool:
    """Return whether this machine has an IPv6 address of its own."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "host", ["127.0.0.1", pytest.param("[::1]", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here"))]
)
async def test_it_tells_where_it_answers(served: Served, host: str) -> None:
    ear = Ear()
    site = open_site(served, f"{host}:0", ear)
    async with anyio.create_task_group() as group:
        group.start_soon(site.run)
        async with httpx.AsyncClient(base_url=f"http://{host}:{site.port}") as client:
            assert (await client.get("/healthz")).status_code == 200
        group.cancel_scope.cancel()
    assert ear.texts() == [f"web: answers at http://{host}:{site.port}"]


async def test_who_asks_before_it_answers_waits_for_it(served: Served) -> None:
    site = open_site(served, "127.0.0.1:0")
    async with await anyio.connect_tcp("127.0.0.1", site.port) as early:
        await early.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with anyio.create_task_group() as group:
            group.start_soon(site.run)
            assert (await early.receive()).startswith(b"HTTP/1.1 200 ")
            group.cancel_scope.cancel()


async def test_readers_that_wait_when_it_stops_are_told_the_end_at_once(served: Served) -> None:
    filled = await served.fill("a")
    after = f"{served.store.epoch}.1"
    answers: list[httpx.Response] = []

    async def ask(**headers: Any) -> None:
        parameters = {"after": after, "wait": "60s"}
        answers.append(await served.client.get(filled.events_url, params=parameters, headers=headers))
        ended.append(time.monotonic())

    ended: list[float] = []
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(ask)
            group.start_soon(lambda: ask(accept="text/event-stream"))
        await served.until_waiting(20)
        stopped = time.monotonic()
        served.stopping.set()
    assert max(ended) - stopped < 1
    assert sorted(answer.content for answer in answers) == [b":\n\n"] * 10 + [b"[]"] * 10


async def test_a_reader_that_takes_nothing_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        filled = await served.fill()
        for number in range(4):
            await filled.put(*(f"{'x' * 10_000}-{number}-{n}" for n in range(250)))
        with socket.create_connection(("127.0.0.1", served.site.port)) as stuck:
            head = f"GET {filled.events_url} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
            stuck.sendall(head.encode())
            sizes = [0]
            while not sizes[-1] or sizes[-1] != sizes[-2]:  # until nothing goes through any more
                await anyio.sleep(0.05)
                sizes.append(int.from_bytes(fcntl.ioctl(stuck, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder))
            stopped = time.monotonic()
            served.stopping.set()
            await served.stopped.wait()
            assert time.monotonic() - stopped < 2
