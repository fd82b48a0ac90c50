"""One API account: its key, its budgets, what the API refuses it, and what is asked again."""

from __future__ import annotations

import random
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from http import HTTPStatus
from typing import Final, TypeVar

import anyio
import httpx
from msgspec.structs import replace

from dockbell._version import __version__
from dockbell.config import Revealed, RevealedBytes
from dockbell.core.model import Urgency
from dockbell.core.reading.clock import WindowClock
from dockbell.core.reading.request import Request
from dockbell.core.reading.response import NOT_FOUND, Response, check_status, excerpt, read_retry_after
from dockbell.core.running.backoff import delay
from dockbell.core.running.budget import Budget
from dockbell.core.running.circuit_breaker import CircuitBreaker
from dockbell.core.running.key_gate import KeyGate
from dockbell.errors import (
    ConfigError,
    PageCut,
    PageUnreadable,
    RateLimited,
    SchemaMismatch,
    SourceError,
    SourceRefused,
    SourceUnavailable,
)
from dockbell.ports import BetweenTries
from dockbell.sources.connection_pool import ConnectionPool, Unreached
from dockbell.sources.etag_cache import EtagCache
from dockbell.sources.key_budget import KeyBudget
from dockbell.sources.probe_queue import ProbeQueue
from dockbell.sources.request_queue import now
from dockbell.telemetry import RequestSent, SourceAnswers, SourceFails, SourceWaits, Telemetry

T = TypeVar("T")

PAUSE_MOST: Final = timedelta(minutes=2)
"""The longest pause that is obeyed for the whole key and waited for: the API counts by the minute."""
THROTTLED_PROBE_EVERY: Final = timedelta(minutes=5)
"""Where the API asks for a longer pause, one request in this time finds out whether it still wants it."""

TRIES: Final = 5
# An answer that cannot be read is mended by a smaller page rather than by patience.
_UNREADABLE_TRIES: Final = 2
# One that is JSON of another shape is mostly one of its kind: {"data": null}, or a message. The next is a page again.
_ODD_TRIES: Final = 4
# An odd answer is mostly a moment's: patience mends it no better.
_ODD_WAIT_MOST: Final = timedelta(seconds=1.5)
_SHORTEST_WAIT: Final = timedelta(seconds=0.5)
_LONGEST_WAIT: Final = timedelta(seconds=60)
_REFUSALS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_SHORTEST_SECRET: Final = 8  # shorter texts may be ordinary words


class Redactor:
    """Redacts the API key and the proxy password of an account: some servers echo them in errors."""

    def __init__(self) -> None:
        self._key = ""
        self._proxy_words: tuple[str, ...] = ()

    def show(self, key: str) -> None:
        self._key = key

    def show_proxy(self, url: str) -> None:
        """Note the URL of the proxy that is about to be dialled: its password is sent as it is, and in base64."""
        try:
            auth = httpx.Proxy(url).raw_auth
        except (httpx.InvalidURL, ValueError):  # it will not be dialled
            auth = None
        words = () if auth is None else (b64encode(b":".join(auth)).decode(), auth[1].decode())
        self._proxy_words = tuple(filter(None, words))

    def redact(self, words: str) -> str:
        """Return a text about an answer without the secrets, also where one is cut short."""
        for secret in self._secrets:
            for end in range(len(secret), _SHORTEST_SECRET - 1, -1):
                words = words.replace(secret[:end], "***")
        return words

    def redact_answer(self, response: Response) -> Response:
        headers, body = {name: self.redact(value) for name, value in response.headers.items()}, response.body
        for secret in self._secrets:
            if (
                len(secret) >= _SHORTEST_SECRET or response.status >= HTTPStatus.BAD_REQUEST
            ):  # records may hold short texts
                body = body.replace(secret.encode(), b"***")
        return replace(response, headers=headers, body=body)

    @property
    def _secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, (self._key, *self._proxy_words)))


