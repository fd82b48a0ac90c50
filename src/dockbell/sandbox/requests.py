"""Requests: what each is for, its parameters, as the specification allows them, and the answers that refuse it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope

from dockbell.sandbox.form import to_micros
from dockbell.sandbox.options import PAGE_MOST, SandboxOptions, suggest
from dockbell.sandbox.table import RESOURCES, Resource


class Refusal(Exception):
    """The request is not answered as asked: a status, one word for programs, one sentence for people.

    ``parameter`` is the query parameter at fault, where there is one.
    """

    def __init__(
        self, status: int, code: str, text: str, *, parameter: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.error = {"code": code, "message": text}
        if parameter is not None:
            self.error["parameter"] = parameter
        self._headers = headers

    def response(self) -> Response:
        return Response(json.dumps({"error": self.error}), self.status, self._headers, "application/json")


_NOT_FOUND: Final = "there is no shipment with this id"
_PAGE: Final = "<!DOCTYPE html><html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body></html>"
UNKNOWN: Final[dict[str, Callable[[], Response]]] = {
    "json": Refusal(404, "not_found", _NOT_FOUND).response,
    "html": lambda: Response(_PAGE, 404, media_type="text/html"),
    "empty": lambda: Response(status_code=404),
    "410": Refusal(410, "gone", _NOT_FOUND).response,
    "null": lambda: Response("null", media_type="application/json"),
}
"""The answers for a shipment that does not exist."""


async def hear(app: ASGIApp, scope: Scope, receive: Receive) -> Response:
    """Return an application's answer to a request, heard in full."""
    events: list[Message] = []

    async def keep(event: Message) -> None:
        events.append(event)

    await app(scope, receive, keep)
    answer = Response(b"".join(event.get("body", b"") for event in events[1:]), events[0]["status"])
    answer.raw_headers = list(events[0]["headers"])
    return answer


def answer_json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


def route(path: str, method: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
    made = Route(path, endpoint, methods=[method])
    made.methods = {method}  # starlette would answer HEAD too, which the specification does not have
    return made


Kind: TypeAlias = Literal["poll", "pass", "single", "other"]
"""A listing with ``updated_since``; a listing without; one record by its id; anything else."""

SHOWN: Final = "dockbell.shown"
"""Key of an ASGI scope: the names of the records that the answer shows, as RESOURCE/ID, set by the endpoints."""

_PREFIX: Final = "/v1/"


def counts(scope: Scope) -> bool:
    """Whether a request is one of the API's, not of the sandbox's own."""
    return str(scope["path"]).startswith(_PREFIX)


def resource_of(scope: Scope) -> str:
    """Return the first part of the path, of one of the API's requests."""
    return str(scope["path"]).removeprefix(_PREFIX).partition("/")[0]


def is_listing(scope: Scope) -> bool:
    return str(scope["path"]).removeprefix(_PREFIX) in RESOURCES


def kind_of(scope: Scope) -> Kind:
    if is_listing(scope):
        parts = scope["query_string"].split(b"&")
        return "poll" if any(part.startswith(b"updated_since=") for part in parts) else "pass"
    return "single" if resource_of(scope) in RESOURCES else "other"


def concerns(chosen: str, scope: Scope) -> bool:
    return chosen in ("all", resource_of(scope))


class Query(msgspec.Struct, frozen=True):
    """The parameters of a listing, read; ``since`` is microseconds since 1970, ``terms`` are values of filters."""

    resource: str
    limit: int
    cursor: str | None = None
    expand: tuple[str, ...] = ()
    since: int | None = None
    status: str | None = None
    terms: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def digest(self) -> bytes:
        """What must stay the same from page to page."""
        return repr((self.resource, self.since, self.status, sorted(self.terms.items()))).encode()


LIMIT_DEFAULT: Final = 25
_DIGITS_MOST: Final = 18


def read_parameters(request: Request, accepted: tuple[str, ...], *, lenient: bool = False) -> dict[str, str]:
    """Return the query parameters; a lenient reader leaves out those that are not accepted here.

    Raises:
        Refusal: One is not accepted here, is given twice or is empty.
    """
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in accepted:
            if lenient:
                continue
            text = f"unknown parameter {name!r}{suggest(name, accepted)}"
            raise Refusal(400, "unknown_parameter", text, parameter=name)
        if name in given:
            raise _invalid(name, "is given more than once; give it once")
        if not value:
            raise _invalid(name, "is empty; give a value or leave it out")
        given[name] = value
    return given


def read_query(request: Request, resource: Resource, options: SandboxOptions, now: int) -> Query:
    """Return what a listing is asked for; ``now`` is the service's time, microseconds since 1970."""
    given = read_parameters(request, resource.parameters, lenient=options.unknown_parameters == "ignore")
    if "cursor" in given:
        accepted = {"anything": given.keys(), "limit": {"cursor", "limit"}, "nothing": {"cursor"}}[options.cursor_with]
        for name in given:
            if name not in accepted:
                text = f"{name} cannot be given with a cursor, which stands for the parameters of the first page"
                raise Refusal(400, "invalid_parameter", text, parameter=name)
    return Query(
        resource=resource.name,
        limit=read_number(given, "limit", 1, PAGE_MOST, LIMIT_DEFAULT),
        cursor=given.get("cursor"),
        expand=read_expand(given, resource, options),
        since=_read_since(given, options, now),
        status=_read_status(given, resource),
        terms={name: given[name] for name in resource.filters if name in given},
    )


def read_number(given: dict[str, str], name: str, least: int, most: int, default: int) -> int:
    text = given.get(name, str(default))
    digits = text.removeprefix("-")
    number = int(text) if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MOST else None
    if number is None or not least <= number <= most:
        raise _invalid(name, f"must be an integer from {least} to {most}, got {_shorten(text)}")
    return number


def read_expand(given: dict[str, str], resource: Resource, options: SandboxOptions) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in given["expand"].split(","))) if "expand" in given else ()
    if options.unknown_expand == "ignore":
        return tuple(name for name in names if name in resource.expand)
    for name in names:
        if name not in resource.expand:
            text = f"cannot embed {_shorten(name)} in {resource.name}{suggest(name, resource.expand)}"
            raise _invalid("expand", text)
    return names


def _read_since(given: dict[str, str], options: SandboxOptions, now: int) -> int | None:
    text = given.get("updated_since")
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        since = to_micros(moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        remedy = "write + as %2B" if " " in text else "for example 2026-11-21T02:30:00Z"
        raise _invalid("updated_since", f"must be an ISO 8601 time, got {_shorten(text)}; {remedy}") from None
    if options.since_most and since < now - round(options.since_most * 1_000_000):
        raise _invalid("updated_since", f"must lie within the last {options.since_most:g} s, got {_shorten(text)}")
    return since


def _read_status(given: dict[str, str], resource: Resource) -> str | None:
    status = given.get("status", resource.default_status)
    if status is None or status == resource.any_status:
        return None
    if status not in resource.statuses:
        accepted = (*resource.statuses, *filter(None, [resource.any_status]))
        raise _invalid("status", f"must be one of {', '.join(accepted)}, got {_shorten(status)}")
    return status


def _invalid(name: str, text: str) -> Refusal:
    return Refusal(400, "invalid_parameter", f"{name} {text}", parameter=name)


def _shorten(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else f"{text[:most]}…")
