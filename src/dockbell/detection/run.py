"""One run: the requests from the first page of a list to its last, and what ends it before.

A run asks for all of its pages with one limit. Where a page cannot be read, a part of it may be: the run asks for the
part, then once more for the whole, since the moment may have been bad and not the size. If only the part can be read,
the run is *uneven* from then on: its pages do not join, it certifies nothing, and it begins again with the smaller
limit when it has come to its end.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final, TypeAlias

import anyio

from dockbell.core.model import Page, RunKind, Statement
from dockbell.core.reading.page_sample import RECORDS_LEAST
from dockbell.core.reading.request import LIMITS
from dockbell.core.reading.silence import Silences
from dockbell.core.reading.window import Proof
from dockbell.core.running.backoff import delay
from dockbell.detection.anomalies import AnomalyGuard
from dockbell.detection.run_summary import RunSummary
from dockbell.errors import CursorExpired, PageUnreadable, SourceUnavailable
from dockbell.ports import Committed, FeedState, RunRecord

CURSOR_EXPIRED: Final = "the API forgot the cursor"
LIMIT_CHANGED: Final = "a page could only be read with a smaller limit, so others may have been skipped"

_RESTARTS_MOST: Final = 2
_ODD_TRIES: Final = 4
"""So often a page is asked for that shows two records under one key."""
_ODD_PAUSE: Final = timedelta(seconds=0.5)
_CHECKPOINT_PAGES: Final = 100
_CHECKPOINT_EVERY: Final = timedelta(seconds=30)

AskForPage: TypeAlias = Callable[[str | None, int], AbstractAsyncContextManager[Page]]
"""Asks for the page of a cursor (None: the first) with a limit; the feed's turn is held while the context lasts."""


class _Request(Enum):
    """What the next request asks for."""

    NEXT = auto()  # the next page, with the limit at hand
    WHOLE = auto()  # the whole of a page that was read in part
    END = auto()  # the last page once more: it is as full as pages get, so an answer may have been cut


@dataclass(slots=True)
class RunEnd:
    gaps: tuple[Statement, ...]
    """The gap that the run ends, if it is complete; it is to be stated."""
    state: FeedState | None = None
    """The state that the run has left, where the store has told it."""


