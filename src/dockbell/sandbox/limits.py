"""Requests a minute: fixed windows on the full minutes of Unix time, one for each key and scope.

A refused request counts nowhere. A sales order counts in both windows of its key, and needs room in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW: Final = 60
UNLIMITED: Final = 1_000_000_000
"""What the headers say when there is no limit."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a key stands, as the headers say it.

    Attributes:
        admitted: Whether the request may go on.
        limit: Requests allowed in a window.
        remaining: Requests left in this window.
        reset: Unix time, in seconds, of the next window.
    """

    admitted: bool
    limit: int
    remaining: int
    reset: int


class Limits:
    """Counts the requests of each key."""

    def __init__(self, requests_per_minute: int, orders_per_minute: int) -> None:
        self.allow(requests_per_minute, orders_per_minute)
        self._start = 0
        self._used: dict[tuple[str, str], int] = {}

    def allow(self, requests_per_minute: int, orders_per_minute: int) -> None:
        """Set how many are allowed from now on; 0 for no limit."""
        self._limits = {"requests": requests_per_minute or UNLIMITED, "orders": orders_per_minute or UNLIMITED}

    def admit(self, key: str, now: float, *, order: bool = False) -> Standing:
        """Count a request if there is room for it.

        Args:
            key: Who asks.
            now: Unix time in seconds.
            order: Whether it is a sales order; its standing is that of the window with less room.
        """
        scopes = ("requests", "orders") if order else ("requests",)
        left = {scope: self._left(key, scope, now) for scope in scopes}
        admitted = all(left.values())
        if admitted:
            for scope in scopes:
                self._used[key, scope] = self._used.get((key, scope), 0) + 1
                left[scope] -= 1
        tightest = min(scopes, key=lambda scope: left[scope])
        return Standing(admitted, self._limits[tightest], left[tightest], self._start + WINDOW)

    def look(self, key: str, now: float) -> Standing:
        """Return where a key stands without counting anything."""
        left = self._left(key, "requests", now)
        return Standing(left > 0, self._limits["requests"], left, self._start + WINDOW)

    def _left(self, key: str, scope: str, now: float) -> int:
        start = int(now // WINDOW) * WINDOW
        if start != self._start:
            self._start = start
            self._used.clear()
        return max(0, self._limits[scope] - self._used.get((key, scope), 0))
