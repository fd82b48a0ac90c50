"""Pages: which records one holds, and what its cursor leads to.

With a *keyset* cursor the next page begins after the last record's place in the order; with an *offset* cursor it
begins after so many records, which shifts when records come, go or move in the order; with a *page* cursor, the number
of the page, it begins after so many pages of the size that is asked for now.
"""

from __future__ import annotations

from random import Random

from dockbell.sandbox.cursors import Cursors
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.ordering import arrange
from dockbell.sandbox.query import Query
from dockbell.sandbox.refusal import Refusal
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

    def complete(self, query: Query) -> Query:
        """Return a query with what its cursor says, where a cursor stands for the parameters of its first page."""
        return self._cursors.complete(query)

    def take(self, table: Table, query: Query) -> tuple[list[Row], str | None]:
        """Return the records of a page and the cursor of the next page, None where the list ends.

        Raises:
            Refusal: The cursor is damaged, belongs to another query, or is too old; the page is out of the window.
        """
        options = self._settings.options
        per_page = min(query.limit, options.page_cap) if options.cursors == "page" else 0
        listing = arrange(table, query, options, self._dice)
        start, turn = 0, 0
        if query.cursor is not None:
            position, turn = self._cursors.read(query.cursor, listing, query)
            start = listing.count_seen(position)
            if per_page:
                start = max(0, start - 1) * per_page
        _check_window(start + min(query.limit, options.page_cap), options)
        left = len(listing) - start
        end = start + self._size(query.limit, left, options)
        rows = listing.rows(start, end)
        if end >= len(listing) + options.trailing_page:
            return self._in_order(rows, options), None
        if options.repeated_pages and self._dice.random() < options.repeated_pages:
            end = start
        elif end == start:
            turn += 1
        position = listing.position(end // per_page + 1 if per_page else end)
        cursor = self._cursors.write(position, turn, listing, query)
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


def _check_window(end: int, options: SandboxOptions) -> None:
    """Refuse a page that ends beyond the window.

    Raises:
        Refusal: It does.
    """
    if options.result_window and end > options.result_window:
        text = f"result window is too large: a page must end within {options.result_window} records, got {end}"
        raise Refusal(400, "result_window_too_large", text, parameter="cursor")
