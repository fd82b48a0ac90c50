"""Asks beside the polls of one feed for its records once more, with the records of another feed embedded.

The polls are what they are without it: nothing is taken from these answers but what they embed. Each is asked for once,
and not for long; where it does not come, the other feed's own runs find what it would have shown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import anyio
from msgspec.structs import replace

from dockbell.core.comparing.page_diff import PageDiff
from dockbell.core.model import Page
from dockbell.core.reading.embedding import Pair, find_member, list_embedded
from dockbell.core.reading.request import LIMITS
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.run import Run
from dockbell.errors import RequestRefused, SourceError

_PATIENCE: Final = timedelta(seconds=10)
_REST: Final = timedelta(minutes=1)
"""After a request was not answered, none is sent for so long."""
_FAILURES_MOST: Final = 10
_BARE_MOST: Final = 100
"""Where so many records in a row embed nothing, the service embeds nothing."""


@dataclass
class _Wanted:
    """What polls have shown as new or modified, and with which requests."""

    since: datetime  # the earliest start of these polls
    limit: int
    pages: int = 0  # how many pages they had
    keys: set[str] = field(default_factory=set)


class Expansion:
    """The records of one feed, embedded in those that another one's polls have just shown as new or modified.

    Attributes:
        problem: Why there can be none; empty while nothing speaks against it.
    """

    def __init__(self, pair: Pair, carrier: TrackedFeed, target: TrackedFeed) -> None:
        self.problem = ""
        self._pair = pair
        self._carrier = carrier
        self._target = target
        self._wanted: _Wanted | None = None
        self._is_complete = False  # the poll that showed them has come to its end
        self._rests_until = timedelta(0)
        self._failures = 0  # in a row
        self._member = ""  # where they stand in a record, as far as is known
        self._bare = 0  # records in a row that have no such member

    @property
    def _asked(self) -> str:
        return f"{self._pair.carrier}?expand={self._pair.relation}"

    @property
    def is_configured(self) -> bool:
        """Whether the operator has the records embedded, so that the polls show them and none is asked for beside."""
        return self._pair.relation in self._carrier.settings.expand

    @property
    def is_due(self) -> bool:
        """Whether a poll has ended that calls for a request."""
        return self._wanted is not None and self._is_complete

    def take_page(self, run: Run, page: Page, page_diff: PageDiff) -> None:
        """Take in what a page of a poll came to."""
        keys = {write.key for write in page_diff.writes if write.body is not None}
        keys |= {each.key for each in page_diff.pending}
        wanted, since = self._wanted, run.since
        if since is not None and (keys or wanted is not None):
            if wanted is None:
                wanted = self._wanted = _Wanted(since, LIMITS[run.level])
            wanted.since, wanted.limit = min(wanted.since, since), min(wanted.limit, LIMITS[run.level])
            wanted.pages += 1
            wanted.keys |= keys
        self._is_complete = page.next_cursor is None

    def forget(self) -> None:
        """Ask for nothing of what polls have shown until now."""
        self._wanted = None

    async def read(self) -> AsyncIterator[Page]:
        """Ask for what the polls since the last call call for; yield what each page embeds.

        The pages are the carrier's with the embedded records in place of its own.
        """
        wanted, self._wanted = self._wanted, None
        if wanted is None or self._carrier.clocks.steady() < self._rests_until:
            return
        cursor: str | None = None
        for _ in range(wanted.pages + 1):
            page = await self._ask(wanted, cursor)
            if page is None:
                return
            if (embedded := self.embed(page)) is not None:
                yield embedded
            wanted.keys -= {key for raw in page.records if (key := self._identify(raw)) is not None}
            cursor = page.next_cursor
            if cursor is None or not wanted.keys:
                break
        self._failures = 0

    def embed(self, page: Page) -> Page | None:
        """Return what a page embeds; None where that is nothing."""
        detector = self._target.detector
        found: list[bytes] = []
        for index, raw in enumerate(page.records):
            if index in page.unsound:
                continue
            member = self._member or find_member(raw, self._pair.relation, detector.identify)
            embedded = list_embedded(raw, member) if member else None
            self._member = member
            self._bare = self._bare + 1 if embedded is None else 0
            found += embedded or ()
        if self._bare >= _BARE_MOST:
            self.problem = f"{self._asked} embeds nothing"
        return replace(page, records=tuple(found), next_cursor=None, unsound={}) if found else None

    async def _ask(self, wanted: _Wanted, cursor: str | None) -> Page | None:
        """Return a page with the records embedded; None where it does not come."""
        page = None
        self._carrier.workload.ask_aside()
        try:
            with anyio.move_on_after(_PATIENCE.total_seconds()):
                page = await self._carrier.fetcher.fetch_aside(self._pair.relation, wanted.since, cursor, wanted.limit)
        except RequestRefused as error:
            self.problem = f"{self._asked} is refused: {error}"
        except SourceError:
            pass
        if page is not None:
            return page
        self._failures += 1
        self._rests_until = self._carrier.clocks.steady() + _REST
        if self._failures >= _FAILURES_MOST:
            self.problem = self.problem or f"{self._asked} is not answered"
        return None

    def _identify(self, raw: bytes) -> str | None:
        with suppress(ValueError):
            return self._carrier.detector.identify(raw).text
        return None
