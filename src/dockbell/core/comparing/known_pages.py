"""Which records of a feed's last pages are known: stored as these pages showed them, byte for byte.

A page that shows only known records need not be compared again while nothing of them was written; of another page only
the other records are looked up. After a while all records of a page are looked up all the same: if something else wrote
to the store, it shows, and no record is taken for known again.
"""

from __future__ import annotations

import random
import struct
from array import array
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import compress, count, repeat
from operator import ne
from typing import Final

from dockbell.core.comparing.page_diff import KnownRecords, PageDiff
from dockbell.core.model import DIGEST_SIZE

BYTES_MOST: Final = 6 * 1024 * 1024
"""The most bytes that the known pages of one feed take; those that do not fit are looked up each time."""
POLL_BYTES_MOST: Final = 24 * 1024
"""The same of a feed that is polled, of which a process may have tens of thousands; a window shows few pages."""
PROBED: Final = 50
"""So often a page comes at most, and half as often at least, until all of it is looked up all the same."""
_POLLS_KEPT: Final = 2
"""Beside the last one: an answer of a server that lags need not cost the pages of the others."""

_UNDATED: Final = -(1 << 63)
_NO_HASH: Final = bytes(DIGEST_SIZE)
_HASHES: Final = struct.Struct(f"{DIGEST_SIZE}s")
_ROW_BYTES: Final = 8
_RECORD_BYTES: Final = 2 * _ROW_BYTES + DIGEST_SIZE  # of its row and date, and of its hash
_PAGE_BYTES: Final = 768  # of what stands around them
_ROWS_FEW: Final = 20  # so many are found faster one by one than by a set of all
_MOVED_FEW: Final = 20  # so many records of a page are compared, whether they have changed or only moved
_SEPARATOR: Final = "\0"  # no key string holds this character


