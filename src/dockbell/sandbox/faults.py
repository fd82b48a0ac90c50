"""What goes wrong on purpose: slow answers, server errors, connections that break, bad bodies with the status 200."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import AsyncIterator, Callable
from functools import cache
from http import HTTPStatus
from random import Random
from typing import Any, Final, TypeAlias

import anyio
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.sandbox.form import encode
from dockbell.sandbox.options import SandboxOptions, Settings
from dockbell.sandbox.requests import SHOWN, Refusal, concerns, counts, hear, is_listing, kind_of

Spoiler: TypeAlias = Callable[[Response, SandboxOptions], Response]

_JSON: Final = "application/json"
_HTML: Final = (
    b"<!DOCTYPE html><html><head><title>Maintenance</title></head>"
    b"<body><h1>We will be back soon</h1><p>The service is being updated.</p></body></html>"
)
_TEXT: Final = "text/html; charset=utf-8"
_ERROR: Final = b'{"error":{"code":"internal_error","message":"the service met an unexpected condition"}}'
_FIRST_MEMBER: Final = re.compile(rb'\{("(?:[^"\\]|\\.)*"):')
_FIRST_FIELD: Final = re.compile(rb'\[\{("(?:[^"\\]|\\.)*"):')


def _body(change: Callable[[bytes], bytes], media_type: str = _JSON) -> Spoiler:
    return lambda answer, _: Response(change(bytes(answer.body)), media_type=media_type)


def _listing(turn: Callable[[list[Any]], object], *, ends: bool = True, unless_last: bool = False) -> Spoiler:
    """Return the maker of a page with something else instead of its records; a page without any stays as it is.

    With ``ends`` the page says that the list ends here; ``unless_last`` leaves a page as it is that says so anyway.
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


def _stream(chunk: bytes, every: float) -> Spoiler:
    async def chunks(head: bytes) -> AsyncIterator[bytes]:
        yield head
        while True:
            yield chunk
            await anyio.sleep(every)

    return lambda answer, _: StreamingResponse(chunks(bytes(answer.body[:1])), media_type=_JSON)


@cache
def _bomb() -> bytes:
    """Return a mebibyte that becomes a gibibyte when it is decompressed."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    head = packer.compress(b"{") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * 1024


UNREADABLE: Final[dict[str, Spoiler]] = {
    "html": _body(lambda _: _HTML, _TEXT),
    "truncated": _body(lambda body: body[: len(body) // 2]),
    "nan": _body(lambda body: body[:-1] + b',"total":NaN}'),
    "duplicate_members": _body(lambda body: _FIRST_MEMBER.sub(rb"{\1:[],\1:", body, count=1)),
    "duplicate_fields": _body(lambda body: _FIRST_FIELD.sub(rb"[{\1:null,\1:", body, count=1)),
    "invalid_utf8": _body(lambda body: body[:-1] + b',"note":"\xff\xfe"}'),
    "deep": _body(lambda _: b'{"data":%s%s}' % (b"[" * 100_000, b"]" * 100_000)),
    "null": _body(lambda _: b"null"),
    "empty": _body(lambda _: b""),
    "error_200": _body(lambda _: _ERROR),
}
"""Bodies that are no page, or not certainly one."""

HEAVY: Final[dict[str, Spoiler]] = {
    "gzip_bomb": lambda _, __: Response(_bomb(), media_type=_JSON, headers={"Content-Encoding": "gzip"}),
    "endless": _stream(b" " * 65_536, every=0.001),
    "drip": _stream(b" ", every=0.1),
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
    "message": _body(lambda _: b'{"message":"the request is being processed"}'),
}
"""The right body, but not as JSON is to be sent; and sound JSON that is something else."""

BAD_BODIES: Final = UNREADABLE | HEAVY | OF_LISTINGS | ODD


HANG_UP: Final = "dockbell.hang_up"
"""ASGI extension of the sandbox's server: ``await scope["extensions"][HANG_UP](reset=…)`` breaks the connection."""

