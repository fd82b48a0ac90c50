"""What goes wrong on purpose: slow answers, server errors, connections that break, bad bodies."""

from __future__ import annotations

from random import Random
from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.sandbox.answers import hear
from dockbell.sandbox.bodies import BAD_BODIES, COMPLETE_LOOKING, UNREADABLE
from dockbell.sandbox.catalog import RESOURCES
from dockbell.sandbox.gate import counts
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.refusal import Refusal
from dockbell.sandbox.settings import Settings

HANG_UP: Final = "dockbell.hang_up"
"""ASGI extension of our server: ``await scope["extensions"][HANG_UP](reset=…)`` breaks the connection."""

_OK: Final = 200
_ERRORS: Final = (
    Refusal(500, "internal_error", "the service met an unexpected condition"),
    Refusal(502, "bad_gateway", "the service could not reach one of its parts"),
    Refusal(503, "unavailable", "the service is overloaded; try again later"),
    Refusal(504, "gateway_timeout", "one of the service's parts did not answer in time"),
)


class Faults:
    """An ASGI application that spoils some of another's answers; those outside ``/v1/`` never.

    Args:
        app: The other application.
        bare: The part of it that writes the bodies, before anything is done to them.
        settings: Which answers are spoilt, and how.
        dice: Chooses.
    """

    def __init__(self, app: ASGIApp, bare: ASGIApp, settings: Settings, dice: Random) -> None:
        self._app = app
        self._bare = bare
        self._settings = settings
        self._dice = dice

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or not."""
        options = self._settings.options
        app = self._app
        if scope["type"] == "http" and counts(scope) and _concerns(options, scope):
            fate = self._dice.random()
            if options.latency:
                await anyio.sleep(options.latency)
            if options.fault_skip:
                self._settings.count_down("fault_skip")
            elif options.fault_most != 0:
                app = self._choose(fate, options)
        await app(scope, receive, send)

    def _choose(self, fate: float, options: SandboxOptions) -> ASGIApp:
        """Return who answers a request with this fate, a number from 0 to 1."""
        if fate < options.error_rate:
            app: ASGIApp = self._dice.choice(_ERRORS).response()
        elif fate >= 1 - options.reset_rate / 2:
            app = _reset
        elif fate >= 1 - options.reset_rate:
            app = self._cut_short
        elif fate < options.error_rate + options.bad_body_rate:
            return self._answer_badly
        else:
            return self._app
        self._settings.count_down("fault_most")
        return app

    async def _cut_short(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stop in the middle of the body."""

        async def send_half(event: Message) -> None:
            if event["type"] == "http.response.body":
                body = event.get("body", b"")
                await send({**event, "body": body[: len(body) // 2], "more_body": True})
                await _hang_up(scope, reset=False)
            else:
                await send(event)

        await self._app(scope, receive, send_half)

    async def _answer_badly(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a bad body; one that is made of records counts only where there are some."""
        options = self._settings.options
        name = self._dice.choice(tuple(UNREADABLE)) if options.bad_body == "any" else options.bad_body
        answer = await hear(self._bare, scope, receive)
        spoilt = answer
        if name not in COMPLETE_LOOKING or (_is_listing(scope) and answer.status_code == _OK):
            spoilt = BAD_BODIES[name](answer, options)
        if spoilt is not answer:
            self._settings.count_down("fault_most")
        await spoilt(scope, receive, send)


def _concerns(options: SandboxOptions, scope: Scope) -> bool:
    resource = options.fault_resource
    return resource == "all" or scope["path"].split("/")[2] == resource


def _is_listing(scope: Scope) -> bool:
    return scope["path"].removeprefix("/v1/") in RESOURCES


async def _reset(scope: Scope, _: Receive, __: Send) -> None:
    await _hang_up(scope, reset=True)


async def _hang_up(scope: Scope, *, reset: bool) -> None:
    """Break the connection.

    Raises:
        ConnectionResetError: There is none to break: the application is called in process.
    """
    hang_up = scope.get("extensions", {}).get(HANG_UP)
    if hang_up is None:
        raise ConnectionResetError("the sandbox hung up")
    await hang_up(reset=reset)
