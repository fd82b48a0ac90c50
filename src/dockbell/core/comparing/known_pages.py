"""Which pages of a feed are known: all of their records are stored as these pages show them, byte for byte.

A page that comes once more need not be compared again while nothing of its records was written. After a while each is
compared all the same: if something else wrote to the store, it shows, and no page is taken for known again.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from dockbell.core.comparing.page_diff import PageDiff

BYTES_MOST: Final = 4 * 1024 * 1024
"""The most bytes that the known pages of one feed take; those that do not fit are compared each time."""
POLL_BYTES_MOST: Final = 16 * 1024
"""The same of a feed that is polled, of which a process may have tens of thousands; a window shows few pages."""
PROBED: Final = 50
"""So often a page comes at most, and half as often at least, until it is compared all the same."""
_POLLS_KEPT: Final = 2
"""Beside the last one: an answer of a server that lags need not cost the pages of the others."""

_UNDATED: Final = -(1 << 63)
_ROW_BYTES: Final = 16  # of its number and its date
_PAGE_BYTES: Final = 512  # of what stands around them
_SEPARATOR: Final = "\0"
_DIGEST_SIZE: Final = 16


def digest_of(records: Sequence[bytes]) -> bytes:
    """Return the digest of the records of a page, which is all that it is known by."""
    return blake2b(b"\0".join(records), digest_size=_DIGEST_SIZE).digest()  # no JSON holds this byte


@dataclass(slots=True)
class _Known:
    """A known page, in a tenth of the room that a :class:`PageDiff` takes."""

    rows: array[int]  # in their order
    keys: str  # in the order of the page, as its dates
    dates: array[int]
    used_in: int  # the run that showed it last
    probed_in: int  # how often it may come before it is compared all the same

    @property
    def size(self) -> int:
        return _PAGE_BYTES + len(self.keys) + _ROW_BYTES * len(self.rows)

    def shows_one_of(self, rows: Collection[int]) -> bool:
        """Return whether it shows one of some rows."""
        known, first, last = self.rows, self.rows[0], self.rows[-1]
        return any(first <= row <= last and known[bisect_left(known, row)] == row for row in rows)

    def to_page_diff(self) -> PageDiff:
        dates = (None if date == _UNDATED else date for date in self.dates)
        keys = self.keys.split(_SEPARATOR)
        return PageDiff(seen=self.rows.tolist(), dates=dict(zip(keys, dates, strict=True)), is_known=True)


class KnownPages:
    """The known pages of one feed, by the digests of their text; they take ``most`` bytes at most.

    Attributes:
        version: Changes with everything that is forgotten: what was found before that is not known for sure.
        is_trusted: Whether nothing but this process was seen to write to the records.
    """

    def __init__(self, most: int = BYTES_MOST) -> None:
        self._most = most
        self.version = 0
        self._pages: dict[bytes, _Known] = {}
        self._size = 0
        self._runs = 0
        self._probed: tuple[bytes, Collection[int] | None] = (b"", None)
        self.is_trusted = True

    def __bool__(self) -> bool:
        return bool(self._pages)

    def recall(self, digest: bytes) -> PageDiff | None:
        """Return what a page comes to; None where it must be compared."""
        self._probed = (b"", None)
        known = self._pages.get(digest)
        if known is None:
            return None
        if known.probed_in == 0:
            self._probed = (digest, known.rows)
            return None
        known.probed_in -= 1
        known.used_in = self._runs
        return known.to_page_diff()

    def take(self, digest: bytes, page_diff: PageDiff, version: int) -> bool:
        """Take in what a page came to that :meth:`recall` has not told of; ``version`` is that of the time before.

        Returns:
            Whether the page came to what was known of it: False where something else has written to the store.
        """
        (probed, rows), self._probed = self._probed, (b"", None)
        writes = not page_diff.is_idle  # for which :meth:`forget` was called
        if self.version != version + writes or not self.is_trusted:
            return True
        if probed == digest and rows is not None and not (page_diff.is_known and {*page_diff.seen} == {*rows}):
            self.is_trusted = False
            self.clear()
            return False
        self._forget(digest)
        if page_diff.is_known and page_diff.seen:
            self._remember(digest, page_diff)
        return True

    def forget(self, rows: Collection[int]) -> None:
        """Take in that something was written, and to which rows that were stored before."""
        self.version += 1
        for digest in [digest for digest, known in self._pages.items() if known.shows_one_of(rows)]:
            self._forget(digest)

    def clear(self) -> None:
        """Take in that any row may have been written."""
        self.version += 1
        self._pages.clear()
        self._size = 0
        self._probed = (b"", None)

    def end_pass(self) -> None:
        """Forget the pages that the pass did not show which ends now: its pages begin with other records since."""
        self._end_run(0)

    def begin_poll(self) -> None:
        """Forget the pages that the last polls did not show: their windows have moved on since."""
        self._end_run(_POLLS_KEPT)

    def _end_run(self, kept: int) -> None:
        for digest in [digest for digest, known in self._pages.items() if known.used_in < self._runs - kept]:
            self._forget(digest)
        self._runs += 1

    def _remember(self, digest: bytes, page_diff: PageDiff) -> None:
        dates = array("q", (_UNDATED if date is None else date for date in page_diff.dates.values()))
        rows, keys = array("Q", sorted(page_diff.seen)), _SEPARATOR.join(page_diff.dates)
        # Not all pages of a pass in the same one.
        known = _Known(rows, keys, dates, self._runs, probed_in=random.randrange(PROBED // 2, PROBED))  # noqa: S311
        if self._size + known.size <= self._most:
            self._pages[digest] = known
            self._size += known.size

    def _forget(self, digest: bytes) -> _Known | None:
        known = self._pages.pop(digest, None)
        if known is not None:
            self._size -= known.size
        return known
