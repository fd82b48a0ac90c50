"""Cursors that an API takes alone only: it refuses them beside the filters of the page that gave them.

Some APIs keep the filters in the cursor and refuse to be told them again. Others refuse the cursor for another reason,
or take it alone and forget the filters. So it is found out by reading the first page a second time in two halves: the
second half, asked for by its cursor alone, must show the same records as the whole page did.
"""

from __future__ import annotations

from typing import Protocol

from dockbell.core.model import Page
from dockbell.errors import SourceError


class AskForPage(Protocol):
    """Asks for a page of a list with its filters; or with the cursor and the limit ``alone``."""

    async def __call__(self, cursor: str | None, limit: int, *, alone: bool = False) -> Page:
        """Return the page."""
        ...


async def try_alone(ask: AskForPage, cursor: str, limit: int) -> Page | None:
    """Return the page that a cursor asks for by itself; None where it does not, or shows another list."""
    try:
        page = await ask(cursor, limit, alone=True)
        whole = await ask(None, limit)
        if len(whole.records) <= 1:
            return None
        first = await ask(None, len(whole.records) // 2)
        if first.next_cursor is None or not 0 < len(first.records) < len(whole.records):
            return None
        second = await ask(first.next_cursor, len(first.records), alone=True)
    except SourceError:
        return None
    shown = (*first.records, *second.records)
    is_same = second.records and shown[: len(whole.records)] == whole.records[: len(shown)]
    return page if is_same else None