@dataclass(slots=True)
class _Page:
    """A page as it came last, in a third of the room that a :class:`PageDiff` takes.

    Attributes:
        ends: The hashes of its first and its last record, by which it is found.
        keys: Those of all its records, in its order, as all that follows.
        rows: Their rows; 0 for one that was never known.
        dates: Their timestamps.
        hashes: Those of their texts, one behind the other; zeros for what is not known.
        ordered: The rows of those that were, in ascending order.
        low: The first of these.
        high: The last one.
        used_in: The run that showed it last.
        probed_in: How often it may come before all of it is looked up all the same.
    """

    ends: tuple[bytes, bytes]
    keys: str
    rows: array[int]
    dates: array[int]
    hashes: bytearray
    ordered: array[int]
    low: int
    high: int
    used_in: int
    probed_in: int

    @property
    def size(self) -> int:
        order = 0 if self.ordered is self.rows else _ROW_BYTES
        return _PAGE_BYTES + len(self.keys) + (_RECORD_BYTES + order) * len(self.rows)

    def forget(self, rows: AbstractSet[int]) -> None:
        for row in self._find(rows):
            place = self.rows.index(row)
            self.hashes[place * DIGEST_SIZE : (place + 1) * DIGEST_SIZE] = _NO_HASH

    def to_page_diff(self) -> PageDiff:
        """Return what the page comes to if all of it is known."""
        keys = self.keys.split(_SEPARATOR)
        return PageDiff(seen=self.rows.tolist(), dates=dict(zip(keys, self._list_dates(), strict=True)))

    def recognise(self, shown: Sequence[bytes]) -> KnownRecords:
        """Return which records of a page that resembles it are known, by the hashes of their texts."""
        texts = [text for (text,) in _HASHES.iter_unpack(self.hashes)]
        keys, rows, dates = self.keys.split(_SEPARATOR), self.rows.tolist(), self._list_dates()
        # Nearly always all but a few records stand where they stood, as they were. If more do not, they are looked for.
        if len(shown) == len(texts):
            others = [*compress(count(), map(ne, texts, shown))]
            if len(others) <= _MOVED_FEW:
                for place in reversed(others):
                    del keys[place], rows[place], dates[place]
                return KnownRecords(others, keys, rows, dates)
        place_of = dict(zip(texts, count()))
        place_of.pop(_NO_HASH, None)
        places = [*map(place_of.get, shown)]
        known = [place for place in places if place is not None]
        return KnownRecords(
            others=[place for place, old in enumerate(places) if old is None],
            keys=[*map(keys.__getitem__, known)],
            rows=[*map(rows.__getitem__, known)],
            dates=[*map(dates.__getitem__, known)],
        )

    def renew(self, lookup: Lookup, page_diff: PageDiff, stored: Mapping[str, int]) -> bool:
        """Take in what became of the records that were not known, where the page shows the same ones in its order.

        ``stored`` are the rows of all that are stored as it shows them. Returns False where the page must be made anew:
        it shows others, a record has another row, or all were looked up.
        """
        if lookup.is_probe or lookup.records is None or _SEPARATOR.join(page_diff.dates) != self.keys:
            return False
        keys = [*page_diff.dates]
        found = [(place, keys[place], stored.get(keys[place], 0)) for place in lookup.records.others]
        if any(row not in (0, self.rows[place]) for place, _, row in found):
            return False
        for place, key, row in found:
            text, date = lookup.shown[place] if row else _NO_HASH, page_diff.dates[key]
            self.hashes[place * DIGEST_SIZE : (place + 1) * DIGEST_SIZE] = text
            self.dates[place] = _UNDATED if date is None else date
        self.ends = lookup.shown[0], lookup.shown[-1]
        return True

    def _list_dates(self) -> list[int | None]:
        dates: list[int | None] = [*self.dates]
        return [None if date == _UNDATED else date for date in dates] if _UNDATED in dates else dates

    def _find(self, rows: AbstractSet[int]) -> Collection[int]:
        """Return which of some rows it shows; few are looked for one by one, which takes less time."""
        ordered, low, high = self.ordered, self.low, self.high
        if len(rows) > _ROWS_FEW:
            return rows & {*ordered}
        return [row for row in rows if low <= row <= high and ordered[bisect_left(ordered, row)] == row]


@dataclass(slots=True, frozen=True)
class Lookup:
    """What is known of the records of one page.

    Attributes:
        pages: Those among which it was looked for.
        shown: The hashes of the records' texts, in the order of the page.
        version: That of the known pages when the page came.
        page_diff: What the page comes to, if all of it is known; None where it must be compared.
        page: The page that it resembles; None where there is none, or where it is the same.
        records: Its records that are known by that page.
        is_probe: All is to be looked up in the store, to be sure.
    """

    pages: KnownPages
    shown: Sequence[bytes]
    version: int
    page_diff: PageDiff | None = None
    page: _Page | None = None
    records: KnownRecords | None = None
    is_probe: bool = False

    def known(self) -> KnownRecords | None:
        """Return the records that need no look into the store, at the time of the comparison; None: there are none.

        What this process writes to a record changes the version before. What it does not know of, a purge or a process
        that takes the feed over, is as if it came after the comparison.
        """
        return None if self.is_probe or self.pages.version != self.version else self.records

    def is_contradicted(self, page_diff: PageDiff) -> bool:
        """Return whether a page that was compared shows that the store held something else than what was known."""
        known, rows, dates = self.records, page_diff.as_stored, page_diff.dates
        if not self.is_probe or known is None or not self.is_sound(page_diff):
            return False
        records = zip(known.keys, known.rows, known.dates, strict=True)
        return any((rows.get(key), dates.get(key)) != (row, date) for key, row, date in records)

    def is_sound(self, page_diff: PageDiff) -> bool:
        """Return whether each record of the page has a key of its own."""
        return len(page_diff.dates) == len(self.shown) and not page_diff.bad


