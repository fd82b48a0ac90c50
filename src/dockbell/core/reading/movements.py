"""Whether the records of one feed move together with those of another, as far as two lists show it.

A pass over stock finds a change that was made between two times. Did the item of that stock level show up as modified
in a poll since the first of them? Nothing is asked for it: what polls and passes have shown is put together. A change
is judged when the carrier was polled beyond it, for the poll that shows it may not have come yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from dockbell.core import pointer
from dockbell.core.model import JSON
from dockbell.core.reading.embedding import Pair, name_scalar

_GRACE: Final = timedelta(seconds=5)
"""So long after a change its carrier may become visible, and after its carrier what that embeds."""
_KEPT: Final = timedelta(hours=2)
_WAITING_MOST: Final = 2000
_IDLE_MOST: Final = 200
"""So many records that did not change are a sample: while they wait to be judged, a page adds no others."""
_NAMES_MOST: Final = 20_000

Link = str
"""Where the name of the carrier stands in a target's record, and where in the carrier's: ``/sku /sku``."""


class Judged(NamedTuple):
    """What became of the carrier of one target's record."""

    is_changed: bool  # the record had changed; otherwise it stands for those that had not
    moved: dict[Link, bool]  # for each link that the record has a name for: whether such a carrier moved
    is_ahead: bool = False  # one was polled as modified some time before the record's own list showed the change


class _Waiting(NamedTuple):
    names: dict[str, str]  # what the record names its carrier, by pointer
    since: datetime
    until: datetime
    is_changed: bool


@dataclass
class Movements:
    """What was seen of the two feeds of a pair lately; all times are the service's."""

    pair: Pair
    _watched_from: datetime | None = None  # the first poll of the carrier that was seen
    _moved: dict[tuple[str, str], datetime] = field(default_factory=dict)  # carriers: when they were seen to move last
    _changed: dict[tuple[str, str], datetime] = field(default_factory=dict)  # targets' carriers: when they changed last
    _waiting: list[_Waiting] = field(default_factory=list)
    _idle: int = 0  # so many of these did not change

    def move(self, carrier: JSON, at: datetime) -> None:
        """Take in that a poll showed a carrier as modified."""
        for place, name in _read_names(carrier, self.pair.names):
            self._moved[place, name] = at

    @property
    def has_enough_idle(self) -> bool:
        """Whether so many records that did not change wait to be judged that no more are needed."""
        return self._idle >= _IDLE_MOST

    def expect(self, target: JSON, since: datetime, until: datetime, *, is_changed: bool) -> None:
        """Take in a record that had changed between two times, or had not."""
        names = dict(_read_names(target, self.pair.named_by))
        if is_changed:
            self._changed |= dict.fromkeys(names.items(), until)
        if names and len(self._waiting) < _WAITING_MOST:
            self._waiting.append(_Waiting(names, since, until, is_changed))
            self._idle += not is_changed

    def read(self, asked_at: datetime, since: datetime) -> list[Judged]:
        """Take in that the carrier was polled whole from a time of modification on; return what is certain now."""
        if self._watched_from is None:
            self._watched_from = asked_at
        judged, waiting = [], []
        for each in self._waiting:
            if each.until + _GRACE > asked_at:
                waiting.append(each)
            elif since > each.until:
                if each.until >= asked_at - _KEPT:  # a longer poll may go back to it
                    waiting.append(each)
            elif each.since >= self._watched_from and (each.is_changed or not self._is_related(each)):
                judged.append(self._judge(each))
        self._waiting, self._idle = waiting, sum(not each.is_changed for each in waiting)
        self._forget(asked_at)
        return judged

    def _is_related(self, idle: _Waiting) -> bool:
        """Return whether another record of the same carrier had changed: then its move says nothing of this one."""
        return any(self._changed.get(name, idle.since) > idle.since for name in idle.names.items())

    def _judge(self, each: _Waiting) -> Judged:
        moved, is_ahead = {}, False
        for place, name in each.names.items():
            for named in self.pair.names:
                moved_at = self._moved.get((named, name))
                is_moved = moved_at is not None and moved_at >= each.since
                is_ahead = is_ahead or (is_moved and moved_at is not None and moved_at + _GRACE <= each.until)
                moved[f"{place} {named}"] = is_moved
        return Judged(each.is_changed, moved, is_ahead)

    def _forget(self, now: datetime) -> None:
        """Keep what is known in bounds; what cannot be judged any more is not."""
        if len(self._moved) + len(self._changed) <= _NAMES_MOST:
            return
        for names in (self._moved, self._changed):
            for name in [name for name, at in names.items() if at < now - _KEPT]:
                del names[name]
        if len(self._moved) + len(self._changed) > 2 * _NAMES_MOST:
            self._moved, self._changed, self._watched_from = {}, {}, now
            self._waiting, self._idle = [], 0


def _read_names(record: JSON, places: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for place in places:
        name = name_scalar(pointer.resolve(record, pointer.parse(place)))
        if name is not None:
            yield place, name
