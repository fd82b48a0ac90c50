"""Pages: which records one holds, and what its cursor leads to.

With a *keyset* cursor the next page begins after the last record's place in the order; with an *offset* cursor it
begins after so many records, which shifts when records come, go or move in the order.
"""

from __future__ import annotations

from random import Random

from dockbell.sandbox.cursors import Cursors
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.ordering import arrange
from dockbell.sandbox.query import Query
from dockbell.sandbox.settings import Clock, Settings
from dockbell.sandbox.table import Row, Table


class Pages:
    """Cuts listings into pages, as the options have it.

    Args:
        settings: The options in force.
        clock: What the age of cursors is measured by.
        dice: What is left to chance.
    """

    def __init__(self, settings: Settings, clock: Clock, dice: Random) -> None:
        self._settings = settings
        self._cursors = Cursors(settings, clock)
        self._dice = dice

    def take(self, table: Table, query: Query) -> tuple[list[Row], str | None]:
        """Return the records of a page and the cursor of the next page, None where the list ends.

        Raises:
            Refusal: The cursor is damaged, belongs to another query, or is too old.
        """
        options = self._settings.options
        listing = arrange(table, query, options, self._dice)
        start, turn = 0, 0
        if query.cursor is not None:
            position, turn = self._cursors.read(query.cursor, listing, query)
            start = listing.count_seen(position)
        left = len(listing) - start
        end = start + self._size(query.limit, left, options)
        rows = listing.rows(start, end)
        if end >= len(listing) + options.trailing_page:
            return self._in_order(rows, options), None
        if options.repeated_pages and self._dice.random() < options.repeated_pages:
            end = start
        elif end == start:
            turn += 1
        cursor = self._cursors.write(listing.position(end), turn, listing, query)
        return self._in_order(rows, options), cursor

    def _size(self, limit: int, left: int, options: SandboxOptions) -> int:
        size = min(limit, options.page_cap)
        if left <= 0:
            return size
        if options.empty_pages and self._dice.random() < options.empty_pages:
            return 0
        if options.short_pages and self._dice.random() < options.short_pages and min(size, left) > 1:
            return self._dice.randrange(1, min(size, left))
        return size

    def _in_order(self, rows: list[Row], options: SandboxOptions) -> list[Row]:
        if options.order == "shuffled":
            self._dice.shuffle(rows)
        return rows
