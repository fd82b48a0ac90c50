"""Making answers, and hearing those of an application in full before they go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope


async def hear(app: ASGIApp, scope: Scope, receive: Receive) -> Response:
    """Return an application's answer to a request."""
    events: list[Message] = []

    async def keep(event: Message) -> None:
        events.append(event)

    await app(scope, receive, keep)
    answer = Response(b"".join(event.get("body", b"") for event in events[1:]), events[0]["status"])
    answer.raw_headers = list(events[0]["headers"])
    return answer


def answer_json(body: bytes, status: int = 200) -> Response:
    """Return an answer with JSON."""
    return Response(body, status, media_type="application/json")


def route(path: str, method: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
    """Return the route of one method of a path."""
    made = Route(path, endpoint, methods=[method])
    made.methods = {method}  # starlette would answer HEAD too, which the specification does not have
    return made
