"""The requests that can be planned with: what the key allows, less what goes elsewhere."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final, Self

import msgspec

from dockbell.core.model import Feed

SPAN: Final = timedelta(seconds=61)
"""The requests of a minute are counted for so long (``core.running.budget``)."""
FIRST_PASS_PART: Final = 0.3
"""While a first pass is read, the other feeds have this part; the pass takes the rest."""

_RESERVE: Final = 0.02
_RECONCILE_MOST: Final = 0.2
_LEAST: Final = 0.05
_MINUTE: Final = 60


class BackgroundKind(StrEnum):
    """What is read besides the planned runs."""

    DETAIL = "detail"
    TRAILING = "trailing"
    RECONCILE = "reconcile"
    CONFIRM = "confirm"
    CRON = "cron"


class Background(msgspec.Struct, frozen=True):
    """Requests of a feed whose time the planner does not choose."""

    feed: Feed
    kind: BackgroundKind
    requests: float  # a second

    @classmethod
    def repeat(cls, feed: Feed, kind: BackgroundKind, cost: float, interval: timedelta) -> Self:
        """Return what runs of so many requests come to: reconciles, and what a crontab starts."""
        return cls(feed, kind, cost / interval.total_seconds())


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one key."""

    limit: int  # the most that the key allows in a minute, to all its users
    allowed: int  # the most that we allow ourselves of it
    foreign: float = 0.0  # requests a second of others; they take what ``share`` leaves them first
    background: tuple[Background, ...] = ()
    is_first_pass: bool = False  # a first pass is under way

    @property
    def total(self) -> float:
        """All requests a second that we may make."""
        others = max(self.limit - self.allowed, self.foreign * _MINUTE)
        return max(0.0, self.limit - others) / SPAN.total_seconds()

    @property
    def taken(self) -> float:
        """Requests a second of the background; reconciles have to do with a fifth of all."""
        reconciling = sum(each.requests for each in self.background if each.kind is BackgroundKind.RECONCILE)
        rest = sum(each.requests for each in self.background if each.kind is not BackgroundKind.RECONCILE)
        return rest + min(reconciling, self.total * _RECONCILE_MOST)

    @property
    def reserve(self) -> float:
        """Requests a second that are not planned with: for operators, retries and bursts."""
        return self.total * _RESERVE

    @property
    def available(self) -> float:
        """The requests a second to divide: at the least a twentieth of what is allowed, so that no feed starves."""
        return max(self._left * FIRST_PASS_PART if self.is_first_pass else self._left, self._least)

    @property
    def is_overdrawn(self) -> bool:
        """Whether the background takes more than it should: even the least that the feeds get is not left."""
        return self._left < self._least

    @property
    def _left(self) -> float:
        return self.total - self.reserve - self.taken

    @property
    def _least(self) -> float:
        return self.allowed / SPAN.total_seconds() * _LEAST
