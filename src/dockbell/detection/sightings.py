"""What the runs of one feed need to know of each other's pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from dockbell.core.comparing.page_diff import PageDiff
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import RunKind


class Sightings:
    """What the pages of one feed showed, whichever run read them.

    Attributes:
        oldest_aside: The oldest date that was not stored before and that other runs than polls met, since
            :meth:`take_oldest_aside`; None while there is none.
    """

    def __init__(self) -> None:
        self.oldest_aside: datetime | None = None
        self._watched: list[SeenRows] = []

    @contextmanager
    def watch(self, seen: SeenRows) -> Iterator[None]:
        """Add to ``seen`` every stored row that a page shows meanwhile: a pass does not miss what a poll shows."""
        self._watched.append(seen)
        try:
            yield
        finally:
            self._watched.remove(seen)

    def take_page(self, kind: RunKind, page_diff: PageDiff) -> None:
        """Take in what a page of a run showed."""
        for seen in self._watched:
            seen.add(page_diff.seen)
        unseen = page_diff.oldest_unseen
        if kind is not RunKind.POLL and unseen is not None:
            self.oldest_aside = min(self.oldest_aside or unseen, unseen)

    def take_oldest_aside(self) -> datetime | None:
        """Return the oldest date that other runs met since this was called: a poll counts it as if it had met it."""
        oldest, self.oldest_aside = self.oldest_aside, None
        return oldest
