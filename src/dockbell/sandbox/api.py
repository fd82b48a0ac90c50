"""The endpoints of the specification, below ``/v1``, and the sandbox's own, below ``/sandbox``.

The latter are its change log and its switches. Answers of the former may be compressed, or left out by ETag.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from functools import partial
from hashlib import blake2b
from http import HTTPStatus
from random import Random
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dockbell.errors import ConfigError
from dockbell.sandbox.activity import Activity
from dockbell.sandbox.form import encode, format_micros, to_micros
from dockbell.sandbox.gate import ORDERS_PATH
from dockbell.sandbox.options import Clock, SandboxOptions, Settings, parse, suggest
from dockbell.sandbox.paging import Pages
from dockbell.sandbox.requests import (
    SHOWN,
    UNKNOWN,
    Refusal,
    answer_json,
    counts,
    hear,
    kind_of,
    read_expand,
    read_number,
    read_parameters,
    read_query,
    route,
)
from dockbell.sandbox.shaping import Shaper, embed
from dockbell.sandbox.table import RESOURCES, Resource, Row
from dockbell.sandbox.world import LoggedChange, World

_CHANGES_MOST: Final = 10_000
_STEP_MOST: Final = 100_000
_RATE_MOST: Final = 10_000
_ROWS_AT_A_TIME: Final = 500
_ROWS_MOST: Final = 10_000_000
_SEQUENCE_MOST: Final = 10**15
_FAST: Final = 1
ORDER_BYTES_MOST: Final = 1_000_000


class Transfer:
    """An ASGI application that adds ETag, 304 and gzip to another's answers below ``/v1/``."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        options = self._settings.options
        if (options.etag == "none" and not options.gzip) or scope["type"] != "http" or not counts(scope):
            await self._app(scope, receive, send)
            return
        answer = await hear(self._app, scope, receive)
        asked = Headers(scope=scope)
        if options.etag != "none" and answer.status_code == HTTPStatus.OK and scope["method"] == "GET":
            tag = f'"{blake2b(answer.body, digest_size=12).hexdigest()}"'
            known = [given.strip().removeprefix("W/") for given in asked.get("if-none-match", "").split(",")]
            if tag in known or "*" in known:
                answer = Response(status_code=304)
            answer.headers["ETag"] = tag if options.etag == "strong" else f"W/{tag}"
        if options.gzip:
            answer.headers["Vary"] = "Accept-Encoding"
            if answer.body and "gzip" in asked.get("accept-encoding", ""):
                answer.body = gzip.compress(answer.body, _FAST)
                answer.headers["Content-Encoding"] = "gzip"
                answer.headers["Content-Length"] = str(len(answer.body))
        await answer(scope, receive, send)


