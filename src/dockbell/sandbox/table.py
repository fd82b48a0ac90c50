"""The five resources of the specification, and the tables that hold their records as encoded JSON.

A table keeps two orders for each status and for all together, by number (the order of creation) and by last change, so
that any page is a slice, found by bisection however deep it lies. A change moves one entry of each. Any other order is
sorted when it is asked for, and remembered until something changes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """One collection."""

    name: str  # as in the path, and the default name of the array of records
    label: str  # what the specification calls the array of records
    prefix: str  # how ids begin
    statuses: tuple[str, ...] = ()  # the states a record can be in; empty where the listing has no ``status`` filter
    default_status: str | None = None  # the filter when none is given; None for no filter
    any_status: str | None = None  # the filter value that lets all states through, where there is one
    filters: tuple[str, ...] = ()  # parameters that compare one field for equality
    links: tuple[str, ...] = ()  # fields that are indexed for the sandbox's own use, not for the listing
    owner: str = ""  # the resource whose id the last link holds, where its timestamp may move with this one
    expand: tuple[str, ...] = ()  # the accepted values of ``expand``
    since: bool = False  # whether ``updated_since`` is accepted

    @property
    def parameters(self) -> tuple[str, ...]:
        since = ("updated_since",) * self.since
        status = ("status",) * bool(self.statuses)
        return ("limit", "cursor", "expand", *since, *status, *self.filters)


RESOURCES: Final[dict[str, Resource]] = {
    resource.name: resource
    for resource in (
        Resource(
            "shipments",
            "Shipments",
            "shp_",
            statuses=("pending", "picking", "packed", "shipped", "delivered", "cancelled"),
            expand=("packages", "line_items", "invoices"),
            since=True,
        ),
        Resource(
            "packages",
            "Packages",
            "pkg_",
            statuses=("packed", "shipped", "in_transit", "delivered"),
            filters=("tracking_number",),
            links=("shipment_id",),
            owner="shipments",
            expand=("shipment",),
            since=True,
        ),
        Resource(
            "items",
            "Items",
            "itm_",
            statuses=("active", "inactive"),
            default_status="active",
            any_status="all",
            filters=("sku", "manufacturer_sku"),
            expand=("stock",),
            since=True,
        ),
        Resource("stock", "Stock levels", "stk_", links=("item_id",), owner="items", expand=("item", "warehouse")),
        Resource("warehouses", "Warehouses", "whs_"),
    )
}
"""The five resources by name; the states and the values of ``expand`` are this implementation's choice."""


_DIGITS_MOST: Final = 18
_REBUILD_FROM: Final = 2000

SortKey: TypeAlias = tuple[Any, ...]
"""Where a row stands in an order, its number last: (number,) by creation, (stamp, number) by last change."""


class Row(NamedTuple):
    """One version of one record."""

    number: int  # counts the resource's records from 0 in order of creation; never used again
    identity: str  # the id as text; for composite keys its parts joined by a comma
    stamp: int  # time of the change that made it, microseconds since 1970
    status: str | None  # the field ``status``, None for resources without one
    terms: tuple[str | None, ...]  # the values of the resource's filters and links, in that order
    body: bytes  # the record as served, JSON in UTF-8


