"""One API account: its key, its budgets, and what the API refuses it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import anyio

from dockbell.config import Revealed, RevealedBytes
from dockbell.core.model import Allowance, Urgency
from dockbell.core.reading.allowance import WindowClock
from dockbell.core.reading.request import Request
from dockbell.core.reading.response import NOT_FOUND, Response
from dockbell.core.reading.response_headers import read_retry_after
from dockbell.core.reading.response_status import check_status
from dockbell.core.running.backoff import delay
from dockbell.core.running.budget import Budget
from dockbell.core.running.key_gate import KeyGate
from dockbell.errors import ConfigError, RateLimited, SourceError, SourceRefused
from dockbell.sources.connection_pool import ConnectionPool
from dockbell.sources.redactor import Redactor
from dockbell.sources.request_queue import RequestQueue, now
from dockbell.telemetry import RequestSent, Telemetry

PAUSE_MOST: Final = timedelta(minutes=2)
"""The longest pause that is obeyed for the whole key and waited for: the API counts by the minute."""
THROTTLED_PROBE_EVERY: Final = timedelta(minutes=5)
"""Where the API asks for a longer pause, one request in this time finds out whether it still wants it."""

_CONCURRENT_MOST: Final = 8
_SHORTEST_WAIT: Final = timedelta(seconds=0.5)
_LONGEST_WAIT: Final = timedelta(seconds=60)
_TOO_MANY: Final = 429
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_ERRORS: Final = 400


class Account:
    """Exchanges requests for answers with one key: in turn, within its budgets, and probing what the API refuses.

    Args:
        name: What logs and facts call this account.
        reveal: Returns the key; called before the first request, and again after a 401.
        budget: Of all requests of the key.
        orders: Of those that create sales orders, which count in both.
        pool: The connections to the API.
        headers: What every request says beside the key.
        redactor: Keeps the key out of errors.
        forget: Called when another key may be shown other records.
        telemetry: Hears of every request.
    """

    def __init__(
        self,
        *,
        name: str,
        reveal: Callable[[], str],
        budget: Budget,
        orders: Budget,
        pool: ConnectionPool,
        headers: tuple[tuple[bytes, bytes], ...],
        redactor: Redactor,
        forget: Callable[[], None],
        telemetry: Telemetry,
    ) -> None:
        self.budget = budget
        self.orders = orders
        self._name = name
        self._reveal = reveal
        self._key: str | None = None
        self._pool = pool
        self._fixed_headers = headers
        self._redactor = redactor
        self._forget = forget
        self._telemetry = telemetry
        self._queue = RequestQueue(_CONCURRENT_MOST)
        self._window = WindowClock()
        self._key_gate = KeyGate()  # the key, or what it may see: 401, 403
        self._throttles = KeyGate()  # how often it may ask: 429
        self._throttled = 0  # so many 429 since anything was accepted
        self._probes: dict[tuple[KeyGate, str], anyio.Event] = {}  # under way; each is set when it comes to an end

    async def send_once(self, request: Request) -> Response:
        """Return the answer to a request, whatever is refused, as urgent as an operator; conclude nothing from it.

        Raises:
            SourceRefused: There is no key to ask with.
            SourceUnavailable: No complete answer came.
        """
        response, _ = await self._send(request, Urgency.OPERATOR, self._current_key(), gated=False)
        return response

    async def exchange(self, request: Request, urgency: Urgency) -> Response:
        """Return the answer to a request, unless what it asks for is known to be refused and this is not the probe."""
        while (gate := self._closed_gate(request)) is not None:
            refusals, place = gate
            if (probe := self._probes.get((refusals, place))) is not None:
                await probe.wait()
            elif refusals.may_probe(request.collection, now()):
                return await self._exchange_as_probe(request, refusals, place)
            elif refusals is self._throttles and (wait := refusals.wait(request.collection, now())) <= PAUSE_MOST:
                await anyio.sleep(max(wait, _SHORTEST_WAIT).total_seconds())
            else:
                raise self._turned_away(request, refusals)
        try:
            return await self._exchange_with_key(request, urgency, probe=False)
        except _ClosedMeanwhile:
            if self._key_gate.is_closed(request.collection):
                raise self._turned_away(request, self._key_gate) from None
            return await self.exchange(request, urgency)

    async def _exchange_as_probe(self, request: Request, refusals: KeyGate, place: str) -> Response:
        """Return the answer to a request that finds out whether it is still refused, ahead of all others."""
        probe = self._probes[refusals, place] = anyio.Event()
        refusals.probing(request.collection, now())
        if refusals is self._key_gate:
            self._key = None  # it may have been replaced meanwhile
            self._forget()
        try:
            return await self._exchange_with_key(request, Urgency.OPERATOR, probe=True)
        finally:
            del self._probes[refusals, place]
            refusals.ended(request.collection, now())
            probe.set()

    def _closed_gate(self, request: Request) -> tuple[KeyGate, str] | None:
        """Return what keeps a request back, and where; None where nothing does."""
        for refusals in (self._key_gate, self._throttles):
            if (place := refusals.place(request.collection)) is not None:
                return refusals, place
        return None

    def _turned_away(self, request: Request, refusals: KeyGate) -> SourceError:
        if refusals is self._key_gate:
            return SourceRefused(refusals.reason(request.collection))
        wait = max(refusals.wait(request.collection, now()), _SHORTEST_WAIT)
        return RateLimited(f"{request}: not asked for {wait.total_seconds():.0f} s: the API wants peace", wait)

    async def _exchange_with_key(self, request: Request, urgency: Urgency, *, probe: bool) -> Response:
        """Return the answer to a request; after a 401 the key is read again, and a new one tried."""
        key = self._current_key()
        response, sent_at = await self._send(request, urgency, key, gated=not probe)
        if response.status == _UNAUTHORIZED and (renewed := self._current_key()) != key:
            self._forget()
            if request.method != "GET":
                return response
            response, sent_at = await self._send(request, urgency, renewed, gated=False)
        self._conclude(request, response, sent_at)
        return response

    def _conclude(self, request: Request, response: Response, sent_at: timedelta) -> None:
        """Take in what an answer says of the key and of the collection.

        Raises:
            SourceRefused: It refuses the key or the request (401, 403).
        """
        collection = request.collection
        if response.status in {_UNAUTHORIZED, _FORBIDDEN}:
            self._throttles.accepted(collection, now(), asked_at=sent_at)
            try:
                check_status(request, response)
            except SourceRefused as error:
                # An order may be forbidden for what stands in it.
                if response.status == _UNAUTHORIZED or request.method == "GET":
                    self._key_gate.refused(collection, str(error), now(), asked_at=sent_at)
                raise
        elif response.status == _TOO_MANY:
            self._key_gate.accepted(collection, now(), asked_at=sent_at)
            self._throttle(request, response, sent_at)
        elif response.status < _ERRORS or response.status in NOT_FOUND:
            self._throttled = 0
            for refusals in (self._key_gate, self._throttles):
                refusals.accepted(collection, now(), asked_at=sent_at)

    def _throttle(self, request: Request, response: Response, sent_at: timedelta) -> None:
        """Obey a 429: for the whole key as long as is plausible, for its own collection until the next probe.

        One that comes again and again while others are answered is its collection's own, and stops only that.
        """
        self._throttled += 1
        wish = read_retry_after(response) or wait_before(self._throttled)
        if not self._throttles.is_alone(request.collection):
            for budget in self._charged(request):
                budget.pause(min(wish, PAUSE_MOST), now())
        self._throttles.refused(
            request.collection,
            f"{request}: HTTP {response.status}",
            now(),
            asked_at=sent_at,
            every=min(wish, THROTTLED_PROBE_EVERY),
            doubts=wish > PAUSE_MOST,
        )

    async def _send(self, request: Request, urgency: Urgency, key: str, *, gated: bool) -> tuple[Response, timedelta]:
        """Wait for a turn, send, and tell the budget and the listeners; return also when it was sent.

        Args:
            request: What is sent.
            urgency: Whose turn it is.
            key: The key that it shows.
            gated: Unless it is known to be refused by then.
        """
        budgets = self._charged(request)
        async with self._queue.turn(urgency, *budgets):
            if gated and self._closed_gate(request) is not None:
                raise _ClosedMeanwhile  # the refusal became known while this waited
            started, status, allowance = now(), None, None
            self._redactor.show(key)
            try:
                response = await self._pool.exchange(request, self._headers(request, key))
                status, allowance = response.status, self._window.read(response)
            finally:
                self._report(request, urgency, status, now() - started, allowance)
            if allowance:
                budgets[-1].learned(allowance, now())
        if status == _UNAUTHORIZED and self._key == key:
            self._key = None  # it is looked up again before the next request
        return (response if status < _ERRORS else self._redactor.redact_answer(response)), started

    def _report(
        self, request: Request, urgency: Urgency, status: int | None, took: timedelta, allowance: Allowance | None
    ) -> None:
        told = (allowance.remaining, allowance.limit, allowance.resets_in) if allowance else (None, None, None)
        remaining, limit, resets_in = told
        self._telemetry.emit(
            RequestSent(self._name, urgency, request.path, status, took, remaining, request.method, limit, resets_in)
        )

    def _charged(self, request: Request) -> tuple[Budget, ...]:
        """Return the budgets that a request counts in, the narrowest last: that is the one an answer speaks of."""
        return (self.budget, self.orders) if request.method == "POST" else (self.budget,)

    def _headers(self, request: Request, key: str) -> list[tuple[bytes, bytes]]:
        headers = [(b"authorization", RevealedBytes(f"Bearer {key}".encode())), *self._fixed_headers]
        if request.etag is not None:
            headers.append((b"if-none-match", request.etag.encode("latin-1")))  # as it came
        if request.body is not None:
            headers.append((b"content-type", b"application/json"))
        return headers

    def _current_key(self) -> str:
        if self._key is None:
            try:
                key = Revealed(self._reveal().strip())
            except ConfigError as error:
                raise SourceRefused(f'source "{self._name}": {error}') from error
            if not (key and key.isascii() and key.isprintable()):
                raise SourceRefused(
                    f'source "{self._name}": the API key is empty or not plain text; check what api_key names'
                )
            self._key = key
        return self._key


def wait_before(attempt: int) -> timedelta:
    """Return how long to wait before a request is tried again; it grows with each try, and is random."""
    return delay(attempt, base=_SHORTEST_WAIT, cap=_LONGEST_WAIT, jitter=random.random())  # noqa: S311  # no secret


class _ClosedMeanwhile(Exception):
    """What a request asks for was refused to another while it waited for its turn."""
