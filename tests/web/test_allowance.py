"""Answers that clients do not take: they are sent piece by piece, bounded all together, and given up in the end."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.errors import StoreError
from dockbell.stores.sqlite import SqliteReadStore
from dockbell.web.allowance import Allowance
from dockbell.web.feeds import cut
from dockbell.web.responses import Problem
from tests.web.sites import Filled, Served, serve

WIDE = "x" * 20_000


@asynccontextmanager
async def slow_reader(served: Served, target: str, *headers: str, buffer: int = 4096) -> AsyncIterator[socket.socket]:
    """Ask for something and take nothing of it but what the system takes."""
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        reader.connect(("127.0.0.1", served.site.port))
        reader.settimeout(0)
        asked = "\r\n".join([f"GET {target} HTTP/1.1", "Host: localhost", *headers, "", ""])
        reader.send(asked.encode())
        yield reader


async def read_on(reader: socket.socket) -> bytes:
    """Return what comes until the end of the connection."""
    got = b""
    with anyio.fail_after(10):
        while True:
            await anyio.wait_readable(reader)
            try:
                more = reader.recv(100_000)
            except ConnectionError:
                return got
            if not more:
                return got
            got += more


async def fill(served: Served) -> Filled:
    """Return a feed with 4 MB of events."""
    filled = await served.fill()
    for begin in range(0, 200, 50):
        await filled.put(*(f"{number}-{WIDE}" for number in range(begin, begin + 50)))
    return filled


@pytest.mark.parametrize("headers", [[], ["Accept: text/event-stream"]], ids=["batch", "stream"])
async def test_whoever_takes_nothing_for_long_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dockbell.web.connection._TAKING_SECONDS", 0.5)
    monkeypatch.setattr("dockbell.web.connection._LOOK_SECONDS", 0.1)
    async with serve(tmp_path) as served:
        filled = await fill(served)
        whole = await filled.ask(limit=1000)
        async with slow_reader(served, f"{filled.events_url}?limit=1000", *headers) as reader:
            with anyio.fail_after(10):
                while not len(served.site.limiter) > 1:  # noqa: ASYNC110  # nobody rings when somebody comes
                    await anyio.sleep(0.01)
                while len(served.site.limiter) > 1:  # noqa: ASYNC110  # nor when somebody leaves
                    await anyio.sleep(0.01)
            assert len(await read_on(reader)) < len(whole.content) / 2
    assert [record for record in caplog.records if record.exc_info] == []


async def test_whoever_takes_it_slowly_gets_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.web.connection._TAKING_SECONDS", 0.5)
    monkeypatch.setattr("dockbell.web.connection._LOOK_SECONDS", 0.1)
    async with serve(tmp_path) as served:
        filled = await fill(served)
        whole = await filled.ask(limit=60)
        got = b""
        target = f"{filled.events_url}?limit=60"
        async with slow_reader(served, target, "Connection: close", buffer=65_536) as reader:
            with anyio.fail_after(20):
                while not got.endswith(whole.content):
                    await anyio.wait_readable(reader)
                    got += reader.recv(50_000)
                    await anyio.sleep(0.02)
    assert f"content-length: {len(whole.content)}\r\n".encode() in got
    assert f"dockbell-position: {whole.headers['dockbell-position']}\r\n".encode() in got


async def test_beyond_what_may_wait_large_answers_are_refused_until_there_is_room_and_probes_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.web.allowance.BYTES_MOST", 5_000_000)
    async with serve(tmp_path) as served:
        filled = await fill(served)
        whole = f"{filled.state_url}?limit=1000"
        async with slow_reader(served, whole):
            with anyio.fail_after(10):
                while (answer := await served.client.get(whole)).status_code == 200:
                    pass  # it is not answered yet, or was not when this was asked
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert answer.json()["type"] == "urn:dockbell:problem:overloaded"
            for place in ("/healthz", "/readyz", "/metrics", "/feeds"):
                assert (await served.client.get(place)).status_code == 200
        with anyio.fail_after(10):
            while (await served.client.get(whole)).status_code != 200:
                pass  # its end is not noticed yet


async def test_events_that_are_gone_in_the_midst_of_an_answer_end_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read_events = SqliteReadStore.read_events
    gone: list[int] = []

    async def read_some(read_store: SqliteReadStore, feed: Any, after: int, limit: int) -> Any:
        found = await read_events(read_store, feed, after, limit)
        return found[1:] if after and gone else found

    async def fail_later(read_store: SqliteReadStore, feed: Any, after: int, limit: int) -> Any:
        if after:
            raise StoreError("store: the disk is gone")
        return await read_events(read_store, feed, after, limit)

    async with serve(tmp_path) as served:
        filled = await fill(served)
        gone.append(1)
        for reads in (read_some, fail_later):
            monkeypatch.setattr(SqliteReadStore, "read_events", reads)
            async with slow_reader(served, f"{filled.events_url}?limit=100") as reader:
                got = await read_on(reader)
            assert got.startswith(b"HTTP/1.1 200 ")
            assert not got.endswith(b"]")
    assert [record for record in caplog.records if record.exc_info] == []


async def test_nothing_is_read_for_whoever_has_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_events = SqliteReadStore.read_events
    reads: list[int] = []

    async def count_and_read(read_store: SqliteReadStore, feed: Any, after: int, limit: int) -> Any:
        reads.append(after)
        return await read_events(read_store, feed, after, limit)

    async with serve(tmp_path) as served:
        filled = await fill(served)
        monkeypatch.setattr(SqliteReadStore, "read_events", count_and_read)
        async with slow_reader(served, f"{filled.events_url}?limit=1000"):
            with anyio.fail_after(10):
                while not reads:  # noqa: ASYNC110  # nobody rings
                    await anyio.sleep(0.01)
        with anyio.fail_after(10):
            while len(served.site.limiter):  # noqa: ASYNC110  # nor when somebody leaves
                await anyio.sleep(0.01)
    assert len(reads) < 20  # of 40


def test_events_are_cut_into_portions_none_of_which_is_empty_or_too_large_but_for_one_event() -> None:
    sizes = [(1, 40), (2, 70), (3, 30), (4, 500), (5, 1), (6, 99), (7, 1)]
    assert list(cut(sizes, 100)) == [[(1, 40)], [(2, 70), (3, 30)], [(4, 500)], [(5, 1), (6, 99)], [(7, 1)]]
    assert list(cut([], 100)) == []


async def test_what_is_held_is_given_back_and_one_answer_may_hold_more_than_there_is() -> None:
    dropped: list[int] = []
    allowance = Allowance(100, lambda: dropped.append(1))
    with allowance.hold(500):
        with allowance.hold(0), pytest.raises(Problem):
            allowance.hold(1).__enter__()
        assert dropped == [1]
    with allowance.hold(60), allowance.hold(40):
        assert allowance.held == 100
        waiting = anyio.Event()

        async def wait() -> None:
            async with allowance.wait_to_hold(50):
                waiting.set()

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.sleep(0.05)
            assert not waiting.is_set()
            group.cancel_scope.cancel()
    assert allowance.held == 0
    async with allowance.wait_to_hold(50):
        assert allowance.held == 50
