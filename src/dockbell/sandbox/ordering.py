"""The order in which a listing shows its records, and where in it a page begins."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.query import Query
from dockbell.sandbox.table import Place, Row, Table

_WAREHOUSE: Final = re.compile(rb'"warehouse_id":"?(?:whs_)?(\d+)')


@dataclass(frozen=True, slots=True)
class Listing:
    """All records that a query asks for, in order.

    Attributes:
        table: Where they are.
        places: Where they stand, ascending.
        first: How many of the places come before those that are asked for.
        descending: Whether they are shown from the last to the first.
        label: Names the order and how a position in it is written; cursors go with it.
    """

    table: Table
    places: Sequence[Place]
    first: int
    descending: bool
    label: str

    @property
    def keyset(self) -> bool:
        """Tell whether a position is the place of the last record seen, not how many were seen."""
        return self.label.startswith("keyset")

    def __len__(self) -> int:
        return len(self.places) - self.first

    def position(self, seen: int) -> Place:
        """Return the position after so many records."""
        if not self.keyset:
            return (seen,)
        if not seen:
            return ()
        return self.places[-seen] if self.descending else self.places[self.first + seen - 1]

    def count_seen(self, position: Place) -> int:
        """Return how many records come before a position."""
        if not self.keyset:
            return int(position[0])
        if not position:
            return 0
        if self.descending:
            return len(self.places) - bisect_left(self.places, position, lo=self.first)
        return bisect_right(self.places, position, lo=self.first) - self.first

    def rows(self, start: int, end: int) -> list[Row]:
        """Return some of the records, counted from 0."""
        if self.descending:
            last = len(self.places)
            places = self.places[max(self.first, last - end) : max(self.first, last - start)][::-1]
        else:
            places = self.places[self.first + start : self.first + end]
        rows = self.table.rows
        return [rows[place[-1]] for place in places]


def arrange(table: Table, query: Query, options: SandboxOptions, dice: Random) -> Listing:
    """Return what a query asks for in the chosen order.

    The order of creation becomes that of the last change where ``updated_since`` is asked for.
    """
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


def _listed(table: Table, places: Sequence[Place], most: int) -> list[Place]:
    """Return those places whose records are among the youngest of the resource."""
    youngest = table.places(changed=False)[-most:] if most else []
    return [place for place in places if youngest and place[-1] >= youngest[0][-1]]


def _sort(table: Table, places: Sequence[Place], wanted: tuple[str, int | None, bytes]) -> list[Place]:
    found = table.orders.get(wanted)
    if found is None:
        key = _KEYS[wanted[0]]
        found = sorted((key(table.rows[place[-1]]), place[-1]) for place in places)
        table.orders[wanted] = found
    return found


def _warehouse(row: Row) -> int:
    found = _WAREHOUSE.search(row.body)
    return int(found[1]) if found else 0


_KEYS: Final[dict[str, Callable[[Row], Any]]] = {
    "id": lambda row: row.identity,
    "warehouse": _warehouse,
}