class Api:
    def __init__(self, world: World, activity: Activity, settings: Settings, clock: Clock, dice: Random) -> None:
        self._world = world
        self._activity = activity
        self._settings = settings
        self._clock = clock
        self._pages = Pages(settings, clock, dice)
        self._shaper = Shaper(settings, dice, world.form.name)

    def application(self) -> Starlette:
        application = Starlette(
            routes=[
                *(route(f"/v1/{name}", "GET", partial(self._list, resource)) for name, resource in RESOURCES.items()),
                route("/v1/shipments/{id}", "GET", self._get_shipment),
                route(ORDERS_PATH, "POST", self._create_order),
                route("/sandbox/changes", "GET", self._list_changes),
                route("/sandbox/records/{resource}", "GET", self._list_records),
                route("/sandbox/step", "POST", self._step),
                route("/sandbox/activity", "POST", self._set_activity),
                route("/sandbox/options", "GET", self._options),
                route("/sandbox/options", "POST", self._options),
                route("/sandbox/edit/{resource}", "POST", partial(self._change, self._world.edit)),
                route("/sandbox/touch/{resource}", "POST", partial(self._change, self._world.touch)),
                route("/sandbox/delete/{resource}", "POST", partial(self._change, self._world.delete)),
                route("/sandbox/restore", "POST", self._restore),
                route("/sandbox/deploy", "POST", self._deploy),
            ],
            exception_handlers={Refusal: _refuse, HTTPException: _refuse_route, Exception: _apologise},
        )
        application.router.redirect_slashes = False
        return application

    async def _list(self, resource: Resource, request: Request) -> Response:
        options = self._settings.options
        now = to_micros(self._clock()) + round(options.clock_skew * 1_000_000)
        query = self._pages.cursors.complete(read_query(request, resource, options, now))
        tables = self._world.shown(kind_of(request.scope))
        rows, cursor = self._pages.take(tables[resource.name], query)
        self._note_shown(request, resource, rows)
        inner = self._world.embedded(tables)
        bodies = [embed(inner, resource.name, row, query.expand) if query.expand else row.body for row in rows]
        bodies = self._shaper.shape(resource.name, rows, bodies)
        envelope = encode(options.envelope.replace("{label}", resource.label) or resource.name)
        page = b"{%s:[%s]%s}" % (envelope, b",".join(bodies), _next_cursor(cursor, options))
        return answer_json(b"{%s:%s}" % (encode(options.wrapper), page) if options.wrapper else page)

    async def _get_shipment(self, request: Request) -> Response:
        options = self._settings.options
        resource = RESOURCES["shipments"]
        given = read_parameters(request, ("expand",), lenient=options.unknown_parameters == "ignore")
        expand = read_expand(given, resource, options)
        tables = self._world.shown(kind_of(request.scope))
        row = tables["shipments"].find(self._world.form.identity(resource, request.path_params["id"]))
        if row is None:
            return UNKNOWN[options.unknown_shipment]()
        self._note_shown(request, resource, [row])
        return answer_json(
            self._shaper.shape("shipments", [row], [embed(self._world.embedded(tables), "shipments", row, expand)])[0]
        )

    def _note_shown(self, request: Request, resource: Resource, rows: Sequence[Row]) -> None:
        if self._settings.options.fault_record:
            request.scope[SHOWN] = {f"{resource.name}/{self._world.form.name(row)}" for row in rows}

    async def _create_order(self, request: Request) -> Response:
        read_parameters(request, ())
        order = self._activity.orders.place(await _read_object(request))
        return answer_json(self._world.form.refer(encode(order)), 201)

    # The sandbox's own ------------------------------------------------------------------------------------------------

    async def _list_changes(self, request: Request) -> Response:
        given = read_parameters(request, ("after", "limit"))
        after = read_number(given, "after", 0, _SEQUENCE_MOST, 0)
        limit = read_number(given, "limit", 1, _CHANGES_MOST, 1000)
        try:
            changes = self._world.changes(after)[:limit]
        except LookupError as error:
            raise Refusal(410, "changes_gone", str(error), parameter="after") from None
        last = changes[-1].sequence if changes else after
        head = b'{"sequence":%d,"next_after":%d,"changes":[' % (self._world.sequence, last)
        return answer_json(head + b",".join(_encode_change(change) for change in changes) + b"]}")

    async def _list_records(self, request: Request) -> Response:
        read_parameters(request, ())
        rows = list(self._world.tables[_resource(request)].rows.values())
        headers = {"x-sandbox-sequence": str(self._world.sequence)}
        lines = _lines(rows, self._world.form.name)
        return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")

    async def _step(self, request: Request) -> Response:
        given = read_parameters(request, ("n",))
        return self._made(self._activity.step(read_number(given, "n", 1, _STEP_MOST, 1)))

    async def _set_activity(self, request: Request) -> Response:
        given = read_parameters(request, ("rate",))
        try:
            rate = float(given["rate"])
        except (KeyError, ValueError):
            rate = -1
        if not 0 <= rate <= _RATE_MOST:
            text = f"rate must be given, changes a second from 0 to {_RATE_MOST}"
            raise Refusal(400, "invalid_parameter", text, parameter="rate")
        self._activity.rate = rate
        return answer_json(b'{"rate":%s,"sequence":%d}' % (repr(rate).encode(), self._world.sequence))

    async def _options(self, request: Request) -> Response:
        if request.method == "POST":
            try:
                self._settings.change(**parse(dict(request.query_params)))
            except ConfigError as error:
                raise _invalid(error) from None
        else:
            read_parameters(request, ())
        return answer_json(encode(asdict(self._settings.options)))

    async def _restore(self, request: Request) -> Response:
        read_parameters(request, ())
        return self._made(self._world.restore())

    async def _deploy(self, request: Request) -> Response:
        given = read_parameters(request, ("field", "value", "dated"))
        if "field" not in given or given.get("dated", "false") not in ("true", "false"):
            text = "give the field, its value as JSON if it is not null, and dated=true if timestamps move"
            raise Refusal(400, "invalid_parameter", text, parameter="dated" if "field" in given else "field")
        try:
            value = json.loads(given.get("value", "null"))
            made = self._world.deploy(given["field"], value, dated=given.get("dated") == "true")
        except ValueError:
            raise Refusal(400, "invalid_parameter", "value must be JSON", parameter="value") from None
        except ConfigError as error:
            raise _invalid(error) from None
        return self._made(made)

    async def _change(self, change: Callable[[str, int, str | None], int], request: Request) -> Response:
        given = read_parameters(request, ("n", "id"))
        resource = _resource(request)
        try:
            made = change(resource, read_number(given, "n", 1, _ROWS_MOST, 1), given.get("id"))
        except LookupError as error:
            raise Refusal(404, "not_found", str(error)) from None
        return self._made(made)

    def _made(self, changes: int) -> Response:
        return answer_json(b'{"changes":%d,"sequence":%d}' % (changes, self._world.sequence))


