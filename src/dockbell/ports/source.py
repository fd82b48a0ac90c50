"""An API account that is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import Protocol, TypeAlias

from dockbell.core.model import Page, Urgency

BetweenTries: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""Makes the context in which the next try of a request is waited for."""


class Source(Protocol):
    """One API account: paced, retried, authenticated; every request of dockbell to the API goes through one."""

    name: str

    async def read_page(
        self,
        resource: str,
        *,
        cursor: str | None = None,
        updated_since: datetime | None = None,
        limit: int | None = 200,
        query: Mapping[str, str | int | bool] | None = None,
        expand: tuple[str, ...] = (),
        urgency: Urgency = Urgency.POLL,
        between_tries: BetweenTries = nullcontext,
        patient: bool = True,
    ) -> Page:
        """Read one page of a listing, waiting for the budget and retrying what may pass.

        ``between_tries`` is entered while the next try is waited for. Without a limit the page is as long as the API
        makes it. One that is not ``patient`` is tried once, and its refusal says nothing of the key or the listing.

        Raises:
            CursorExpired: The API no longer knows the cursor (400, 404, 410 or 422 on a page after the first).
            SourceRefused: The key is not accepted (401, 403), or a file that is needed to connect cannot be used.
            SourceUnavailable: No usable answer after several tries.
            PageUnreadable: An answer came that is not whole and sound JSON; a smaller page may be.
            SchemaMismatch: The answer has no array of records, or several.
        """

    async def read_shipment(
        self, shipment_id: str, *, expand: tuple[str, ...] = (), urgency: Urgency = Urgency.DETAIL, patient: bool = True
    ) -> bytes | None:
        """Read the object that answers for one shipment, as raw JSON; None when there is none (404, 410).

        Whether it is that shipment's record decides ``ChangeDetector.find_own``.

        Args:
            shipment_id: Its id.
            expand: Relations to embed.
            urgency: Whose turn it is when requests are scarce.
            patient: Ask again when no usable answer comes; otherwise once only, for callers that come back later.

        Raises:
            SourceError: As :meth:`read_page`.
        """

    async def aclose(self) -> None:
        """Close its connections."""
