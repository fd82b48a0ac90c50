"""How often the records of a feed change, learned from what its runs find."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from math import log
from typing import Final

import msgspec

from dockbell.core.moment import from_micros, to_micros

HALF_LIFE: Final = timedelta(minutes=10)
"""After this time what was learned counts half."""

_PRIOR_CHANGES: Final = 0.5
_PRIOR_SECONDS: Final = 10.0
_LEAST: Final = 1 / timedelta(days=1).total_seconds()
_OUTAGE_RUNS: Final = 3
_OUTAGE: Final = timedelta(minutes=5)


class Rate(msgspec.Struct, frozen=True):
    """The changes met, and the seconds in which they were made; what is older counts less."""

    changes: float = _PRIOR_CHANGES
    seconds: float = _PRIOR_SECONDS
    at: datetime | None = None  # when the rest was true; None: nothing was learned yet

    @property
    def per_second(self) -> float:
        """Changes a second; never less than one a day."""
        return max(self.changes / self.seconds, _LEAST)

    @property
    def is_assumed(self) -> bool:
        return self.at is None

    def add(self, changes: float, span: timedelta, now: datetime) -> Rate:
        """Return what is known after a run that found so many changes, made within ``span``; a poll or a pass.

        ``span``: from the feed's reading before to this one. A pass may teach page by page, so that a long one is not
        waited for: each page adds what it found, and its part of the time since it was read last.

        ``changes`` is negative where others are not to be counted any more.

        After years of silence what was known still counts as much as what was assumed at the beginning.
        """
        if span <= timedelta(0):
            return self
        left = 1.0 if self.at is None or self.at >= now else 0.5 ** ((now - self.at) / HALF_LIFE)
        left = max(left, min(1.0, _PRIOR_SECONDS / self.seconds))
        return Rate(max(self.changes * left + changes, 0.0), self.seconds * left + span.total_seconds(), now)

    def restore(self, changes: float) -> Rate:
        """Return what would be known if so many changes more, or less, had been met in the same time."""
        return self if self.at is None else Rate(max(self.changes + changes, 0.0), self.seconds, self.at)

    def to_json(self) -> str:
        if self.at is None:
            return ""
        return json.dumps([to_micros(self.at), round(self.changes, 6), round(self.seconds, 3)], separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Rate:
        if not text:
            return cls()
        at, changes, seconds = json.loads(text)
        return cls(changes, seconds, from_micros(at))


class Lead(msgspec.Struct, frozen=True):
    """The changes of a feed that another feed's polls showed before its own runs; what is older counts less."""

    changes: float = 0.0
    at: datetime | None = None

    def add(self, changes: float, now: datetime) -> Lead:
        left = 1.0 if self.at is None or self.at >= now else 0.5 ** ((now - self.at) / HALF_LIFE)
        return Lead(self.changes * left + changes, now)

    def to_json(self) -> str:
        return "" if self.at is None else json.dumps([to_micros(self.at), round(self.changes, 6)])

    @classmethod
    def from_json(cls, text: str) -> Lead:
        if not text:
            return cls()
        at, changes = json.loads(text)
        return cls(changes, from_micros(at))


def estimate_changes(changed: int, records: int) -> float:
    """Return how many changes a pass over so many records stands for that found some of them changed.

    Of several changes of one record a pass sees one. Those created or deleted since count as changed, too.
    """
    records = max(records, changed)
    return -records * log((records - changed + 0.5) / (records + 0.5)) if changed else 0.0


def teaches(span: timedelta, interval: timedelta, *, is_baseline: bool = False) -> bool:
    """Return whether a run says how often records change.

    ``is_baseline``: it met records for the first time or in another shape: a first pass, a rebaseline, drift that was
    absorbed. A run long overdue tells what an outage piled up; one that is late for want of requests teaches.
    """
    return not is_baseline and span <= max(interval * _OUTAGE_RUNS, _OUTAGE)
