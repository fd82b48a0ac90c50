"""Access tokens of OAuth 2.0, for receivers that want them: the grant of client credentials (RFC 6749, 4.4).

A token is asked for when the first request needs it, used by all lanes for as long as it is valid, and asked for again
once the receiver refuses it. The libraries for this bring an HTTP client of their own, which would dial any address;
here the request goes by the sink's own guarded connections.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import AsyncIterable
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import anyio
import httpcore
import httpx
import msgspec
from pydantic import BaseModel, ValidationError

from dockbell.config import RevealedBytes
from dockbell.sinks.webhook.connections import to_core
from dockbell.sinks.webhook.settings import Headers, OAuth2

_ANSWER_MOST: Final = 64 * 1024
_VALID_SECONDS: Final = 600
"""Of a token whose answer does not say how long it is valid."""
_EARLY_SECONDS: Final = 30
"""So long before its end a token is not used any more: a request takes time, and clocks differ."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_ERROR: Final = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,100}")  # RFC 6749, 5.2


class _Granted(BaseModel):
    access_token: str = ""
    token_type: str = "bearer"
    expires_in: float | None = None


class TokenRefused(Exception):
    """The authorization server gives no token; the text says why, and holds no secret."""


class AccessToken(msgspec.Struct, frozen=True):
    """A token, and until when it may be used, by the event loop's clock."""

    header: tuple[bytes, bytes]
    until: float


class TokenKeeper:
    """Has the token of one sink.

    Attributes:
        place: The host and port of the authorization server, which may be shown.
        turn: Held while a token is asked for, so that one lane asks for all.
        last: The last one, whether or not it may still be used.
    """

    def __init__(self, settings: OAuth2) -> None:
        self.place = httpx.URL(settings.token_url).netloc.decode()
        self.turn = anyio.Lock()
        self.last: AccessToken | None = None
        self._settings = settings
        self._is_refused = False

    @property
    def current(self) -> AccessToken | None:
        """The token that may be used, if there is one."""
        token = self.last
        is_usable = token is not None and not self._is_refused and anyio.current_time() < token.until
        return token if is_usable else None

    def forget(self, token: AccessToken) -> None:
        """Ask for another one before the next request: the receiver does not take this one."""
        if self.last is token:
            self._is_refused = True

    def write_request(self, secret: str, extensions: dict[str, Any]) -> httpcore.Request:
        """Return the request for a token."""
        settings = self._settings
        form = {"grant_type": "client_credentials", "scope": settings.scope, "audience": settings.audience}
        headers: Headers = [(b"accept", b"application/json"), (b"content-type", b"application/x-www-form-urlencoded")]
        if settings.client_auth == "post":
            form |= {"client_id": settings.client_id, "client_secret": secret}
        else:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(secret)}"  # RFC 6749, 2.3.1
            headers.append((b"authorization", RevealedBytes(b"Basic " + b64encode(pair.encode()))))
        body = urlencode({name: value for name, value in form.items() if value is not None}).encode()
        url = httpx.URL(settings.token_url)
        headers += [(b"host", url.netloc), (b"content-length", b"%d" % len(body))]
        return httpcore.Request("POST", to_core(url), headers=headers, content=body, extensions=extensions)

    async def take(self, response: httpcore.Response) -> AccessToken:
        """Return the token that the authorization server has answered with.

        Raises:
            TokenRefused: There is none in it.
        """
        async with aclosing(response):
            body = await _read(response)
        if response.status != HTTPStatus.OK:
            raise TokenRefused(f"HTTP {response.status}{_find_error(body)}")
        try:
            granted = _Granted.model_validate_json(body)
        except ValidationError:
            raise TokenRefused("its answer is not JSON with an access_token") from None
        if not _TOKEN.fullmatch(granted.access_token):
            raise TokenRefused(f"its answer has no access_token{_find_error(body)}")
        if granted.token_type.lower() != "bearer":
            raise TokenRefused("its answer has a token_type that is not Bearer")
        valid = granted.expires_in or _VALID_SECONDS
        until = anyio.current_time() + max(valid - _EARLY_SECONDS, valid / 2)
        header = RevealedBytes(b"Bearer " + granted.access_token.encode())
        self.last, self._is_refused = AccessToken((b"authorization", header), until), False
        return self.last


async def _read(response: httpcore.Response) -> bytes:
    assert isinstance(response.stream, AsyncIterable)
    body = bytearray()
    async for chunk in response.stream:
        body += chunk
        if len(body) > _ANSWER_MOST:
            raise TokenRefused(f"its answer is longer than {_ANSWER_MOST:,} bytes")
    return bytes(body)


def _find_error(body: bytes) -> str:
    """Return the code of an error as RFC 6749, 5.2 has it, ``: invalid_client``; its description may quote a secret."""
    try:
        error = json.loads(body).get("error")
    except (ValueError, AttributeError):
        return ""
    return f": {error}" if isinstance(error, str) and _ERROR.fullmatch(error) else ""
