"""A route of the site, and ``GET /openapi.json``: all routes in OpenAPI 3.1, https://spec.openapis.org/oas/v3.1.0."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeAlias

import msgspec
from starlette import routing
from starlette.requests import Request
from starlette.responses import Response

from dockbell._version import __version__
from dockbell.core.model import JSON
from dockbell.web import params
from dockbell.web.responses import ProblemModel
from dockbell.web.session import CSRF

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class Access(Enum):
    """Who may ask."""

    OPEN = auto()  # every client
    EITHER = auto()  # every client, but one with the token is told more
    PAGE = auto()  # every client that accepts a page; others need the token
    READ = auto()  # clients with the token; all of them where none is configured
    ACT = auto()  # clients with the token; none of them where none is configured


class ResponseDoc(msgspec.Struct, frozen=True):
    """What the OpenAPI document says of one response."""

    description: str  # what the response means
    body: Any = None  # the type of its body, of which the JSON Schema is made; None where the body is not JSON
    media_type: str = "application/json"  # of its body; empty where it has none


def problem_doc(description: str) -> ResponseDoc:
    """Return what the document says of a response that is a problem."""
    return ResponseDoc(description, ProblemModel, "application/problem+json")


class Route(msgspec.Struct, frozen=True):
    """A path with one method."""

    path: str  # with the names of its parameters: ``/feeds/{source}/{resource}``
    endpoint: Endpoint  # what answers
    summary: str  # what it is for, in a few words
    responses: Mapping[int, ResponseDoc]
    """By status. Every route may answer with a problem, so only the peculiar ones are listed."""
    method: str = "GET"  # the HTTP method; a route of GET answers HEAD too
    access: Access = Access.READ  # who may ask
    query: Mapping[str, JSON] = msgspec.field(default_factory=dict)  # the schemas of its parameters, by name
    body: type[msgspec.Struct] | None = None  # the JSON object that a client must send; None where no body is taken

    @property
    def methods(self) -> Sequence[str]:
        return ("GET", "HEAD") if self.method == "GET" else (self.method,)


_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_COMPONENT: Final = "#/components/schemas/{name}"
_ANY_PROBLEM: Final[JSON] = {"$ref": "#/components/responses/Problem"}
_DESCRIPTION: Final = (
    "The web API of a dockbell daemon: its status page, the pull feeds, the stored records, and the actions of an"
    " operator. `Host` must be one of its names. If it cannot answer a request, it returns a problem (RFC 9457)."
)
PLACE: Final[JSON] = {"type": "integer", "minimum": 0, "maximum": params.PLACE_MOST}
_PART: Final[JSON] = {"type": "string", "minLength": 1}
_PATH_PARAMETERS: Final[dict[str, JSON]] = {"sequence": PLACE, "number": PLACE}
_SECURITY: Final[dict[Access, JSON]] = {
    Access.OPEN: [],
    Access.EITHER: [{}, {"token": []}, {"session": []}],
    Access.PAGE: [{}, {"token": []}, {"session": []}],
    Access.READ: [{"token": []}, {"session": []}],
    Access.ACT: [{"token": []}, {"session": [], "word": []}],
}


class Routes:
    """All routes of a site, and that of the document which describes them; ``cookie`` names the session's."""

    def __init__(self, routes: Iterable[Route], cookie: str) -> None:
        responses = {200: ResponseDoc("An OpenAPI document.", dict)}
        self.all = (*routes, Route("/openapi.json", self._answer_document, "Get this OpenAPI document.", responses))
        self._document = msgspec.json.encode(_describe(self.all, cookie))
        found: dict[str, dict[str, Route]] = {}
        for route in self.all:
            found.setdefault(route.path, {}).update(dict.fromkeys(route.methods, route))
        self._patterns = [(routing.compile_path(path)[0], by_method) for path, by_method in found.items()]

    def find(self, path: str) -> Mapping[str, Route]:
        """Return the routes of a path, by method; empty where there are none."""
        return next((by_method for pattern, by_method in self._patterns if pattern.match(path)), {})

    def for_starlette(self) -> list[routing.Route]:
        return [routing.Route(route.path, _check_query(route), methods=[route.method]) for route in self.all]

    async def _answer_document(self, _: Request) -> Response:
        return Response(self._document, media_type="application/json")


def _check_query(route: Route) -> Endpoint:
    """Return the endpoint of a route, which refuses parameters that the route does not know."""

    async def answer(request: Request) -> Response:
        params.check_query(request, route.query)
        return await route.endpoint(request)

    return answer


def _describe(routes: Collection[Route], cookie: str) -> dict[str, JSON]:
    """Return the OpenAPI document of some routes."""
    types = {route.body for route in routes} | {doc.body for route in routes for doc in route.responses.values()}
    found = sorted((each for each in types | {ProblemModel} if each is not None), key=str)
    refs, components = msgspec.json.schema_components(found, ref_template=_COMPONENT)
    schemas = dict(zip(found, refs, strict=True))
    paths: dict[str, dict[str, JSON]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_route(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "dockbell", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {"Problem": _describe_response(problem_doc("Why the request failed."), schemas)},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The token of `[web]`."},
                "session": {"type": "apiKey", "in": "cookie", "name": cookie},
                "word": {"type": "apiKey", "in": "header", "name": CSRF, "description": "`csrf` of the session."},
            },
        },
    }


def _describe_route(route: Route, schemas: dict[Any, JSON]) -> dict[str, JSON]:
    words = re.findall(r"[a-z]+", route.path)
    told: dict[str, JSON] = {
        # Which generated clients use: ``getStateSourceResource``.
        "operationId": route.method.lower() + "".join(map(str.capitalize, words or ["index"])),
        "summary": route.summary,
        "security": _SECURITY[route.access],
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS.get(name, _PART)}
                for name in _PARAMETER.findall(route.path)
            ),
            *({"name": name, "in": "query", "schema": schema} for name, schema in route.query.items()),
        ],
        "responses": {
            **{str(status): _describe_response(response, schemas) for status, response in route.responses.items()},
            "4XX": _ANY_PROBLEM,
            "5XX": _ANY_PROBLEM,
        },
    }
    if route.body is not None:
        schema = schemas[route.body]
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return told


def _describe_response(response: ResponseDoc, schemas: Mapping[Any, JSON]) -> dict[str, JSON]:
    told: dict[str, JSON] = {"description": response.description}
    if response.media_type:
        told["content"] = {response.media_type: {} if response.body is None else {"schema": schemas[response.body]}}
    return told
