"""The order of a listing, its pages, and the cursors that lead from one to the next.

With a *keyset* cursor the next page begins after the last record's place in the order; with an *offset* cursor it
begins after so many records, which shifts when records come, go or move in the order; with a *page* cursor, the number
of the page, it begins after so many pages of the size that is asked for now.

An opaque cursor is base64url of the position and a checksum over position and query, so that a damaged one is noticed,
and one that was given for another listing or other filters too. The other forms are bare numbers, which fit any query.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from dockbell.sandbox.options import Clock, SandboxOptions, Settings
from dockbell.sandbox.requests import Query, Refusal
from dockbell.sandbox.table import Row, SortKey, Table

_WAREHOUSE: Final = re.compile(rb'"warehouse_id":"?(?:whs_)?(\d+)')


class Listing(msgspec.Struct, frozen=True):
    """All records that a query asks for, in order."""

    table: Table
    places: Sequence[SortKey]  # where they stand in the table, ascending
    first: int  # how many of the places come before those that are asked for
    descending: bool  # whether they are shown from the last to the first
    label: str  # names the order and how a position in it is written; cursors go with it

    @property
    def keyset(self) -> bool:
        """Whether a position is the place of the last record seen, not how many were seen."""
        return self.label.startswith("keyset")

    @property
    def has_stamps(self) -> bool:
        return self.label.endswith("updated_at")

    def __len__(self) -> int:
        return len(self.places) - self.first

    def position(self, seen: int) -> SortKey:
        if not self.keyset:
            return (seen,)
        if not seen:
            return ()
        return self.places[-seen] if self.descending else self.places[self.first + seen - 1]

    def count_seen(self, position: SortKey) -> int:
        if not self.keyset:
            return int(position[0])
        if not position:
            return 0
        if self.descending:
            return len(self.places) - bisect_left(self.places, position, lo=self.first)
        return bisect_right(self.places, position, lo=self.first) - self.first

    def rows(self, start: int, end: int) -> list[Row]:
        if self.descending:
            last = len(self.places)
            places = self.places[max(self.first, last - end) : max(self.first, last - start)][::-1]
        else:
            places = self.places[self.first + start : self.first + end]
        rows = self.table.rows
        return [rows[place[-1]] for place in places]


def arrange(table: Table, query: Query, options: SandboxOptions, dice: Random) -> Listing:
    """Return what a query asks for in the chosen order; with ``updated_since`` that of the last change."""
    order = options.order
    changed = query.since is not None or order == "updated_at"
    places = table.places(changed=changed, status=query.status, terms=query.terms)
    first = 0 if query.since is None else bisect_left(places, (query.since,))
    if options.listed_most is not None:
        places, first = _listed(table, places[first:], options.listed_most), 0
    label: str = options.cursors
    if order in _KEYS:
        places, first = _sort(table, places[first:], (order, options.listed_most, query.digest)), 0
        label = f"{label} {order}"
    elif order == "random":
        places, first = dice.sample(places[first:], len(places) - first), 0
        label = "offset"
    elif changed:
        label = f"{label} updated_at"
    return Listing(table, places, first, options.descending, label)


def _listed(table: Table, places: Sequence[SortKey], most: int) -> list[SortKey]:
    """Return those places whose records are among the youngest of the resource."""
    youngest = table.places(changed=False)[-most:] if most else []
    return [place for place in places if youngest and place[-1] >= youngest[0][-1]]


def _sort(table: Table, places: Sequence[SortKey], wanted: tuple[str, int | None, bytes]) -> list[SortKey]:
    if wanted not in table.orders:
        key = _KEYS[wanted[0]]
        table.orders[wanted] = sorted((key(table.rows[place[-1]]), place[-1]) for place in places)
    return table.orders[wanted]


_KEYS: Final[dict[str, Callable[[Row], Any]]] = {
    "id": lambda row: row.identity,
    "warehouse": lambda row: int(found[1]) if (found := _WAREHOUSE.search(row.body)) else 0,
}


T = TypeVar("T")

_CHECKSUM: Final = 6
_ISSUED_MOST: Final = 100_000
_STAMP_UNIT: Final = 10**9
_NUMBER_DIGITS_MOST: Final = 27


class Cursors:
    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._issued: dict[str, float] = {}
        self._queries: dict[str, Query] = {}

    def write(self, position: SortKey, turn: int, listing: Listing, query: Query) -> str:
        """Return the cursor of a position; ``turn`` tells apart those of one position."""
        options = self._settings.options
        if options.cursor_form == "opaque":
            text = json.dumps([listing.label, turn, *position]).encode()
            token = base64.urlsafe_b64encode(_checksum(text, query) + text).rstrip(b"=").decode()
        else:
            token = str(_to_number(position, listing))
        if options.cursor_lifetime:
            _remember(self._issued, token, self._clock().timestamp())
        if options.cursor_with != "anything":
            _remember(self._queries, token, query)
        return token

    def complete(self, query: Query) -> Query:
        """Return a query with the parameters of its first page, which its cursor stands for where it is given alone."""
        accepts = self._settings.options.cursor_with
        first = self._queries.get(query.cursor or "")
        if accepts == "anything" or first is None or first.resource != query.resource:
            return query
        return replace(first, cursor=query.cursor, limit=query.limit if accepts == "limit" else first.limit)

    def read(self, token: str, listing: Listing, query: Query) -> tuple[SortKey, int]:
        """Return the position of a cursor and its turn, or refuse it."""
        options = self._settings.options
        opaque = options.cursor_form == "opaque"
        position, turn = _read_opaque(token, listing, query) if opaque else (_read_number(token, listing), 0)
        if options.cursor_lifetime:
            age = self._clock().timestamp() - self._issued.get(token, float("-inf"))
            if age > options.cursor_lifetime:
                text = f"cursors are accepted for {options.cursor_lifetime:g} s; begin again"
                raise Refusal(options.cursor_expired, "cursor_expired", text, parameter="cursor")
        return position, turn


def _remember(known: dict[str, T], token: str, value: T) -> None:
    known.pop(token, None)
    known[token] = value
    if len(known) > _ISSUED_MOST:
        del known[next(iter(known))]


def _read_opaque(token: str, listing: Listing, query: Query) -> tuple[SortKey, int]:
    try:
        raw = base64.b64decode(token.encode() + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    text = raw[_CHECKSUM:]
    if raw[:_CHECKSUM] != _checksum(text, query) or not text.startswith(f'["{listing.label}",'.encode()):
        raise _invalid()
    _, turn, *position = json.loads(text)
    return tuple(position), turn


def _read_number(token: str, listing: Listing) -> SortKey:
    if not (token.isascii() and token.isdigit() and len(token) <= _NUMBER_DIGITS_MOST):
        raise _invalid()
    number = int(token)
    if not listing.keyset:
        return (number,)
    if not number:
        return ()
    return divmod(number - 1, _STAMP_UNIT) if listing.has_stamps else (number - 1,)


def _to_number(position: SortKey, listing: Listing) -> int:
    if not listing.keyset:
        return int(position[0])
    if not position:
        return 0
    stamp, number = position if listing.has_stamps else (0, *position)
    return int(stamp * _STAMP_UNIT + number + 1)


def _invalid() -> Refusal:
    sentence = "not a cursor of this listing; pass next_cursor unchanged, with the parameters of the first page"
    return Refusal(400, "invalid_cursor", sentence, parameter="cursor")


def _checksum(text: bytes, query: Query) -> bytes:
    return blake2b(text, key=blake2b(query.digest).digest(), digest_size=_CHECKSUM).digest()


class Pages:
    def __init__(self, settings: Settings, clock: Clock, dice: Random) -> None:
        self.cursors = Cursors(settings, clock)
        self._settings = settings
        self._dice = dice

    def take(self, table: Table, query: Query) -> tuple[list[Row], str | None]:
        """Return the records of a page and the cursor of the next page, None where the list ends."""
        options = self._settings.options
        per_page = min(query.limit, options.page_cap) if options.cursors == "page" else 0
        listing = arrange(table, query, options, self._dice)
        start, turn = 0, 0
        if query.cursor is not None:
            position, turn = self.cursors.read(query.cursor, listing, query)
            start = listing.count_seen(position)
            if per_page:
                start = max(0, start - 1) * per_page
        most = start + min(query.limit, options.page_cap)
        if options.result_window and most > options.result_window:
            text = f"result window is too large: a page must end within {options.result_window} records, got {most}"
            raise Refusal(400, "result_window_too_large", text, parameter="cursor")
        end = start + self._size(query.limit, len(listing) - start, options)
        rows = listing.rows(start, end)
        if end >= len(listing) + options.trailing_page:
            return self._in_order(rows, options), None
        if options.repeated_pages and self._dice.random() < options.repeated_pages:
            end = start
        elif end == start:
            turn += 1
        position = listing.position(end // per_page + 1 if per_page else end)
        return self._in_order(rows, options), self.cursors.write(position, turn, listing, query)

    def _in_order(self, rows: list[Row], options: SandboxOptions) -> list[Row]:
        """Return the rows as the page shows them. Drawn last, since the number of draws goes with that of the rows."""
        if options.order == "shuffled":
            self._dice.shuffle(rows)
        return rows

    def _size(self, limit: int, left: int, options: SandboxOptions) -> int:
        size = min(limit, options.page_cap)
        if left <= 0:
            return size
        if options.empty_pages and self._dice.random() < options.empty_pages:
            return 0
        if options.short_pages and self._dice.random() < options.short_pages and min(size, left) > 1:
            return self._dice.randrange(1, min(size, left))
        return size
