"""Who may ask: what is refused before anything is routed.

A page of another site that a browser of this network shows may not: it can neither read what it asks for, since nothing
is allowed to other origins, nor pretend that its own name means this machine, since ``Host`` is checked.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar, Final
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.config import WebSettings
from dockbell.config.values import show
from dockbell.config.web import is_loopback, normalise_host
from dockbell.errors import ConfigError
from dockbell.telemetry import Fact, Telemetry
from dockbell.web.connection import HEAD_BYTES_MOST
from dockbell.web.problem import Problem

_METHODS: Final = ("GET", "HEAD")
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")
# https://www.rfc-editor.org/rfc/rfc9112#section-3.2.2
_ABSOLUTE: Final = re.compile(rb"https?://([^/]*)(/.*)?", re.IGNORECASE)
_TOKEN_READERS: Final = 4
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, slots=True)
class TokenUnreadable(Fact):
    """Nobody can be let in: the token that they would have to show cannot be looked up."""

    weight: ClassVar[int] = logging.ERROR
    reason: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"web: [web] token: {self.reason}"


class Gate:
    """Lets through to an application what may be asked.

    Args:
        app: The application.
        settings: The names under which it may be asked, and the token.
        telemetry: Is told when the token cannot be looked up; those who ask are not told why.
    """

    def __init__(self, app: ASGIApp, settings: WebSettings, telemetry: Telemetry) -> None:
        self._app = app
        self._telemetry = telemetry
        self._token = settings.token
        self._token_problem = ""
        # Its own: threads that wait for a file on a dead disk must not keep others from theirs.
        self._token_readers = anyio.CapacityLimiter(_TOKEN_READERS)
        own = [settings.address[0], *settings.hosts, urlsplit(settings.base_url).hostname or ""]
        self._names = frozenset(map(normalise_host, own))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; see https://asgi.readthedocs.io/en/latest/specs/www.html."""
        try:
            await self._check(scope)
        except Problem as problem:
            app: ASGIApp = problem.response()
        else:
            app = self._app

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await app(scope, receive, send_with_headers)

    async def _check(self, scope: Scope) -> None:
        """Refuse what may not be asked, and leave in the scope the path of what may.

        Raises:
            Problem: Why it may not.
        """
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        path, host = scope["raw_path"].decode("ascii"), headers.get(b"host", "")
        # One that arrives in pieces is given up sooner; one that arrives at once is all here.
        if _measure_head(scope) > HEAD_BYTES_MOST:
            detail = f"head: has more than {HEAD_BYTES_MOST} bytes; ask with fewer headers"
            closing = {"Connection": "close"}
            raise Problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head", detail, headers=closing)
        if match := _ABSOLUTE.fullmatch(scope["raw_path"]):
            host, path = match[1].decode("ascii"), (match[2] or b"/").decode("ascii")
        if not self._is_own(host, scope["server"]):
            detail = f"host {show(host)}: is no name of this dockbell; ask by its address, or add it to [web] hosts"
            raise Problem(HTTPStatus.MISDIRECTED_REQUEST, "unknown-host", detail)
        await self._check_token(value for name, value in scope["headers"] if name == b"authorization")
        if scope["method"] not in _METHODS:
            detail = f"{scope['method']}: is not possible here; use GET"
            allow = {"Allow": ", ".join(_METHODS)}
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, "method", detail, headers=allow)
        if b"transfer-encoding" in headers or headers.get(b"content-length", "0") != "0":
            detail = "body: is not taken; leave it out"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body", detail, headers={"Connection": "close"})
        if not path.startswith("/"):
            raise Problem(HTTPStatus.BAD_REQUEST, "bad-request", f"target {show(path)}: must begin with a slash")
        scope["path"] = path  # as it was sent, each part still encoded: a slash in a key is no border of parts

    def _is_own(self, host: str, server: tuple[str, int] | None) -> bool:
        match = _HOST.fullmatch(host)
        if match is None or not match[1]:
            return False
        name = normalise_host(match[1])
        # An address that somebody has connected to is not a name that somebody has made up.
        is_reached = server is not None and name == normalise_host(server[0])
        return name in self._names or is_loopback(name) or is_reached

    async def _check_token(self, given: Iterable[bytes]) -> None:
        if self._token is None:
            return
        try:
            # Each time: it may be changed while the daemon runs.
            wanted = await to_thread.run_sync(self._token.reveal, abandon_on_cancel=True, limiter=self._token_readers)
        except ConfigError as error:
            if str(error) != self._token_problem:
                self._token_problem = str(error)
                self._telemetry.emit(TokenUnreadable(self._token_problem))
            detail = "token: cannot be looked up, so nobody is let in; the log of dockbell has more"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "token", detail) from None
        self._token_problem = ""
        scheme, _, token = next(iter(given), b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), wanted.encode()):
            detail = "token: missing or wrong; send Authorization: Bearer with the token of [web]"
            raise Problem(HTTPStatus.UNAUTHORIZED, "token", detail, headers={"WWW-Authenticate": "Bearer"})


def _measure_head(scope: Scope) -> int:
    """Return about how many bytes a head had: without the spaces that meant nothing."""
    fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + fields
