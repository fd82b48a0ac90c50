"""Who may ask, and how often; the headers of every response.

The gate stands before everything else, so that the answer to any request, a crash included, says where its key
stands. Nothing but a path below ``/v1/`` counts.
"""

from __future__ import annotations

from email.utils import formatdate
from hmac import compare_digest
from math import ceil
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.sandbox.aim import concerns, counts
from dockbell.sandbox.limits import Limits, Standing
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.refusal import Refusal
from dockbell.sandbox.settings import Clock, Settings

ORDERS_PATH = "/v1/sales-orders"
_RETRY_AFTER: Final = b"retry-after"
_WAITING: Final = (429, 503)
_REFUSALS: Final = {
    401: ("invalid_key", "the API key is not known"),
    403: ("forbidden", "the API key may not do this"),
    503: ("unavailable", "the service is down for maintenance"),
}


class Gate:
    """An ASGI application that lets requests with a known key and room in their window through to another."""

    def __init__(self, app: ASGIApp, settings: Settings, clock: Clock) -> None:
        options = settings.options
        self._app = app
        self._settings = settings
        self._limits = Limits(options.requests_per_minute, options.orders_per_minute)
        self._clock = clock
        settings.listeners.append(lambda new: self._limits.allow(new.requests_per_minute, new.orders_per_minute))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        options = self._settings.options
        now = self._clock().timestamp() + options.clock_skew
        app = self._app
        try:
            key = self._authenticate(scope)
            if options.refuse_with and counts(scope) and concerns(options.refuse_resource, scope):
                self._refuse_for_a_while(options)
        except Refusal as refusal:
            standing = self._limits.look("", now)
            app = refusal.response()
        else:
            standing = self._count(scope, key, now)
            if not standing.admitted and counts(scope):
                app = _too_many(standing, now).response()
        await app(scope, receive, _with_headers(send, standing, now, options))

    def _authenticate(self, scope: Scope) -> str:
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, key = given[0].strip().partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != "bearer":
            text = "send the header Authorization: Bearer <API key>"
            headers = {"WWW-Authenticate": 'Bearer realm="dockbell sandbox"'}
            raise Refusal(401, "unauthenticated", text, headers=headers)
        matches = [
            known for known in self._settings.options.api_keys if compare_digest(known.encode(), key.strip().encode())
        ]
        if not matches:
            headers = {"WWW-Authenticate": 'Bearer realm="dockbell sandbox", error="invalid_token"'}
            raise Refusal(401, "invalid_key", "the API key is not known", headers=headers)
        return matches[0]

    def _refuse_for_a_while(self, options: SandboxOptions) -> None:
        since = min(map(self._settings.seconds_since, ("refuse_with", "refuse_after", "refuse_for")))
        over = since - options.refuse_after
        if over >= 0 and (not options.refuse_for or over < options.refuse_for):
            code, text = _REFUSALS[options.refuse_with]
            raise Refusal(options.refuse_with, code, text)

    def _count(self, scope: Scope, key: str, now: float) -> Standing:
        if not counts(scope):
            return self._limits.look(key, now)
        return self._limits.admit(key, now, order=scope["path"] == ORDERS_PATH and scope["method"] == "POST")


def _too_many(standing: Standing, now: float) -> Refusal:
    wait = ceil(standing.reset - now)
    text = f"the limit of {standing.limit} requests a minute is reached; try again in {wait} s"
    return Refusal(429, "rate_limited", text, headers={"Retry-After": str(wait)})


def _with_headers(send: Send, standing: Standing, now: float, options: SandboxOptions) -> Send:
    headers = []
    if options.date == "true":
        headers.append((b"date", formatdate(now + options.date_skew, usegmt=True).encode()))
    if options.rate_headers == "true":
        headers += [
            (b"x-ratelimit-limit", b"%d" % standing.limit),
            (b"x-ratelimit-remaining", b"%d" % standing.remaining),
            (b"x-ratelimit-reset", b"%d" % standing.reset),
        ]

    async def send_with_headers(event: Message) -> None:
        if event["type"] == "http.response.start":
            given = list(event.get("headers", ()))
            if event["status"] in _WAITING:
                given = _with_retry_after(given, now, options)
            event = {**event, "headers": [*given, *headers]}
        await send(event)

    return send_with_headers


def _with_retry_after(
    headers: list[tuple[bytes, bytes]], now: float, options: SandboxOptions
) -> list[tuple[bytes, bytes]]:
    """Return headers with the chosen Retry-After, or with their own in the chosen form."""
    waits = [int(value) for name, value in headers if name == _RETRY_AFTER]
    if options.retry_after is not None:
        waits = [options.retry_after]
    others = [(name, value) for name, value in headers if name != _RETRY_AFTER]
    return others + [(_RETRY_AFTER, _write_wait(wait, now + options.date_skew, options)) for wait in waits]


def _write_wait(wait: int, now: float, options: SandboxOptions) -> bytes:
    return (str(wait) if options.retry_after_form == "seconds" else formatdate(now + wait, usegmt=True)).encode()
