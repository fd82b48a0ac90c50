from __future__ import annotations

import asyncio
import errno
import gzip
import os
import socket
import ssl
import struct
import time
import traceback
import tracemalloc
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from dockbell.config import Secret
from dockbell.config.secret import RevealedBytes
from dockbell.core.reading.request import list_request, order_request, shipment_request
from dockbell.core.reading.response import Response
from dockbell.errors import ConfigError, PageCut, PageUnreadable, SourceRefused, SourceUnavailable
from dockbell.sources.connection_pool import ConnectionPool, Unreached
from tests.brokers import find_free_port
from tests.sources.conftest import Conversation, Serve

FIRST = list_request("shipments")
MIB = 1024 * 1024


def make_pool(base_url: str, *, proxy: str | Callable[[], str] | None = None, **options: Any) -> ConnectionPool:
    look_up = proxy if callable(proxy) else lambda: proxy
    defaults: dict[str, Any] = {"proxy": look_up, "ca_file": None, "transport": None}
    return ConnectionPool(base_url, **(defaults | {"timeout": timedelta(seconds=10), "max_body": MIB} | options))


async def read_head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def answering(head: str, body: bytes = b"") -> Conversation:
    """Return a conversation of as many answers as there are requests."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_head(reader)
            writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode() + body)

    return converse


async def exchange(serve: Serve, conversation: Conversation, **options: Any) -> Response:
    async with serve(conversation) as port:
        pool = make_pool(f"http://127.0.0.1:{port}", **options)
        try:
            return await pool.exchange(FIRST, [])
        finally:
            await pool.aclose()


# The answer ----------------------------------------------------------------------------------------------------------


async def test_a_request_arrives_as_it_was_built(serve: Serve) -> None:
    heads = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        heads.append(head + await reader.readexactly(length))
        writer.write(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n")

    async with serve(converse) as port:
        pool = make_pool(f"http://127.0.0.1:{port}/base/")
        response = await pool.exchange(order_request({"a": 1}), [(b"Authorization", b"Bearer KEY")])
        await pool.aclose()

    assert response.status == 201
    assert heads == [
        f"POST /base/v1/sales-orders HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer KEY\r\n"
        f'Content-Length: 8\r\n\r\n{{"a": 1}}'.encode()
    ]


async def test_an_answer_is_read_whole_with_its_times(serve: Serve) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        await asyncio.sleep(0.1)
        writer.write(b"HTTP/1.1 503 Busy\r\nX-Thing: A\r\nContent-Length: 4\r\n\r\nbo")
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.write(b"dy")

    began = datetime.now(UTC)
    response = await exchange(serve, converse)

    assert (response.status, response.body) == (503, b"body")
    assert response.headers["x-thing"] == "A"
    assert began <= response.sent_at
    assert response.answered_at - response.sent_at >= timedelta(seconds=0.09)
    assert response.received_at - response.answered_at >= timedelta(seconds=0.09)


async def test_gzip_is_undone(serve: Serve) -> None:
    body = b'{"shipments": []}' * 1000

    response = await exchange(serve, answering("content-encoding: gzip\r\n", gzip.compress(body, mtime=0)))

    assert response.body == body


@pytest.mark.parametrize(
    ("coding", "body", "reason"),
    [
        ("gzip", b"not gzip at all", "damaged gzip in the answer"),
        ("gzip", gzip.compress(b"x" * 99, mtime=0)[:-9], "truncated gzip in the answer"),
        (
            "gzip, gzip",
            gzip.compress(gzip.compress(b"x", mtime=0), mtime=0),
            "content coding 'gzip, gzip', which dockbell did not ask for",
        ),
        ("br", b"x", "content coding 'br', which dockbell did not ask for"),
        ("gzip", gzip.compress(b"x", mtime=0) + b"y", "more data after the gzip in the answer"),
        ("gzip", gzip.compress(b"x", mtime=0) + gzip.compress(b"y", mtime=0), "more data after the gzip in the answer"),
    ],
)
async def test_a_content_coding_that_cannot_be_undone_is_an_error(
    serve: Serve, coding: str, body: bytes, reason: str
) -> None:
    with pytest.raises(PageUnreadable, match=f"^GET /v1/shipments: {reason}"):
        await exchange(serve, answering(f"content-encoding: {coding}\r\n", body))


async def test_an_answer_without_a_body_may_say_that_it_is_gzip(serve: Serve) -> None:
    assert (await exchange(serve, answering("content-encoding: gzip\r\n"))).body == b""


async def test_an_endless_answer_is_given_up_at_the_limit(serve: Serve) -> None:
    sent = 0

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            sent += 65536
            await writer.drain()

    with pytest.raises(PageUnreadable, match="the answer is larger than 1048576 bytes"):
        await exchange(serve, converse)

    assert sent < 32 * MIB


async def test_a_small_answer_that_unfolds_endlessly_is_given_up_at_the_limit(serve: Serve) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(64)) + packer.flush()
    tracemalloc.start()

    with pytest.raises(PageUnreadable, match="the answer is larger than 1048576 bytes"):
        await exchange(serve, answering("content-encoding: gzip\r\n", bomb))

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(bomb) < 100_000
    assert most < 8 * MIB


async def test_an_answer_just_within_the_limit_is_taken(serve: Serve) -> None:
    body = gzip.compress(bytes(MIB), mtime=0)

    assert len((await exchange(serve, answering("content-encoding: gzip\r\n", body))).body) == MIB


async def test_an_answer_that_drips_is_given_up_when_its_time_is_over(serve: Serve) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n")
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.01)

    with (
        anyio.fail_after(5),
        pytest.raises(SourceUnavailable, match=r"^GET /v1/shipments: no complete answer within 0\.2 s$"),
    ):
        await exchange(serve, converse, timeout=timedelta(seconds=0.2))


async def test_what_follows_a_gzip_without_end_is_not_kept(serve: Serve) -> None:
    sent = 0

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(b"{}", mtime=0))
        while True:
            writer.write(bytes(65536))
            sent += 65536
            await writer.drain()

    with pytest.raises(PageUnreadable, match="more data after the gzip in the answer"):
        await exchange(serve, converse)

    assert sent < 32 * MIB


async def test_a_gzip_without_end_that_unfolds_to_nothing_is_given_up_when_its_time_is_over(serve: Serve) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(b"", mtime=0)[:10])
        while True:
            writer.write(b"\x00\x00\x00\xff\xff" * 1000)  # stored blocks of no bytes
            await writer.drain()

    tracemalloc.start()
    with anyio.fail_after(5), pytest.raises(PageUnreadable, match=r"no complete answer within 0\.3 s$"):
        await exchange(serve, converse, timeout=timedelta(seconds=0.3))

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * MIB


async def test_a_body_in_very_many_chunks_takes_no_more_memory_than_in_one(serve: Serve) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"2\r\n{}\r\n" * 40_000 + b"0\r\n\r\n")

    tracemalloc.start()
    response = await exchange(serve, converse)

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert response.body == b"{}" * 40_000
    assert most < 2 * MIB


@pytest.mark.parametrize("head", [b"HTTP/1.1 100 Continue\r\n\r\n", b"x-header: 1\r\n"])
async def test_a_head_without_end_is_given_up(serve: Serve, head: bytes) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"" if head.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(head * 100)
            await writer.drain()

    with anyio.fail_after(5), pytest.raises(SourceUnavailable):
        await exchange(serve, converse, timeout=timedelta(seconds=0.5))


@pytest.mark.parametrize(
    "answer",
    [
        b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
        b"content-encoding: br\r\ncontent-length: 3\r\n\r\nabc",
        b"content-length: 9999999\r\n\r\n" + bytes(2 * MIB),
    ],
)
async def test_an_error_is_known_by_its_status_though_its_body_cannot_be_read(serve: Serve, answer: bytes) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 429 Wait\r\nretry-after: 7\r\n" + answer)
        await writer.drain()
        await reader.read()

    async with serve(converse) as port:
        pool = make_pool(f"http://127.0.0.1:{port}")
        for _ in range(2):
            response = await pool.exchange(FIRST, [])
            assert (response.status, response.headers["retry-after"], response.body) == (429, "7", b"")
        await pool.aclose()


@pytest.mark.parametrize(("status", "kind"), [(200, PageCut), (503, SourceUnavailable)])
@pytest.mark.parametrize("ends", [True, False])
async def test_a_success_that_does_not_come_whole_is_unreadable(
    serve: Serve, status: int, kind: type[SourceUnavailable], *, ends: bool
) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 99\r\n\r\n{{".encode())
        await writer.drain()
        if not ends:
            await reader.read()

    with pytest.raises(SourceUnavailable) as caught:
        await exchange(serve, converse, timeout=timedelta(seconds=0.3))

    assert type(caught.value) is kind


async def test_an_answer_knows_when_it_was_asked_for_by_a_clock_that_is_never_set(serve: Serve) -> None:
    began = timedelta(seconds=time.monotonic())

    response = await exchange(serve, answering("", b"ok"))

    assert began <= response.ticks <= timedelta(seconds=time.monotonic())


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize(
    ("beginning", "how", "reason"),
    [
        (b"", "close", "server disconnected without sending a response"),
        (b"", "reset", "connection reset by peer"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nabc",
            "close",
            "peer closed connection without sending complete",
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nabc", "reset", "connection reset by peer"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "close", "illegal chunk header"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "close", "illegal status line"),
    ],
)
async def test_a_connection_that_breaks_is_told_with_its_reason(
    serve: Serve, beginning: bytes, how: str, reason: str
) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(beginning)
        await writer.drain()
        await asyncio.sleep(0.05)
        if how == "reset":
            reset(writer)

    with pytest.raises(SourceUnavailable, match=f"^GET /v1/shipments: connection lost: {reason}") as caught:
        await exchange(serve, converse)

    assert not isinstance(caught.value, Unreached)


# The connection ------------------------------------------------------------------------------------------------------


@pytest.fixture
def closed_port() -> int:
    return find_free_port()


async def test_a_refused_connection_is_told_with_its_address(closed_port: int) -> None:
    with pytest.raises(Unreached) as caught:
        await make_pool(f"http://127.0.0.1:{closed_port}").exchange(FIRST, [])

    assert str(caught.value) == (f"GET /v1/shipments: cannot connect to 127.0.0.1:{closed_port}: connection refused")


async def test_an_unknown_host_is_told_with_its_name() -> None:
    with pytest.raises(Unreached, match=r"cannot connect to nowhere\.invalid:443: [a-z]"):
        await make_pool("https://nowhere.invalid").exchange(FIRST, [])


async def test_requests_in_a_row_share_a_connection_and_requests_at_once_do_not(serve: Serve) -> None:
    connections = 0
    everyone = anyio.Event()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 5:
            everyone.set()
        while True:
            await read_head(reader)
            await everyone.wait()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async with serve(converse) as port:
        pool = make_pool(f"http://127.0.0.1:{port}")
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(pool.exchange, FIRST, [])
        for _ in range(10):
            await pool.exchange(FIRST, [])
        await pool.aclose()

    assert connections == 5


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_a_connection_that_was_given_up_is_not_used_again(serve: Serve, how: str) -> None:
    connections = 0
    closed = anyio.Event()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_head(reader)
        if connections == 1:
            await reader.read()
            closed.set()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with serve(converse) as port:
        pool = make_pool(f"http://127.0.0.1:{port}", timeout=timedelta(seconds=0.1 if how == "timeout" else 5))
        if how == "timeout":
            with pytest.raises(SourceUnavailable):
                await pool.exchange(FIRST, [])
        else:
            with anyio.move_on_after(0.1) as scope:
                await pool.exchange(FIRST, [])
            assert scope.cancelled_caught
        with anyio.fail_after(5):
            await closed.wait()
        assert (await pool.exchange(FIRST, [])).body == b"ok"
        await pool.aclose()


async def test_a_connection_that_the_service_closed_meanwhile_is_replaced(serve: Serve) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with serve(converse) as port:
        pool = make_pool(f"http://127.0.0.1:{port}")
        for _ in range(3):
            assert (await pool.exchange(FIRST, [])).body == b"ok"
            await anyio.sleep(0.05)
        await pool.aclose()


async def test_a_redirect_is_an_answer_like_others(serve: Serve) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")

    assert (await exchange(serve, converse)).status == 302


async def test_what_no_url_holds_is_not_asked_for_and_told_in_short(closed_port: int) -> None:
    pool = make_pool(f"http://127.0.0.1:{closed_port}")
    with pytest.raises(SourceUnavailable, match=r"cannot be sent: .*too long") as caught:
        await pool.exchange(shipment_request("s" * 100_000), [])
    assert len(str(caught.value)) < 200
    await pool.aclose()


async def test_cookies_are_not_kept(serve: Serve) -> None:
    heads = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append(await read_head(reader))
            writer.write(b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")

    async with serve(converse) as port:
        pool = make_pool(f"http://127.0.0.1:{port}")
        for _ in range(2):
            await pool.exchange(FIRST, [])
        await pool.aclose()

    assert b"cookie" not in heads[1].lower()


# TLS and proxies -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serve_tls(certificate: Path) -> AsyncIterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answering("", b"ok")(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            writer.close()

    async with await asyncio.start_server(converse, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_certificate_of_an_own_authority_is_trusted_when_it_is_named(certificate: Path) -> None:
    async with serve_tls(certificate) as port:
        pool = make_pool(f"https://127.0.0.1:{port}", ca_file=str(certificate))
        assert (await pool.exchange(FIRST, [])).body == b"ok"
        await pool.aclose()


async def test_the_protocol_is_named_to_a_server_that_chooses_by_it(certificate: Path) -> None:
    context, chosen = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), []
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chosen.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await answering("", b"ok")(reader, writer)

    async with await asyncio.start_server(converse, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        pool = make_pool(f"https://127.0.0.1:{port}", ca_file=str(certificate))
        assert (await pool.exchange(FIRST, [])).body == b"ok"
        await pool.aclose()
    assert chosen == ["http/1.1"]


async def test_a_server_that_resets_the_connection_in_the_handshake_is_unreached(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0))

    def shake_half_a_hand() -> None:
        connection, _ = listener.accept()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.wrap_bio(incoming, outgoing, server_side=True)
        incoming.write(connection.recv(65536))
        with suppress(ssl.SSLWantReadError):
            server.do_handshake()
        connection.sendall(outgoing.read())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the end is a reset
        connection.close()

    with listener:
        pool = make_pool(f"https://127.0.0.1:{listener.getsockname()[1]}", ca_file=str(certificate))
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, shake_half_a_hand)
            with pytest.raises(SourceUnavailable):
                await pool.exchange(FIRST, [])


@pytest.mark.parametrize("is_reset", [False, True], ids=["silent", "reset"])
async def test_no_frame_of_ours_holds_the_key_while_an_answer_is_awaited(serve: Serve, is_reset: bool) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        if is_reset:
            writer.transport.abort()
        else:
            await asyncio.Event().wait()

    key = RevealedBytes(b"Bearer OPEN-SESAME")
    async with serve(converse) as port:
        pool = make_pool(f"http://127.0.0.1:{port}", timeout=timedelta(seconds=0.2))
        with pytest.raises(SourceUnavailable) as caught:
            await pool.exchange(FIRST, [(b"authorization", key)])
    assert not [
        (frame.f_code.co_name, name)
        for frame in find_frames(caught.value)
        for name, value in frame.f_locals.items()
        if "/dockbell/" in frame.f_code.co_filename and "OPEN-SESAME" in repr(value)
    ]


def find_frames(error: BaseException | None) -> Iterator[FrameType]:
    """Yield the frames of an error, and of the errors that it came from."""
    if error is not None:
        yield from (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        yield from find_frames(error.__cause__ or error.__context__)


async def test_a_certificate_of_an_unknown_authority_is_refused_with_the_remedy(certificate: Path) -> None:
    async with serve_tls(certificate) as port:
        with pytest.raises(Unreached, match="self-signed certificate; set ca_file to the authority that signed it"):
            await make_pool(f"https://127.0.0.1:{port}").exchange(FIRST, [])


async def test_a_server_that_wants_tls_and_gets_none_is_told_by_what_to_change(certificate: Path, serve: Serve) -> None:
    hint = r"connection lost: .*; if it uses TLS on this port, base_url must begin with https:$"
    async with serve_tls(certificate) as port:
        with pytest.raises(SourceUnavailable, match=hint):
            await make_pool(f"http://127.0.0.1:{port}").exchange(FIRST, [])


async def test_a_proxy_is_asked_with_its_password_for_the_whole_address(serve: Serve) -> None:
    heads = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_head(reader))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    async with serve(converse) as port:
        pool = make_pool("http://api.example.com", proxy=f"http://user:secret@127.0.0.1:{port}")
        assert (await pool.exchange(FIRST, [])).body == b"ok"
        await pool.aclose()

    assert heads[0].startswith(b"GET http://api.example.com/v1/shipments?limit=200 HTTP/1.1\r\n")
    assert b"proxy-authorization: basic dxnlcjpzzwnyzxq=" in heads[0].lower()


async def test_a_proxy_that_refuses_is_told_and_nothing_was_sent(serve: Serve) -> None:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")

    async with serve(converse) as port:
        pool = make_pool("https://api.example.com", proxy=f"http://user:secret@127.0.0.1:{port}")
        with pytest.raises(Unreached) as caught:
            await pool.exchange(FIRST, [])

    assert str(caught.value) == (
        f"GET /v1/shipments: cannot connect to api.example.com:443 through the proxy 127.0.0.1:{port}: "
        "407 Proxy Authentication Required"
    )


@pytest.mark.parametrize("base_url", ["http://api.example.com", "https://api.example.com"])
async def test_a_proxy_that_refuses_the_password_is_shown_the_new_one(serve: Serve, base_url: str) -> None:
    heads, passwords = [], ["old", "new"]

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await read_head(reader):
            heads.append(head)
            is_known = b64encode(b"user:new") in head
            writer.write(b"HTTP/1.1 200 OK\r\n" if is_known else b"HTTP/1.1 407 Who?\r\n")
            writer.write(b"content-length: 0\r\n\r\n")
            if is_known:  # there is no TLS behind the tunnel
                return

    async with serve(converse) as port:
        pool = make_pool(base_url, proxy=lambda: f"http://user:{passwords[0]}@127.0.0.1:{port}")
        for _ in range(2):
            with suppress(Unreached):
                assert (await pool.exchange(FIRST, [])).status == 407
        passwords.pop(0)
        with suppress(SourceUnavailable):
            assert (await pool.exchange(FIRST, [])).status == 200
        await pool.aclose()
    assert [b64encode(b"user:new") in head for head in heads[:3]] == [False, False, True]


@pytest.mark.parametrize(("scheme", "proxied"), [("http", False), ("https", True)])
async def test_no_trace_of_an_error_quotes_what_was_said_back(serve: Serve, scheme: str, *, proxied: bool) -> None:
    key = b"canary"

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = (await read_head(reader)).replace(b"\r\n", b" ")
        writer.write((b"HTTP/1.1 407 " if proxied else b"") + said + b"\r\n\r\n")

    async with serve(babble) as port:
        proxy = f"http://user:canary@127.0.0.1:{port}" if proxied else None
        pool = make_pool(f"{scheme}://127.0.0.1:{port}", proxy=proxy)
        with pytest.raises(SourceUnavailable) as caught:
            await pool.exchange(FIRST, [(b"authorization", b"Bearer %s" % key)])
    trace = "".join(traceback.format_exception(caught.value))
    assert "connection lost" in trace or "cannot connect" in trace
    assert "canary" not in trace
    assert b64encode(b"user:canary").decode() not in trace


async def test_a_proxy_that_cannot_be_looked_up_any_more_is_told(tmp_path: Path) -> None:
    path = tmp_path / "proxy"
    path.write_text("http://user:hush@127.0.0.1:9")
    pool = make_pool("http://api.example.com", proxy=Secret(file=str(path)).reveal)
    with pytest.raises(Unreached, match=r"through the proxy 127\.0\.0\.1:9: connection refused"):
        await pool.exchange(FIRST, [])
    path.unlink()
    with pytest.raises(SourceRefused, match=f"cannot connect to api.example.com:80: file {path}: no such file"):
        await pool.exchange(FIRST, [])


async def test_proxies_of_the_environment_are_not_used(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, closed_port: int
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port}")

    assert (await exchange(serve, answering("", b"ok"))).body == b"ok"


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["base_url", "proxy"])
@pytest.mark.parametrize(
    "url", ["", "api.example.com", "ftp://api.example.com", "https://", "http://a:b", "socks5://h"]
)
def test_an_address_that_is_none_is_refused(name: str, url: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: must be an http:// or https:// URL"):
        make_pool(**({"base_url": "http://127.0.0.1"} | {name: url}))


@pytest.mark.parametrize("url", ["https://u:secret@h", "https://h/?a=secret", "https://h/#secret"])
def test_a_base_url_with_more_than_an_address_is_refused_without_telling_it(url: str) -> None:
    with pytest.raises(ConfigError, match="base_url: must not contain a user, query or fragment") as caught:
        make_pool(url)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("content", "reason"), [(None, "no such file or directory"), ("junk", "")])
def test_a_file_without_authorities_is_refused(tmp_path: Path, content: str | None, reason: str) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigError, match=f"^source: cannot use ca_file, {reason}.*, got {path}"):
        make_pool("https://127.0.0.1", ca_file=str(path))


async def test_a_pool_that_is_not_checked_fails_until_its_file_is_there(tmp_path: Path, certificate: Path) -> None:
    path = tmp_path / "ca.pem"
    async with serve_tls(certificate) as port:
        pool = make_pool(f"https://127.0.0.1:{port}", ca_file=str(path), checked=False)
        with pytest.raises(SourceRefused, match=f"127.0.0.1:{port}: source: cannot use ca_file, no such file"):
            await pool.exchange(FIRST, [])
        path.symlink_to(certificate)
        assert (await pool.exchange(FIRST, [])).body == b"ok"
        await pool.aclose()


def test_sources_with_the_same_authorities_share_a_context_until_their_file_changes(
    tmp_path: Path, certificate: Path
) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(certificate.read_bytes())
    one, other, usual = (make_pool("https://127.0.0.1", ca_file=file) for file in (str(path), str(path), None))
    assert one._tls is other._tls is not usual._tls
    assert make_pool("https://127.0.0.1")._tls is usual._tls
    os.utime(path, (0, 0))
    assert make_pool("https://127.0.0.1", ca_file=str(path))._tls is not one._tls


async def test_a_transport_takes_the_place_of_connections() -> None:
    pool = make_pool("https://h", transport=httpx.MockTransport(lambda _: httpx.Response(200, content=b"ok")))

    assert (await pool.exchange(FIRST, [])).body == b"ok"


async def test_of_several_addresses_that_cannot_be_reached_the_first_is_explained() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        attempts = [ConnectionRefusedError(errno.ECONNREFUSED, "::1"), TimeoutError(errno.ETIMEDOUT, "127.0.0.1")]
        raise httpx.ConnectError("all attempts failed") from ExceptionGroup("attempts", attempts)

    with pytest.raises(Unreached, match="cannot connect to localhost:80: connection refused"):
        await make_pool("http://localhost", transport=httpx.MockTransport(refuse)).exchange(FIRST, [])
