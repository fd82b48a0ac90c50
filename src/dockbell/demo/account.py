"""The account at the end: every change that the sandbox made, set against the events that arrived.

The sandbox's log is the truth, and the promise is checked as it is worded: *no change that stayed visible is missed,
none is invented*. A change was visible from its making to the next change of the same record. Where a complete reading
of the feed lies wholly within that time (for a deletion two passes, ``confirm_after`` apart) and no event shows the
change, it is lost. Nothing here asks the daemon what it has noticed: only what arrived counts.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

from dockbell.core.model import JSON

_GONE: Final = b""
_TIMESTAMP: Final = "updated_at"
_SLACK: Final = timedelta(seconds=0.1)
"""The daemon reads its clock a moment before or after we read ours; only a suspicion of loss waits for it."""


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a record: a digest without its timestamp, empty when it is gone, and its timestamp."""

    content: bytes
    stamp: str

    @property
    def is_gone(self) -> bool:
        """Whether there is no record any more."""
        return self.content == _GONE

    @classmethod
    def of(cls, record: JSON) -> Version:
        """Return the version that a decoded record is; None is one that is gone."""
        if record is None:
            return cls(_GONE, "")
        content = {name: value for name, value in record.items() if name != _TIMESTAMP}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return cls(blake2b(text.encode(), digest_size=12).digest(), str(record.get(_TIMESTAMP)))


@dataclass(frozen=True, slots=True)
class Run:
    """A complete poll or pass, by our clock; what was there when it began, at the latest, it shows."""

    began: datetime
    ended: datetime
    is_pass: bool


@dataclass(frozen=True, slots=True)
class Balance:
    """What became of each change; the first five add up to ``made``.

    Attributes:
        arrived: Shown by an event of its own.
        overtaken: Changed again, or changed back, before a reading could show it.
        underway: No complete reading has begun since (for deletions: no second one).
        held: Deletions that the breaker holds back.
        lost: Visible throughout a complete reading, and not shown.
        invented: Events that no change stands behind.
    """

    made: int = 0
    arrived: int = 0
    overtaken: int = 0
    underway: int = 0
    held: int = 0
    lost: int = 0
    invented: int = 0

    def __add__(self, other: Balance) -> Balance:
        """Return the sums."""
        return Balance(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


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
            number = numbers.get(version)
            if version.is_gone:
                number = self._find_deletion(detected_at)
            if number is None or number in matched:
                invented += 1
            else:
                matched.add(number)
        return matched, invented

    def _find_deletion(self, detected_at: datetime) -> int | None:
        before = [number for number, (at, version) in enumerate(self.made) if version.is_gone and at <= detected_at]
        return before[-1] if before else None


class Account:
    """Takes in changes, events and runs as they come; :meth:`close` strikes the balance.

    Args:
        confirm_after: How far apart the two passes are that make a deletion.
    """

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
        """Take in a complete run."""
        self._runs[resource].append(run)

    def deleted_at(self, resource: str, key: str) -> datetime | None:
        """Return when the sandbox last deleted a record, None if it did not."""
        history = self._histories.get((resource, key), _History(_GONE))
        return next((at for at, version in reversed(history.made) if version.is_gone), None)

    def close(self, until: datetime, held: Collection[str] = ()) -> Balance:
        """Return what became of every change.

        Args:
            until: Runs that ended later prove no loss.
            held: The resources whose deletions the breaker holds back.
        """
        for runs in self._runs.values():
            runs.sort(key=lambda run: run.began)
        return sum(
            (
                self._judge(resource, history, until, holds=resource in held)
                for (resource, _), history in self._histories.items()
            ),
            Balance(),
        )

    def _judge(self, resource: str, history: _History, until: datetime, *, holds: bool) -> Balance:
        matched, invented = history.match()
        fates: Counter[str] = Counter()
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
            elif self._was_before(resource, at) or (version.is_gone and self._was_unknown(resource, at)):
                fates["overtaken"] += 1
            else:
                fates["held" if version.is_gone and holds else "lost"] += 1
        return Balance(made=len(history.made), invented=invented, **fates)

    def _was_readable(self, resource: str, at: datetime, end: datetime, *, gone: bool) -> bool:
        """Return whether a complete reading within this time had to show the change."""
        runs = self._runs_within(resource, at, end)
        if not gone:
            return next(runs, None) is not None
        passes = [run for run in runs if run.is_pass]
        return any(second.began >= passes[0].ended + self._confirm_after for second in passes[1:])

    def _was_before(self, resource: str, at: datetime) -> bool:
        """Return whether a change may be part of the baseline: it was made before the first answer was there."""
        return at < self._answered.get(resource, at)

    def _was_unknown(self, resource: str, at: datetime) -> bool:
        """Return whether nobody can know if dockbell had seen a record by then: its first pass was not over."""
        return not any(run.is_pass and run.ended <= at for run in self._runs[resource])

    def _runs_within(self, resource: str, at: datetime, end: datetime) -> Iterator[Run]:
        runs = self._runs[resource]
        for run in runs[bisect_right(runs, at, key=lambda run: run.began) :]:
            if run.began >= end:
                return
            if run.ended <= end:
                yield run
