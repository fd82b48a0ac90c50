"""Bad bodies by name: what can come with the status 200 instead of a page."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any, Final, TypeAlias

import anyio
from starlette.responses import Response, StreamingResponse

from dockbell.sandbox.encoding import encode
from dockbell.sandbox.options import SandboxOptions

Spoiler: TypeAlias = Callable[[Response, SandboxOptions], Response]

_JSON: Final = "application/json"
_HTML: Final = (
    b"<!DOCTYPE html><html><head><title>Maintenance</title></head>"
    b"<body><h1>We will be back soon</h1><p>The service is being updated.</p></body></html>"
)
_TEXT: Final = "text/html; charset=utf-8"
_MESSAGE: Final = b'{"message":"the request is being processed"}'
_ERROR: Final = b'{"error":{"code":"internal_error","message":"the service met an unexpected condition"}}'
_DEEP: Final = b'{"data":%s%s}' % (b"[" * 100_000, b"]" * 100_000)
_MEBIBYTE: Final = 1 << 20
_BOMB_MEBIBYTES: Final = 1024
_CHUNK: Final = b" " * 65_536
_PAUSE: Final = 0.001
_DRIP: Final = 0.1
_FIRST_MEMBER: Final = re.compile(rb'\{("(?:[^"\\]|\\.)*"):')
_FIRST_FIELD: Final = re.compile(rb'\[\{("(?:[^"\\]|\\.)*"):')


def _body(change: Callable[[bytes], bytes], media_type: str = _JSON) -> Spoiler:
    """Return the maker of an answer with another body."""
    return lambda answer, _: Response(change(bytes(answer.body)), media_type=media_type)


def _listing(turn: Callable[[list[Any]], object], *, ends: bool = True, unless_last: bool = False) -> Spoiler:
    """Return the maker of a page with something else instead of its records; a page without any stays as it is.

    Args:
        turn: Returns what comes instead of the records.
        ends: The page says that the list ends here.
        unless_last: A page that says so anyway stays as it is.
    """

    def make(answer: Response, options: SandboxOptions) -> Response:
        page = json.loads(bytes(answer.body))
        envelope = page.get(options.wrapper, page)
        name = next((name for name, value in envelope.items() if isinstance(value, list)), "")
        if not envelope.get(name) or (unless_last and not envelope.get("next_cursor")):
            return answer
        envelope[name] = turn(envelope[name])
        if ends:
            envelope.pop("next_cursor", None)
            if options.end_of_list != "absent":
                envelope["next_cursor"] = None if options.end_of_list == "null" else ""
        return Response(encode(page), media_type=_JSON)

    return make


def _stream(chunk: bytes, pause: float) -> Spoiler:
    """Return the maker of an answer that begins like the right one and never ends."""

    async def chunks(head: bytes) -> AsyncIterator[bytes]:
        yield head
        while True:
            yield chunk
            await anyio.sleep(pause)

    return lambda answer, _: StreamingResponse(chunks(bytes(answer.body[:1])), media_type=_JSON)


def _bomb(_: Response, __: SandboxOptions) -> Response:
    """Return an answer of a mebibyte that becomes a gibibyte when it is decompressed."""
    return Response(_compressed_spaces(), media_type=_JSON, headers={"Content-Encoding": "gzip"})


@cache
def _compressed_spaces() -> bytes:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    head = packer.compress(b"{") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * _MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * _BOMB_MEBIBYTES


UNREADABLE: Final[dict[str, Spoiler]] = {
    "html": _body(lambda _: _HTML, _TEXT),
    "truncated": _body(lambda body: body[: len(body) // 2]),
    "nan": _body(lambda body: body[:-1] + b',"total":NaN}'),
    "duplicate_members": _body(lambda body: _FIRST_MEMBER.sub(rb"{\1:[],\1:", body, count=1)),
    "duplicate_fields": _body(lambda body: _FIRST_FIELD.sub(rb"[{\1:null,\1:", body, count=1)),
    "invalid_utf8": _body(lambda body: body[:-1] + b',"note":"\xff\xfe"}'),
    "deep": _body(lambda _: _DEEP),
    "null": _body(lambda _: b"null"),
    "empty": _body(lambda _: b""),
    "error_200": _body(lambda _: _ERROR),
}
"""Bodies that are no page, or not certainly one."""

HEAVY: Final[dict[str, Spoiler]] = {
    "gzip_bomb": _bomb,
    "endless": _stream(_CHUNK, _PAUSE),
    "drip": _stream(b" ", _DRIP),
}
"""Bodies that never come to an end, or to one too far away."""

OF_LISTINGS: Final[dict[str, Spoiler]] = {
    "cut_list": _listing(lambda records: records[: len(records) // 2]),
    "empty_list": _listing(lambda _: []),
    "full_list": _listing(lambda records: records, unless_last=True),
    "null_list": _listing(lambda _: None),
    "doubled_list": _listing(lambda records: [*records, records[0] | {"note": "again"}], ends=False),
}
"""Pages that say the list ends here while it does not, or whose records are not those of the page."""

ODD: Final[dict[str, Spoiler]] = {
    "byte_order_mark": _body(lambda body: b"\xef\xbb\xbf" + body),
    "mislabelled": _body(lambda body: body, _TEXT),
    "message": _body(lambda _: _MESSAGE),
}
"""The right body, but not as JSON is to be sent; and sound JSON that is something else."""

BAD_BODIES: Final = UNREADABLE | HEAVY | OF_LISTINGS | ODD
