"""What all requests of one API key share: its budgets, and the queue in which they wait for their turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from dockbell.core.running.budget import Budget, Load, Usage
from dockbell.ports import Claim, Spent
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

    def take_over(self, claim: Claim | None, wait_for_trust: Callable[[], Awaitable[None]]) -> None:
        """Count what another process has spent before; ask nothing while a third one may have taken over from us."""
        if claim is not None:
            self.total.assume(claim.spent, claim.age, now())
        self.total.spend_nothing()
        self.queue.wait_for_trust = wait_for_trust

    def declare(self) -> Spent:
        """Return what may be spent until the next call, the past minute included; see :meth:`Budget.declare`."""
        return self.total.declare(now())

    def confirm(self) -> None:
        """Keep to what was declared last: it is stored."""
        self.total.confirm()

    @property
    def stands(self) -> bool:
        """Whether what was declared last holds until the next request; see :attr:`Budget.stands`."""
        return self.total.stands

    def declare_last(self) -> Spent:
        """Return the same after the last request; see :meth:`Budget.declare_last`."""
        return self.total.declare_last(now())

    @property
    def usage(self) -> Usage:
        return self.total.usage(now())

    @property
    def load(self) -> Load:
        return self.total.load(now())
