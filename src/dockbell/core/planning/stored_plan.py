"""What is stored with a feed of its plan: a restart goes on with it, and other processes show it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Self

import msgspec

from dockbell.config import ResourceSettings
from dockbell.core.model import RESOURCES, Feed, RunKind
from dockbell.core.planning.costs import Cost, pass_cost, poll_cost
from dockbell.core.planning.demand import LEAST, Demand
from dockbell.core.planning.division import Reason
from dockbell.core.planning.rates import Lead, Rate


class StoredPlan(msgspec.Struct, frozen=True):
    """What was learned of a feed, and what was decided by it."""

    rate: Rate = msgspec.field(default_factory=Rate)
    cost: Cost = msgspec.field(default_factory=Cost)
    every: timedelta | None = None  # its interval; None before the first division
    reason: Reason | None = None
    lead: Lead = msgspec.field(default_factory=Lead)
    """The changes that a signal showed first: by these the rate is lower than it would be without it."""

    @property
    def is_short(self) -> bool:
        """Whether the requests do not suffice for what was asked for."""
        return self.reason is not None and self.reason.is_short

    def make_demand(
        self, feed: Feed, settings: ResourceSettings, *, records: int, lookback: timedelta, every: timedelta
    ) -> Demand:
        """Return what a feed asks for.

        Args:
            feed: The feed.
            settings: Its settings.
            records: How many records a pass meets; it counts before the first pass only.
            lookback: How far before the watermark its polls start.
            every: Its interval now; like the lookback it counts before the first poll only.
        """
        is_polled, rate = RESOURCES[feed.resource].polled, self.rate.per_second
        return Demand(
            feed=feed,
            kind=RunKind.POLL if is_polled else RunKind.PASS,
            rate=rate,
            cost=self.cost.mean or (poll_cost(rate, lookback, every) if is_polled else pass_cost(records)),
            weight=settings.weight,
            least=settings.every if isinstance(settings.every, timedelta) else min(LEAST, settings.at_most or LEAST),
            most=settings.at_most if settings.is_auto else None,
        )

    def to_json(self) -> str:
        return json.dumps(
            {
                "rate": self.rate.to_json(),
                "cost": self.cost.to_json(),
                "every": None if self.every is None else round(self.every.total_seconds(), 3),
                "reason": None if self.reason is None else self.reason.name,
                "lead": self.lead.to_json(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what was stored; nothing where another version wrote it in a form that this one does not know."""
        if not text:
            return cls()
        try:
            plan = json.loads(text)
            every, reason = plan["every"], plan["reason"]
            return cls(
                Rate.from_json(plan["rate"]),
                Cost.from_json(plan["cost"]),
                timedelta(seconds=every) if every else None,
                None if reason is None else Reason[reason],
                Lead.from_json(plan.get("lead", "")),
            )
        except (ValueError, KeyError, TypeError):
            return cls()
