"""Guards against lists that never end: each anomaly has a name, and ends the run incomplete."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from dockbell.core.model import Page

_EMPTY_PAGES_MOST: Final = 10
_AGAIN_MOST: Final = 10
"""So many pages of one record in a row may show what earlier pages have shown."""
_REPEATS_MOST: Final = 2000


class AnomalyGuard:
    """Knows the cursors and the pages of one run."""

    def __init__(self) -> None:
        self._cursors: set[bytes] = set()
        self._pages: set[bytes] = set()
        self._empty = 0
        self._again = 0

    def find(self, page: Page, cursor: str, *, records: int, repeated: int) -> str:
        """Return what is wrong with a page that another one follows; empty where nothing is.

        ``repeated`` of the ``records`` that the run has shown came a second time.
        """
        mark = _digest(cursor.encode())
        if mark in self._cursors:
            return "the API returned the same cursor twice"
        self._cursors.add(mark)
        if repeated > _REPEATS_MOST + records // 2:
            return f"the API returns too many pages: {repeated} records came twice"
        return self._find_repeated(page) if page.records else self._count_empty()

    def _find_repeated(self, page: Page) -> str:
        """Return whether a page came before, by its ends: two pages of a list that moves on do not share both."""
        self._empty = 0
        digest = _digest(page.records[0] + page.records[-1])
        if digest not in self._pages:
            self._again = 0
            self._pages.add(digest)
            return ""
        self._again += 1
        # One record may well stand on the next page again, but not on all that follow.
        return "the API returned the same page twice" if len(page.records) > 1 or self._again > _AGAIN_MOST else ""

    def _count_empty(self) -> str:
        self._empty += 1
        return "the API keeps returning empty pages" if self._empty > _EMPTY_PAGES_MOST else ""


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=16).digest()
