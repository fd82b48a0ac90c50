"""How many records a run asks for on a page, and what a feed remembers of that from one run to the next.

A limit holds for a whole run. Where a cursor is the number of a page, a page of another size begins somewhere else:
records are skipped, or come a second time, and nothing in the answers says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

LIMITS: Final = (200, 50, 10, 1)
"""Records per page: the API's maximum, so that a run costs the fewest requests, and less where a page is unreadable."""

_REST_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class PageLimit:
    """With which limit the next run of a feed begins.

    Attributes:
        level: The limit that the last complete run needed, as an index of ``LIMITS``.
        runs: Complete runs with it since the largest failed.
        rest: The largest is tried again after so many of them, twice as many each time that this fails.
    """

    level: int = 0
    runs: int = 0
    rest: int = 1

    @property
    def begins_at(self) -> int:
        """The index of the limit with which the next run begins."""
        return 0 if self.runs >= self.rest else self.level

    def end_run(self, level: int, *, complete: bool) -> PageLimit:
        """Return what is remembered after a run.

        Args:
            level: The smallest limit that it needed, as an index of ``LIMITS``.
            complete: It came to its end; otherwise only the limit that it needed counts.
        """
        if level == 0:
            return PageLimit() if complete else self
        is_in_vain = self.begins_at < level and self.level > 0
        known = replace(self, runs=0, rest=min(self.rest * 2, _REST_MOST)) if is_in_vain else self
        return replace(known, level=level, runs=known.runs + complete)
