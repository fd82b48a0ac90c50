"""What a signal must remember of the target's own list, and of what it said itself; only while it is in use."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final

from dockbell.core.comparing.embedded import EmbeddedDiff, Said, contradicts
from dockbell.core.comparing.page_diff import Finding, PageDiff

_SAID_MOST: Final = 50_000


class SignalMemory:
    """All times are those of the steady clock."""

    def __init__(self, began: timedelta = timedelta(0)) -> None:
        self._began = began
        self._pages: deque[tuple[timedelta, Collection[str]]] = deque()  # keys of committed pages, and when that was
        self._said_at: dict[str, timedelta] = {}  # when the signal changed a record last
        self._said: dict[str, Said] = {}  # what it said, until the list shows the record
        self._tried: dict[str, Said] = {}  # what it would have said, while it is tried; same
        self._equal: set[tuple[str, bytes]] = set()  # what was as the list shows it

    def show(self, keys: Collection[str], now: timedelta, horizon: timedelta) -> None:
        """Take in the keys of a page that is committed; what was committed before ``horizon`` is not needed."""
        self._pages.append((now, keys))
        while self._pages and self._pages[0][0] < horizon:
            self._pages.popleft()
        if len(self._said_at) > _SAID_MOST:
            self._said_at = {key: at for key, at in self._said_at.items() if at >= horizon}

    def was_shown(self, began: timedelta, key: str, window: timedelta) -> bool:
        """Return whether a record was shown since so long before a reading began, as far as that is known."""
        since = began - window
        if since < self._began and window:
            return True
        if window and (said_at := self._said_at.get(key)) is not None and said_at >= since:
            return True
        return any(at >= since and key in keys for at, keys in self._pages)

    def take_said(self, found: EmbeddedDiff, now: timedelta) -> None:
        """Take in what the signal said."""
        self._forget(found)
        self._said |= found.said
        self._said_at |= dict.fromkeys(found.said, now)
        if len(self._said) > _SAID_MOST:
            self._said.clear()

    def take_tried(self, found: EmbeddedDiff) -> None:
        """Take in what the signal would have said."""
        self._forget(found)
        self._tried |= found.said

    def _forget(self, found: EmbeddedDiff) -> None:
        """Conclude nothing of records that the signal shows otherwise now than it did."""
        for key in (*found.stale, *found.said):
            self._said.pop(key, None)
        for key in (*found.stale, *found.said, *found.equal):
            self._tried.pop(key, None)

    def count_fresh(self, equal: Mapping[str, bytes]) -> int:
        """Return how many of these records were not met with this content before."""
        before = len(self._equal)
        self._equal |= equal.items()
        return len(self._equal) - before

    def check(self, page_diff: PageDiff, *, is_copy: bool) -> tuple[int, str]:
        """Compare what the list shows with what the signal said, or would have.

        Returns how many records the list shows as the signal would have said, and why the signal is contradicted; empty
        where it is not. ``is_copy``: a cache has answered, so the page may be older than what the signal said.
        """
        if is_copy or not (self._said or self._tried):
            return 0, ""
        notes = {note.key: note for note in page_diff.notes if note.finding in (Finding.UPDATED, Finding.HELD)}
        confirmed, reason = 0, ""
        for key in page_diff.dates.keys() & self._said.keys():
            said, note = self._said.pop(key), notes.get(key)
            if note is not None and contradicts(said, note.fingerprint, note.modified):
                reason = f"the list has shown {key} as it was before the signal changed it"
        for key in page_diff.dates.keys() & self._tried.keys():
            said, note = self._tried.pop(key), notes.get(key)
            if note is None:
                reason = f"the list has shown {key} otherwise than the signal"
            elif note.finding is Finding.UPDATED and note.fingerprint == said.after:
                confirmed += 1
        return confirmed, reason
