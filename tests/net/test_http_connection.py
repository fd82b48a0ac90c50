from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio
import httpx
import pytest

from dockbell.net.http_connection import HttpConnection

Answer: TypeAlias = Callable[[asyncio.StreamWriter, int], Awaitable[None]]
"""Answers a request; the number is that of its connection, from 1."""
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[httpx.URL]:
    count = 0

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        number = count
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                await reader.readuntil(b"\r\n\r\n")
                await answer(writer, number)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(converse, "127.0.0.1", 0) as server:
        yield httpx.URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")


async def ask(connection: HttpConnection, url: httpx.URL) -> bytes:
    response = await connection.handle_async_request(httpx.Request("GET", url))
    try:
        return await response.aread()
    finally:
        await response.aclose()


@pytest.fixture
async def connection() -> AsyncIterator[HttpConnection]:
    connection = HttpConnection(ssl.create_default_context())
    yield connection
    await connection.aclose()


async def tell_connection(writer: asyncio.StreamWriter, number: int) -> None:
    text = b"%d" % number
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))


async def test_requests_share_a_connection(connection: HttpConnection) -> None:
    async with serving(tell_connection) as url:
        assert [await ask(connection, url) for _ in range(3)] == [b"1", b"1", b"1"]


async def test_a_connection_that_the_server_ended_meanwhile_is_opened_again(connection: HttpConnection) -> None:
    ended = asyncio.Event()

    async def answer_and_end(writer: asyncio.StreamWriter, number: int) -> None:
        await tell_connection(writer, number)
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with serving(answer_and_end) as url:
        assert await ask(connection, url) == b"1"
        await ended.wait()
        assert await ask(connection, url) == b"2"


async def test_a_connection_that_was_idle_for_long_is_opened_again(
    connection: HttpConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("dockbell.net.http_connection.time.monotonic", lambda: now)
    async with serving(tell_connection) as url:
        assert await ask(connection, url) == b"1"
        now += 50
        assert await ask(connection, url) == b"1"
        now += 50.1
        assert await ask(connection, url) == b"2"


async def test_what_follows_a_response_unasked_is_not_taken_for_the_next(connection: HttpConnection) -> None:
    async def answer_twice(writer: asyncio.StreamWriter, number: int) -> None:
        await tell_connection(writer, number)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")

    async with serving(answer_twice) as url:
        assert [await ask(connection, url) for _ in range(3)] == [b"1", b"2", b"3"]


async def test_what_comes_unasked_on_an_idle_connection_is_not_taken_for_a_response(
    connection: HttpConnection,
) -> None:
    written = asyncio.Event()

    async def answer_and_forge(writer: asyncio.StreamWriter, number: int) -> None:
        async def forge() -> None:
            await read.wait()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")
            await writer.drain()
            written.set()

        await tell_connection(writer, number)
        if number == 1:
            group.start_soon(forge)

    read = asyncio.Event()
    async with anyio.create_task_group() as group, serving(answer_and_forge) as url:
        assert await ask(connection, url) == b"1"
        read.set()
        await written.wait()
        assert await ask(connection, url) == b"2"


async def test_a_response_that_is_not_read_to_its_end_ends_the_connection(connection: HttpConnection) -> None:
    async with serving(tell_connection) as url:
        response = await connection.handle_async_request(httpx.Request("GET", url))
        await response.aclose()
        assert await ask(connection, url) == b"2"


@pytest.mark.parametrize("hint", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"])
async def test_what_comes_before_the_response_is_passed_over(connection: HttpConnection, hint: bytes) -> None:
    async def answer(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(hint + OK)

    async with serving(answer) as url:
        assert await ask(connection, url) == b"ok"


@pytest.mark.parametrize(
    ("response", "words"),
    [
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            "without a pending proposal",
            id="another protocol",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", "without sending complete message", id="cut"),
        pytest.param(b"\x15\x03\x01\x00\x02\x02\x16", "illegal", id="no HTTP"),
        pytest.param(b"", "Server disconnected without sending a response", id="nothing"),
    ],
)
async def test_what_is_no_response_is_an_error_of_the_protocol(
    connection: HttpConnection, response: bytes, words: str
) -> None:
    async def answer(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(response)
        await writer.drain()
        writer.close()

    async with serving(answer) as url:
        with pytest.raises(httpx.RemoteProtocolError, match=words):
            await ask(connection, url)


async def test_a_port_where_nothing_listens_is_an_error_of_connecting(connection: HttpConnection) -> None:
    async with serving(tell_connection) as url:
        pass
    with pytest.raises(httpx.ConnectError):
        await ask(connection, url)


async def test_a_request_that_is_no_http_is_not_sent(connection: HttpConnection) -> None:
    async with serving(tell_connection) as url:
        request = httpx.Request("GET", url, headers=[(b"Host", b"x"), (b"a", b"b\r\nc: d")])
        with pytest.raises(httpx.LocalProtocolError):
            await connection.handle_async_request(request)


async def test_a_body_in_chunks_is_read_a_small_part_at_a_time(connection: HttpConnection) -> None:
    async def answer(writer: asyncio.StreamWriter, _: int) -> None:
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n61A80\r\n"
        writer.write(head + b"x" * 400_000 + b"\r\n0\r\n\r\n")

    async with serving(answer) as url:
        response = await connection.handle_async_request(httpx.Request("GET", url))
        sizes = [len(part) async for part in response.aiter_raw()]
        await response.aclose()
    assert sum(sizes) == 400_000
    assert max(sizes) <= 65_536
