"""``GET /openapi.json``: all routes of the site in OpenAPI 3.1: https://spec.openapis.org/oas/v3.1.0."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell._version import __version__
from dockbell.core.model import JSON
from dockbell.web import params, schemas
from dockbell.web.route import Access, ResponseDoc, Route, problem_doc
from dockbell.web.session import CSRF

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_COMPONENT: Final = "#/components/schemas/{name}"
_ANY_PROBLEM: Final[JSON] = {"$ref": "#/components/responses/Problem"}
_DESCRIPTION: Final = (
    "What a dockbell serves: its status page and what that lives on, the pull feeds, the stored records, and what an"
    " operator may do. `Host` must be one of its names. Whatever cannot be answered is a problem (RFC 9457)."
)
_PATH_PARAMETERS: Final[dict[str, JSON]] = {
    "sequence": schemas.PLACE,
    "number": schemas.PLACE,
}


class Document:
    """The endpoint and its route."""

    def __init__(self) -> None:
        self.route = Route(
            "/openapi.json",
            self.answer,
            "This description.",
            {200: ResponseDoc("An OpenAPI document.", {"type": "object"})},
        )
        self._text = b""

    def describe(self, routes: Iterable[Route], cookie: str) -> None:
        """Write the document; ``cookie`` is the name of the session's cookie."""
        self._text = msgspec.json.encode(describe(routes, cookie))

    async def answer(self, request: Request) -> Response:
        """Answer with the document."""
        params.read_query(request)
        return Response(self._text, media_type="application/json")


def describe(routes: Iterable[Route], cookie: str) -> dict[str, JSON]:
    """Return the document of some routes; ``cookie`` is the name of the session's cookie."""
    routes = tuple(routes)
    bodies = [route.body for route in routes if route.body is not None]
    refs, components = msgspec.json.schema_components(bodies, ref_template=_COMPONENT)
    body_schemas = dict(zip(bodies, refs, strict=True))
    paths: dict[str, dict[str, JSON]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_route(route, body_schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "dockbell", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": schemas.PROBLEM},
            "responses": {"Problem": _describe_response(problem_doc("Why not."))},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The token of `[web]`."},
                "session": {"type": "apiKey", "in": "cookie", "name": cookie},
                "word": {"type": "apiKey", "in": "header", "name": CSRF, "description": "As /session answered it."},
            },
        },
    }


def _describe_route(route: Route, body_schemas: dict[Any, JSON]) -> dict[str, JSON]:
    told: dict[str, JSON] = {
        "operationId": _name(route),
        "summary": route.summary,
        "security": _describe_access(route.access),
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS.get(name, _PART)}
                for name in _PARAMETER.findall(route.path)
            ),
            *({"name": name, "in": "query", "schema": schema} for name, schema in route.query.items()),
        ],
        "responses": {
            **{str(status): _describe_response(response) for status, response in route.responses.items()},
            "4XX": _ANY_PROBLEM,
            "5XX": _ANY_PROBLEM,
        },
    }
    if route.body is not None:
        schema = body_schemas[route.body]
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return told


_PART: Final[JSON] = {"type": "string", "minLength": 1}


def _describe_access(access: Access) -> list[JSON]:
    match access:
        case Access.OPEN:
            return []
        case Access.EITHER | Access.PAGE:
            return [{}, {"token": []}, {"session": []}]
        case Access.READ:
            return [{"token": []}, {"session": []}]
        case Access.ACT:
            return [{"token": []}, {"session": [], "word": []}]


def _describe_response(response: ResponseDoc) -> dict[str, JSON]:
    told: dict[str, JSON] = {"description": response.description}
    if response.media_type:
        told["content"] = {response.media_type: {} if response.schema is None else {"schema": response.schema}}
    return told


def _name(route: Route) -> str:
    """Return the operation's id, which generated clients use: ``getStateSourceResource``."""
    words = re.findall(r"[a-z]+", route.path)
    return route.method.lower() + "".join(word.capitalize() for word in words or ["index"])
