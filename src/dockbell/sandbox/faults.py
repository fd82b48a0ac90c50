"""What goes wrong on purpose: slow answers, server errors, connections that break, bad bodies."""

from __future__ import annotations

from random import Random
from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.sandbox.aim import SHOWN, concerns, counts, is_listing, kind_of
from dockbell.sandbox.answers import hear
from dockbell.sandbox.bodies import BAD_BODIES, OF_LISTINGS, UNREADABLE
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.refusal import Refusal
from dockbell.sandbox.settings import Settings

HANG_UP: Final = "dockbell.hang_up"
"""ASGI extension of our server: ``await scope["extensions"][HANG_UP](reset=…)`` breaks the connection."""

_OK: Final = 200
_ERRORS: Final = {
    error.status: error
    for error in (
        Refusal(400, "bad_request", "the service does not accept this request"),
        Refusal(401, "invalid_key", "the API key is not known"),
        Refusal(403, "forbidden", "the API key may not read this"),
        Refusal(404, "not_found", "there is nothing here"),
        Refusal(410, "gone", "there is nothing here any more"),
        Refusal(422, "unprocessable", "the service cannot do this"),
        Refusal(429, "rate_limited", "there are too many requests; try again later"),
        Refusal(500, "internal_error", "the service met an unexpected condition"),
        Refusal(502, "bad_gateway", "the service could not reach one of its parts"),
        Refusal(503, "unavailable", "the service is overloaded; try again later"),
        Refusal(504, "gateway_timeout", "one of the service's parts did not answer in time"),
    )
}
_BY_CHANCE: Final = (500, 502, 503, 504)


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
        if scope["type"] == "http" and counts(scope) and await self._concerns(options, scope, receive):
            fate = self._dice.random()
            if options.latency:
                await anyio.sleep(options.latency)
            if options.fault_skip:
                self._settings.count_down("fault_skip")
            elif options.fault_most != 0:
                app = self._choose(fate, options)
        await app(scope, receive, send)

    async def _concerns(self, options: SandboxOptions, scope: Scope, receive: Receive) -> bool:
        """Tell whether the faults are for a request; where a record is named, its answer is looked at first."""
        if not concerns(options.fault_resource, scope) or options.fault_kind not in ("all", kind_of(scope)):
            return False
        if not options.fault_record:
            return True
        if scope["method"] != "GET":
            return False  # to look at the answer would be to take the order
        looked_at = dict(scope)
        await hear(self._bare, looked_at, receive)
        return options.fault_record in looked_at.get(SHOWN, ())

    def _choose(self, fate: float, options: SandboxOptions) -> ASGIApp:
        """Return who answers a request with this fate, a number from 0 to 1."""
        if fate < options.error_rate:
            app: ASGIApp = _ERRORS[options.error_with or self._dice.choice(_BY_CHANCE)].response()
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
        if name not in OF_LISTINGS or (is_listing(scope) and answer.status_code == _OK):
            spoilt = BAD_BODIES[name](answer, options)
        if spoilt is not answer:
            self._settings.count_down("fault_most")
        await spoilt(scope, receive, send)


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
