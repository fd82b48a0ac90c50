"""The endpoints: those of the specification below ``/v1``, and the sandbox's own below ``/sandbox``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from dockbell.sandbox.activity import Activity
from dockbell.sandbox.catalog import RESOURCES, Resource
from dockbell.sandbox.embedding import embed
from dockbell.sandbox.encoding import encode
from dockbell.sandbox.gate import ORDERS_PATH
from dockbell.sandbox.moments import format_micros, to_micros
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.paging import take_page
from dockbell.sandbox.parameters import read_expand, read_number, read_parameters, read_query
from dockbell.sandbox.refusal import Refusal, suggest
from dockbell.sandbox.table import Row
from dockbell.sandbox.world import LoggedChange, World

ORDER_BYTES_MOST: Final = 1_000_000
_CHANGES_MOST: Final = 10_000
_STEP_MOST: Final = 100_000
_RATE_MOST: Final = 10_000
_ROWS_AT_A_TIME: Final = 500
_SEQUENCE_MOST: Final = 10**15


class Api:
    """Answers the requests that passed the gate."""

    def __init__(self, world: World, activity: Activity, options: SandboxOptions) -> None:
        self._world = world
        self._activity = activity
        self._options = options

    def application(self) -> Starlette:
        """Return the endpoints as an ASGI application, each error as JSON."""
        listings = [_route(f"/v1/{name}", "GET", partial(self._list, resource)) for name, resource in RESOURCES.items()]
        application = Starlette(
            routes=[
                *listings,
                _route("/v1/shipments/{id}", "GET", self._get_shipment),
                _route(ORDERS_PATH, "POST", self._create_order),
                _route("/sandbox/changes", "GET", self._list_changes),
                _route("/sandbox/records/{resource}", "GET", self._list_records),
                _route("/sandbox/step", "POST", self._step),
                _route("/sandbox/activity", "POST", self._set_activity),
            ],
            exception_handlers={Refusal: _refuse, HTTPException: _refuse_route, Exception: _apologise},
        )
        application.router.redirect_slashes = False
        return application

    async def _list(self, resource: Resource, request: Request) -> Response:
        query = read_query(request, resource)
        tables = self._world.shown()
        rows, cursor = take_page(tables[resource.name], query, self._options.cursors)
        bodies = [embed(tables, resource.name, row, query.expand) if query.expand else row.body for row in rows]
        envelope = encode(self._options.envelope or resource.name)
        return _json(b"{%s:[%s]%s}" % (envelope, b",".join(bodies), self._next_cursor(cursor)))

    def _next_cursor(self, cursor: str | None) -> bytes:
        if cursor is not None:
            return b',"next_cursor":"%s"' % cursor.encode()
        return {"null": b',"next_cursor":null', "empty": b',"next_cursor":""', "absent": b""}[self._options.end_of_list]

    async def _get_shipment(self, request: Request) -> Response:
        resource = RESOURCES["shipments"]
        expand = read_expand(read_parameters(request, ("expand",)), resource)
        tables = self._world.shown()
        row = tables["shipments"].find(request.path_params["id"])
        if row is None:
            raise Refusal(404, "not_found", "there is no shipment with this id")
        return _json(embed(tables, "shipments", row, expand))

    async def _create_order(self, request: Request) -> Response:
        read_parameters(request, ())
        order = self._activity.orders.place(await _read_object(request))
        return _json(encode(order), 201)

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
        return _json(head + b",".join(_encode_change(change) for change in changes) + b"]}")

    async def _list_records(self, request: Request) -> Response:
        read_parameters(request, ())
        name = request.path_params["resource"]
        if name not in RESOURCES:
            raise Refusal(404, "not_found", f"unknown resource {name!r}{suggest(name, tuple(RESOURCES))}")
        rows = list(self._world.tables[name].rows.values())
        headers = {"x-sandbox-sequence": str(self._world.sequence)}
        return StreamingResponse(_lines(rows), headers=headers, media_type="application/x-ndjson")

    async def _step(self, request: Request) -> Response:
        given = read_parameters(request, ("n",))
        made = self._activity.step(read_number(given, "n", 1, _STEP_MOST, 1))
        return _json(b'{"changes":%d,"sequence":%d}' % (made, self._world.sequence))

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
        return _json(b'{"rate":%s,"sequence":%d}' % (repr(rate).encode(), self._world.sequence))


def _route(path: str, method: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
    route = Route(path, endpoint, methods=[method])
    route.methods = {method}  # starlette would answer HEAD too, which the specification does not have
    return route


async def _read_object(request: Request) -> dict[str, Any]:
    """Return the body of a request, a JSON object.

    Raises:
        Refusal: It is not JSON, is something else, or is too large.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise Refusal(415, "unsupported_media_type", "send the order as Content-Type: application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > ORDER_BYTES_MOST:
            raise Refusal(413, "too_large", f"an order has at most {ORDER_BYTES_MOST} bytes")
    try:
        order = json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Refusal(400, "invalid_json", "the body is not JSON in UTF-8") from None
    if not isinstance(order, dict):
        raise Refusal(422, "not_an_object", "the order must be a JSON object")
    return order


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


async def _lines(rows: list[Row]) -> AsyncIterator[bytes]:
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        part = rows[start : start + _ROWS_AT_A_TIME]
        yield b"".join(b'{"identity":%s,"record":%s}\n' % (encode(row.identity), row.body) for row in part)


def _encode_change(change: LoggedChange) -> bytes:
    head = {
        "sequence": change.sequence,
        "at": format_micros(to_micros(change.at)),
        "resource": change.resource,
        "identity": change.identity,
        "kind": change.kind,
    }
    return b'%s,"before":%s,"after":%s}' % (encode(head)[:-1], change.before or b"null", change.after or b"null")


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _refuse_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:  # noqa: PLR2004  # the status says itself
        allowed = (error.headers or {}).get("Allow", "")
        text = f"{request.method} is not possible here; use {allowed}"
        return Refusal(405, "method_not_allowed", text, headers={"Allow": allowed}).response()
    known = (*(f"/v1/{name}" for name in RESOURCES), ORDERS_PATH)
    return Refusal(404, "not_found", f"there is no {request.url.path}{suggest(request.url.path, known)}").response()


async def _apologise(_: Request, __: Exception) -> Response:
    return Refusal(500, "internal_error", "the sandbox met an error of its own; please report it").response()
