"""Checks each request before it is routed: its host, token or session, method, origin and size.

A browser of this network may show a page of another site. That page cannot read an answer, because no CORS header
allows it; cannot point its own name at this machine (DNS rebinding), because ``Host`` is checked; and cannot act for an
operator with a session, because it does not know the CSRF word.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from dockbell.config import WebSettings
from dockbell.config.values import show
from dockbell.config.web import is_loopback, normalise_host
from dockbell.web.client import Principal, Proxies, read_all
from dockbell.web.connection import HEAD_BYTES_MOST
from dockbell.web.params import BODY_BYTES_MOST, accepts, too_large
from dockbell.web.responses import Problem, with_headers
from dockbell.web.route import Access, Route, Routes
from dockbell.web.session import CSRF, Sessions, no_token
from dockbell.web.tokens import Tokens, refuse

_READING: Final = ("GET", "HEAD")
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")
# https://www.rfc-editor.org/rfc/rfc9112#section-3.2.2
_ABSOLUTE: Final = re.compile(rb"https?://([^/]*)(/.*)?", re.IGNORECASE)


class Gate:
    """Passes allowed requests on to an application."""

    def __init__(self, app: ASGIApp, settings: WebSettings, routes: Routes, tokens: Tokens, sessions: Sessions) -> None:
        self._app = app
        self._routes = routes
        self._tokens = tokens
        self._sessions = sessions
        self._proxies = Proxies(settings.proxy_networks)
        self._origin = _write_origin(settings.base_url)
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
        await app(scope, receive, with_headers(send))

    async def _check(self, scope: Scope) -> None:
        """Refuse a request that is not allowed; else leave its path and its principal in the scope.

        Raises:
            Problem: Why it is not allowed.
        """
        headers = {name: value.decode("latin-1") for name, value in reversed(scope["headers"])}  # the first counts
        path, host = self._check_target(scope, headers.get(b"host", ""))
        by_method = self._routes.find(path)
        method = scope["method"]
        access = by_method[method].access if method in by_method else Access.READ
        if access is Access.PAGE:
            access = Access.OPEN if accepts(headers.get(b"accept", ""), "text/html") else Access.READ
        principal = await self._admit(access, headers, scope)
        _check_method(method, by_method)
        if method in _READING:
            _refuse_body(headers)
        else:
            self._check_origin(headers, host)
            if access is Access.ACT:
                self._check_csrf(principal, headers)
            if int(headers.get(b"content-length", "0")) > BODY_BYTES_MOST:
                raise too_large()
        scope["path"] = path  # still encoded: a slash inside a key separates no parts
        scope.setdefault("state", {})["principal"] = principal

    def _check_target(self, scope: Scope, host: str) -> tuple[str, str]:
        """Return the path and the host of a request.

        Raises:
            Problem: The head is too large, or the host is not the site's.
        """
        path = scope["raw_path"].decode("ascii")
        # h11 refuses a large head that arrives in pieces, but not one that arrives at once.
        if _measure_head(scope) > HEAD_BYTES_MOST:
            detail = f"head: is larger than {HEAD_BYTES_MOST} bytes; send fewer headers"
            closing = {"Connection": "close"}
            raise Problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head", detail, headers=closing)
        if match := _ABSOLUTE.fullmatch(scope["raw_path"]):
            host, path = match[1].decode("ascii"), (match[2] or b"/").decode("ascii")
        if not self._is_own(host, scope["server"]):
            detail = f"host {show(host)}: is not a name of this dockbell; use its address, or add it to [web] hosts"
            raise Problem(HTTPStatus.MISDIRECTED_REQUEST, "unknown-host", detail)
        if not path.startswith("/"):
            raise Problem(HTTPStatus.BAD_REQUEST, "bad-request", f"target {show(path)}: must begin with a slash")
        return path, host

    def _is_own(self, host: str, server: tuple[str, int] | None) -> bool:
        match = _HOST.fullmatch(host)
        if match is None or not match[1]:
            return False
        name = normalise_host(match[1])
        # The address that a client has connected to cannot be a rebound name.
        is_reached = server is not None and name == normalise_host(server[0])
        return name in self._names or is_loopback(name) or is_reached

    async def _admit(self, access: Access, headers: Mapping[bytes, str], scope: Scope) -> Principal:
        """Return the principal of a request.

        Raises:
            Problem: The token is needed, and is missing, wrong, or cannot be compared.
        """
        stranger = self._find_principal(scope)
        if access is Access.OPEN or not self._tokens.is_needed:
            return stranger
        try:
            principal = await self._identify(headers, stranger)
        except Problem:
            if access is Access.EITHER:
                return stranger
            raise
        if not principal.is_known and access is not Access.EITHER:
            raise refuse()
        return principal

    def _find_principal(self, scope: Scope) -> Principal:
        """Return the principal by its address, and leave the scheme in the scope; trusted proxies tell both."""
        peer = scope["client"][0] if scope.get("client") else ""
        client = self._proxies.find_client(peer, read_all(scope["headers"], b"x-forwarded-for"))
        said = read_all(scope["headers"], b"x-forwarded-proto")
        scope["scheme"] = self._proxies.find_scheme(peer, said, scope["scheme"])
        return Principal(client, proxy="" if client == peer else peer)

    async def _identify(self, headers: Mapping[bytes, str], stranger: Principal) -> Principal:
        """Return the principal that the token proves, or else the cookie.

        Raises:
            Problem: The token is wrong, or cannot be compared.
        """
        if b"authorization" in headers:
            scheme, _, token = headers[b"authorization"].partition(" ")
            await self._tokens.check(token.strip().encode("latin-1") if scheme.lower() == "bearer" else b"", stranger)
            return replace(stranger, is_known=True)
        if cookie := cookie_parser(headers.get(b"cookie", "")).get(self._sessions.cookie):
            csrf = await self._sessions.find(cookie, time.time())
            return replace(stranger, is_known=csrf is not None, csrf=csrf)
        return stranger

    def _check_origin(self, headers: Mapping[bytes, str], host: str) -> None:
        """Refuse a request that a page of another origin made a browser send."""
        origin = headers.get(b"origin")
        own = {self._origin, *(_write_origin(f"{scheme}://{host}") for scheme in ("http", "https"))}
        is_ours = origin is None or (_write_origin(origin) or "none") in own
        if not is_ours or headers.get(b"sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            whose = "of another site" if origin is None else show(origin)
            detail = f"origin {whose}: is not allowed to act; if a proxy serves dockbell there, set url in [web]"
            raise Problem(HTTPStatus.FORBIDDEN, "origin", detail)

    def _check_csrf(self, principal: Principal, headers: Mapping[bytes, str]) -> None:
        """Refuse an action without the CSRF word of its session, and all actions where no token is configured."""
        if not self._tokens.is_needed:
            raise no_token()
        if principal.csrf is not None and not hmac.compare_digest(
            principal.csrf.encode(), headers.get(CSRF.encode(), "").encode("latin-1")
        ):
            detail = "X-Dockbell-CSRF: missing or wrong; send the value that /session returned"
            raise Problem(HTTPStatus.FORBIDDEN, "csrf", detail)


def _check_method(method: str, by_method: Mapping[str, Route]) -> None:
    allowed: Collection[str] = by_method or _READING
    if method not in allowed:
        detail = f"{method}: is not allowed here; use {' or '.join(each for each in allowed if each != 'HEAD')}"
        raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, "method", detail, headers={"Allow": ", ".join(allowed)})


def _refuse_body(headers: Mapping[bytes, str]) -> None:
    if b"transfer-encoding" in headers or headers.get(b"content-length", "0") != "0":
        detail = "body: is not allowed here; omit it"
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body", detail, headers={"Connection": "close"})


def _write_origin(url: str) -> str:
    """Return the normalised origin of a URL; empty where it has none."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return ""
    return f"{parts.scheme}://{normalise_host(parts.hostname)}:{port}" if parts.hostname else ""


def _measure_head(scope: Scope) -> int:
    """Return the bytes of a head, without optional whitespace."""
    fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + fields
