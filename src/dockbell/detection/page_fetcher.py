"""Asks the API for the pages and the single records of one feed.

Some APIs refuse a cursor beside the filters of its list, or beside the limit too: see :mod:`.lone_cursor`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Final, Self

import anyio
from msgspec.structs import replace

from dockbell.config import ResourceSettings
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.model import RESOURCES, Feed, Page, RunKind, Urgency
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.reading.listing_profile import Beside
from dockbell.detection.lone_cursor import try_alone
from dockbell.detection.profile import FeedProfile
from dockbell.errors import CursorExpired, PageUnreadable, SchemaMismatch
from dockbell.ports import BetweenTries, Source

_JUST_GIVEN: Final = timedelta(minutes=1)
"""A cursor that is refused sooner than this is not too old."""
_ALONE_PAUSE: Final = timedelta(hours=1)
"""After a cursor did not show its list when it was sent alone, none is sent alone for so long."""

_URGENCY: Final = {RunKind.POLL: Urgency.POLL, RunKind.TRAILING: Urgency.TRAILING, RunKind.PASS: Urgency.PASS}


class PageFetcher:
    """Asks for the pages of one feed; what is never stored is removed from them."""

    def __init__(
        self, feed: Feed, settings: ResourceSettings, *, source: Source, profile: FeedProfile, erasure: Erasure | None
    ) -> None:
        self._resource = RESOURCES[feed.resource]
        self._settings = settings
        self._source = source
        self._profile = profile
        self._erasure = erasure
        self._given: dict[RunKind, tuple[str | None, float]] = {}  # the last cursor, and when, by the loop's clock
        self._alone_again_at = 0.0  # by the loop's clock

    async def fetch(
        self,
        kind: RunKind,
        since: datetime | None,
        cursor: str | None,
        limit: int,
        between_tries: BetweenTries = nullcontext,
    ) -> Page:
        """Return a page of at most ``limit`` records; the first where there is no cursor.

        The kind of the run decides how urgent the request is, and ``between_tries`` makes the context in which the next
        try is waited for.

        Raises:
            SourceError: As :meth:`dockbell.ports.Source.read_page`.
        """
        beside = self._profile.listing.beside_cursor
        if cursor is not None and beside is not Beside.FILTERS:
            page = await self._ask(kind, since, cursor, limit, between_tries, beside=beside)
            await self._check_alone(page, since)
        else:
            try:
                page = await self._ask(kind, since, cursor, limit, between_tries)
            except CursorExpired as error:
                page = await self._ask_alone(kind, since, cursor, limit, refused=error)
        self._given[kind] = page.next_cursor, anyio.current_time()
        return page if self._erasure is None else replace(page, records=self._erasure.page(page.records))

    async def fetch_aside(self, relation: str, since: datetime, cursor: str | None, limit: int) -> Page:
        """Return a page of what a poll asks for, with a relation embedded besides; it is tried once.

        Nothing is removed from it, so it must not be stored.

        Raises:
            SourceError: As :meth:`dockbell.ports.Source.read_page`.
        """
        beside = Beside.FILTERS if cursor is None else self._profile.listing.beside_cursor
        expand = (*self._settings.expand, relation)
        return await self._ask(RunKind.POLL, since, cursor, limit, beside=beside, expand=expand, patient=False)

    async def fetch_detail(self, shipment_id: str) -> bytes | None:
        """Return the object that answers for a shipment, with its detail; None where there is none. It is tried once.

        Raises:
            SourceError: As :meth:`dockbell.ports.Source.read_shipment`.
        """
        return await self._source.read_shipment(
            shipment_id, expand=self._settings.detail, urgency=Urgency.DETAIL, patient=False
        )

    async def is_there(self, detector: ChangeDetector, body: bytes, urgency: Urgency) -> bool | None:
        """Return whether a stored shipment is found when it is asked for; None where the answer does not tell."""
        key = detector.identify(body)
        try:
            raw = await self._source.read_shipment(str(key.id), urgency=urgency)
        except (PageUnreadable, SchemaMismatch):
            return None
        if raw is None:
            return False
        return True if detector.shows(raw, key) else None

    async def _ask(
        self,
        kind: RunKind,
        since: datetime | None,
        cursor: str | None,
        limit: int,
        between_tries: BetweenTries = nullcontext,
        *,
        beside: Beside = Beside.FILTERS,
        expand: tuple[str, ...] | None = None,
        patient: bool = True,
    ) -> Page:
        """Ask for a page with the filters of its list, or by the cursor alone."""
        filters = beside is Beside.FILTERS
        expand = self._settings.expand if expand is None else expand
        return await self._source.read_page(
            self._resource.name,
            cursor=cursor,
            updated_since=since if filters else None,
            limit=None if beside is Beside.NOTHING else limit,
            query=self._settings.query if filters else {},
            expand=expand if filters else (),
            urgency=_URGENCY[kind],
            between_tries=between_tries,
            patient=patient,
        )

    async def _ask_alone(
        self, kind: RunKind, since: datetime | None, cursor: str | None, limit: int, *, refused: CursorExpired
    ) -> Page:
        """Return the page of a cursor that was refused as soon as it was given, where it is shown alone.

        Raises:
            CursorExpired: It is not, or shows another list.
        """
        has_filters = since is not None or self._settings.query or self._settings.expand
        given, at = self._given.get(kind, (None, 0.0))
        now = anyio.current_time()
        is_new = cursor == given and now - at < _JUST_GIVEN.total_seconds() and now >= self._alone_again_at
        if cursor is None or not (refused.is_refusal and is_new):
            raise refused
        company = (Beside.LIMIT, Beside.NOTHING) if has_filters else (Beside.NOTHING,)
        found = await try_alone(partial(self._ask, kind, since), cursor, limit, company)
        if found is None:
            self._alone_again_at = now + _ALONE_PAUSE.total_seconds()
            raise refused
        page, beside = found
        await self._check_alone(page, since)
        await self._profile.learn_beside_cursor(beside)
        return page

    async def _check_alone(self, page: Page, since: datetime | None) -> None:
        """Refuse a page that was asked for by its cursor alone, where the API has forgotten the filter meanwhile.

        Raises:
            CursorExpired: It shows records from before ``updated_since``.
        """
        if since is None or not self._profile.shows_before(page, since):
            return
        self._alone_again_at = anyio.current_time() + _ALONE_PAUSE.total_seconds()
        if self._profile.listing.beside_cursor is not Beside.FILTERS:
            await self._profile.learn_beside_cursor(Beside.FILTERS)
        raise CursorExpired(
            f"GET {self._resource.path}: the API refuses the cursor together with updated_since, and returns older"
            " records for the cursor alone"
        )


class Turn(AbstractAsyncContextManager["Turn"]):
    """The turn of a feed: the right to ask for a page and to commit it; held while it is entered, unless it is lent.

    A page that does not come is asked for up to five times, for up to half a minute each. Between two tries its run
    lends the turn to the other runs of the feed: the try that succeeds is sent after their pages were committed.
    """

    def __init__(self, lock: anyio.Lock) -> None:
        self._lock = lock
        self._is_held = False

    async def __aenter__(self) -> Self:
        await self._take()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_held:
            self._give_back()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Let other runs have the turn meanwhile; after an error it is not taken back, since the page is given up."""
        self._give_back()
        yield
        await self._take()

    async def _take(self) -> None:
        await self._lock.acquire()
        self._is_held = True

    def _give_back(self) -> None:
        self._is_held = False
        self._lock.release()
