"""What all requests of one API key share: its budgets, and the queue in which they wait for their turn."""

from __future__ import annotations

from typing import Final

from dockbell.core.running.budget import Budget, Load, Usage
from dockbell.sources.request_queue import RequestQueue, now

_CONCURRENT_MOST: Final = 8


class KeyBudget:
    """The requests of one key; sources with the same key share one.

    Attributes:
        total: Of all requests.
        orders: Of those that create sales orders, which count in both.
        queue: Gives each request its turn.
    """

    def __init__(self, requests_per_minute: int, orders_per_minute: int, share: float) -> None:
        self.total = Budget(requests_per_minute, share)
        self.orders = Budget(orders_per_minute, share)
        self.queue = RequestQueue(_CONCURRENT_MOST)

    def inherit(self, before: KeyBudget) -> None:
        """Count the requests of the budgets that these replace, which have none under way."""
        self.total.inherit(before.total)
        self.orders.inherit(before.orders)

    @property
    def usage(self) -> Usage:
        return self.total.usage(now())

    @property
    def load(self) -> Load:
        return self.total.load(now())
