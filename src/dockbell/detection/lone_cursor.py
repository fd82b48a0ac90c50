"""Cursors that an API takes alone only: it refuses them beside what the request for their page's list said.

Some APIs keep the filters, or the filters and the limit, in the cursor and refuse to be told them again. Others refuse
the cursor for another reason, or take it alone and forget the filters. So it is found out by reading the first page a
second time in two halves: the second half, asked for by its cursor alone, must show the same records as the whole page
did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dockbell.core.model import Page
from dockbell.core.reading.listing_profile import Beside
from dockbell.errors import SourceError


class AskForPage(Protocol):
    """Asks for a page of a list; a cursor is sent ``beside`` the filters and the limit, the limit only, or nothing."""

    async def __call__(self, cursor: str | None, limit: int, *, beside: Beside = Beside.FILTERS) -> Page:
        """Return the page."""


async def try_alone(ask: AskForPage, cursor: str, limit: int, company: Sequence[Beside]) -> tuple[Page, Beside] | None:
    """Return the page that a cursor asks for with less beside it, and with what; None where it shows another list."""
    for beside in company:
        try:
            page = await ask(cursor, limit, beside=beside)
        except SourceError:
            continue
        return (page, beside) if await _shows_the_same(ask, limit, beside) else None
    return None


async def _shows_the_same(ask: AskForPage, limit: int, beside: Beside) -> bool:
    try:
        whole = await ask(None, limit)
        if len(whole.records) <= 1:
            return False
        first = await ask(None, len(whole.records) // 2)
        if first.next_cursor is None or not 0 < len(first.records) < len(whole.records):
            return False
        second = await ask(first.next_cursor, len(first.records), beside=beside)
    except SourceError:
        return False
    shown = (*first.records, *second.records)
    return bool(second.records) and shown[: len(whole.records)] == whole.records[: len(shown)]