class Table:
    """The current rows of one resource."""

    def __init__(self, resource: Resource, rows: Iterable[Row] = ()) -> None:
        self.resource = resource
        self.rows = {row.number: row for row in rows}  # by number
        self.orders: dict[Hashable, list[SortKey]] = {}  # that others have sorted; emptied by each change
        self._term_names = (*resource.filters, *resource.links)
        self._index()

    def _index(self) -> None:
        self._terms: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in self._term_names}
        statuses = (None, *self.resource.statuses)
        self._created: dict[str | None, list[SortKey]] = {status: [] for status in statuses}
        self._changed: dict[str | None, list[SortKey]] = {status: [] for status in statuses}
        for row in self.rows.values():
            self._add_terms(row)
            for status in {None, row.status}:
                self._created[status].append((row.number,))
                self._changed[status].append((row.stamp, row.number))
        for places in (*self._created.values(), *self._changed.values()):
            places.sort()

    def write(self, rows: Mapping[int, Row | None]) -> None:
        """Put or, where there is None, drop the row of each number; many at a time cost less each than one."""
        self.orders.clear()
        if len(rows) < _REBUILD_FROM:
            for number, row in rows.items():
                self._replace(number, row)
            return
        merged = {**self.rows, **rows}
        self.rows = {number: row for number, row in merged.items() if row is not None}
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
    ) -> list[SortKey]:
        """Return where the records stand in the order of last change, otherwise of creation.

        The list must not be changed. Terms are values of filters.
        """
        if not terms:
            return (self._changed if changed else self._created)[status]
        found = set.intersection(*(set(self._terms[name].get(value, ())) for name, value in terms.items()))
        rows = [self.rows[number] for number in found if status in (None, self.rows[number].status)]
        return sorted((row.stamp, row.number) if changed else (row.number,) for row in rows)

    def _replace(self, number: int, new: Row | None) -> None:
        old = self.rows.pop(number, None)
        before = set() if old is None else {None, old.status}
        after = set() if new is None else {None, new.status}
        for status in before - after:
            _remove(self._created[status], (number,))
        for status in after - before:
            _add(self._created[status], (number,))
        if old is not None:
            for name, value in self._terms_of(old):
                left = self._terms[name][value] = tuple(n for n in self._terms[name][value] if n != number)
                if not left:
                    del self._terms[name][value]
            for status in before:
                _remove(self._changed[status], (old.stamp, number))
        if new is not None:
            self.rows[number] = new
            self._add_terms(new)
            for status in after:
                _add(self._changed[status], (new.stamp, number))

    def _add_terms(self, row: Row) -> None:
        for name, value in self._terms_of(row):
            self._terms[name][value] = (*self._terms[name].get(value, ()), row.number)

    def _terms_of(self, row: Row) -> list[tuple[str, str]]:
        terms = zip(self._term_names, row.terms, strict=True)
        return [(name, value) for name, value in terms if value is not None]


def _add(places: list[SortKey], place: SortKey) -> None:
    if not places or places[-1] < place:
        places.append(place)
    else:
        insort(places, place)


def _remove(places: list[SortKey], place: SortKey) -> None:
    del places[bisect_left(places, place)]


class Replica:
    """Copies of tables, to which each write comes at its own time: what listings show until a change is visible.

    Writes of one record come in their order: one that is held back holds back those after it, as a lock would.
    """

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = {name: Table(table.resource, table.rows.values()) for name, table in tables.items()}
        self._waiting: list[tuple[int, int, str, int, Row | None]] = []
        self._latest: dict[tuple[str, int], int] = {}
        self._count = 0

    def copy(self) -> Replica:
        other = Replica(self._tables)
        other._waiting, other._latest, other._count = list(self._waiting), dict(self._latest), self._count
        return other

    def put(self, visible: int, resource: str, number: int, row: Row | None) -> None:
        """Take a write that can be seen from ``visible`` on, microseconds since 1970."""
        key = resource, number
        visible = max(visible, self._latest.get(key, visible))
        self._latest[key] = visible
        self._count += 1
        heappush(self._waiting, (visible, self._count, resource, number, row))

    def at(self, now: int) -> dict[str, Table]:
        """Return the tables as they are seen at a time; it never goes back."""
        waiting = self._waiting
        if waiting and waiting[0][0] <= now:
            writes: defaultdict[str, dict[int, Row | None]] = defaultdict(dict)
            while waiting and waiting[0][0] <= now:
                visible, _, resource, number, row = heappop(waiting)
                writes[resource][number] = row
                if self._latest.get((resource, number)) == visible:
                    del self._latest[resource, number]
            for resource, rows in writes.items():
                self._tables[resource].write(rows)
        return self._tables
