"""Who may ask, and what: what is refused before anything is routed.

A page of another site that a browser of this network shows may not: it can neither read what it asks for, since nothing
is allowed to other origins, nor pretend that its own name means this machine, since ``Host`` is checked, nor act in the
name of an operator whose browser has a session, since it cannot know the word that acts must bear.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send

from dockbell.config import WebSettings
from dockbell.config.values import show
from dockbell.config.web import is_loopback, normalise_host
from dockbell.web.address import Proxies, read_all
from dockbell.web.assets import wants_page
from dockbell.web.caller import Caller
from dockbell.web.connection import HEAD_BYTES_MOST
from dockbell.web.headers import with_headers
from dockbell.web.place import Access, Place, Places
from dockbell.web.problem import Problem
from dockbell.web.question import BODY_BYTES_MOST, too_large
from dockbell.web.session import CSRF, Sessions, no_token
from dockbell.web.tokens import Tokens, refuse

_READING: Final = ("GET", "HEAD")
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")
# https://www.rfc-editor.org/rfc/rfc9112#section-3.2.2
_ABSOLUTE: Final = re.compile(rb"https?://([^/]*)(/.*)?", re.IGNORECASE)


class Gate:
    """Lets through to an application what may be asked.

    Args:
        app: The application.
        settings: The names under which it may be asked.
        places: What there is, and who may ask for it.
        tokens: The token.
        sessions: Of those who have shown it to get a cookie.
    """

    def __init__(self, app: ASGIApp, settings: WebSettings, places: Places, tokens: Tokens, sessions: Sessions) -> None:
        self._app = app
        self._places = places
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
        """Refuse what may not be asked, and leave in the scope the path of what may, and who asks.

        Raises:
            Problem: Why it may not.
        """
        headers = {name: value.decode("latin-1") for name, value in reversed(scope["headers"])}  # the first counts
        path, host = self._check_target(scope, headers.get(b"host", ""))
        place = self._places.find(path)
        method = scope["method"]
        access = place[method].access if method in place else Access.READ
        if access is Access.PAGE:
            access = Access.OPEN if wants_page(headers.get(b"accept", "")) else Access.READ
        caller = await self._admit(access, headers, scope)
        _check_method(method, place)
        if method in _READING:
            _refuse_body(headers)
        else:
            self._check_origin(headers, host)
            if access is Access.ACT:
                self._check_word(caller, headers)
            if int(headers.get(b"content-length", "0")) > BODY_BYTES_MOST:
                raise too_large()
        scope["path"] = path  # as it was sent, each part still encoded: a slash in a key is no border of parts
        scope.setdefault("state", {})["caller"] = caller

    def _check_target(self, scope: Scope, host: str) -> tuple[str, str]:
        """Return the path that is asked for, and the host."""
        path = scope["raw_path"].decode("ascii")
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
        if not path.startswith("/"):
            raise Problem(HTTPStatus.BAD_REQUEST, "bad-request", f"target {show(path)}: must begin with a slash")
        return path, host

    def _is_own(self, host: str, server: tuple[str, int] | None) -> bool:
        match = _HOST.fullmatch(host)
        if match is None or not match[1]:
            return False
        name = normalise_host(match[1])
        # An address that somebody has connected to is not a name that somebody has made up.
        is_reached = server is not None and name == normalise_host(server[0])
        return name in self._names or is_loopback(name) or is_reached

    async def _admit(self, access: Access, headers: Mapping[bytes, str], scope: Scope) -> Caller:
        """Return who asks.

        Raises:
            Problem: Whoever asks must have a token and shows none, or a wrong one, or it cannot be looked at.
        """
        stranger = self._find_caller(scope)
        if access is Access.OPEN or not self._tokens.is_needed:
            return stranger
        try:
            caller = await self._identify(headers, stranger)
        except Problem:
            if access is Access.EITHER:
                return stranger
            raise
        if not caller.is_known and access is not Access.EITHER:
            raise refuse()
        return caller

    def _find_caller(self, scope: Scope) -> Caller:
        """Return who asks by its address, and leave in the scope how: both as a proxy says that is believed."""
        peer = scope["client"][0] if scope.get("client") else ""
        client = self._proxies.find_client(peer, read_all(scope["headers"], b"x-forwarded-for"))
        said = read_all(scope["headers"], b"x-forwarded-proto")
        scope["scheme"] = self._proxies.find_scheme(peer, said, scope["scheme"])
        return Caller(client, proxy="" if client == peer else peer)

    async def _identify(self, headers: Mapping[bytes, str], stranger: Caller) -> Caller:
        """Return who asks, by the token that is shown, or else by the cookie.

        Raises:
            Problem: The token is wrong, or cannot be looked at.
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
        """Refuse what a page of another origin has a browser send.

        Raises:
            Problem: 403.
        """
        origin = headers.get(b"origin")
        own = {self._origin, *(_write_origin(f"{scheme}://{host}") for scheme in ("http", "https"))}
        is_ours = origin is None or (_write_origin(origin) or "none") in own
        if not is_ours or headers.get(b"sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            whose = "of another site" if origin is None else show(origin)
            detail = f"origin {whose}: may not act here; if it is where a proxy shows dockbell, set url in [web]"
            raise Problem(HTTPStatus.FORBIDDEN, "origin", detail)

    def _check_word(self, caller: Caller, headers: Mapping[bytes, str]) -> None:
        """Refuse who may not act.

        Raises:
            Problem: 403.
        """
        if not self._tokens.is_needed:
            raise no_token()
        if caller.csrf is not None and not hmac.compare_digest(
            caller.csrf.encode(), headers.get(CSRF.encode(), "").encode("latin-1")
        ):
            detail = "X-Dockbell-CSRF: missing or wrong; send what /session answered"
            raise Problem(HTTPStatus.FORBIDDEN, "csrf", detail)


def _check_method(method: str, place: Mapping[str, Place]) -> None:
    allowed: Collection[str] = place or _READING
    if method not in allowed:
        detail = f"{method}: is not possible here; use {' or '.join(each for each in allowed if each != 'HEAD')}"
        raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, "method", detail, headers={"Allow": ", ".join(allowed)})


def _refuse_body(headers: Mapping[bytes, str]) -> None:
    if b"transfer-encoding" in headers or headers.get(b"content-length", "0") != "0":
        detail = "body: is not taken; leave it out"
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body", detail, headers={"Connection": "close"})


def _write_origin(url: str) -> str:
    """Return the origin of an address as it is compared; empty where it has none."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return ""
    return f"{parts.scheme}://{normalise_host(parts.hostname)}:{port}" if parts.hostname else ""


def _measure_head(scope: Scope) -> int:
    """Return about how many bytes a head had: without the spaces that meant nothing."""
    fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
    return len(scope["raw_path"]) + len(scope["query_string"]) + fields
