"""The token that has to be shown: looked up each time, compared in constant time, and not to be guessed."""

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
from dockbell.web.caller import Caller
from dockbell.web.guesses import Guesses
from dockbell.web.problem import Problem

_READERS: Final = 4
_TOLD_EVERY_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class TokenUnreadable(Fact):
    """Nobody can be let in: the token that they would have to show cannot be looked up."""

    weight: ClassVar[int] = logging.ERROR
    reason: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"web: [web] token: {self.reason}"


@dataclass(frozen=True, slots=True)
class TokensGuessed(Fact):
    """Wrong tokens come faster than anybody mistypes them; for a while none is looked at."""

    weight: ClassVar[int] = logging.WARNING
    peer: str
    proxy: str = ""

    def __str__(self) -> str:
        """Return the log line."""
        return (
            f"web: too many wrong tokens, the last from {Caller(self.peer, self.proxy)}; for a while none is looked at"
        )


class Tokens:
    """Looks at what is shown.

    Args:
        secret: The token of ``[web]``; None where there is none.
        telemetry: Is told when the token cannot be looked up, and of guesses; those who ask are not told why.
    """

    def __init__(self, secret: Secret | None, telemetry: Telemetry) -> None:
        self._secret = secret
        self._telemetry = telemetry
        self._problem = ""
        self._guesses = Guesses()
        self._salt = secrets.token_bytes()
        self._told_at = -math.inf
        # Its own: threads that wait for a file on a dead disk must not keep others from theirs.
        self._readers = anyio.CapacityLimiter(_READERS)

    @property
    def is_needed(self) -> bool:
        """Whether there is one."""
        return self._secret is not None

    async def reveal(self) -> str:
        """Return the token; each time anew: it may be changed while the daemon runs.

        Raises:
            Problem: 503, it cannot be looked up.
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

    async def check(self, given: bytes, caller: Caller) -> str:
        """Return the token where this is it.

        Raises:
            Problem: 401, it is another; 429, there were too many others, and this was not looked at; 503.
        """
        if not given:
            raise refuse()
        wanted = (await self.reveal()).encode()
        mark = hmac.digest(self._salt, given, sha256).hex()
        is_right = hmac.compare_digest(given, wanted)
        if self._guesses.is_known(mark) and not is_right:
            raise refuse()
        if delay := self._guesses.delay(caller.peer, time.monotonic()):
            seconds = math.ceil(delay)
            detail = f"token: too many wrong ones were sent; send the right one in {seconds} s"
            headers = {"Retry-After": str(seconds)}
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "too-many-tokens", detail, headers=headers)
        if is_right:
            self._guesses.note_right(caller.peer)
            return wanted.decode()
        self._note_wrong(caller, mark)
        raise refuse()

    def _note_wrong(self, caller: Caller, mark: str) -> None:
        now = time.monotonic()
        self._guesses.note_wrong(caller.peer, mark, now)
        if self._guesses.delay(caller.peer, now) and now - self._told_at > _TOLD_EVERY_SECONDS:
            self._told_at = now
            self._telemetry.emit(TokensGuessed(caller.peer, caller.proxy))


def refuse() -> Problem:
    """Return why somebody is not let in who shows no token that is right."""
    detail = "token: missing or wrong; send Authorization: Bearer with the token of [web]"
    return Problem(HTTPStatus.UNAUTHORIZED, "token", detail, headers={"WWW-Authenticate": "Bearer"})
