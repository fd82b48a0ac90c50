"""What one feed asks of the budget: the requests of a run, the changes that wait for it, and the user's bounds."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from dockbell.core.model import Feed, RunKind

LEAST: Final = timedelta(seconds=1)
"""No feed with ``every = "auto"`` is read sooner than this after the last time."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """One feed that is read again and again by runs of one kind; what runs by a crontab is background instead."""

    feed: Feed
    kind: RunKind
    rate: float  # changes a second
    cost: float  # requests a run
    weight: float = 1.0  # how much a second of its delay matters
    least: timedelta = LEAST  # the configured interval: not sooner
    most: timedelta | None = None
    """``at_most``, a promise; None: the interval is *fixed*, ``least`` itself as long as the requests suffice."""

    def __post_init__(self) -> None:
        if min(self.rate, self.cost, self.weight) <= 0 or self.least <= timedelta(0):
            raise ValueError(f"{self.feed}: rate, cost, weight and least interval must be above zero, got {self}")
        if self.most is not None and self.most < self.least:
            raise ValueError(f"{self.feed}: the most interval must not be below the least, got {self}")

    @property
    def is_fixed(self) -> bool:
        return self.most is None
