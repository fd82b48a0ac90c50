"""What strangers send that is no HTTP: each is answered well or hung up on, and nothing of it is an error of ours."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import pytest

from tests.web.sites import Filled, Served, serve

SEED: Final = 20_261_123
CASES: Final = 1_500
TOKEN: Final = "a-token-of-the-operator"

HEAD: Final = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) ([ -~]*)\r\n((?:[!#-'*+.^-z|~A-Z0-9-]+: ?[ -~]*\r\n)*)\r\n")

REQUESTS: Final = (
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk\r\n",
    b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n\r\n",
    b"POST /session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /session HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    b"POST /session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nabcde",
    b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nabcde",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
    b"GET /page/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n",
    b"GET %s?limit=1000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n",
    b"GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\nand more",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)
PIECES: Final = (
    b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\xff", b"0\r\n\r\n", b"HTTP/1.1", b"Content-Length: 3\r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n",
    b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"ffffffffffffffff\r\n",
    b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"Origin: http://[\r\n", b"Cookie: a=\xe9; b\r\n", b"X: " + b"x" * 20_000,
)  # fmt: skip


def make(chance: random.Random, filled: Filled) -> list[bytes]:
    """Return what one stranger sends, in parts."""
    filling = (filled.events_url.encode(), TOKEN.encode())
    sent = b"".join(
        [each % filling if b"%s" in each else each for each in chance.choices(REQUESTS, k=chance.choice((1, 1, 2, 3)))]
    )
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        at = chance.randrange(len(sent) + 1)
        match chance.randrange(4):
            case 0:
                sent = sent[:at] + chance.choice(PIECES) + sent[at:]
            case 1:
                sent = sent[:at] + bytes([chance.randrange(256)]) + sent[at + 1 :]
            case 2:
                sent = sent[:at] + sent[at + chance.randrange(1, 12) :]
            case _:
                sent = sent[: max(1, at)]
    cuts = sorted(chance.randrange(len(sent) + 1) for _ in range(chance.choice((0, 0, 1, 3))))
    return [sent[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]


async def exchange(port: int, parts: list[bytes]) -> bytes:
    """Send parts, one after the other, and no more; return all that is answered until the connection ends.

    Or for some seconds: a stream goes on where a second request behind the first hides the end of what is sent.
    """
    got = b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        try:
            for part in parts:
                await stream.send(part)
                await anyio.lowlevel.checkpoint()
            await stream.send_eof()
            with anyio.move_on_after(3):
                while True:
                    got += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
            pass
    return got


def find_faults(got: bytes) -> Iterator[str]:
    """Yield what is wrong with answers; the last may be cut off in its body, since the connection has ended."""
    while got:
        head = HEAD.match(got)
        if head is None:
            yield f"no head: {got[:200]!r}"
            return
        got = got[head.end() :]
        length = re.search(rb"(?im)^content-length: (\d+)\r$", head[3])
        if head[1].startswith(b"1") or got.startswith(b"HTTP/1.1 "):  # or it answers HEAD
            continue
        if length is None:  # in chunks
            end = got.find(b"0\r\n\r\n")
            got = got[end + 5 :] if end >= 0 else b""
        else:
            got = got[int(length[1]) :]


async def test_whatever_strangers_send_is_answered_well_or_hung_up_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(SEED)
    faults: list[str] = []
    statuses: set[bytes] = set()
    caplog.set_level(logging.DEBUG)
    async with serve(tmp_path, token={"value": TOKEN}) as served:
        filled = await served.fill(*(f"{'x' * 1_000}-{number}" for number in range(200)))
        limit = anyio.CapacityLimiter(20)

        async def try_out(number: int, parts: list[bytes]) -> None:
            async with limit:
                got = await exchange(served.site.port, parts)
            statuses.update(re.findall(rb"HTTP/1\.1 (\d+)", got))
            faults.extend(f"{number}: {parts}: {fault}" for fault in find_faults(got))

        async with anyio.create_task_group() as group:
            for number in range(CASES):
                group.start_soon(try_out, number, make(chance, filled))
        assert (await served.client.get("/healthz")).status_code == 200
    assert faults == []
    assert {b"200", b"400", b"401", b"413", b"421"} <= statuses  # it was worth while
    traced = [record for record in caplog.records if record.exc_info]
    assert [(record.name, record.getMessage(), str(record.exc_info)) for record in traced] == []
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        b"HEAD / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n\0\r\n\r\n",
    ],
)
async def test_a_broken_request_is_no_error_of_ours(
    shared: Served, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    got = await exchange(shared.site.port, [sent])
    assert list(find_faults(got)) == []
    assert b" 400 " in got
    assert "Traceback" not in caplog.text
    assert [record for record in caplog.records if record.exc_info] == []
