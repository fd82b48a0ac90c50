"""The client of the Inventory and Shipment Data Service: one API account, paced, retried, authenticated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import nullcontext
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Self, TypedDict, Unpack

import httpx

from dockbell.config import SourceSettings
from dockbell.core.document import decode
from dockbell.core.model import JSON, Page, Urgency
from dockbell.core.reading.request import MAX_LIMIT, Request, list_request, order_request, shipment_request
from dockbell.core.reading.response import NOT_FOUND, Response, check_status
from dockbell.core.reading.response_json import read_object
from dockbell.core.running.budget import Usage
from dockbell.errors import RateLimited, SchemaMismatch, SourceUnavailable
from dockbell.ports import BetweenTries
from dockbell.sources.account import TRIES, Account, Redactor
from dockbell.sources.connection_pool import ConnectionPool, Unreached
from dockbell.sources.key_budget import KeyBudget
from dockbell.sources.listings import Listings
from dockbell.telemetry import Telemetry

MAX_BODY: Final = 16 * 1024 * 1024
"""The most bytes of an answer: 80 kB for each record of a full page, and one record of a page of one."""


class ListingOptions(TypedDict, total=False):
    """What a listing may be asked for; see :meth:`InventoryClient.read_page`."""

    updated_since: datetime | None
    limit: int
    query: Mapping[str, str | int | bool] | None
    expand: tuple[str, ...]
    urgency: Urgency


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
        telemetry: Gets the fact of every request and every retry.
        transport: Instead of real connections, for tests.
        checked: False: where ``proxy`` or ``ca_file`` cannot be used, each request fails until they can.

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
        checked: bool = True,
    ) -> None:
        self.name = name
        redactor = Redactor()

        def look_up_proxy() -> str | None:
            url = proxy() if callable(proxy) else proxy
            if url is not None:
                redactor.show_proxy(url)
            return url

        self._pool = ConnectionPool(
            base_url,
            timeout=timeout,
            max_body=max_body,
            proxy=look_up_proxy,
            ca_file=ca_file,
            transport=transport,
            checked=checked,
        )
        self._account = Account(
            name=name,
            reveal=api_key if callable(api_key) else lambda: api_key,
            key_budget=KeyBudget(requests_per_minute, orders_per_minute, share),
            pool=self._pool,
            user_agent=user_agent,
            redactor=redactor,
            telemetry=telemetry or Telemetry(),
        )
        self._listings = Listings(self._account)

    @classmethod
    def from_settings(
        cls, name: str, settings: SourceSettings, telemetry: Telemetry | None = None, *, checked: bool = True
    ) -> Self:
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
            checked=checked,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._pool.aclose()

    def inherit(self, before: InventoryClient) -> None:
        """Count what another client has asked with the same key; it is closed, and this one has asked nothing yet."""
        self._account.key_budget.inherit(before._account.key_budget)

    def share_budget(self, other: InventoryClient) -> None:
        """Have one budget with another client that has the same key; this one has asked nothing yet."""
        self._account.key_budget = other._account.key_budget

    def give_up_at_once(self) -> None:
        """Give requests up at once while the API answers nothing, as for a command that an operator waits for."""
        self._account.probe_queue.patience = timedelta(0)

    @property
    def key_budget(self) -> KeyBudget:
        return self._account.key_budget

    @property
    def budget(self) -> Usage:
        return self._account.key_budget.usage

    async def pages(self, resource: str, **options: Unpack[ListingOptions]) -> AsyncIterator[Page]:
        """Read a listing page by page, to its end; SchemaMismatch too where a cursor comes back: it would never end."""
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            page = await self.read_page(resource, cursor=cursor, **options)
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen:
                raise SchemaMismatch(
                    f'resource "{resource}": the cursor of page {len(seen) + 1} repeats an earlier one'
                )
            seen.add(cursor)

    async def records(self, resource: str, **options: Unpack[ListingOptions]) -> AsyncIterator[dict[str, JSON]]:
        """Read a listing record by record, to its end; numbers are exact (:class:`int`, :class:`decimal.Decimal`)."""
        async for page in self.pages(resource, **options):
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
        patient: bool = True,
    ) -> Page:
        """Read one page of a listing; ``between_tries`` is entered while the next try is waited for.

        One that is not ``patient`` is tried once, and its refusal says nothing of the key or the listing.

        Raises as :meth:`dockbell.ports.Source.read_page` says, and ValueError where the API would not accept the
        request: PageUnreadable after two answers that cannot be read, SchemaMismatch after four that hold no array of
        records, or several, SourceUnavailable after five tries, and :class:`RateLimited` when the budget is used up.
        """
        request = list_request(
            resource, limit=limit, cursor=cursor, updated_since=updated_since, query=query, expand=expand
        )
        return await self._listings.read_page(resource, request, urgency, between_tries, patient=patient)

    async def read_shipment(
        self, shipment_id: str, *, expand: tuple[str, ...] = (), urgency: Urgency = Urgency.DETAIL, patient: bool = True
    ) -> bytes | None:
        """Read one shipment's raw JSON; None when the API answers that there is none (404, 410).

        A caller that comes back later is not ``patient``: it asks once only. Raises as :meth:`read_page`.
        """
        request = shipment_request(shipment_id, expand=expand)

        def read(response: Response) -> bytes | None:
            if response.status in NOT_FOUND:
                return None
            check_status(request, response)
            return read_object(str(request), response)

        return await self._account.ask(request, urgency, read, tries=TRIES if patient else 1)

    async def create_sales_order(self, payload: JSON, *, urgency: Urgency = Urgency.OPERATOR) -> JSON:
        """Create a sales order and return the API's answer, decoded; text when it is no JSON, None when empty.

        The API's description shows neither payload nor answer, so both are passed through as they are. Waits for both
        budgets. Asked again only where the request cannot have been carried out: no connection came about, or 429.

        Raises:
            SourceUnavailable: No answer came: the order may have been created or not.
            SourceRefused: The key or the order is not accepted.
        """
        request = order_request(payload)

        def read(response: Response) -> JSON:
            check_status(request, response)
            try:
                return decode(response.body) if response.body.strip() else None
            except ValueError:
                return response.body.decode(errors="replace")

        try:
            return await self._account.ask(request, urgency, read)
        except (RateLimited, Unreached):
            raise
        except SourceUnavailable as error:
            raise SourceUnavailable(
                f"{error}; the API may have created the order: check before you order again"
            ) from error

    async def ask(self, request: Request) -> Response:
        """Send one request as it is and return its answer as it is, whatever its status: for a look at the API itself.

        It has its turn by the budget, as urgent as an operator. It is sent once, also where the key is known to be
        refused, and nothing is concluded from its answer but how the budget stands. Where it quotes the key or the
        proxy's password, ``***`` stands in their place.
        """
        return await self._account.send_once(request)
