"""Tables that come later than the true ones: what a listing shows while a change is not visible yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from heapq import heappop, heappush

from dockbell.sandbox.table import Row, Table


class Replica:
    """Copies of tables, to which each write comes at its own time.

    Writes of one record come in their order: one that is held back holds back those after it, as a lock would.

    Args:
        tables: What it begins with.
    """

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = {name: Table(table.resource, table.rows.values()) for name, table in tables.items()}
        self._waiting: list[tuple[int, int, str, int, Row | None]] = []
        self._latest: dict[tuple[str, int], int] = {}
        self._count = 0

    def copy(self) -> Replica:
        """Return another one in the same state."""
        other = Replica(self._tables)
        other._waiting, other._latest, other._count = list(self._waiting), dict(self._latest), self._count
        return other

    def put(self, visible: int, resource: str, number: int, row: Row | None) -> None:
        """Take a write that can be seen from some time on, microseconds since 1970."""
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
