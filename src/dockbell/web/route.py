"""A route of the site: the endpoint that answers, who may ask, and what the OpenAPI document says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

import msgspec
from starlette import routing
from starlette.requests import Request
from starlette.responses import Response

from dockbell.core.model import JSON

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class Access(Enum):
    """Who may ask."""

    OPEN = auto()  # every client
    EITHER = auto()  # every client, but one with the token is told more
    PAGE = auto()  # every client that accepts a page; others need the token
    READ = auto()  # clients with the token; all of them where none is configured
    ACT = auto()  # clients with the token; none of them where none is configured


@dataclass(frozen=True, slots=True)
class ResponseDoc:
    """What the OpenAPI document says of one response.

    Attributes:
        description: What the response means.
        schema: The JSON Schema of its body; None where the body is not JSON.
        media_type: Of its body; empty where it has none.
    """

    description: str
    schema: JSON = None
    media_type: str = "application/json"


def problem_doc(description: str) -> ResponseDoc:
    """Return what the document says of a response that is a problem."""
    return ResponseDoc(description, {"$ref": "#/components/schemas/Problem"}, "application/problem+json")


@dataclass(frozen=True, slots=True)
class Route:
    """A path with one method.

    Attributes:
        path: With the names of its parameters: ``/feeds/{source}/{resource}``.
        endpoint: What answers.
        summary: What it is for, in a few words.
        responses: By status. Every route may answer with a problem, so only the peculiar ones are listed.
        method: The HTTP method; a route of GET answers HEAD too.
        access: Who may ask.
        query: The schemas of its parameters, by name.
        body: The JSON object that a client must send; None where no body is taken.
    """

    path: str
    endpoint: Endpoint
    summary: str
    responses: Mapping[int, ResponseDoc]
    method: str = "GET"
    access: Access = Access.READ
    query: Mapping[str, JSON] = field(default_factory=dict)
    body: type[msgspec.Struct] | None = None

    @property
    def methods(self) -> Sequence[str]:
        """The methods that it answers."""
        return ("GET", "HEAD") if self.method == "GET" else (self.method,)


class Routes:
    """All routes of a site."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.all = tuple(routes)
        found: dict[str, dict[str, Route]] = {}
        for route in self.all:
            found.setdefault(route.path, {}).update(dict.fromkeys(route.methods, route))
        self._patterns = [(routing.compile_path(path)[0], by_method) for path, by_method in found.items()]

    def find(self, path: str) -> Mapping[str, Route]:
        """Return the routes of a path, by method; empty where there are none."""
        return next((by_method for pattern, by_method in self._patterns if pattern.match(path)), {})

    def for_starlette(self) -> list[routing.Route]:
        """Return the routes as Starlette takes them."""
        return [routing.Route(route.path, route.endpoint, methods=[route.method]) for route in self.all]
