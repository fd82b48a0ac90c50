"""The account at the end: every change that the sandbox made, set against the events that arrived.

The sandbox's log is the truth, and the promise is checked as it is worded: *no change that stayed visible is missed,
none is invented*. A change is visible until the next change of the same record. Where a complete reading of the feed
lies wholly within that time (for a deletion two passes, ``confirm_after`` apart) and no event shows the change, it is
lost. Only what arrived counts, not what the daemon says that it has noticed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import takewhile
from typing import Final

import msgspec

from dockbell.core.model import JSON

_GONE: Final = b""
_TIMESTAMP: Final = "updated_at"
_SLACK: Final = timedelta(seconds=0.1)
"""The daemon reads its clock a moment before or after the demo does; only the proof of a loss waits for it."""


class Version(msgspec.Struct, frozen=True):
    """One state of a record: a digest without its timestamp, empty when it is gone, and its timestamp."""

    content: bytes
    stamp: str

    @property
    def is_gone(self) -> bool:
        return self.content == _GONE

    @classmethod
    def of(cls, record: JSON) -> Version:
        """Return the version that a decoded record is; None is one that is gone."""
        if record is None:
            return cls(_GONE, "")
        content = {name: value for name, value in record.items() if name != _TIMESTAMP}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return cls(blake2b(text.encode(), digest_size=12).digest(), str(record.get(_TIMESTAMP)))


class Run(msgspec.Struct, frozen=True):
    """A complete poll or pass, by the demo's clock; it shows what was there when it began."""

    began: datetime
    ended: datetime
    is_pass: bool


class Balance(msgspec.Struct, frozen=True):
    """What became of each change; the first five add up to ``made``."""

    made: int = 0
    arrived: int = 0  # shown by an event of its own
    overtaken: int = 0  # changed again, or changed back, before a reading could show it
    underway: int = 0  # no complete reading has begun since (for deletions: no second one)
    held: int = 0  # deletions that the breaker holds back
    lost: int = 0  # visible throughout a complete reading, and not shown
    invented: int = 0  # events that no change stands behind


@dataclass(slots=True)
class _History:
    """What was made of one record, and what was told of it."""

    start: bytes
    made: list[tuple[datetime, Version]] = field(default_factory=list)
    told: list[tuple[datetime, Version]] = field(default_factory=list)

    def match(self) -> tuple[set[int], int]:
        """Return which changes have an event, and how many events have no change."""
        numbers = {version: number for number, (_, version) in enumerate(self.made) if not version.is_gone}
        matched: set[int] = set()
        invented = 0
        for detected_at, version in self.told:
            number = self._find_deletion(detected_at) if version.is_gone else numbers.get(version)
            if number is None or number in matched:
                invented += 1
            else:
                matched.add(number)
        return matched, invented

    def _find_deletion(self, detected_at: datetime) -> int | None:
        before = [number for number, (at, version) in enumerate(self.made) if version.is_gone and at <= detected_at]
        return before[-1] if before else None


class Account:
    """Takes in changes, events and runs as they come; :meth:`close` strikes the balance."""

    def __init__(self, confirm_after: timedelta) -> None:
        self._confirm_after = confirm_after + _SLACK
        self._histories: dict[tuple[str, str], _History] = {}
        self._runs: defaultdict[str, list[Run]] = defaultdict(list)
        self._answered: dict[str, datetime] = {}

    def note_change(self, resource: str, key: str, at: datetime, before: JSON, after: JSON) -> None:
        """Take in what the sandbox did; ``before`` and ``after`` are decoded records or None."""
        history = self._histories.setdefault((resource, key), _History(Version.of(before).content))
        history.made.append((at, Version.of(after)))

    def note_event(self, resource: str, key: str, detected_at: datetime, after: JSON) -> None:
        """Take in what an event says, once for all sinks."""
        history = self._histories.setdefault((resource, key), _History(_GONE))
        history.told.append((detected_at, Version.of(after)))

    def note_answer(self, resource: str, at: datetime) -> None:
        """Take in when a run had its first page; the first of all is where the baseline ends."""
        self._answered.setdefault(resource, at)

    def note_run(self, resource: str, run: Run) -> None:
        self._runs[resource].append(run)

    def deleted_at(self, resource: str, key: str) -> datetime | None:
        """Return when the sandbox last deleted a record, None if it did not."""
        history = self._histories.get((resource, key), _History(_GONE))
        return next((at for at, version in reversed(history.made) if version.is_gone), None)

    def close(self, until: datetime, held: Collection[str] = ()) -> Balance:
        """Return what became of every change; ``held`` are the resources whose deletions the breaker holds back.

        Runs that ended after ``until`` prove no loss.
        """
        for runs in self._runs.values():
            runs.sort(key=lambda run: run.began)
        histories = self._histories.items()
        fates = (self._judge(resource, each, until, holds=resource in held) for (resource, _), each in histories)
        return Balance(**sum(fates, Counter()))

    def _judge(self, resource: str, history: _History, until: datetime, *, holds: bool) -> Counter[str]:
        matched, invented = history.match()
        fates = Counter(made=len(history.made), invented=invented)
        told = history.start
        for number, (at, version) in enumerate(history.made):
            latest = number == len(history.made) - 1
            end = until if latest else history.made[number + 1][0]
            if number in matched:
                fates["arrived"] += 1
                told = version.content
            elif version.content == told:
                fates["overtaken"] += 1
            elif not self._was_readable(resource, at, end, gone=version.is_gone):
                fates["underway" if latest else "overtaken"] += 1
            elif at < self._answered.get(resource, at) or (version.is_gone and self._was_unknown(resource, at)):
                fates["overtaken"] += 1  # made before the first answer, it may be part of the baseline
            else:
                fates["held" if version.is_gone and holds else "lost"] += 1
        return fates

    def _was_readable(self, resource: str, at: datetime, end: datetime, *, gone: bool) -> bool:
        """Return whether a complete reading within this time had to show the change."""
        runs = self._runs[resource]
        later = takewhile(lambda run: run.began < end, runs[bisect_right(runs, at, key=lambda run: run.began) :])
        within = (run for run in later if run.ended <= end)
        if not gone:
            return any(within)
        passes = [run for run in within if run.is_pass]
        return any(second.began >= passes[0].ended + self._confirm_after for second in passes[1:])

    def _was_unknown(self, resource: str, at: datetime) -> bool:
        """Return whether dockbell may not have seen a record by then: its first pass was not over."""
        return not any(run.is_pass and run.ended <= at for run in self._runs[resource])
