"""How many requests a run of a feed takes: the mean of its last runs, and what is expected before there are any."""

from __future__ import annotations

import json
from datetime import timedelta
from math import ceil
from typing import Final

import msgspec

RUNS: Final = 20
"""So many runs are remembered."""

_PAGE: Final = 200  # records


class Cost(msgspec.Struct, frozen=True):
    """The requests of a feed's last runs, the latest at the end; all requests count, retries too."""

    runs: tuple[int, ...] = ()

    @property
    def mean(self) -> float | None:
        """Requests a run, at least one; None before the first run."""
        return max(1.0, sum(self.runs) / len(self.runs)) if self.runs else None

    def add(self, requests: int) -> Cost:
        """Return what is known after a complete run."""
        return Cost((*self.runs, requests)[-RUNS:])

    def to_json(self) -> str:
        return json.dumps(self.runs, separators=(",", ":")) if self.runs else ""

    @classmethod
    def from_json(cls, text: str) -> Cost:
        return cls(tuple(json.loads(text))) if text else cls()


def poll_cost(rate: float, lookback: timedelta, interval: timedelta) -> float:
    """Return the requests of a poll: one while a page holds its window, which reaches from the last poll and before.

    Runs of several pages repeat the window of the run before (``core.reading.window``): theirs is an interval longer.
    """
    if rate * (lookback + interval).total_seconds() < _PAGE:
        return 1.0
    return float(ceil(rate * (lookback + interval * 2).total_seconds() / _PAGE))


def pass_cost(records: int) -> float:
    return float(max(1, ceil(records / _PAGE)))
