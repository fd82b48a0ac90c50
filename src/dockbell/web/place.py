"""A place of the site: what answers there, who may ask, and what the OpenAPI document says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, compile_path

from dockbell.core.model import JSON

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class Access(Enum):
    """Who may ask."""

    OPEN = auto()  # everybody
    EITHER = auto()  # everybody, but who has the token is told more
    PAGE = auto()  # everybody who accepts a page; others need the token
    READ = auto()  # who has the token, where there is one
    ACT = auto()  # who has the token; nobody where there is none


@dataclass(frozen=True, slots=True)
class Answer:
    """What a place may answer.

    Attributes:
        words: What it means.
        schema: The JSON Schema of its body; None where that is no JSON.
        media_type: Of its body; empty where it has none.
    """

    words: str
    schema: JSON = None
    media_type: str = "application/json"


def why_not(words: str) -> Answer:
    """Return an answer that is a problem."""
    return Answer(words, {"$ref": "#/components/schemas/Problem"}, "application/problem+json")


@dataclass(frozen=True, slots=True)
class Place:
    """A place, and what may be done there.

    Attributes:
        path: With the names of its parameters: ``/feeds/{source}/{resource}``.
        endpoint: What answers.
        words: What it is for, in a few words.
        answers: By status; of the problems, with which any place may answer, those that are peculiar to this one.
        method: What is done; whoever may GET may ask by HEAD too.
        access: Who may ask.
        query: The schemas of its parameters, by name.
        body: What must be sent, a JSON object; None where nothing is taken.
    """

    path: str
    endpoint: Endpoint
    words: str
    answers: Mapping[int, Answer]
    method: str = "GET"
    access: Access = Access.READ
    query: Mapping[str, JSON] = field(default_factory=dict)
    body: type[msgspec.Struct] | None = None

    @property
    def methods(self) -> Sequence[str]:
        """The methods of HTTP that it answers."""
        return ("GET", "HEAD") if self.method == "GET" else (self.method,)


class Places:
    """All places of a site, to be found by their paths."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.all = tuple(places)
        found: dict[str, dict[str, Place]] = {}
        for place in self.all:
            found.setdefault(place.path, {}).update(dict.fromkeys(place.methods, place))
        self._patterns = [(compile_path(path)[0], by_method) for path, by_method in found.items()]

    def find(self, path: str) -> Mapping[str, Place]:
        """Return what may be done at a path, by method; nothing where no place is."""
        return next((by_method for pattern, by_method in self._patterns if pattern.match(path)), {})

    def routes(self) -> list[Route]:
        """Return them as routes."""
        return [Route(place.path, place.endpoint, methods=[place.method]) for place in self.all]
