from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from dockbell.host.system import find_limit, raise_limit
from dockbell.net.listening import Connection, listening

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def tell_who_asks(scope: Any, receive: Any, send: Any) -> None:
    body = f"{scope['client'][0]} {scope['scheme']}".encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Leave this process no file descriptor to open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1, hard)
    )
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                assert error.errno == errno.EMFILE  # noqa: PT017  # it is what is wanted
                break
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_where_no_descriptor_is_left_that_is_told_once_a_second_and_who_waits_is_let_in_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[str, str]] = []
    listener = socket.create_server(("127.0.0.1", 0))
    callers = [socket.socket() for _ in range(20)]
    async with listening(tell_who_asks, listener, turned_away=lambda *given: told.append(given)):
        await anyio.sleep(0.1)
        with no_descriptors_left():
            for caller in callers:
                caller.settimeout(0)
                caller.connect_ex(listener.getsockname())
            await anyio.sleep(1.5)
        assert told == [("", os.strerror(errno.EMFILE))] * 2
        for caller in callers:
            caller.send(REQUEST)
        with anyio.fail_after(5):
            for caller in callers:
                await anyio.wait_readable(caller)
                assert caller.recv(100).startswith(b"HTTP/1.1 200 ")
                caller.close()
    assert caplog.records == []


async def test_who_has_connected_before_the_end_may_ask_once_after_it() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    ended, is_in, is_told = anyio.Event(), anyio.Event(), anyio.Event()

    class Told(Connection):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            is_in.set()

        def shutdown(self) -> None:
            super().shutdown()
            is_told.set()

    async def serve() -> None:
        async with listening(tell_who_asks, listener, http=Told):
            await ended.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        async with await anyio.connect_tcp(*listener.getsockname()) as stream:
            await is_in.wait()
            ended.set()
            await is_told.wait()
            await stream.send(REQUEST)
            assert (await stream.receive()).startswith(b"HTTP/1.1 200 ")
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()


async def ask(address: tuple[str, int]) -> bytes:
    """Return what a new connection is answered; nothing where it is reset."""
    try:
        async with await anyio.connect_tcp(*address) as stream:
            await stream.send(REQUEST)
            return await stream.receive()
    except (OSError, anyio.BrokenResourceError):
        return b""


async def test_whoever_is_too_many_is_reset_and_told() -> None:
    told: list[tuple[str, str]] = []
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    async with listening(tell_who_asks, listener, most=2, turned_away=lambda *given: told.append(given)):
        async with await anyio.connect_tcp(*address) as first, await anyio.connect_tcp(*address) as second:
            for stream in (first, second):
                await stream.send(REQUEST)
                assert (await stream.receive()).startswith(b"HTTP/1.1 200 ")
            assert await ask(address) == b""
            assert told == [("127.0.0.1", "")]
        with anyio.fail_after(5):
            while not (await ask(address)).startswith(b"HTTP/1.1 200 "):
                pass  # the places of those who have left are free in a moment


async def test_neither_headers_nor_the_environment_say_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    monkeypatch.setenv("WEB_CONCURRENCY", "not a number")
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with listening(tell_who_asks, listener), httpx.AsyncClient() as client:
        said = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}
        assert (await client.get(url, headers=said)).text == "127.0.0.1 http"


def test_a_process_takes_as_many_descriptors_as_it_may_have() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        raise_limit()
        assert find_limit() == (65_536 if hard == resource.RLIM_INFINITY else hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
