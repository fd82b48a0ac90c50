"""What a real server can do to a page, and what the client makes of it."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from datetime import timedelta

import anyio
import pytest

from dockbell import InventoryClient
from dockbell.errors import PageUnreadable
from dockbell.sources import account
from tests.sources.conftest import Conversation, Serve

JSON_HEAD = "content-type: application/json\r\n"
GZIP_HEAD = JSON_HEAD + "content-encoding: gzip\r\n"
PAGE = json.dumps({"shipments": [{"id": number} for number in range(200)], "next_cursor": None}).encode()
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once."""
    monkeypatch.setattr(account, "_SHORTEST_WAIT", timedelta(milliseconds=1))


def answering(head: str, body: bytes, asked: list[bytes], *, length: int | None = None) -> Conversation:
    """Return a conversation that gives one answer again and again, and hangs up where it falls short of its length."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            length_told = len(body) if length is None else length
            writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {length_told}\r\n{head}\r\n".encode() + body)
            if length_told > len(body):
                return

    return converse


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("content-type: text/html\r\n", b"<html>down for lunch</html>"),
        ("", b"<html>down for lunch</html>"),
        (JSON_HEAD, b"<html>down for lunch</html>"),
        (JSON_HEAD, b""),
        (JSON_HEAD, PAGE[:-20]),
        (JSON_HEAD, PAGE + PAGE),
        (JSON_HEAD, b"[" * MIB),
        (JSON_HEAD, b'{"shipments":' + b"[" * (MIB // 3) + b"]" * (MIB // 3) + b"}"),
        (JSON_HEAD, b" " * (MIB + 1)),
        (GZIP_HEAD, PAGE),
        (GZIP_HEAD, gzip.compress(PAGE, mtime=0)[:-10]),
        (GZIP_HEAD, gzip.compress(PAGE, mtime=0) + b"more"),
        (GZIP_HEAD, gzip.compress(bytes(100 * MIB), mtime=0)),
        (JSON_HEAD + "content-encoding: br\r\n", PAGE),
    ],
    ids=lambda value: repr(value[:24]),
)
async def test_a_page_that_is_not_whole_and_sound_is_unreadable_after_two_tries(
    serve: Serve, head: str, body: bytes
) -> None:
    asked: list[bytes] = []
    async with serve(answering(head, body, asked)) as port:
        tracemalloc.start()
        async with InventoryClient(f"http://127.0.0.1:{port}", "KEY", max_body=MIB) as client:
            with anyio.fail_after(10), pytest.raises(PageUnreadable):
                await client.read_page("shipments")
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert len(asked) == 2
    assert most < 16 * MIB


@pytest.mark.parametrize("body", [PAGE.replace(b"17", b"NaN", 1), PAGE.replace(b'"id"', b'"\xff"', 1)])
async def test_a_page_with_one_unsound_value_is_read_at_once(serve: Serve, body: bytes) -> None:
    asked: list[bytes] = []
    async with (
        serve(answering(JSON_HEAD, body, asked)) as port,
        InventoryClient(f"http://127.0.0.1:{port}", "KEY", max_body=MIB) as client,
    ):
        page = await client.read_page("shipments")
    assert (len(asked), len(page.unsound)) == (1, 1)


async def test_a_connection_that_ends_within_a_page_makes_it_unreadable(serve: Serve) -> None:
    asked: list[bytes] = []
    async with (
        serve(answering(JSON_HEAD, PAGE, asked, length=len(PAGE) + 1)) as port,
        InventoryClient(f"http://127.0.0.1:{port}", "KEY") as client,
    ):
        with pytest.raises(PageUnreadable, match="peer closed connection without sending complete message body"):
            await client.read_page("shipments")

    assert len(asked) == 2


async def test_a_smaller_page_of_the_same_connection_is_read_after_one_that_was_too_large(serve: Serve) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await reader.readuntil(b"\r\n\r\n")
            body = b'{"shipments": [{"id": 1}]}' + b" " * (2 * MIB if b"limit=200" in request else 0)
            writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

    async with (
        serve(converse) as port,
        InventoryClient(f"http://127.0.0.1:{port}", "KEY", max_body=MIB) as client,
    ):
        with pytest.raises(PageUnreadable, match="larger than 1048576 bytes"):
            await client.read_page("shipments")
        assert (await client.read_page("shipments", limit=100)).records == (b'{"id": 1}',)


async def test_a_page_that_is_still_the_same_comes_from_memory(serve: Serve) -> None:
    asked: list[bytes] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            if b'if-none-match: W/"7"' in asked[-1]:
                writer.write(b'HTTP/1.1 304 Not Modified\r\netag: W/"7"\r\n\r\n')
            else:
                head = f'HTTP/1.1 200 OK\r\ncontent-length: {len(PAGE)}\r\netag: W/"7"\r\n\r\n'
                writer.write(head.encode() + PAGE)

    async with serve(converse) as port, InventoryClient(f"http://127.0.0.1:{port}", "KEY") as client:
        first, second = [await client.read_page("shipments") for _ in range(2)]

    assert len(asked) == 2
    assert second.records == first.records
    assert len(second.records) == 200
    assert second.received_at > first.received_at