@dataclass
class Run:
    summary: RunSummary  # what its pages showed
    since: datetime | None = None  # the ``updated_since`` of a poll; None for a pass
    level: int = 0  # its limit, as an index of ``LIMITS``
    most: int = LIMITS[0]
    """No page is asked for with a larger limit; it is less where the list went on only behind a shorter page."""
    cursor: str | None = None  # of the next page; None for the first
    page_most: int = 0  # the most records on a page of the feed that had a cursor; 0 while there was none
    due: timedelta | None = None  # when its last page was due, by the steady clock; None before its first
    silences: Silences = field(default_factory=Silences)  # the times in which none of its pages was answered
    needed: int = field(default=0, init=False)
    """The smallest limit that one of its pages needed, as an index of ``LIMITS``."""
    problem: str = field(default="", init=False)  # why it is incomplete; empty where it is not, or not over
    cause: SourceUnavailable | None = field(default=None, init=False)  # the error that made it so
    is_cursor_lost: bool = field(default=False, init=False)  # it ended because the API did not know a cursor any more
    _level: int = field(default=0, init=False)  # of the next request
    _request: _Request = field(default=_Request.NEXT, init=False)
    _known: tuple[Page, Committed | None] | None = field(default=None, init=False)  # the page that is asked for again
    _is_over: bool = field(default=False, init=False)
    _refused_at: int | None = field(default=None, init=False)  # after so many pages the API refused the cursor as such
    _refused_before: set[int | None] = field(default_factory=lambda: {None}, init=False)
    _restarts: int = field(default=0, init=False)
    _odd: int = field(default=0, init=False)
    _guard: AnomalyGuard = field(default_factory=AnomalyGuard, init=False)
    _saved_pages: int = field(default=0, init=False)
    _saved_at: datetime | None = field(default=None, init=False)
    _received_at: datetime | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.needed = self._level = self.level
        self._saved_pages = self.summary.pages

    @property
    def kind(self) -> RunKind:
        return self.summary.kind

    @property
    def proof(self) -> Proof | None:
        """What it says about the watermark; None before its first answer."""
        return self.summary.prove(complete=not self.problem)

    @property
    def is_uneven(self) -> bool:
        """Whether one of its pages was read with a smaller limit than the others."""
        return self.needed > self.level

    @property
    def may_ask_again(self) -> bool:
        """Whether a page that shows two records under one key may be asked for again."""
        return self._odd < _ODD_TRIES - 1

    @property
    def may_restart(self) -> bool:
        """Whether it is to begin again: with a smaller limit, or because the API has lost a cursor.

        The limit of each restart is smaller than the one before, so these come to an end by themselves. A cursor that
        was refused twice at the same page would be refused a third time.
        """
        is_new = self._refused_at is None or self._refused_at not in self._refused_before
        return self.problem == LIMIT_CHANGED or (self.is_cursor_lost and self._restarts < _RESTARTS_MOST and is_new)

    def restart(self, last_row: int) -> None:
        """Return to the first page, with the limit that all pages can be read with; what is committed counts."""
        self._restarts += self.is_cursor_lost
        self._refused_before.add(self._refused_at)
        self.summary.restart(last_row)
        self.level = self._level = self.needed
        self.most, self.cursor, self._guard = LIMITS[0], None, AnomalyGuard()
        self.problem, self.cause, self.is_cursor_lost = "", None, False
        self._request, self._known, self._is_over = _Request.NEXT, None, False
        self._saved_pages, self._saved_at, self._received_at = 0, None, None

    async def pages(
        self, ask: AskForPage, save: Callable[[datetime], Awaitable[None]] | None = None
    ) -> AsyncGenerator[Page]:
        """Yield the pages of the list to its end, or to the problem that ends the run.

        The feed's turn is held until the caller asks for the next page. Before that the caller commits the page and
        passes it to :meth:`take`, or calls :meth:`ask_again`. ``save`` stores how far the run has come, by our time;
        None where it cannot go on after a crash.
        """
        while not self._is_over:
            if save is not None and self._received_at is not None and self._is_checkpoint_due(self._received_at):
                self._saved_pages, self._saved_at = self.summary.pages, self._received_at
                await save(self._received_at)
            try:
                async with ask(self.cursor, self._find_limit()) as page:
                    yield page
            except (CursorExpired, SourceUnavailable) as error:
                self._fail(error)
            if self._odd:
                jitter = random.random()  # noqa: S311  # no secret
                pause = delay(self._odd, base=_ODD_PAUSE, cap=4 * _ODD_PAUSE, jitter=jitter)
                await anyio.sleep(pause.total_seconds())

    def take(self, page: Page, committed: Committed | None) -> None:
        """Count a page that is committed, and decide what is asked for next."""
        known, request = self._known, self._request
        self._known, self._request, self._odd = None, _Request.NEXT, 0
        if request is _Request.END and known is not None:
            self._take_end(page, committed, known)
        elif request is _Request.WHOLE and known is not None:
            self._level = self.level
            self.summary.count_stored(known[1])
            self._take_page(page, committed)
        elif self._level > self.level and not self.is_uneven:
            self._known, self._request = (page, committed), _Request.WHOLE
        else:
            self._take_part(page, committed)

    def ask_again(self) -> None:
        """Ask once more for the page that was yielded last, on which two records stand under one key by chance."""
        self._odd += 1

    def report(self, ended_at: datetime) -> RunRecord:
        summary = self.summary
        return RunRecord(
            self.kind,
            summary.asked_at or ended_at,
            self.since,
            ended_at,
            pages=summary.pages,
            records=summary.records,
            events=summary.events,
            problem=self.problem,
            tally=summary.tally,
            sent_at=summary.sent_at,
        )

    def _take_part(self, page: Page, committed: Committed | None) -> None:
        """Take in a page as it could be read; a run that has read a page in part tries a larger part each time."""
        self.needed = max(self.needed, self._level)
        self._level = max(self.level, self._level - 1)
        self._take_page(page, committed)

    def _take_page(self, page: Page, committed: Committed | None) -> None:
        self.summary.count(page, committed)
        if self._seems_cut(page):
            self._known, self._request = (page, committed), _Request.END
        else:
            self._move_on(page)

    def _take_end(self, page: Page, committed: Committed | None, known: tuple[Page, Committed | None]) -> None:
        """Take in what the list says of its end when it is asked once more.

        The list may end at a full page by chance, or an answer was cut. An only page is asked for with one record less:
        an honest list must go on then. Other pages are asked for as they were, since another limit may skip records.
        """
        self.summary.uncount(*known)
        self.summary.count(page, committed)
        full, limit = len(known[0].records), self._find_end_limit(known[0])
        if self.cursor is None and page.next_cursor is not None:
            self.most = limit  # for all of its pages
        is_cut = self.cursor is None and page.next_cursor is None and len(page.records) == limit
        self._move_on(
            page,
            f"the API ends the list at {full} records when the limit is {full}, and at {limit} when it is {limit}"
            if is_cut
            else "",
        )

    def _move_on(self, page: Page, problem: str = "") -> None:
        """Go on to the page after this one, unless the run ends here."""
        summary = self.summary
        self._received_at = page.received_at
        if page.next_cursor is None:
            self._end(problem or summary.find_bad())
        elif anomaly := self._guard.find(
            page, page.next_cursor, records=summary.records, repeated=summary.tally.repeated
        ):
            self._end(anomaly)
        else:
            self.cursor = page.next_cursor
            self._saved_at = self._saved_at or page.received_at

    def _end(self, problem: str) -> None:
        """End the run; where its pages do not join, nothing else says anything of the list."""
        self.problem, self._is_over = LIMIT_CHANGED if self.is_uneven else problem, True

    def _fail(self, error: CursorExpired | SourceUnavailable) -> None:
        """Take in that a page did not come: ask for a smaller part of it, or end the run."""
        request, known = self._request, self._known
        self._odd = 0
        if isinstance(error, PageUnreadable) and request is _Request.NEXT and self._level + 1 < len(LIMITS):
            self._level += 1  # what cannot be read stands in the way of fewer records then
            return
        if request is _Request.WHOLE and known is not None:
            if isinstance(error, PageUnreadable):
                self._settle_for_part(*known)
                return
            self.summary.count_stored(known[1])
        number = self.summary.pages + 1
        if isinstance(error, CursorExpired):
            self.problem = f"{CURSOR_EXPIRED}: page {number}: {error}"
            self._refused_at = self.summary.pages if error.is_refusal else None
            self.is_cursor_lost = True
        else:
            self.problem = f"page {number}: {error}" if isinstance(error, PageUnreadable) else str(error)
            self.cause = error
        self._is_over = True

    def _settle_for_part(self, page: Page, committed: Committed | None) -> None:
        """Go on with the part of a page; a run that has no other page yet takes its limit for all of them."""
        self._known, self._request = None, _Request.NEXT
        if self.summary.pages == 0:
            self.level = self._level
        self._take_part(page, committed)

    def _seems_cut(self, page: Page) -> bool:
        """Return whether a last page is as full as pages get, so that the list may go on behind it.

        An API may give fewer records than it is asked for; how many that are, other pages have shown. Pages of a few
        records are full too often.
        """
        if page.next_cursor is not None:
            if len(page.records) >= RECORDS_LEAST:
                self.page_most = max(self.page_most, len(page.records))
            return False
        full = min(self._find_limit_of(self._level), self.page_most or LIMITS[0])
        return len(page.records) >= max(full, RECORDS_LEAST) and not self.is_uneven

    def _find_limit(self) -> int:
        if self._request is _Request.END and self._known is not None:
            return self._find_end_limit(self._known[0])
        return self._find_limit_of(self.level if self._request is _Request.WHOLE else self._level)

    def _find_end_limit(self, full: Page) -> int:
        return len(full.records) - 1 if self.cursor is None else self._find_limit_of(self._level)

    def _find_limit_of(self, level: int) -> int:
        return min(LIMITS[level], self.most)

    def _is_checkpoint_due(self, received_at: datetime) -> bool:
        """Return whether it is time to store how far the run has come."""
        is_between = self._request is _Request.NEXT and self.cursor is not None and not self.is_uneven
        pages, since = self.summary.pages - self._saved_pages, received_at - (self._saved_at or received_at)
        return is_between and (pages >= _CHECKPOINT_PAGES or since >= _CHECKPOINT_EVERY)
