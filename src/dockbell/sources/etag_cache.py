"""Pages that the API may answer with "not modified" (304) instead of sending them again."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from dockbell.core.model import Page

SIZE_MOST: Final = 4 * 1024 * 1024
"""The most bytes of records that are remembered for a source."""
AGE_MOST: Final = timedelta(hours=1)
"""How long an ``ETag`` is believed before the page is read whole again: some change too late."""

_ETAG_LONGEST: Final = 200
_OVERHEAD: Final = 64  # bytes that each record takes beside its text


class _Entry(msgspec.Struct, frozen=True):
    etag: str
    page: Page
    size: int
    read_at: timedelta


class EtagCache:
    """A bounded number of pages under what was asked for.

    What does not fit any more is not remembered: passes ask for the same pages in the same order, so that throwing out
    the oldest would leave nothing to be asked for again.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}  # the oldest first
        self._size = 0

    def recall(self, target: str, now: timedelta) -> tuple[str, Page] | None:
        """Return the page that was read last time and its ``ETag``, None where there is none to believe."""
        self._expire(now)
        entry = self._entries.get(target)
        return None if entry is None else (entry.etag, entry.page)

    def remember(self, target: str, etag: str | None, page: Page, now: timedelta) -> None:
        """Take in a page that was read whole; without a usable ``ETag``, forget what was there."""
        self._forget(target)
        self._expire(now)
        if not etag:
            return
        size = len(target) + sum(len(record) + _OVERHEAD for record in page.records)
        if len(etag) <= _ETAG_LONGEST and etag.isascii() and self._size + size <= SIZE_MOST:
            self._entries[target] = _Entry(etag, page, size, now)
            self._size += size

    def clear(self) -> None:
        self._entries.clear()
        self._size = 0

    def _expire(self, now: timedelta) -> None:
        while self._entries and now - next(iter(self._entries.values())).read_at > AGE_MOST:
            self._forget(next(iter(self._entries)))

    def _forget(self, target: str) -> None:
        if target in self._entries:
            self._size -= self._entries.pop(target).size
