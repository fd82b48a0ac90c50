"""The client of the Inventory and Shipment Data Service: one API account, paced, retried, authenticated."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
import httpx

from dockbell._version import __version__
from dockbell.config import Revealed, RevealedBytes, SourceSettings
from dockbell.core.document import decode
from dockbell.core.model import JSON, Page, Urgency
from dockbell.core.reading.allowance import WindowClock
from dockbell.core.reading.clock import ServiceClock
from dockbell.core.reading.request import (
    MAX_LIMIT,
    Request,
    list_request,
    order_request,
    shipment_request,
    whole_list,
)
from dockbell.core.reading.response import (
    NOT_FOUND,
    NOT_MODIFIED,
    EnvelopeMissing,
    Response,
    are_alike,
    judge_status,
    read_object,
    read_page,
    read_retry_after,
)
from dockbell.core.running.backoff import delay
from dockbell.core.running.budget import Budget, Usage
from dockbell.core.running.key_gate import KeyGate
from dockbell.errors import (
    ConfigError,
    CursorExpired,
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
from dockbell.sources.redactor import Redactor
from dockbell.sources.request_queue import RequestQueue, now
from dockbell.telemetry import RequestSent, SourceWaits, Telemetry

T = TypeVar("T")

MAX_BODY: Final = 16 * 1024 * 1024
"""The most bytes of an answer: 80 kB for each record of a full page, and one record of a page of one."""

PAUSE_MOST: Final = timedelta(minutes=2)
"""The longest pause that is obeyed for the whole key and waited for: the API counts by the minute."""
THROTTLED_PROBE_EVERY: Final = timedelta(minutes=5)
"""Where the API asks for a longer pause, one request in this time finds out whether it still wants it."""

_LANES: Final = 8
_TRIES: Final = 5
# An answer that cannot be read is mended by a smaller page rather than by patience.
_UNREADABLE_TRIES: Final = 2
# One that is JSON of another shape is mostly one of its kind: {"data": null}, or a message. The next is a page again.
_ODD_TRIES: Final = 4
# While a service is deployed, old and new answers come in turn.
_ENVELOPES_MOST: Final = 2
_SHORTEST_WAIT: Final = timedelta(seconds=0.5)
_LONGEST_WAIT: Final = timedelta(seconds=60)
# An odd answer is mostly a moment's: patience mends it no better.
_ODD_WAIT_MOST: Final = timedelta(seconds=1.5)
_TOO_MANY: Final = 429
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_ERRORS: Final = 400


class InventoryClient:
    """Reads and orders from one account of the API; implements :class:`dockbell.ports.Source`.

    Every request waits for the key's budget, the most urgent first, and is asked again (five times in all, with
    growing random waits) when the answer did not come; twice in all when it came and was unreadable, four times when it
    was of another shape than a page. Of what is refused (401, 403) one request a minute finds out whether it still is,
    and the others fail at once; what is not refused goes on (:class:`~dockbell.core.running.key_gate.KeyGate`). May be
    used by many coroutines at once::

        async with InventoryClient("https://api.example.com", "KEY") as client:
            async for record in client.records("items", query={"status": "all"}):
                print(record["sku"])

    Args:
        base_url: Where the API is, without ``/v1``.
        api_key: The key, or what returns it: called before the first request, and again after a 401.
        name: What logs and facts call this account.
        requests_per_minute: The key's limit for all requests.
        share: How much of both limits to use; the rest is left to the key's other users.
        orders_per_minute: The key's limit for creating sales orders, which count in both.
        timeout: The most that one request may take, from connecting to the last byte.
        proxy: An HTTP proxy's URL, or what returns it: called for each new connection. The environment is not read.
        ca_file: A PEM file with the authorities to trust instead of the usual ones.
        user_agent: Instead of ``dockbell/<version>``.
        max_body: The most bytes that an answer may have, decoded.
        telemetry: Who hears of every request and every retry.
        transport: Instead of real connections, for tests.

    Raises:
        ConfigError: ``base_url``, ``proxy`` or ``ca_file`` cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | Callable[[], str],
        *,
        name: str = "main",
        requests_per_minute: int = 300,
        share: float = 0.9,
        orders_per_minute: int = 10,
        timeout: timedelta = timedelta(seconds=30),
        proxy: str | Callable[[], str] | None = None,
        ca_file: str | None = None,
        user_agent: str | None = None,
        max_body: int = MAX_BODY,
        telemetry: Telemetry | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = name
        self._reveal = api_key if callable(api_key) else lambda: api_key
        self._key: str | None = None
        self._fixed_headers = (
            (b"accept", b"application/json"),
            (b"accept-encoding", b"gzip"),
            (b"cache-control", b"no-cache"),
            (b"user-agent", (user_agent or f"dockbell/{__version__}").encode()),
        )
        self._budget = Budget(requests_per_minute, share)
        self._orders = Budget(orders_per_minute, share)
        self._queue = RequestQueue(_LANES)
        self._redactor = Redactor()
        self._proxy = proxy
        self._pool = ConnectionPool(
            base_url,
            timeout=timeout,
            max_body=max_body,
            proxy=self._look_up_proxy,
            ca_file=ca_file,
            transport=transport,
        )
        self._telemetry = telemetry or Telemetry()
        self._envelopes: dict[str, tuple[str, ...]] = {}  # what held the records, the name learned last first
        self._samples: dict[str, bytes] = {}  # a record of each resource, as it was read last
        self._clock = ServiceClock()
        self._window = WindowClock()
        self._asked_the_time_again = False
        self._etags = EtagCache()
        self._key_gate = KeyGate()  # the key, or what it may see: 401, 403
        self._throttles = KeyGate()  # how often it may ask: 429
        self._throttled = 0  # so many 429 since anything was accepted
        self._probes: dict[tuple[KeyGate, str], anyio.Event] = {}  # under way; each is set when it comes to an end

    @classmethod
    def from_settings(cls, name: str, settings: SourceSettings, telemetry: Telemetry | None = None) -> Self:
        """Return the client of ``[sources.NAME]``."""
        return cls(
            settings.base_url,
            settings.api_key.reveal,
            name=name,
            requests_per_minute=settings.requests_per_minute,
            share=settings.share,
            timeout=settings.timeout,
            proxy=None if settings.proxy is None else settings.proxy.reveal,
            ca_file=settings.ca_file,
            user_agent=settings.user_agent,
            telemetry=telemetry,
        )

    async def __aenter__(self) -> Self:
        """Return the client; connections are made when needed."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    def inherit(self, before: InventoryClient) -> None:
        """Count what another client has asked with the same key; it is closed, and this one has asked nothing yet."""
        self._budget.inherit(before._budget)
        self._orders.inherit(before._orders)

    @property
    def budget(self) -> Usage:
        """How the key's budget stands now."""
        return self._budget.usage(now())

    async def pages(
        self,
        resource: str,
        *,
        updated_since: datetime | None = None,
        limit: int = MAX_LIMIT,
        query: Mapping[str, str | int | bool] | None = None,
        expand: tuple[str, ...] = (),
        urgency: Urgency = Urgency.POLL,
    ) -> AsyncIterator[Page]:
        """Read a listing page by page, to its end.

        Raises:
            SchemaMismatch: Beside what :meth:`read_page` raises: a cursor came back, the listing would never end.
        """
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            page = await self.read_page(
                resource,
                cursor=cursor,
                updated_since=updated_since,
                limit=limit,
                query=query,
                expand=expand,
                urgency=urgency,
            )
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen:
                raise SchemaMismatch(f'resource "{resource}": the cursor of page {len(seen) + 1} was given before')
            seen.add(cursor)

    async def records(
        self,
        resource: str,
        *,
        updated_since: datetime | None = None,
        limit: int = MAX_LIMIT,
        query: Mapping[str, str | int | bool] | None = None,
        expand: tuple[str, ...] = (),
        urgency: Urgency = Urgency.POLL,
    ) -> AsyncIterator[dict[str, JSON]]:
        """Read a listing record by record, to its end; numbers are exact (:class:`int`, :class:`decimal.Decimal`)."""
        async for page in self.pages(
            resource, updated_since=updated_since, limit=limit, query=query, expand=expand, urgency=urgency
        ):
            for record in page.records:
                try:
                    yield decode(record)
                except ValueError as error:
                    raise SchemaMismatch(f'resource "{resource}": a record cannot be read: {error}') from error

    async def read_page(
        self,
        resource: str,
        *,
        cursor: str | None = None,
        updated_since: datetime | None = None,
        limit: int | None = MAX_LIMIT,
        query: Mapping[str, str | int | bool] | None = None,
        expand: tuple[str, ...] = (),
        urgency: Urgency = Urgency.POLL,
        between_tries: BetweenTries = nullcontext,
    ) -> Page:
        """Read one page of a listing; ``between_tries`` is entered while the next try is waited for.

        Raises:
            ValueError: The API would not accept the request.
            CursorExpired: The API no longer knows the cursor.
            SourceRefused: The key or the request is not accepted.
            PageUnreadable: Twice an answer that is not whole and sound JSON, or too large: ask for a smaller page.
            SourceUnavailable: No answer after five tries; :class:`RateLimited` when the budget is used up.
            SchemaMismatch: Four times an answer that holds no array of records, or several.
        """
        request = list_request(
            resource, limit=limit, cursor=cursor, updated_since=updated_since, query=query, expand=expand
        )
        try:
            try:
                page = await self._ask_for_page(resource, request, urgency, between_tries)
            except EnvelopeMissing:
                if not await self._learn_envelope(resource, request, urgency):
                    raise
                page = await self._ask_for_page(resource, request, urgency, between_tries)
            if self._clock.doubtful and not self._asked_the_time_again:
                self._asked_the_time_again = True
                page = await self._ask_for_page(resource, request, urgency, between_tries)
        except CursorExpired:
            self._etags.clear()  # a remembered page may have given the cursor
            raise
        if page.records:
            self._envelopes.setdefault(resource, (page.envelope,))
            self._samples[resource] = page.records[0]
        return page

    async def _learn_envelope(self, resource: str, request: Request, urgency: Urgency) -> bool:
        """Look whether the records have another name now; return whether they do.

        Several answers had no array of the known name when this is called. The new name counts where the list shows
        records under it that look like those that were read before: what tells of an error does not.
        """
        first = whole_list(request)

        def read(response: Response) -> Page:
            judge_status(first, response)
            return read_page(resource, response)

        try:
            page = await self._ask(first, urgency, read)
        except SourceError:
            return False
        known = self._envelopes[resource]
        if page.envelope in known or not page.records or not are_alike(self._samples[resource], page.records[0]):
            return False
        self._envelopes[resource] = (page.envelope, *known)[:_ENVELOPES_MOST]
        self._etags.clear()
        return True

    def _read_page(self, resource: str, response: Response) -> Page:
        """Return the page of an answer, whose records stand under a name that is known, if any is."""
        latest, *earlier = self._envelopes.get(resource, (None,))
        try:
            return read_page(resource, response, envelope=latest)
        except EnvelopeMissing:
            for name in earlier:
                with suppress(EnvelopeMissing):
                    return read_page(resource, response, envelope=name)
            raise

    async def _ask_for_page(
        self, resource: str, request: Request, urgency: Urgency, between_tries: BetweenTries
    ) -> Page:
        """Ask for a page, not to be sent again where it is remembered: the pages of passes are, polls always differ."""
        repeats = not request.narrows
        remembered = self._etags.recall(request.target, now()) if repeats else None

        def read(response: Response) -> Page:
            if response.status == NOT_MODIFIED and remembered is not None:
                page = remembered[1]
            else:
                judge_status(request, response)
                page = self._read_page(resource, response)
                if repeats:
                    self._etags.remember(request.target, response.headers.get("etag"), page, now())
            time = self._clock.judge(response)
            return replace(
                page,
                asked_at=time.asked_at,
                clock=time.clock,
                answered_at=time.answered_at,
                received_at=response.received_at,
            )

        request = replace(request, etag=remembered[0]) if remembered else request
        return await self._ask(request, urgency, read, between_tries=between_tries)

    async def read_shipment(
        self,
        shipment_id: str,
        *,
        expand: tuple[str, ...] = (),
        urgency: Urgency = Urgency.DETAIL,
        patient: bool = True,
    ) -> bytes | None:
        """Read one shipment's raw JSON; None when the API answers that there is none (404, 410).

        Args:
            shipment_id: Its id.
            expand: Relations to embed.
            urgency: Whose turn it is when requests are scarce.
            patient: Ask again when no usable answer comes; otherwise once only, for callers that come back later.

        Raises:
            SourceError: As :meth:`read_page`.
        """
        request = shipment_request(shipment_id, expand=expand)

        def read(response: Response) -> bytes | None:
            if response.status in NOT_FOUND:
                return None
            judge_status(request, response)
            return read_object(str(request), response)

        return await self._ask(request, urgency, read, tries=_TRIES if patient else 1)

    async def create_sales_order(self, payload: JSON, *, urgency: Urgency = Urgency.OPERATOR) -> JSON:
        """Create a sales order and return the API's answer, decoded; text when it is no JSON, None when empty.

        The API's description shows neither payload nor answer, so both are passed through as they are. Waits for both
        budgets. Asked again only where the request cannot have been carried out: no connection came about, or 429.

        Args:
            payload: What :func:`json.dumps` takes, NaN excepted.
            urgency: Whose turn it is when requests are scarce.

        Raises:
            SourceUnavailable: No answer came: the order may have been created or not.
            SourceRefused: The key or the order is not accepted.
        """
        request = order_request(payload)

        def read(response: Response) -> JSON:
            judge_status(request, response)
            return _decode_opaque(response.body)

        try:
            return await self._ask(request, urgency, read)
        except (RateLimited, Unreached):
            raise
        except SourceUnavailable as error:
            raise SourceUnavailable(f"{error}; the order may have been created: look before ordering again") from error

    async def ask(self, request: Request) -> Response:
        """Send one request as it is and return its answer as it is, whatever its status: for a look at the API itself.

        It has its turn by the budget, as urgent as an operator. It is sent once, also where the key is known to be
        refused, and nothing is concluded from its answer but how the budget stands. Where it quotes the key or the
        proxy's password, ``***`` stands in their place.

        Raises:
            SourceRefused: There is no key to ask with.
            SourceUnavailable: No complete answer came.
        """
        response, _ = await self._send(request, Urgency.OPERATOR, self._current_key(), gated=False)
        return self._redactor.redact_answer(response)

    async def _ask(
        self,
        request: Request,
        urgency: Urgency,
        read: Callable[[Response], T],
        *,
        tries: int = _TRIES,
        between_tries: BetweenTries = nullcontext,
    ) -> T:
        """Ask until ``read`` finds the answer usable; what passes by itself is asked again, ``tries`` times in all."""
        attempt, unreadable, odd = 1, 0, 0
        while True:
            try:
                return self._understand(await self._exchange(request, urgency), read)
            except (SourceUnavailable, SchemaMismatch) as error:
                wait = _wait_before(attempt)
                if isinstance(error, RateLimited):
                    wait = max(wait, error.retry_after or wait)
                unreadable += isinstance(error, PageUnreadable)
                if isinstance(error, SchemaMismatch):
                    odd, wait = odd + 1, min(wait, _ODD_WAIT_MOST)
                given_up = attempt == tries or unreadable == _UNREADABLE_TRIES or odd == _ODD_TRIES
                if given_up or wait > PAUSE_MOST or not _may_repeat(request, error):
                    raise
                self._telemetry.emit(SourceWaits(self.name, str(error), wait))
            async with between_tries():
                await anyio.sleep(wait.total_seconds())
            attempt += 1

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
            self._etags.clear()  # and another key may be shown something else
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
            self._etags.clear()
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
                judge_status(request, response)
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
        wish = read_retry_after(response) or _wait_before(self._throttled)
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
                told = (allowance.remaining, allowance.limit, allowance.resets_in) if allowance else (None, None, None)
                remaining, limit, resets_in = told
                self._telemetry.emit(
                    RequestSent(
                        self.name,
                        urgency,
                        request.path,
                        status,
                        now() - started,
                        remaining,
                        request.method,
                        limit,
                        resets_in,
                    )
                )
            if allowance:
                budgets[-1].learned(allowance, now())
        if status == _UNAUTHORIZED and self._key == key:
            self._key = None  # it is looked up again before the next request
        return (response if status < _ERRORS else self._redactor.redact_answer(response)), started

    def _charged(self, request: Request) -> tuple[Budget, ...]:
        """Return the budgets that a request counts in, the narrowest last: that is the one an answer speaks of."""
        return (self._budget, self._orders) if request.method == "POST" else (self._budget,)

    def _headers(self, request: Request, key: str) -> list[tuple[bytes, bytes]]:
        headers = [(b"authorization", RevealedBytes(f"Bearer {key}".encode())), *self._fixed_headers]
        if request.etag is not None:
            headers.append((b"if-none-match", request.etag.encode("latin-1")))  # as it came
        if request.body is not None:
            headers.append((b"content-type", b"application/json"))
        return headers

    def _look_up_proxy(self) -> str | None:
        url = self._proxy() if callable(self._proxy) else self._proxy
        if url is not None:
            self._redactor.show_proxy(url)
        return url

    def _current_key(self) -> str:
        if self._key is None:
            try:
                key = Revealed(self._reveal().strip())
            except ConfigError as error:
                raise SourceRefused(f'source "{self.name}": {error}') from error
            if not (key and key.isascii() and key.isprintable()):
                raise SourceRefused(
                    f'source "{self.name}": the API key is empty or not plain text; check what api_key names'
                )
            self._key = key
        return self._key


def _wait_before(attempt: int) -> timedelta:
    return delay(attempt, base=_SHORTEST_WAIT, cap=_LONGEST_WAIT, jitter=random.random())  # noqa: S311  # no secret


class _ClosedMeanwhile(Exception):
    """What a request asks for was refused to another while it waited for its turn."""


def _may_repeat(request: Request, error: SourceError) -> bool:
    """Tell whether a request can be sent again: an order only if it was certainly not carried out."""
    return request.method == "GET" or isinstance(error, RateLimited | Unreached)


def _decode_opaque(body: bytes) -> JSON:
    if not body.strip():
        return None
    try:
        return decode(body)
    except ValueError:
        return body.decode(errors="replace")
