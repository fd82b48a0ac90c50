"""Receivers as they are met: slow, silent, endless, broken."""

from __future__ import annotations

import asyncio
import socket
import struct
from datetime import timedelta

import anyio
import pytest

from dockbell.core.model import Outcome, OutcomeKind
from tests.brokers import find_free_port
from tests.sinks.conftest import make_delivery, running
from tests.sinks.receiver import OK, Request, attempt, make_sink, receiving, respond

# An answer ------------------------------------------------------------------------------------------------------------


async def test_a_slow_answer_is_waited_for() -> None:
    async def answer_late(_request: Request, writer: asyncio.StreamWriter) -> None:
        for byte in OK:
            writer.write(bytes([byte]))
            await writer.drain()
            await anyio.sleep(0.002)

    async with receiving(answer_late) as receiver:
        assert (await attempt(make_sink(receiver.url))).kind is OutcomeKind.DELIVERED


async def test_an_answer_before_the_body_was_read_counts() -> None:
    over = anyio.Event()

    async def answer_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(respond("413 Content Too Large"))
        await writer.drain()
        writer.write_eof()
        await reader.read()
        writer.close()
        over.set()

    server = await asyncio.start_server(answer_early, "127.0.0.1", 0)
    async with server:
        async with running(make_sink(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")) as run:
            run.deliver(make_delivery(body=b"x" * 4_000_000))
            assert await run.until_settled(1) == [Outcome(OutcomeKind.REFUSED, "HTTP 413", status=413)]
        await over.wait()


async def test_a_body_without_end_does_not_hold_up_the_lane() -> None:
    async def flood(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with receiving(flood) as receiver, running(make_sink(receiver.url, lanes=1)) as run:
        run.deliver(make_delivery(1), make_delivery(2))
        with anyio.fail_after(2):
            await run.until_settled(2)
    assert run.fates == [OutcomeKind.DELIVERED] * 2
    assert receiver.connections == 2


@pytest.mark.parametrize("line", [b"x-more: 1\r\n", b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 102 Wait\r\n\r\n"])
async def test_a_head_without_end_is_a_failure(line: bytes) -> None:
    async def flood(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" if line.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(line * 100)
            await writer.drain()

    async with receiving(flood) as receiver:
        assert (await attempt(make_sink(receiver.url, timeout="500ms"))).kind is OutcomeKind.FAILED


async def test_a_head_that_trickles_ends_with_the_attempt() -> None:
    async def trickle(_request: Request, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"H")
            await writer.drain()
            await anyio.sleep(0.05)

    async with receiving(trickle) as receiver:
        outcome = await attempt(make_sink(receiver.url, timeout="300ms"))
    assert outcome.kind is OutcomeKind.FAILED


async def test_a_body_that_trickles_is_cut_off_after_a_second() -> None:
    async def trickle(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 1000\r\nretry-after: 9\r\n\r\nx")

    async with receiving(trickle) as receiver:
        with anyio.fail_after(3):
            outcome = await attempt(make_sink(receiver.url))
    assert outcome == Outcome(OutcomeKind.FAILED, "HTTP 503", timedelta(seconds=9), status=503, answer="x")


async def test_a_broken_body_does_not_change_what_the_status_said() -> None:
    async def break_off(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nx")
        writer.close()

    async with receiving(break_off) as receiver:
        assert (await attempt(make_sink(receiver.url))).kind is OutcomeKind.DELIVERED


async def test_a_compressed_body_is_not_unpacked() -> None:
    async with receiving(respond("200 OK", b"no gzip at all", content_encoding="gzip")) as receiver:
        assert (await attempt(make_sink(receiver.url))).kind is OutcomeKind.DELIVERED


# No answer -----------------------------------------------------------------------------------------------------------


async def test_a_receiver_that_hangs_is_left_after_the_timeout() -> None:
    async def hang(_request: Request, _writer: asyncio.StreamWriter) -> None:
        await anyio.sleep(3600)

    async with receiving(hang) as receiver:
        outcome = await attempt(make_sink(receiver.url, timeout="300ms"))
    assert outcome == Outcome(OutcomeKind.FAILED, "timed out after 0.3 s")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "server disconnected without sending a response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "illegal status line"),
    ],
)
async def test_what_is_no_answer_in_http_is_a_failure(answer: bytes, reason: str) -> None:
    async def answer_and_close(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with receiving(answer_and_close) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.reason.startswith(reason)


async def test_a_receiver_that_resets_has_failed() -> None:
    async def reset(_request: Request, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    async with receiving(reset) as receiver:
        outcome = await attempt(make_sink(receiver.url))
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.reason.startswith("connection reset by peer; ")


async def test_a_connection_that_was_closed_while_idle_is_replaced() -> None:
    async def answer_and_close(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        writer.close()

    async with receiving(answer_and_close) as receiver, running(make_sink(receiver.url, lanes=1)) as run:
        for count in (1, 2, 3):
            run.deliver(make_delivery(count))
            await run.until_settled(count)
            await anyio.sleep(0.05)
    assert run.fates == [OutcomeKind.DELIVERED] * 3
    assert receiver.connections == 3


async def test_where_nobody_listens_nobody_judged_the_event() -> None:
    outcome = await attempt(make_sink(f"http://127.0.0.1:{find_free_port()}"))
    assert outcome == Outcome(OutcomeKind.UNREACHABLE, "connection refused")
    assert await attempt(make_sink("http://localhost:9/")) == outcome
    outcome = await attempt(make_sink("http://no-such-host.invalid/"))
    assert outcome == Outcome(OutcomeKind.UNREACHABLE, "host name not found")


async def test_a_server_without_tls_is_unreachable_by_https() -> None:
    async with receiving(b"what?\r\n\r\n") as receiver:
        outcome = await attempt(make_sink(f"https://127.0.0.1:{receiver.port}/", timeout="600ms"))
    assert outcome == Outcome(OutcomeKind.UNREACHABLE, "no answer in time")
