"""``GET /openapi.json``: every place of the site, as OpenAPI 3.1 describes it: https://spec.openapis.org/oas/v3.1.0."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell._version import __version__
from dockbell.core.model import JSON
from dockbell.web import question, schemas
from dockbell.web.place import Access, Answer, Place, why_not
from dockbell.web.session import CSRF

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_COMPONENT: Final = "#/components/schemas/{name}"
_ANY_PROBLEM: Final[JSON] = {"$ref": "#/components/responses/Problem"}
_WORDS: Final = (
    "What a dockbell serves: its status page and what that lives on, the pull feeds, the stored records, and what an"
    " operator may do. `Host` must be one of its names. Whatever cannot be answered is a problem (RFC 9457)."
)
_PATH_PARAMETERS: Final[dict[str, JSON]] = {
    "sequence": schemas.PLACE,
    "number": schemas.PLACE,
}


class Document:
    """The endpoint, and the place where it is."""

    def __init__(self) -> None:
        self.place = Place(
            "/openapi.json",
            self.answer,
            "This description.",
            {200: Answer("An OpenAPI document.", {"type": "object"})},
        )
        self._text = b""

    def describe(self, places: Iterable[Place], cookie: str) -> None:
        """Write it; ``cookie`` is the name of that of sessions."""
        self._text = msgspec.json.encode(describe(places, cookie))

    async def answer(self, request: Request) -> Response:
        """Answer with the document."""
        question.read_parameters(request)
        return Response(self._text, media_type="application/json")


def describe(places: Iterable[Place], cookie: str) -> dict[str, JSON]:
    """Return the document of some places; ``cookie`` is the name of that of sessions."""
    places = tuple(places)
    bodies = [place.body for place in places if place.body is not None]
    refs, components = msgspec.json.schema_components(bodies, ref_template=_COMPONENT)
    body_schemas = dict(zip(bodies, refs, strict=True))
    paths: dict[str, dict[str, JSON]] = {}
    for place in places:
        paths.setdefault(place.path, {})[place.method.lower()] = _describe_place(place, body_schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "dockbell", "version": __version__, "description": _WORDS},
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": schemas.PROBLEM},
            "responses": {"Problem": _describe_answer(why_not("Why not."))},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The token of `[web]`."},
                "session": {"type": "apiKey", "in": "cookie", "name": cookie},
                "word": {"type": "apiKey", "in": "header", "name": CSRF, "description": "As /session answered it."},
            },
        },
    }


def _describe_place(place: Place, body_schemas: dict[Any, JSON]) -> dict[str, JSON]:
    told: dict[str, JSON] = {
        "operationId": _name(place),
        "summary": place.words,
        "security": _describe_access(place.access),
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS.get(name, _PART)}
                for name in _PARAMETER.findall(place.path)
            ),
            *({"name": name, "in": "query", "schema": schema} for name, schema in place.query.items()),
        ],
        "responses": {
            **{str(status): _describe_answer(answer) for status, answer in place.answers.items()},
            "4XX": _ANY_PROBLEM,
            "5XX": _ANY_PROBLEM,
        },
    }
    if place.body is not None:
        schema = body_schemas[place.body]
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


def _describe_answer(answer: Answer) -> dict[str, JSON]:
    told: dict[str, JSON] = {"description": answer.words}
    if answer.media_type:
        told["content"] = {answer.media_type: {} if answer.schema is None else {"schema": answer.schema}}
    return told


def _name(place: Place) -> str:
    """Return what generated clients call it: ``getStateSourceResource``."""
    words = re.findall(r"[a-z]+", place.path)
    return place.method.lower() + "".join(word.capitalize() for word in words or ["index"])
