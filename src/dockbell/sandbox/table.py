"""The records of one resource as encoded JSON, indexed so that any page is a slice.

Two orders are kept for each status and for all together: by number (the order of creation) and by last change. A
change moves one entry of each; a page is found by bisection, however deep it lies. Any other order is sorted when it is
asked for, and remembered until something changes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from dockbell.sandbox.catalog import Resource

_DIGITS_MOST: Final = 18
_REBUILD_FROM: Final = 2000

Place: TypeAlias = tuple[Any, ...]
"""Where a row stands in an order, its number last: (number,) by creation, (stamp, number) by last change."""


class Row(NamedTuple):
    """One version of one record.

    Attributes:
        number: Counts the resource's records from 0 in order of creation; never used again.
        identity: The id as text; for composite keys its parts joined by a comma.
        stamp: Time of the change that made it, microseconds since 1970.
        status: The field ``status``, None for resources without one.
        terms: The values of the resource's filters and links, in that order.
        body: The record as served, JSON in UTF-8.
    """

    number: int
    identity: str
    stamp: int
    status: str | None
    terms: tuple[str | None, ...]
    body: bytes


class Table:
    """The current rows of one resource.

    Attributes:
        resource: Which one.
        rows: By number.
        orders: Where others keep an order that they have sorted; emptied by each change.
    """

    def __init__(self, resource: Resource, rows: Iterable[Row] = ()) -> None:
        self.resource = resource
        self.rows = {row.number: row for row in rows}
        self.orders: dict[Hashable, list[Place]] = {}
        self._term_names = (*resource.filters, *resource.links)
        self._index()

    def _index(self) -> None:
        resource = self.resource
        self._terms: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in self._term_names}
        self._created: dict[str | None, list[Place]] = {status: [] for status in (None, *resource.statuses)}
        self._changed: dict[str | None, list[Place]] = {status: [] for status in (None, *resource.statuses)}
        for row in self.rows.values():
            self._add_terms(row)
            created, changed = (row.number,), (row.stamp, row.number)
            for status in {None, row.status}:
                self._created[status].append(created)
                self._changed[status].append(changed)
        for places in (*self._created.values(), *self._changed.values()):
            places.sort()

    def put(self, row: Row) -> None:
        """Add a row, or replace the one with its number."""
        self._replace(row.number, row)

    def drop(self, number: int) -> None:
        """Remove a row, if it is there."""
        self._replace(number, None)

    def write(self, rows: Mapping[int, Row | None]) -> None:
        """Put or, where there is None, drop the row of each number; many at a time cost less each than one."""
        if len(rows) < _REBUILD_FROM:
            for number, row in rows.items():
                self._replace(number, row)
            return
        merged = {**self.rows, **rows}
        self.rows = {number: row for number, row in merged.items() if row is not None}
        self.orders.clear()
        self._index()

    def find(self, identity: str | int) -> Row | None:
        """Return the record with this id, or this number where ids are integers."""
        if isinstance(identity, int):
            return self.rows.get(identity - 1)
        digits = identity.removeprefix(self.resource.prefix)
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MOST):
            return None
        row = self.rows.get(int(digits) - 1)
        return row if row is not None and row.identity == identity else None

    def linked(self, name: str, value: str) -> list[Row]:
        """Return the records whose field has this value, in order of creation; the field is a filter or a link."""
        return [self.rows[number] for number in sorted(self._terms[name].get(value, ()))]

    def places(
        self, *, changed: bool, status: str | None = None, terms: Mapping[str, str] | None = None
    ) -> list[Place]:
        """Return where the records with this status and these terms stand, in order; the list must not be changed.

        Args:
            changed: In the order of last change, otherwise of creation.
            status: Only records in this state.
            terms: Only records with these values of their filters.
        """
        if not terms:
            return (self._changed if changed else self._created)[status]
        found = set.intersection(*(set(self._terms[name].get(value, ())) for name, value in terms.items()))
        rows = [self.rows[number] for number in found if status in (None, self.rows[number].status)]
        return sorted((row.stamp, row.number) if changed else (row.number,) for row in rows)

    def _replace(self, number: int, new: Row | None) -> None:
        self.orders.clear()
        old = self.rows.pop(number, None)
        before = set() if old is None else {None, old.status}
        after = set() if new is None else {None, new.status}
        for status in before - after:
            _remove(self._created[status], (number,))
        for status in after - before:
            _add(self._created[status], (number,))
        if old is not None:
            self._remove_terms(old)
            for status in before:
                _remove(self._changed[status], (old.stamp, number))
        if new is not None:
            self.rows[number] = new
            self._add_terms(new)
            for status in after:
                _add(self._changed[status], (new.stamp, number))

    def _add_terms(self, row: Row) -> None:
        for name, value in zip(self._term_names, row.terms, strict=True):
            if value is not None:
                self._terms[name][value] = (*self._terms[name].get(value, ()), row.number)

    def _remove_terms(self, row: Row) -> None:
        for name, value in zip(self._term_names, row.terms, strict=True):
            if value is not None:
                self._terms[name][value] = tuple(n for n in self._terms[name][value] if n != row.number)
                if not self._terms[name][value]:
                    del self._terms[name][value]


def _add(places: list[Place], place: Place) -> None:
    if not places or places[-1] < place:
        places.append(place)
    else:
        insort(places, place)


def _remove(places: list[Place], place: Place) -> None:
    del places[bisect_left(places, place)]
