"""What the last complete pass of a feed came to if nothing was absent: the next one comes to the same while that holds.

A look at all that is stored of a large feed takes longer than a pass over it whose pages are known. What is written
meanwhile ends it, but for new content of records that stay: the digest follows it. After a while all is looked at all
the same: if something else wrote to the store, it shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from dockbell.core.comparing import known_pages
from dockbell.core.comparing.list_digest import digest_record, format_digest, parse_digest
from dockbell.core.comparing.page_diff import PageDiff
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.ports import Absentees


class LastPass:
    """What the last complete pass of one feed came to; each is of a version, see :class:`KnownPages`."""

    def __init__(self) -> None:
        self._found: Absentees | None = None
        self._version = 0
        self._last_row = 0  # the pass has looked for the rows up to this one
        self._probed_in = 0
        self._under_way = 0  # pages that are being committed
        self._begun = 0

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Commit a page: whether a look at the store shows it is not known meanwhile."""
        self._under_way += 1
        self._begun += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def find(self, version: int, seen: SeenRows) -> Absentees | None:
        """Return what a pass comes to by the rows that it has seen; None where all is to be looked at.

        What was there, all of it, is there still: if as many of the same rows were seen, it was these.
        """
        found = self._find(version, seen)
        if found is None or not self._probed_in:
            return None
        self._probed_in -= 1
        return found

    def begin_look(self) -> int | None:
        """Return what tells :meth:`take` whether a page was committed while all was looked at; None: one is now."""
        return None if self._under_way else self._begun

    def take(self, begun: int | None, version: int, seen: SeenRows, found: Absentees) -> bool:
        """Take in what all that is stored came to, if nothing was written meanwhile.

        Returns:
            Whether it is what was expected: False where something else has written to the store.
        """
        is_certain = begun is not None and begun == self._begun
        expected = self._find(version, seen) if is_certain else None
        self._found = found if is_certain and not found.rows else None
        self._version, self._last_row = version, seen.last_row
        self._probed_in = random.randrange(known_pages.PROBED // 2, known_pages.PROBED)  # noqa: S311  # no secret
        return expected is None or expected == found

    def forget(self) -> None:
        self._found = None

    def follow(self, before: int, version: int, page_diff: PageDiff) -> None:
        """Take in that a page was committed, and which versions were before and after it."""
        found = self._found
        if found is None or self._version != before or page_diff.cleared:
            return
        total = parse_digest(found.digest)
        for write in page_diff.writes:
            if write.replaces is None:
                return
            total += digest_record(write.key, write.fingerprint) - digest_record(write.key, write.replaces)
        self._found, self._version = replace(found, digest=format_digest(total)), version

    def _find(self, version: int, seen: SeenRows) -> Absentees | None:
        found = self._found
        if found is None or (version, seen.last_row, seen.count) != (self._version, self._last_row, found.stored):
            return None
        return found