def _join(known: KnownRecords) -> PageDiff | None:
    """Return what a page comes to of whose records each is known; None where one is not, or stands there twice."""
    if known.others:
        return None
    dates = dict(zip(known.keys, known.dates, strict=True))
    return PageDiff(seen=[*known.rows], dates=dates) if len(dates) == len(known.keys) else None


def _find_written(shown: Sequence[bytes], page_diff: PageDiff) -> dict[str, int]:
    """Return the rows of the records that were written as the page shows them, by key, without new ones."""
    if not page_diff.writes:
        return {}
    texts = dict(zip(page_diff.dates, shown, strict=True))
    return {key: row for row, key, raw_hash, *_ in page_diff.writes if row is not None and raw_hash == texts[key]}


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
        """By the hashes of their first records."""
        self._firsts: dict[bytes, bytes] = {}
        """Those of the first records by those of the last."""
        self._size = 0
        self._runs = 0
        self.is_trusted = True

    def look(self, shown: Sequence[bytes]) -> Lookup:
        """Return what is known of the records of a page, by the hashes of their texts, of which there are some."""
        page = self._pages.get(shown[0]) or self._pages.get(self._firsts.get(shown[-1], b""))
        if page is None:
            return Lookup(self, shown, self.version)
        page.used_in = self._runs
        is_probe = page.probed_in == 0
        if not is_probe:
            page.probed_in -= 1
            if page.hashes == b"".join(shown):  # nearly always
                return Lookup(self, shown, self.version, page.to_page_diff())
        records = page.recognise(shown)
        page_diff = None if is_probe else _join(records)
        return Lookup(self, shown, self.version, page_diff, page, records, is_probe)

    def take(self, lookup: Lookup, page_diff: PageDiff) -> bool:
        """Take in what a page came to that was compared and committed.

        Returns:
            Whether the store held what was known: False where something else has written to it.
        """
        writes = not page_diff.is_idle  # for which :meth:`forget` was called
        if self.version != lookup.version + writes or not self.is_trusted:
            return True
        if lookup.is_contradicted(page_diff):
            self.distrust()
            return False
        page = lookup.page
        if page is not None:
            self._drop(page)
        if lookup.is_sound(page_diff) and (stored := page_diff.as_stored | _find_written(lookup.shown, page_diff)):
            if page is None or not page.renew(lookup, page_diff, stored):
                page = self._make_page(lookup, page_diff, stored)
            self._keep(page)
        return True

    def distrust(self) -> None:
        """Take in that something else has written to the store: no record is taken for known again."""
        self.is_trusted = False
        self.clear()

    def forget(self, rows: Collection[int]) -> None:
        """Take in that something was written, and to which rows that were stored before."""
        self.version += 1
        if not rows:
            return
        written, low, high = {*rows}, min(rows), max(rows)
        for page in self._pages.values():
            if page.low <= high and low <= page.high:
                page.forget(written)

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

    def _make_page(self, lookup: Lookup, page_diff: PageDiff, stored: Mapping[str, int]) -> _Page:
        shown, old = lookup.shown, lookup.page
        rows = array("Q", map(stored.get, page_diff.dates, repeat(0)))
        ordered = array("Q", sorted(stored.values()))
        hashes = [each if row else _NO_HASH for each, row in zip(shown, rows, strict=True)]
        return _Page(
            (shown[0], shown[-1]),
            _SEPARATOR.join(page_diff.dates),
            rows,
            array("q", [_UNDATED if date is None else date for date in page_diff.dates.values()]),
            bytearray(b"".join(hashes)),
            rows if ordered == rows else ordered,
            ordered[0],
            ordered[-1],
            self._runs,
            # Not all pages of a pass in the same one.
            old.probed_in if old and not lookup.is_probe else random.randrange(PROBED // 2, PROBED),  # noqa: S311
        )

    def _keep(self, page: _Page) -> None:
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