_ERRORS: Final = {
    400: ("bad_request", "the service does not accept this request"),
    401: ("invalid_key", "the API key is not known"),
    403: ("forbidden", "the API key may not read this"),
    404: ("not_found", "there is nothing here"),
    410: ("gone", "there is nothing here any more"),
    422: ("unprocessable", "the service cannot do this"),
    429: ("rate_limited", "there are too many requests; try again later"),
    500: ("internal_error", "the service met an unexpected condition"),
    502: ("bad_gateway", "the service could not reach one of its parts"),
    503: ("unavailable", "the service is overloaded; try again later"),
    504: ("gateway_timeout", "one of the service's parts did not answer in time"),
}
_BY_CHANCE: Final = (500, 502, 503, 504)


class Faults:
    """An ASGI application that spoils some of another's answers below ``/v1/``.

    ``bare`` is the part of the other that writes the bodies, before anything is done to them.
    """

    def __init__(self, app: ASGIApp, bare: ASGIApp, settings: Settings, dice: Random) -> None:
        self._app = app
        self._bare = bare
        self._settings = settings
        self._dice = dice

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        options, app = self._settings.options, self._app
        if scope["type"] == "http" and counts(scope) and await self._concerns(options, scope, receive):
            fate = self._dice.random()
            if options.latency:
                await anyio.sleep(options.latency)
            if options.fault_skip:
                self._settings.count_down("fault_skip")
            elif options.fault_most != 0:
                app = self._choose(fate, options)
        await app(scope, receive, send)

    async def _concerns(self, options: SandboxOptions, scope: Scope, receive: Receive) -> bool:
        if not concerns(options.fault_resource, scope) or options.fault_kind not in ("all", kind_of(scope)):
            return False
        if not options.fault_record:
            return True
        if scope["method"] != "GET":
            return False  # to look at the answer would be to take the order
        looked_at = dict(scope)  # the endpoint notes in it which records the answer shows
        await hear(self._bare, looked_at, receive)
        return options.fault_record in looked_at.get(SHOWN, ())

    def _choose(self, fate: float, options: SandboxOptions) -> ASGIApp:
        if fate < options.error_rate:
            status = options.error_with or self._dice.choice(_BY_CHANCE)
            app: ASGIApp = Refusal(status, *_ERRORS[status]).response()
        elif fate >= 1 - options.reset_rate / 2:
            app = _break
        elif fate >= 1 - options.reset_rate:
            app = self._cut_short
        elif fate < options.error_rate + options.bad_body_rate:
            return self._answer_badly
        else:
            return self._app
        self._settings.count_down("fault_most")
        return app

    async def _cut_short(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_half(event: Message) -> None:
            if event["type"] == "http.response.body":
                body = event.get("body", b"")
                await send({**event, "body": body[: len(body) // 2], "more_body": True})
                await _break(scope, receive, send, reset=False)
            else:
                await send(event)

        await self._app(scope, receive, send_half)

    async def _answer_badly(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a bad body; one that is made of records counts only where there are some."""
        options = self._settings.options
        name = self._dice.choice(tuple(UNREADABLE)) if options.bad_body == "any" else options.bad_body
        answer = await hear(self._bare, scope, receive)
        is_page = is_listing(scope) and answer.status_code == HTTPStatus.OK
        spoilt = BAD_BODIES[name](answer, options) if is_page or name not in OF_LISTINGS else answer
        if spoilt is not answer:
            self._settings.count_down("fault_most")
        await spoilt(scope, receive, send)


async def _break(scope: Scope, _: Receive, __: Send, *, reset: bool = True) -> None:
    hang_up = scope.get("extensions", {}).get(HANG_UP)
    if hang_up is None:  # the application is called in process: there is no connection
        raise ConnectionResetError("the sandbox hung up")
    await hang_up(reset=reset)
