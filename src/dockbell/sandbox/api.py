"""The endpoints of the specification, below ``/v1``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dockbell.sandbox.aim import SHOWN, kind_of
from dockbell.sandbox.answers import answer_json, route
from dockbell.sandbox.catalog import RESOURCES, Resource
from dockbell.sandbox.control import Control
from dockbell.sandbox.embedding import embed
from dockbell.sandbox.encoding import encode
from dockbell.sandbox.gate import ORDERS_PATH
from dockbell.sandbox.moments import to_micros
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.orders import Orders
from dockbell.sandbox.paging import Pages
from dockbell.sandbox.parameters import read_expand, read_parameters, read_query
from dockbell.sandbox.refusal import UNKNOWN, Refusal, suggest
from dockbell.sandbox.settings import Clock, Settings
from dockbell.sandbox.shaping import Shaper
from dockbell.sandbox.table import Row
from dockbell.sandbox.world import World

ORDER_BYTES_MOST: Final = 1_000_000


class Api:
    """Answers the requests that passed the gate."""

    def __init__(self, world: World, orders: Orders, settings: Settings, clock: Clock, dice: Random) -> None:
        self._world = world
        self._orders = orders
        self._settings = settings
        self._clock = clock
        self._pages = Pages(settings, clock, dice)
        self._shaper = Shaper(settings, dice, world.form.name)

    def application(self, control: Control) -> Starlette:
        """Return the endpoints as an ASGI application, each error as JSON."""
        listings = [route(f"/v1/{name}", "GET", partial(self._list, resource)) for name, resource in RESOURCES.items()]
        application = Starlette(
            routes=[
                *listings,
                route("/v1/shipments/{id}", "GET", self._get_shipment),
                route(ORDERS_PATH, "POST", self._create_order),
                *control.routes(),
            ],
            exception_handlers={Refusal: _refuse, HTTPException: _refuse_route, Exception: _apologise},
        )
        application.router.redirect_slashes = False
        return application

    async def _list(self, resource: Resource, request: Request) -> Response:
        options = self._settings.options
        query = self._pages.complete(read_query(request, resource, options, self._now()))
        tables = self._world.shown(kind_of(request.scope))
        rows, cursor = self._pages.take(tables[resource.name], query)
        self._note_shown(request, resource, rows)
        bodies = [embed(tables, resource.name, row, query.expand) if query.expand else row.body for row in rows]
        bodies = self._shaper.shape(resource.name, rows, bodies)
        envelope = encode(options.envelope.replace("{label}", resource.label) or resource.name)
        page = b"{%s:[%s]%s}" % (envelope, b",".join(bodies), _next_cursor(cursor, options))
        return answer_json(b"{%s:%s}" % (encode(options.wrapper), page) if options.wrapper else page)

    def _now(self) -> int:
        """Return the service's time, microseconds since 1970."""
        return to_micros(self._clock()) + round(self._settings.options.clock_skew * 1_000_000)

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
        bodies = self._shaper.shape("shipments", [row], [embed(tables, "shipments", row, expand)])
        return answer_json(bodies[0])

    def _note_shown(self, request: Request, resource: Resource, rows: Sequence[Row]) -> None:
        if self._settings.options.fault_record:
            request.scope[SHOWN] = {f"{resource.name}/{self._world.form.name(row)}" for row in rows}

    async def _create_order(self, request: Request) -> Response:
        read_parameters(request, ())
        order = self._orders.place(await _read_object(request))
        return answer_json(self._world.form.refer(encode(order)), 201)


def _next_cursor(cursor: str | None, options: SandboxOptions) -> bytes:
    if cursor is not None:
        return (b',"next_cursor":%s' if options.cursor_form == "integer" else b',"next_cursor":"%s"') % cursor.encode()
    return {"null": b',"next_cursor":null', "empty": b',"next_cursor":""', "absent": b""}[options.end_of_list]


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
