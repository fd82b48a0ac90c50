"""What goes wrong on purpose: slow answers, server errors, connections that break."""

from __future__ import annotations

from random import Random
from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.sandbox.gate import counts
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.refusal import Refusal

HANG_UP: Final = "dockbell.hang_up"
"""ASGI extension of our server: ``await scope["extensions"][HANG_UP](reset=…)`` breaks the connection."""

_ERRORS: Final = (
    Refusal(500, "internal_error", "the service met an unexpected condition"),
    Refusal(502, "bad_gateway", "the service could not reach one of its parts"),
    Refusal(503, "unavailable", "the service is overloaded; try again later"),
    Refusal(504, "gateway_timeout", "one of the service's parts did not answer in time"),
)


class Faults:
    """An ASGI application that spoils some of another's answers; those outside ``/v1/`` never."""

    def __init__(self, app: ASGIApp, options: SandboxOptions, dice: Random) -> None:
        self._app = app
        self._options = options
        self._dice = dice

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or not."""
        if scope["type"] != "http" or not counts(scope):
            await self._app(scope, receive, send)
            return
        options = self._options
        fate = self._dice.random()
        if options.latency:
            await anyio.sleep(options.latency)
        if fate < options.error_rate:
            await self._dice.choice(_ERRORS).response()(scope, receive, send)
        elif fate >= 1 - options.reset_rate / 2:
            await _hang_up(scope, reset=True)
        elif fate >= 1 - options.reset_rate:
            await self._app(scope, receive, _cut_short(scope, send))
        else:
            await self._app(scope, receive, send)


def _cut_short(scope: Scope, send: Send) -> Send:
    """Return a send that stops in the middle of the body."""

    async def send_half(event: Message) -> None:
        if event["type"] == "http.response.body":
            body = event.get("body", b"")
            await send({**event, "body": body[: len(body) // 2], "more_body": True})
            await _hang_up(scope, reset=False)
        else:
            await send(event)

    return send_half


async def _hang_up(scope: Scope, *, reset: bool) -> None:
    """Break the connection.

    Raises:
        ConnectionResetError: There is none to break: the application is called in process.
    """
    hang_up = scope.get("extensions", {}).get(HANG_UP)
    if hang_up is None:
        raise ConnectionResetError("the sandbox hung up")
    await hang_up(reset=reset)
