"""What the last look at all records of a feed came to, if a complete pass had missed none of them.

A look at all records of a large feed takes longer than a pass over it whose pages are known. While the same records are
there, a pass that shows the same ones misses none of them. Other content of a record does not change which records are
there, and the digest follows it. After a while all of them are looked at all the same: if another program has written
to the store, it shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

from msgspec.structs import replace

from dockbell.core.comparing import known_pages
from dockbell.core.comparing.list_digest import digest_record, format_digest, parse_digest
from dockbell.core.comparing.page_diff import PageDiff
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.ports import Absentees


class LastPass:
    """The end of the last complete pass of one feed; versions are those of its :class:`KnownPages`."""

    def __init__(self) -> None:
        self._found: Absentees | None = None
        self._version = 0
        self._shown = b""  # which rows the pass had seen
        self._probed_in = 0  # so many passes end without a look before all is looked at
        self._under_way = 0  # pages that are being committed
        self._begun = 0  # commits of pages so far

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Count a page as under way while it is committed: a look at the store may show it or not."""
        self._under_way += 1
        self._begun += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def find(self, version: int, seen: SeenRows) -> Absentees | None:
        """Return what a pass comes to that has seen some rows; None where the store must be looked at."""
        found = self._find(version, _digest(seen))
        if found is None or not self._probed_in:
            return None
        self._probed_in -= 1
        return found

    def begin_look(self) -> int | None:
        """Return what :meth:`take` must know of a look that begins now; None while a page is being committed."""
        return None if self._under_way else self._begun

    def take(self, begun: int | None, version: int, seen: SeenRows, found: Absentees) -> bool:
        """Take in what a look came to; it is kept if no page was committed meanwhile.

        Returns:
            Whether it is what was expected: False where something else has written to the store.
        """
        is_certain, shown = begun is not None and begun == self._begun, _digest(seen)
        expected = self._find(version, shown) if is_certain else None
        self._found = found if is_certain and not found.rows else None
        self._version, self._shown = version, shown
        self._probed_in = random.randrange(known_pages.PROBED // 2, known_pages.PROBED)  # noqa: S311  # no secret
        return expected is None or expected == found

    def forget(self) -> None:
        self._found = None

    def follow(self, before: int, version: int, page_diff: PageDiff) -> None:
        """Take in that a page was committed, and the versions before and after it."""
        found = self._found
        if found is None or self._version != before or page_diff.cleared:
            return
        total = parse_digest(found.digest)
        for write in page_diff.writes:
            if write.replaces is None:
                return
            total += digest_record(write.key, write.fingerprint) - digest_record(write.key, write.replaces)
        self._found, self._version = replace(found, digest=format_digest(total)), version

    def _find(self, version: int, shown: bytes) -> Absentees | None:
        return self._found if (version, shown) == (self._version, self._shown) else None


def _digest(seen: SeenRows) -> bytes:
    return blake2b(seen.to_bytes(), digest_size=16).digest()
