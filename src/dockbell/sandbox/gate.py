"""Who may ask, and how often; the headers of every response.

The gate stands before everything else, so that the answer to any request, a crash included, says where its key stands.
Nothing but a path below ``/v1/`` counts. Requests are counted in fixed windows on the full minutes of Unix time, one
for each key and scope. A refused request counts nowhere; a sales order counts, and needs room, in both scopes.
"""

from __future__ import annotations

from email.utils import formatdate
from hmac import compare_digest
from math import ceil
from typing import Final, TypeAlias

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.sandbox.options import Clock, SandboxOptions, Settings
from dockbell.sandbox.requests import Refusal, concerns, counts

WINDOW: Final = 60
UNLIMITED: Final = 1_000_000_000  # what the headers say when there is no limit


class LimitStatus(msgspec.Struct, frozen=True):
    """Where a key stands, as the headers say it; ``reset`` is the Unix time, in seconds, of the next window."""

    admitted: bool
    limit: int
    remaining: int
    reset: int


class Limits:
    """Counts the requests of each key."""

    def __init__(self, options: SandboxOptions) -> None:
        self.allow(options)
        self._start = 0
        self._used: dict[tuple[str, str], int] = {}

    def allow(self, options: SandboxOptions) -> None:
        """Set how many are allowed from now on."""
        self._limits = {
            "requests": options.requests_per_minute or UNLIMITED,
            "orders": options.orders_per_minute or UNLIMITED,
        }

    def admit(self, key: str, now: float, *, order: bool = False) -> LimitStatus:
        """Count a request if there is room for it; a sales order's status is that of the scope with less room."""
        scopes = ("requests", "orders") if order else ("requests",)
        left = {scope: self._left(key, scope, now) for scope in scopes}
        admitted = all(left.values())
        if admitted:
            for scope in scopes:
                self._used[key, scope] = self._used.get((key, scope), 0) + 1
                left[scope] -= 1
        tightest = min(scopes, key=lambda scope: left[scope])
        return LimitStatus(admitted, self._limits[tightest], left[tightest], self._start + WINDOW)

    def look(self, key: str, now: float) -> LimitStatus:
        left = self._left(key, "requests", now)
        return LimitStatus(left > 0, self._limits["requests"], left, self._start + WINDOW)

    def _left(self, key: str, scope: str, now: float) -> int:
        start = int(now // WINDOW) * WINDOW
        if start != self._start:
            self._start = start
            self._used.clear()
        return max(0, self._limits[scope] - self._used.get((key, scope), 0))


ORDERS_PATH = "/v1/sales-orders"
_RETRY_AFTER: Final = b"retry-after"
_WAITING: Final = (429, 503)
_Headers: TypeAlias = list[tuple[bytes, bytes]]
_REFUSALS: Final = {
    401: ("invalid_key", "the API key is not known"),
    403: ("forbidden", "the API key may not do this"),
    503: ("unavailable", "the service is down for maintenance"),
}


class Gate:
    """An ASGI application that lets requests with a known key and room in their window through to another."""

    def __init__(self, app: ASGIApp, settings: Settings, clock: Clock) -> None:
        self._app = app
        self._settings = settings
        self._limits = Limits(settings.options)
        self._clock = clock
        settings.listeners.append(self._limits.allow)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            status = self._limits.look("", now)
            app = refusal.response()
        else:
            if counts(scope):
                is_order = scope["path"] == ORDERS_PATH and scope["method"] == "POST"
                status = self._limits.admit(key, now, order=is_order)
                if not status.admitted:
                    wait = ceil(status.reset - now)
                    text = f"the limit of {status.limit} requests a minute is reached; try again in {wait} s"
                    app = Refusal(429, "rate_limited", text, headers={"Retry-After": str(wait)}).response()
            else:
                status = self._limits.look(key, now)
        await app(scope, receive, _with_headers(send, status, now, options))

    def _authenticate(self, scope: Scope) -> str:
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, key = given[0].strip().partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != "bearer":
            text = "send the header Authorization: Bearer <API key>"
            headers = {"WWW-Authenticate": 'Bearer realm="dockbell sandbox"'}
            raise Refusal(401, "unauthenticated", text, headers=headers)
        known_keys = self._settings.options.api_keys
        matches = [known for known in known_keys if compare_digest(known.encode(), key.strip().encode())]
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


def _with_headers(send: Send, status: LimitStatus, now: float, options: SandboxOptions) -> Send:
    headers = []
    if options.date == "true":
        headers.append((b"date", formatdate(now + options.date_skew, usegmt=True).encode()))
    if options.rate_headers == "true":
        headers += [
            (b"x-ratelimit-limit", b"%d" % status.limit),
            (b"x-ratelimit-remaining", b"%d" % status.remaining),
            (b"x-ratelimit-reset", b"%d" % status.reset),
        ]

    async def send_with_headers(event: Message) -> None:
        if event["type"] == "http.response.start":
            given = list(event.get("headers", ()))
            if event["status"] in _WAITING:
                given = _with_retry_after(given, now, options)
            event = {**event, "headers": [*given, *headers]}
        await send(event)

    return send_with_headers


def _with_retry_after(headers: _Headers, now: float, options: SandboxOptions) -> _Headers:
    """Return headers with the chosen Retry-After, or with their own in the chosen form."""
    waits = [int(value) for name, value in headers if name == _RETRY_AFTER]
    if options.retry_after is not None:
        waits = [options.retry_after]
    date = now + options.date_skew
    in_seconds = options.retry_after_form == "seconds"
    texts = [str(wait) if in_seconds else formatdate(date + wait, usegmt=True) for wait in waits]
    others = [(name, value) for name, value in headers if name != _RETRY_AFTER]
    return others + [(_RETRY_AFTER, text.encode()) for text in texts]
