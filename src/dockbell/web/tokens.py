"""The token of ``[web]``: read anew each time, compared in constant time, with a limit for wrong ones."""

from __future__ import annotations

import hmac
import logging
import math
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import Final, TypeVar

import anyio
from anyio import to_thread

from dockbell.config import Secret
from dockbell.errors import ConfigError
from dockbell.telemetry import Fact, Telemetry
from dockbell.web.client import Principal, find_network
from dockbell.web.responses import Problem

REMEMBERED_MOST: Final = 2000
"""Entries of each memory: networks that guessed, networks that were right, wrong tokens; the oldest are dropped."""

_PER_NETWORK: Final = (10, 6.0)
"""How many tokens a bucket holds, and after how many seconds one is put back."""
_ALL: Final = (100, 0.6)
_READERS: Final = 4
_TOLD_EVERY_SECONDS: Final = 60
_T = TypeVar("_T")


@dataclass(slots=True)
class _Bucket:
    """A token bucket: it held ``held`` at ``at``, by a monotonic clock; one is put back ``every`` seconds."""

    most: int
    every: float
    held: float
    at: float

    def refill(self, now: float) -> float:
        """Return how many it holds now."""
        self.held = min(self.most, self.held + max(0.0, now - self.at) / self.every)
        self.at = now
        return self.held

    def delay(self, now: float) -> float:
        """Return the seconds until it holds one."""
        return max(0.0, 1 - self.refill(now)) * self.every

    def take(self, now: float) -> None:
        self.held = max(0.0, self.refill(now) - 1)


class BruteForceLimiter:
    """Limits how many wrong tokens one network may send, and all networks together.

    Each network has a token bucket, and one more counts for all: a wrong token takes one out, time refills it. While a
    bucket is empty, no token is compared. A network that has lately shown the right token is limited only by its own
    bucket, so that attackers elsewhere cannot lock it out. A wrong token that is sent again does not count: a program
    with an outdated token cannot lock out others behind the same proxy.
    """

    def __init__(self) -> None:
        self._all = _Bucket(*_ALL, held=_ALL[0], at=0)
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._right: OrderedDict[str, None] = OrderedDict()
        self._wrong: OrderedDict[str, None] = OrderedDict()

    def was_wrong(self, mark: str) -> bool:
        """Return whether a token was lately found to be wrong; ``mark`` is a keyed digest of it."""
        return mark in self._wrong

    def delay(self, peer: str, now: float) -> float:
        """Return the seconds after which a token of a peer may be compared."""
        network = find_network(peer)
        bucket = self._buckets.get(network)
        own = bucket.delay(now) if bucket is not None else 0.0
        return own if network in self._right else max(own, self._all.delay(now))

    def note_wrong(self, peer: str, mark: str, now: float) -> None:
        network = find_network(peer)
        bucket = self._buckets.get(network) or _Bucket(*_PER_NETWORK, held=_PER_NETWORK[0], at=now)
        bucket.take(now)
        _remember(self._buckets, network, bucket)
        self._all.take(now)
        _remember(self._wrong, mark, None)

    def note_right(self, peer: str) -> None:
        _remember(self._right, find_network(peer), None)


def _remember(memory: OrderedDict[str, _T], name: str, value: _T) -> None:
    memory[name] = value
    memory.move_to_end(name)
    if len(memory) > REMEMBERED_MOST:
        memory.popitem(last=False)


class TokenUnreadable(Fact, frozen=True):
    """The token cannot be read, so that all clients are refused."""

    weight = logging.ERROR
    reason: str

    line = "web: [web] token: {reason}"


class TokensGuessed(Fact, frozen=True):
    """Too many wrong tokens were sent; for a while none is compared."""

    weight = logging.WARNING
    peer: str
    proxy: str = ""

    def __str__(self) -> str:
        last = Principal(self.peer, self.proxy)
        return f"web: too many wrong tokens, the last from {last}; dockbell checks none for a while"


class Tokens:
    """Checks the tokens that clients show."""

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
            detail = "token: dockbell cannot read it, and accepts no request; its log has more"
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