class Account:
    """Exchanges requests for answers with one key: in turn, within its budgets, and probing what the API refuses.

    ``reveal`` returns the key: it is called before the first request, and again after a 401.
    """

    def __init__(
        self,
        *,
        name: str,
        reveal: Callable[[], str],
        key_budget: KeyBudget,
        pool: ConnectionPool,
        user_agent: str | None,
        redactor: Redactor,
        telemetry: Telemetry,
    ) -> None:
        self.key_budget = key_budget
        self.etags = EtagCache()  # another key may be shown other records: with it, each page is asked for anew
        self._name = name
        self._reveal = reveal
        self._key: str | None = None
        self._refused_key: str | None = None
        self._pool = pool
        self._fixed_headers = (
            (b"accept", b"application/json"),
            (b"accept-encoding", b"gzip"),
            (b"cache-control", b"no-cache"),
            (b"user-agent", (user_agent or f"dockbell/{__version__}").encode()),
        )
        self._redactor = redactor
        self._telemetry = telemetry
        self._window = WindowClock()
        self._key_gate = KeyGate()  # the key, or what it may see: 401, 403
        self._throttles = KeyGate()  # how often it may ask: 429
        self._throttled = Counter[str]()  # so many 429 since a collection was accepted
        self._probes: dict[tuple[KeyGate, str], anyio.Event] = {}  # under way; each is set when it comes to an end
        self._breaker = CircuitBreaker()
        self.probe_queue = ProbeQueue(self._breaker)

    async def send_once(self, request: Request) -> Response:
        """Return the answer to a request, whatever is refused, as urgent as an operator; conclude nothing from it."""
        response, _ = await self._send(request, Urgency.OPERATOR, self._current_key(), gated=False)
        return self._redactor.redact_answer(response)

    async def ask(
        self,
        request: Request,
        urgency: Urgency,
        read: Callable[[Response], T],
        *,
        tries: int = TRIES,
        between_tries: BetweenTries = nullcontext,
    ) -> T:
        """Ask until ``read`` finds the answer usable; what passes by itself is asked again, ``tries`` times in all.

        While the API answers nothing it is asked again when it is this request's turn to probe.
        """
        attempt, unreadable, odd, since = 1, 0, 0, now()
        while True:
            if tries > 1:
                await self.probe_queue.wait(request, since, between_tries)
            else:
                self._check_breaker(request)
            try:
                return self._understand(await self._exchange(request, urgency), read)
            except (SourceUnavailable, SchemaMismatch) as error:
                wait = wait_before(attempt)
                if isinstance(error, RateLimited):
                    wait = max(wait, error.retry_after or wait)
                unreadable += isinstance(error, PageUnreadable)
                if isinstance(error, SchemaMismatch):
                    odd, wait = odd + 1, min(wait, _ODD_WAIT_MOST)
                # An order is sent again only if it was certainly not carried out.
                may_repeat = request.method == "GET" or isinstance(error, RateLimited | Unreached)
                given_up = attempt == tries or unreadable == _UNREADABLE_TRIES or odd == _ODD_TRIES
                if given_up or wait > PAUSE_MOST or not may_repeat:
                    raise
                attempt += 1
                if self._breaker.opened_at is not None:
                    self._telemetry.emit(SourceWaits(self._name, str(error), self._breaker.wait(now())))
                    continue
                self._telemetry.emit(SourceWaits(self._name, str(error), wait))
            async with between_tries():
                await anyio.sleep(wait.total_seconds())

    async def ask_aside(self, request: Request, urgency: Urgency, read: Callable[[Response], T]) -> T:
        """Ask once for what can be done without; conclude nothing from a refusal, send nothing while there is one."""
        if (closed := self._closed_gate(request)) is not None:
            raise self._turned_away(request, closed[0])
        self._check_breaker(request)
        response, _ = await self._send(request, urgency, self._current_key(), gated=False)
        return self._understand(response, read)

    def _understand(self, response: Response, read: Callable[[Response], T]) -> T:
        """Return what ``read`` finds in an answer; errors do not quote what the API or a proxy was shown."""
        try:
            return read(response)
        except SourceError as error:
            error.args = (self._redactor.redact(str(error)),)
            raise

    async def _exchange(self, request: Request, urgency: Urgency) -> Response:
        """Return the answer to a request, unless what it asks for is known to be refused and this is not the probe."""
        while (gate := self._closed_gate(request)) is not None:
            refusals, place = gate
            if refusals is self._key_gate and self._is_key_replaced():
                refusals.reopen(now())
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
            return await self._exchange(request, urgency)

    async def _exchange_as_probe(self, request: Request, refusals: KeyGate, place: str) -> Response:
        """Return the answer to a request that finds out whether it is still refused, ahead of all others."""
        probe = self._probes[refusals, place] = anyio.Event()
        refusals.probing(request.collection, now())
        if refusals is self._key_gate:
            self._key = None  # it may have been replaced meanwhile
            self.etags.clear()
        try:
            return await self._exchange_with_key(request, Urgency.OPERATOR, probe=True)
        finally:
            del self._probes[refusals, place]
            refusals.ended(request.collection, now())
            probe.set()

    def _closed_gate(self, request: Request) -> tuple[KeyGate, str] | None:
        for refusals in (self._key_gate, self._throttles):
            if (place := refusals.place(request.collection)) is not None:
                return refusals, place
        return None

    def _turned_away(self, request: Request, refusals: KeyGate) -> SourceError:
        if refusals is self._key_gate:
            return SourceRefused(refusals.reason(request.collection), refusals.wait(request.collection, now()))
        wait = max(refusals.wait(request.collection, now()), _SHORTEST_WAIT)
        return RateLimited(
            f"{request}: not sent: the API asked dockbell to wait, {wait.total_seconds():.0f} s are left", wait
        )

    async def _exchange_with_key(self, request: Request, urgency: Urgency, *, probe: bool) -> Response:
        """Return the answer to a request; after a 401 the key is read again, and a new one tried."""
        key = self._current_key()
        response, sent_at = await self._send(request, urgency, key, gated=not probe)
        if response.status == HTTPStatus.UNAUTHORIZED and (renewed := self._current_key()) != key:
            self.etags.clear()
            if request.method != "GET":
                return response
            key = renewed
            response, sent_at = await self._send(request, urgency, key, gated=False)
        if response.status in _REFUSALS:
            self._refused_key = key
        self._conclude(request, response, sent_at)
        return response

    def _conclude(self, request: Request, response: Response, sent_at: timedelta) -> None:
        """Note what an answer says of the key and the collection; SourceRefused where it refuses them (401, 403)."""
        collection = request.collection
        if response.status in _REFUSALS:
            self._throttles.accepted(collection, now(), asked_at=sent_at)
            try:
                check_status(request, response)
            except SourceRefused as error:
                # An order may be forbidden for what stands in it.
                if response.status == HTTPStatus.UNAUTHORIZED or request.method == "GET":
                    self._key_gate.refused(collection, str(error), now(), asked_at=sent_at)
                    error.retry_after = self._key_gate.wait(collection, now())
                raise
        elif response.status == HTTPStatus.TOO_MANY_REQUESTS:
            self._key_gate.accepted(collection, now(), asked_at=sent_at)
            self._throttle(request, response, sent_at)
        elif response.status < HTTPStatus.BAD_REQUEST or response.status in NOT_FOUND:
            self._throttled.pop(collection, None)
            for refusals in (self._key_gate, self._throttles):
                refusals.accepted(collection, now(), asked_at=sent_at)

    def _throttle(self, request: Request, response: Response, sent_at: timedelta) -> None:
        """Obey a 429: for the whole key as long as is plausible, for its own collection until the next probe.

        One that comes again and again while others are answered is its collection's own, and stops only that.
        """
        self._throttled[request.collection] += 1
        wish = read_retry_after(response) or wait_before(self._throttled[request.collection])
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

        ``gated`` is not sent if it is known to be refused by then.
        """
        budgets = self._charged(request)
        async with self.key_budget.queue.turn(urgency, *budgets):
            if gated and self._closed_gate(request) is not None:
                raise _ClosedMeanwhile  # the refusal became known while this waited
            started, status, allowance = now(), None, None
            self._redactor.show(key)
            try:
                response = await self._pool.exchange(request, self._headers(request, key))
                status, allowance = response.status, self._window.read(response)
            except SourceUnavailable as error:
                is_answer = isinstance(error, PageUnreadable) and not isinstance(error, PageCut)
                self._note_exchange(request, "" if is_answer else str(error))
                raise
            finally:
                left = (allowance.remaining, allowance.limit, allowance.resets_in) if allowance else (None, None, None)
                remaining, limit, resets_in = left
                place, took, method = request.path, now() - started, request.method
                self._telemetry.emit(
                    RequestSent(self._name, urgency, place, status, took, remaining, method, limit, resets_in)
                )
            if allowance:
                budgets[-1].learned(allowance, now())
        if status >= HTTPStatus.BAD_REQUEST:
            response = self._redactor.redact_answer(response)
        is_failure = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        self._note_exchange(request, f"{request}: HTTP {status}{excerpt(response)}" if is_failure else "")
        if status == HTTPStatus.UNAUTHORIZED and self._key == key:
            self._key = None  # it is looked up again before the next request
        return response, started

    def _note_exchange(self, request: Request, failure: str) -> None:
        """Note for the circuit breaker why the API has not answered a request; empty where it has, whatever it said."""
        if failure:
            if self._breaker.failed(request.collection, failure, now()):
                self._telemetry.emit(SourceFails(self._name, failure))
                self.probe_queue.ring()
        elif (failed_since := self._breaker.answered(request.collection)) is not None:
            self._telemetry.emit(SourceAnswers(self._name, now() - failed_since))
            self.probe_queue.ring()

    def _check_breaker(self, request: Request) -> None:
        """Refuse to send a request that its caller can do without for now, while the API answers nothing."""
        if not self._breaker.admit(request.collection, now()):
            raise self.probe_queue.turned_away()

    def _charged(self, request: Request) -> tuple[Budget, ...]:
        """Return the budgets that a request counts in, the narrowest last: that is the one an answer speaks of."""
        budget = self.key_budget
        return (budget.total, budget.orders) if request.method == "POST" else (budget.total,)

    def _headers(self, request: Request, key: str) -> list[tuple[bytes, bytes]]:
        headers = [(b"authorization", RevealedBytes(f"Bearer {key}".encode())), *self._fixed_headers]
        if request.etag is not None:
            headers.append((b"if-none-match", request.etag.encode("latin-1")))  # as it came
        if request.body is not None:
            headers.append((b"content-type", b"application/json"))
        return headers

    def _is_key_replaced(self) -> bool:
        """Return whether the key is another than the one that the API refused last."""
        try:
            return self._refused_key not in (None, self._reveal().strip())
        except ConfigError:
            return False

    def _current_key(self) -> str:
        if self._key is None:
            try:
                key = Revealed(self._reveal().strip())
            except ConfigError as error:
                raise SourceRefused(f'source "{self._name}": {error}') from error
            if not (key and key.isascii() and key.isprintable()):
                fact = "the API key is empty or not plain text; check api_key"
                raise SourceRefused(f'source "{self._name}": {fact}')
            self._key = key
        return self._key


def wait_before(attempt: int) -> timedelta:
    """Return how long to wait before a request is tried again; it grows with each try, and is random."""
    return delay(attempt, base=_SHORTEST_WAIT, cap=_LONGEST_WAIT, jitter=random.random())  # noqa: S311  # no secret


class _ClosedMeanwhile(Exception):
    """What a request asks for was refused to another while it waited for its turn."""
