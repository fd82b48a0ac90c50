"""``/session``: a browser shows the token once, and a cookie from then on.

The daemon keeps no list of sessions: the cookie says when it ends, signed with a key that is derived from the token, so
that a new token ends all sessions. A page of another site may make a browser send the cookie, but it cannot know the
CSRF word that every action must bear.
"""

from __future__ import annotations

import hmac
import secrets
import time
from base64 import urlsafe_b64encode
from hashlib import scrypt, sha256
from http import HTTPStatus
from typing import Final

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.as_json import Model
from dockbell.web import params
from dockbell.web.params import Nothing
from dockbell.web.responses import Problem, json_response
from dockbell.web.tokens import Tokens, refuse

CSRF: Final = "x-dockbell-csrf"

_LIFE_SECONDS: Final = 12 * 3600
_PARTS: Final = 3


class Token(msgspec.Struct, forbid_unknown_fields=True):
    """The token of ``[web]``."""

    token: str


class SessionModel(Model):
    signed_in: bool
    can_act: bool
    csrf: str | None
    needs_token: bool


class BegunSession(Model):
    csrf: str


class Sessions:
    """Begins sessions, and verifies cookies; ``salt`` tells them from those of a dockbell with the same token."""

    def __init__(self, tokens: Tokens, salt: str) -> None:
        self._tokens = tokens
        self._salt = salt
        # Browsers keep cookies by host, not by port: two dockbells on one host need two names.
        self.cookie: Final = f"dockbell_session_{sha256(salt.encode()).hexdigest()[:8]}"
        self._key: tuple[str, bytes] = ("", b"")

    async def begin(self, token: str, now: float) -> tuple[str, str]:
        """Return the cookie of a new session, and its CSRF word; ``token`` is the right one."""
        key = await self._derive(token)
        ends_at, nonce = str(int(now) + _LIFE_SECONDS), secrets.token_urlsafe(16)
        return f"{ends_at}.{nonce}.{_sign(key, 'session', ends_at, nonce)}", _sign(key, "act", ends_at, nonce)

    async def find(self, cookie: str, now: float) -> str | None:
        """Return the CSRF word of a session; None where the cookie is of no session.

        Raises:
            Problem: 503, the token cannot be read.
        """
        parts = cookie.split(".")
        if not self._tokens.is_needed or len(parts) != _PARTS or not cookie.isascii():
            return None
        ends_at, nonce, signature = parts
        key = await self._derive(await self._tokens.reveal())
        if not hmac.compare_digest(signature, _sign(key, "session", ends_at, nonce)) or int(ends_at) <= now:
            return None
        return _sign(key, "act", ends_at, nonce)

    async def _derive(self, token: str) -> bytes:
        known, key = self._key
        if known != token:
            # Slow on purpose: else a thief of a cookie could try tokens until one fits. So it is done once per token.
            key = await to_thread.run_sync(lambda: scrypt(token.encode(), salt=self._salt.encode(), n=2**14, r=8, p=1))
            self._key = token, key
        return key


class Session(msgspec.Struct, frozen=True):
    tokens: Tokens
    sessions: Sessions

    async def answer(self, request: Request) -> Response:
        principal = params.read_principal(request)
        known, needed = principal.is_known, self.tokens.is_needed
        return json_response(SessionModel(signed_in=known, can_act=known, csrf=principal.csrf, needs_token=needed))

    async def begin(self, request: Request) -> Response:
        """Begin a session of a client that shows the token.

        Raises:
            Problem: 400; 401, the token is wrong; 403, none is configured; 429, too many wrong ones were sent.
        """
        given = await params.read_body(request, Token)
        if not self.tokens.is_needed:
            raise no_token()
        token = await self.tokens.check(given.token.strip().encode(), params.read_principal(request))
        cookie, csrf = await self.sessions.begin(token, time.time())
        response = json_response(BegunSession(csrf))
        origin = request.headers.get("origin", "")
        response.set_cookie(
            self.sessions.cookie,
            cookie,
            max_age=_LIFE_SECONDS,
            secure=request.url.scheme == "https" or origin.startswith("https://"),
            httponly=True,
            samesite="strict",
        )
        return response

    async def end(self, request: Request) -> Response:
        await params.read_body(request, Nothing)
        if not params.read_principal(request).is_known:
            raise refuse()
        response = Response(status_code=HTTPStatus.NO_CONTENT)
        response.delete_cookie(self.sessions.cookie, httponly=True, samesite="strict")
        return response


def no_token() -> Problem:
    detail = (
        'token: none is configured, so nothing can be changed here; set token = { env = "DOCKBELL_WEB_TOKEN" } in [web]'
    )
    return Problem(HTTPStatus.FORBIDDEN, "token", detail)


def _sign(key: bytes, purpose: str, *parts: str) -> str:
    digest = hmac.digest(key, ".".join((purpose, *parts)).encode(), sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
