"""Which records of a feed's last pages are known: stored as these pages showed them, byte for byte.

A page that shows only known records need not be compared again while nothing of them was written; of another page only
the other records are looked up. After a while all records of a page are looked up all the same: if something else wrote
to the store, it shows, and no record is taken for known again.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Final

from dockbell.core.comparing.page_diff import Known, PageDiff
from dockbell.core.model import DIGEST_SIZE

BYTES_MOST: Final = 4 * 1024 * 1024
"""The most bytes that the known pages of one feed take; those that do not fit are looked up each time."""
POLL_BYTES_MOST: Final = 16 * 1024
"""The same of a feed that is polled, of which a process may have tens of thousands; a window shows few pages."""
PROBED: Final = 50
"""So often a page comes at most, and half as often at least, until all of it is looked up all the same."""
_POLLS_KEPT: Final = 2
"""Beside the last one: an answer of a server that lags need not cost the pages of the others."""

_UNDATED: Final = -(1 << 63)
_NO_HASH: Final = bytes(DIGEST_SIZE)
_RECORD_BYTES: Final = 16 + DIGEST_SIZE  # of its row and date, and of its hash
_PAGE_BYTES: Final = 768  # of what stands around them
_SEPARATOR: Final = "\0"  # no key string holds this character
_KNOWN: Final[Callable[[Any], Known]] = partial(tuple.__new__, Known)
"""As ``Known._make``, in a third of the time."""


@dataclass(slots=True)
class _Page:
    """A page as it came last, in a tenth of the room that a :class:`PageDiff` takes.

    Attributes:
        ends: The hashes of its first and its last record, by which it is found.
        keys: Those of all its records, in its order, as all that follows.
        rows: Their rows; 0 for what is not known.
        dates: Their timestamps.
        hashes: Those of their texts, one behind the other; zeros for what is not known.
        low: The least row of which something is known.
        high: The greatest one.
        used_in: The run that showed it last.
        probed_in: How often it may come before all of it is looked up all the same.
    """

    ends: tuple[bytes, bytes]
    keys: str
    rows: array[int]
    dates: array[int]
    hashes: bytearray
    low: int
    high: int
    used_in: int
    probed_in: int

    @property
    def size(self) -> int:
        return _PAGE_BYTES + len(self.keys) + _RECORD_BYTES * len(self.rows)

    def forget(self, rows: Collection[int]) -> None:
        for row in rows:
            with suppress(ValueError):
                place = self.rows.index(row)
                self.rows[place] = 0
                self.hashes[place * DIGEST_SIZE : (place + 1) * DIGEST_SIZE] = _NO_HASH

    def to_page_diff(self) -> PageDiff:
        """Return what the page comes to if all of it is known."""
        dates = (None if date == _UNDATED else date for date in self.dates)
        return PageDiff(seen=self.rows.tolist(), dates=dict(zip(self.keys.split(_SEPARATOR), dates, strict=True)))

    def known(self) -> dict[bytes, Known]:
        """Return the records that are known, by the hashes of their texts."""
        hashes = bytes(self.hashes)
        texts = [hashes[place : place + DIGEST_SIZE] for place in range(0, len(hashes), DIGEST_SIZE)]
        dates = [None if date == _UNDATED else date for date in self.dates]
        records = map(_KNOWN, zip(self.keys.split(_SEPARATOR), self.rows, dates, strict=True))
        known = dict(zip(texts, records, strict=True))
        known.pop(_NO_HASH, None)
        return known


@dataclass(slots=True, frozen=True)
class Lookup:
    """What is known of the records of one page.

    Attributes:
        pages: Where it was looked up.
        shown: The hashes of the records' texts, in the order of the page.
        version: That of the known pages when the page came.
        page: The page that it resembles; None where there is none.
        probed: What is known, if all is to be looked up in the store to be sure; else None.
    """

    pages: KnownPages
    shown: Sequence[bytes]
    version: int
    page: _Page | None
    probed: Mapping[bytes, Known] | None

    @property
    def page_diff(self) -> PageDiff | None:
        """What the page comes to, if all of it is known; None where it must be compared."""
        page = self.page
        is_known = page is not None and self.probed is None and page.hashes == b"".join(self.shown)
        return page.to_page_diff() if page is not None and is_known else None

    def known(self) -> Mapping[bytes, Known]:
        """Return the records that need no look into the store, at the time of the comparison."""
        # What is about to be written changes the version before it is written.
        if self.page is None or self.probed is not None or self.pages.version != self.version:
            return {}
        return self.page.known()

    def is_contradicted(self, page_diff: PageDiff) -> bool:
        """Return whether a page that was compared shows that the store held something else than what was known."""
        if not self.probed or not _is_sound(self, page_diff):
            return False
        records = [self.probed[each] for each in self.shown if each in self.probed]
        rows, dates = page_diff.as_stored, page_diff.dates
        return any((rows.get(key), dates.get(key)) != (row, date) for key, row, date in records)


def _is_sound(lookup: Lookup, page_diff: PageDiff) -> bool:
    """Return whether each record of a page has a key of its own."""
    return len(page_diff.dates) == len(lookup.shown) and not page_diff.bad


class KnownPages:
    """The last pages of one feed, with the records that are known; they take ``most`` bytes at most.

    Attributes:
        version: Changes with everything that is forgotten: what was found before that is not known for sure.
        is_trusted: Whether nothing but this process was seen to write to the records.
    """

    def __init__(self, most: int = BYTES_MOST) -> None:
        self._most = most
        self.version = 0
        self._pages: dict[bytes, _Page] = {}
        """By the first of their ends."""
        self._firsts: dict[bytes, bytes] = {}
        """The first ends of pages by the others."""
        self._size = 0
        self._runs = 0
        self.is_trusted = True

    def look(self, shown: Sequence[bytes]) -> Lookup:
        """Return what is known of the records of a page, by the hashes of their texts, of which there are some."""
        page = self._pages.get(shown[0]) or self._pages.get(self._firsts.get(shown[-1], b""))
        probed = None
        if page is not None:
            page.used_in = self._runs
            if page.probed_in == 0:
                probed = page.known()
            else:
                page.probed_in -= 1
        return Lookup(self, shown, self.version, page, probed)

    def take(self, lookup: Lookup, page_diff: PageDiff) -> bool:
        """Take in what a page came to that was compared and committed.

        Returns:
            Whether the store held what was known: False where something else has written to it.
        """
        writes = not page_diff.is_idle  # for which :meth:`forget` was called
        if self.version != lookup.version + writes or not self.is_trusted:
            return True
        if lookup.is_contradicted(page_diff):
            self.is_trusted = False
            self.clear()
            return False
        if lookup.page is not None:
            self._drop(lookup.page)
        if page_diff.as_stored and _is_sound(lookup, page_diff):
            self._remember(lookup, page_diff)
        return True

    def forget(self, rows: Collection[int]) -> None:
        """Take in that something was written, and to which rows that were stored before."""
        self.version += 1
        if not rows:
            return
        low, high = min(rows), max(rows)
        for page in self._pages.values():
            if page.low <= high and low <= page.high:
                page.forget(rows)

    def clear(self) -> None:
        """Take in that any row may have been written."""
        self.version += 1
        self._pages.clear()
        self._firsts.clear()
        self._size = 0

    def end_pass(self) -> None:
        """Forget the pages that the pass did not show which ends now: its pages begin with other records since."""
        self._end_run(0)

    def begin_poll(self) -> None:
        """Forget the pages that the last polls did not show: their windows have moved on since."""
        self._end_run(_POLLS_KEPT)

    def _end_run(self, kept: int) -> None:
        for page in [page for page in self._pages.values() if page.used_in < self._runs - kept]:
            self._drop(page)
        self._runs += 1

    def _remember(self, lookup: Lookup, page_diff: PageDiff) -> None:
        shown, old = lookup.shown, lookup.page
        is_new = old is None or lookup.probed is not None
        rows = array("Q", map(page_diff.as_stored.get, page_diff.dates, repeat(0)))
        page = _Page(
            (shown[0], shown[-1]),
            _SEPARATOR.join(page_diff.dates),
            rows,
            array("q", [_UNDATED if date is None else date for date in page_diff.dates.values()]),
            bytearray(b"".join([each if row else _NO_HASH for each, row in zip(shown, rows, strict=True)])),
            low=min(page_diff.as_stored.values()),
            high=max(page_diff.as_stored.values()),
            used_in=self._runs,
            # Not all pages of a pass in the same one.
            probed_in=random.randrange(PROBED // 2, PROBED) if is_new or old is None else old.probed_in,  # noqa: S311
        )
        first, last = page.ends
        if first in self._pages:
            self._drop(self._pages[first])
        if self._size + page.size <= self._most:
            self._pages[first] = page
            self._firsts[last] = first
            self._size += page.size

    def _drop(self, page: _Page) -> None:
        first, last = page.ends
        if self._pages.get(first) is page:
            del self._pages[first]
            self._size -= page.size
            if self._firsts.get(last) == first:
                del self._firsts[last]