def _resource(request: Request) -> str:
    name = str(request.path_params["resource"])
    if name not in RESOURCES:
        raise Refusal(404, "not_found", f"unknown resource {name!r}{suggest(name, tuple(RESOURCES))}")
    return name


def _invalid(error: ConfigError) -> Refusal:
    return Refusal(400, "invalid_option", "; ".join(error.problems))


async def _lines(rows: list[Row], name: Callable[[Row], str]) -> AsyncIterator[bytes]:
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        part = rows[start : start + _ROWS_AT_A_TIME]
        yield b"".join(b'{"identity":%s,"record":%s}\n' % (encode(name(row)), row.body) for row in part)


def _encode_change(change: LoggedChange) -> bytes:
    head = {"sequence": change.sequence, "at": format_micros(to_micros(change.at)), "resource": change.resource}
    head |= {"identity": change.identity, "kind": change.kind}
    return b'%s,"before":%s,"after":%s}' % (encode(head)[:-1], change.before or b"null", change.after or b"null")


def _next_cursor(cursor: str | None, options: SandboxOptions) -> bytes:
    if cursor is not None:
        return (b',"next_cursor":%s' if options.cursor_form == "integer" else b',"next_cursor":"%s"') % cursor.encode()
    return {"null": b',"next_cursor":null', "empty": b',"next_cursor":""', "absent": b""}[options.end_of_list]


async def _read_object(request: Request) -> dict[str, Any]:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise Refusal(415, "unsupported_media_type", "send the order as Content-Type: application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > ORDER_BYTES_MOST:
            raise Refusal(413, "too_large", f"an order has at most {ORDER_BYTES_MOST} bytes")

    def refuse_constant(name: str) -> None:
        raise ValueError(name)

    try:
        order = json.loads(body.decode(), parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise Refusal(400, "invalid_json", "the body is not JSON in UTF-8") from None
    if not isinstance(order, dict):
        raise Refusal(422, "not_an_object", "the order must be a JSON object")
    return order


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _refuse_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        text = f"{request.method} is not possible here; use {allowed}"
        return Refusal(405, "method_not_allowed", text, headers={"Allow": allowed}).response()
    known = (*(f"/v1/{name}" for name in RESOURCES), ORDERS_PATH)
    return Refusal(404, "not_found", f"there is no {request.url.path}{suggest(request.url.path, known)}").response()


async def _apologise(_: Request, __: Exception) -> Response:
    return Refusal(500, "internal_error", "the sandbox met an error of its own; please report it").response()
