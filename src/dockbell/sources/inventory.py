"""The client of the Inventory and Shipment Data Service: one API account, paced, retried, authenticated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import nullcontext
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
import httpx

from dockbell._version import __version__
from dockbell.config import SourceSettings
from dockbell.core.document import decode
from dockbell.core.model import JSON, Page, Urgency
from dockbell.core.reading.request import (
    MAX_LIMIT,
    Request,
    list_request,
    order_request,
    shipment_request,
)
from dockbell.core.reading.response import NOT_FOUND, Response
from dockbell.core.reading.response_json import read_object
from dockbell.core.reading.response_status import check_status
from dockbell.core.running.budget import Budget, Usage
from dockbell.errors import (
    PageUnreadable,
    RateLimited,
    SchemaMismatch,
    SourceError,
    SourceUnavailable,
)
from dockbell.ports import BetweenTries
from dockbell.sources.account import PAUSE_MOST, Account, wait_before
from dockbell.sources.connection_pool import ConnectionPool, Unreached
from dockbell.sources.listings import Listings
from dockbell.sources.redactor import Redactor
from dockbell.sources.request_queue import now
from dockbell.telemetry import SourceWaits, Telemetry

T = TypeVar("T")

MAX_BODY: Final = 16 * 1024 * 1024
"""The most bytes of an answer: 80 kB for each record of a full page, and one record of a page of one."""

_TRIES: Final = 5
# An answer that cannot be read is mended by a smaller page rather than by patience.
_UNREADABLE_TRIES: Final = 2
# One that is JSON of another shape is mostly one of its kind: {"data": null}, or a message. The next is a page again.
_ODD_TRIES: Final = 4
# An odd answer is mostly a moment's: patience mends it no better.
_ODD_WAIT_MOST: Final = timedelta(seconds=1.5)


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
        self._telemetry = telemetry or Telemetry()
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
        self._listings = Listings(self._ask)
        self._account = Account(
            name=name,
            reveal=api_key if callable(api_key) else lambda: api_key,
            budget=Budget(requests_per_minute, share),
            orders=Budget(orders_per_minute, share),
            pool=self._pool,
            headers=(
                (b"accept", b"application/json"),
                (b"accept-encoding", b"gzip"),
                (b"cache-control", b"no-cache"),
                (b"user-agent", (user_agent or f"dockbell/{__version__}").encode()),
            ),
            redactor=self._redactor,
            forget=self._listings.forget_pages,
            telemetry=self._telemetry,
        )

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
        self._account.budget.inherit(before._account.budget)
        self._account.orders.inherit(before._account.orders)

    @property
    def budget(self) -> Usage:
        """How the key's budget stands now."""
        return self._account.budget.usage(now())

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
        return await self._listings.read_page(resource, request, urgency, between_tries)

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
            check_status(request, response)
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
            check_status(request, response)
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
        return self._redactor.redact_answer(await self._account.send_once(request))

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
                return self._understand(await self._account.exchange(request, urgency), read)
            except (SourceUnavailable, SchemaMismatch) as error:
                wait = wait_before(attempt)
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

    def _look_up_proxy(self) -> str | None:
        url = self._proxy() if callable(self._proxy) else self._proxy
        if url is not None:
            self._redactor.show_proxy(url)
        return url

    def _understand(self, response: Response, read: Callable[[Response], T]) -> T:
        """Return what ``read`` finds in an answer; errors do not quote what the API or a proxy was shown."""
        try:
            return read(response)
        except SourceError as error:
            error.args = (self._redactor.redact(str(error)),)
            raise


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
