"""Finds out, before a feed's baseline begins, where the clock of its records stands.

What is dated before the feed was first asked for is baseline, by that clock; what is dated later is news. Records may
be dated behind the service's clock, or ahead of it: short lists of the newest records tell how far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from dockbell.core.model import Page, RunKind
from dockbell.core.reading.anchor import Short, find_boundary, next_since
from dockbell.core.reading.request import LIMITS
from dockbell.core.reading.shape import find_dates
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.record_shape import decode_sound
from dockbell.errors import SourceError, SourceUnavailable

_SEARCHES_MOST: Final = 3
_EVER_AFTER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True)
class FirstRequest:
    """When a feed was first asked for."""

    asked_at: datetime | None = None  # the service's time of the first request; None before it
    answers: list[Short] = field(default_factory=list)  # what each request told of the records' clock
    pages: list[Page] = field(default_factory=list)  # the page of each request

    def take(self, since: datetime, page: Page, dates: Sequence[datetime]) -> None:
        self.asked_at = self.asked_at or page.asked_at
        is_whole = page.next_cursor is None and len(page.records) < LIMITS[0]
        self.answers.append(Short(since, is_whole, dates))
        self.pages.append(page)


async def find_first_request(feed: TrackedFeed) -> FirstRequest:
    """Return when the feed is first asked for, by the service's clock and by that of its records.

    An API that does not answer is asked again with the next run, a few times; then the service's clock must do.

    Raises:
        SourceUnavailable: No answer came.
    """
    first = FirstRequest()
    while feed.resource.polled:
        # Until an answer has told the service's time, ours must do.
        since = next_since(first.asked_at or feed.clocks.now(), first.answers)
        if since is None:
            break
        try:
            page = await feed.fetcher.fetch(RunKind.PASS, since, None, LIMITS[0])
        except SourceError as error:
            # What is refused or unreadable is so for the pass as well; no answer may be one the next time.
            feed.profile.failed_searches += 1
            if type(error) is SourceUnavailable and feed.profile.failed_searches <= _SEARCHES_MOST:
                raise
            break
        first.take(since, page, find_dates(decode_sound(page.records), updated_at=feed.settings.updated_at))
    return first


async def store_first_request(feed: TrackedFeed, first: FirstRequest, page: Page) -> None:
    """Store when the feed was first asked for; before it, the records that are dated later than that.

    ``page`` is the first one of the first run.
    """
    state = await feed.state()
    asked_at = first.asked_at or page.asked_at
    boundary, number = (None, None) if first.asked_at is None else find_boundary(first.asked_at, first.answers)
    if number is not None:
        known = first.pages[number]
        asked_at = known.asked_at  # what it shows was there
        if state.shape is None:
            state = await feed.learn_shape(page if page.records else known)
        # All of it was there: no date of it is news.
        context = replace(feed.make_context(RunKind.PASS, state, _EVER_AFTER), boundary=_EVER_AFTER)
        await feed.store_page(known, context)
    await feed.store.begin_feed(asked_at, boundary)
    await feed.reload()
