"""The pages of listings: the name that holds their records, the remembered ones, and the time that they tell."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from dockbell.core.model import Page, Urgency
from dockbell.core.reading.clock import ServiceClock
from dockbell.core.reading.request import Request, whole_list
from dockbell.core.reading.response import NOT_MODIFIED, Response, check_status
from dockbell.core.reading.response_json import are_alike
from dockbell.core.reading.response_page import EnvelopeMissing, read_page
from dockbell.errors import CursorExpired, SourceError
from dockbell.ports import BetweenTries
from dockbell.sources.account import Account
from dockbell.sources.request_queue import now

# While a service is deployed, old and new answers come in turn.
_ENVELOPES_MOST: Final = 2


class Listings:
    def __init__(self, account: Account) -> None:
        self._account = account
        self._envelopes: dict[str, tuple[str, ...]] = {}  # what held the records, the name learned last first
        self._samples: dict[str, bytes] = {}  # a record of each resource, as it was read last
        self._clock = ServiceClock()
        self._asked_the_time_again = False

    async def read_page(
        self, resource: str, request: Request, urgency: Urgency, between_tries: BetweenTries, *, patient: bool = True
    ) -> Page:
        """Return a page; once more where its records have another name now, or its time is doubtful.

        One that is not ``patient`` is tried once.
        """
        if not patient:
            return await self._ask_for_page(resource, request, urgency, between_tries, patient=False)
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
            self._account.etags.clear()  # a remembered page may have given the cursor
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
            check_status(first, response)
            return read_page(resource, response)

        try:
            page = await self._account.ask(first, urgency, read)
        except SourceError:
            return False
        known = self._envelopes[resource]
        if page.envelope in known or not page.records or not are_alike(self._samples[resource], page.records[0]):
            return False
        self._envelopes[resource] = (page.envelope, *known)[:_ENVELOPES_MOST]
        self._account.etags.clear()
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
        self, resource: str, request: Request, urgency: Urgency, between_tries: BetweenTries, *, patient: bool = True
    ) -> Page:
        """Ask for a page, not to be sent again where it is remembered: the pages of passes are, polls always differ."""
        repeats = not request.narrows
        remembered = self._account.etags.recall(request.target, now()) if repeats else None

        def read(response: Response) -> Page:
            if response.status == NOT_MODIFIED and remembered is not None:
                page = remembered[1]
            else:
                check_status(request, response)
                page = self._read_page(resource, response)
                if repeats:
                    self._account.etags.remember(request.target, response.headers.get("etag"), page, now())
            time = self._clock.time_of(response)
            return replace(
                page,
                asked_at=time.asked_at,
                clock=time.clock,
                answered_at=time.answered_at,
                received_at=response.received_at,
                offset=response.answered_at - self._clock.estimate(response, time),
            )

        request = replace(request, etag=remembered[0]) if remembered else request
        if not patient:
            return await self._account.ask_aside(request, urgency, read)
        return await self._account.ask(request, urgency, read, between_tries=between_tries)
