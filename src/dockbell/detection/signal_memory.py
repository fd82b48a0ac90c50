"""What a signal must remember of what it said, until the target's own list shows it; only while it is in use."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from dockbell.core.comparing.embedded import EmbeddedDiff, Said, contradicts
from dockbell.core.comparing.page_diff import Finding, PageDiff

_SAID_MOST: Final = 50_000
_UNLISTED_MOST: Final = 5
_UNLISTED_FOR: Final = timedelta(hours=1)
"""So many records within this time are more than those that were changed just before they were deleted."""


class SignalMemory:
    def __init__(self) -> None:
        self._said: dict[str, Said] = {}  # what it said, until the list shows the record
        self._tried: dict[str, Said] = {}  # what it would have said, while it is tried; same
        self._equal: set[tuple[str, bytes]] = set()  # what was as the list shows it
        self._unshown: dict[str, Said] = {}  # of these two, what the pass under way is expected to show
        self._unlisted: deque[datetime] = deque(maxlen=_UNLISTED_MOST)  # when passes ended that did not show a record

    def take_said(self, found: EmbeddedDiff) -> None:
        """Take in what the signal said."""
        self._forget(found)
        self._said |= found.said
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

    def check(self, page_diff: PageDiff) -> tuple[int, str]:
        """Compare what a page of the list shows with what the signal said, or would have.

        Returns how many records the list shows as the signal would have said, and why the signal is contradicted; empty
        where it is not.
        """
        notes = {note.key: note for note in page_diff.notes if note.finding in (Finding.UPDATED, Finding.HELD)}
        confirmed, reason = 0, ""
        for key in page_diff.dates.keys() & self._said.keys():
            said, note = self._said.pop(key), notes.get(key)
            if note is not None and contradicts(said, note.fingerprint, note.modified):
                reason = f"the list shows {key} differently from the signal"
        for key in page_diff.dates.keys() & self._tried.keys():
            said, note = self._tried.pop(key), notes.get(key)
            if note is None or contradicts(said, note.fingerprint, note.modified):
                reason = f"the list shows {key} differently from the signal"
            elif note.finding is Finding.UPDATED and note.fingerprint == said.after:
                confirmed += 1
        return confirmed, reason

    def begin_pass(self, *, is_telling: bool = True) -> None:
        """Expect of a pass over the list that it shows all records of which the signal has spoken.

        One that is not ``is_telling`` may show an older state than that of which the signal spoke.
        """
        self._unshown = self._said | self._tried if is_telling else {}

    def end_pass(self, now: datetime) -> str:
        """Return why the signal is contradicted where passes did not show records of which it spoke; else nothing.

        One or another was deleted just after it changed, or has slipped past a page edge.
        """
        for key, said in self._unshown.items():
            if self._said.get(key) is said or self._tried.get(key) is said:
                self._said.pop(key, None)
                self._tried.pop(key, None)
                self._unlisted.append(now)
        self._unshown = {}
        is_full = len(self._unlisted) == _UNLISTED_MOST
        if is_full and now - self._unlisted[0] < _UNLISTED_FOR:
            return f"the list did not show {_UNLISTED_MOST} records that the signal reported"
        return ""
