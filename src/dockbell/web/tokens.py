"""The token of ``[web]``: read anew each time, compared in constant time, with a limit for wrong ones."""

from __future__ import annotations

import hmac
import logging
import math
import secrets
import time
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import ClassVar, Final

import anyio
from anyio import to_thread

from dockbell.config import Secret
from dockbell.errors import ConfigError
from dockbell.telemetry import Fact, Telemetry
from dockbell.web.brute_force import BruteForceLimiter
from dockbell.web.principal import Principal
from dockbell.web.problem import Problem

_READERS: Final = 4
_TOLD_EVERY_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class TokenUnreadable(Fact):
    """The token cannot be read, so that all clients are refused."""

    weight: ClassVar[int] = logging.ERROR
    reason: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"web: [web] token: {self.reason}"


@dataclass(frozen=True, slots=True)
class TokensGuessed(Fact):
    """Too many wrong tokens were sent; for a while none is compared."""

    weight: ClassVar[int] = logging.WARNING
    peer: str
    proxy: str = ""

    def __str__(self) -> str:
        """Return the log line."""
        last = Principal(self.peer, self.proxy)
        return f"web: too many wrong tokens, the last from {last}; for a while none is looked at"


class Tokens:
    """Checks the tokens that clients show.

    Args:
        secret: The token of ``[web]``; None where there is none.
        telemetry: Is told of a token that cannot be read, and of too many wrong ones.
    """

    def __init__(self, secret: Secret | None, telemetry: Telemetry) -> None:
        self._secret = secret
        self._telemetry = telemetry
        self._problem = ""
        self._limiter = BruteForceLimiter()
        self._salt = secrets.token_bytes()
        self._told_at = -math.inf
        # Its own threads: they may wait for a file on a dead disk, and must not block other work in threads.
        self._readers = anyio.CapacityLimiter(_READERS)

    @property
    def is_needed(self) -> bool:
        """Whether there is one."""
        return self._secret is not None

    async def reveal(self) -> str:
        """Return the token, read anew because it may change while the daemon runs.

        Raises:
            Problem: 503, it cannot be read.
        """
        assert self._secret is not None
        try:
            token = await to_thread.run_sync(self._secret.reveal, abandon_on_cancel=True, limiter=self._readers)
        except ConfigError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._telemetry.emit(TokenUnreadable(self._problem))
            detail = "token: cannot be looked up, so nobody is let in; the log of dockbell has more"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "token", detail) from None
        self._problem = ""
        return token

    async def check(self, given: bytes, principal: Principal) -> str:
        """Return the token if this is it.

        Raises:
            Problem: 401, it is wrong; 429, too many were wrong, and this one was not compared; 503.
        """
        if not given:
            raise refuse()
        wanted = (await self.reveal()).encode()
        mark = hmac.digest(self._salt, given, sha256).hex()
        is_right = hmac.compare_digest(given, wanted)
        if self._limiter.was_wrong(mark) and not is_right:
            raise refuse()
        if delay := self._limiter.delay(principal.peer, time.monotonic()):
            seconds = math.ceil(delay)
            detail = f"token: too many wrong ones were sent; send the right one in {seconds} s"
            headers = {"Retry-After": str(seconds)}
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "too-many-tokens", detail, headers=headers)
        if is_right:
            self._limiter.note_right(principal.peer)
            return wanted.decode()
        self._note_wrong(principal, mark)
        raise refuse()

    def _note_wrong(self, principal: Principal, mark: str) -> None:
        now = time.monotonic()
        self._limiter.note_wrong(principal.peer, mark, now)
        if self._limiter.delay(principal.peer, now) and now - self._told_at > _TOLD_EVERY_SECONDS:
            self._told_at = now
            self._telemetry.emit(TokensGuessed(principal.peer, principal.proxy))


def refuse() -> Problem:
    """Return the problem of a client that shows no token, or a wrong one."""
    detail = "token: missing or wrong; send Authorization: Bearer with the token of [web]"
    return Problem(HTTPStatus.UNAUTHORIZED, "token", detail, headers={"WWW-Authenticate": "Bearer"})
