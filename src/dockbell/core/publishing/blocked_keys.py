"""The blocked keys of a delivery queue: when the next attempt of each is due, and which may be resumed now."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from msgspec.structs import replace

from dockbell.core.model import Feed
from dockbell.core.publishing.read_ahead import Flights
from dockbell.core.publishing.retry import Blame
from dockbell.core.publishing.settlement import Blocked, RecordId

_STALE_MOST: Final = 1000
_Due: TypeAlias = tuple[datetime, Feed, str]


@dataclass(slots=True)
class BlockedKeys:
    """The entries of blocked keys, in the order in which they are due.

    A key is *resumed* from :meth:`take_due` until its entry is set anew or removed: its next event is being read, or is
    ready, or in flight. No more keys are resumed than fit into the window of ``flights``; those that ``blame`` suspects
    count as failed before.
    """

    flights: Flights
    blame: Blame
    changed: dict[RecordId, Blocked] = field(default_factory=dict)
    """The entries that were set since :meth:`take_changes`."""
    freed: set[RecordId] = field(default_factory=set)  # the keys whose entries were removed since
    entries: dict[RecordId, Blocked] = field(default_factory=dict)
    """All entries; to be changed here only, as ``held`` and ``resumed``."""
    held: set[RecordId] = field(default_factory=set)  # the keys that wait for an operator
    resumed: set[RecordId] = field(default_factory=set)  # the keys that are resumed
    _due: list[_Due] = field(default_factory=list)
    """A heap. An item is stale when the key's entry has another time."""
    _retries: deque[_Due] = field(default_factory=deque)
    """Items that are due, but have failed before and are more than may be resumed."""
    _probed: int = 0
    """Where in the heap the search for the next probe begins."""

    def is_moving(self, record_id: RecordId) -> bool:
        """Return whether a key is resumed, or has a live delivery in flight from before it was blocked."""
        return record_id in self.resumed or self.flights.has_live(record_id)

    def take_changes(self) -> tuple[dict[RecordId, Blocked], set[RecordId]]:
        changes = self.changed, self.freed
        self.changed, self.freed = {}, set()
        return changes

    def put(self, entry: Blocked) -> None:
        """Set the entry of a key; the key is not resumed any more."""
        record_id = (entry.feed, entry.key)
        self.entries[record_id] = self.changed[record_id] = entry
        self.resumed.discard(record_id)
        self.freed.discard(record_id)
        if entry.held:
            self.held.add(record_id)
            return
        self.held.discard(record_id)
        heapq.heappush(self._due, (entry.due, entry.feed, entry.key))
        if len(self._due) > 2 * len(self.entries) + _STALE_MOST:
            self._due = [(each.due, each.feed, each.key) for each in self.entries.values() if not each.held]
            heapq.heapify(self._due)

    def move_on(self, entry: Blocked, sequence: int) -> Blocked:
        """Return the entry of a resumed key with its next event: the events before that are not owed after all."""
        moved = self.entries[entry.feed, entry.key] = replace(entry, sequence=sequence, attempts=0)
        return moved

    def remove(self, record_id: RecordId) -> None:
        self.resumed.discard(record_id)
        del self.entries[record_id]
        self.changed.pop(record_id, None)
        self.freed.add(record_id)

    def advance_all(self, now: datetime) -> None:
        for record_id, entry in list(self.entries.items()):
            if not entry.held and entry.due > now and not self.is_moving(record_id):
                self.put(replace(entry, due=now, planned_at=None))

    def take_due(self, now: datetime, most: int) -> list[Blocked]:
        """Return entries that are due, the keys of which are resumed now; half of the window may have failed before."""
        most = min(most, self.flights.window - len(self.resumed))
        taken: list[Blocked] = []
        retries = self._free_retries
        while len(taken) < most and ((retries and self._retries) or (self._due and self._due[0][0] <= now)):
            item = self._retries.popleft() if retries and self._retries else heapq.heappop(self._due)
            entry = self._find_due(*item, now)
            if entry is None:
                continue
            has_failed = self._has_failed((entry.feed, entry.key))
            if has_failed and not retries:
                self._retries.append(item)
                continue
            retries -= has_failed
            self.resumed.add((entry.feed, entry.key))
            taken.append(entry)
        return taken

    def take_probe(self, now: datetime) -> list[Blocked]:
        """Return at most one entry that is due, the key of which is resumed now.

        It is taken far from the last: neighbours tend to be of one kind, and the receiver may refuse just this kind.
        """
        count = len(self._due)
        for step in range(count):
            entry = self._find_due(*self._due[(self._probed + step) % count], now)
            if entry is not None:
                self._probed = (self._probed + step + count * 5 // 8 + 1) % count
                self.resumed.add((entry.feed, entry.key))
                return [entry]
        return []

    def return_retries(self) -> None:
        for item in self._retries:
            heapq.heappush(self._due, item)
        self._retries.clear()

    def next_due(self, now: datetime) -> datetime | None:
        if self._retries and self._free_retries:
            return now
        return self._due[0][0] if self._due else None

    @property
    def _free_retries(self) -> int:
        return max(0, max(1, self.flights.window // 2) - sum(map(self._has_failed, self.resumed)))

    def _has_failed(self, record_id: RecordId) -> bool:
        entry = self.entries.get(record_id)
        return record_id in self.blame.suspects or (entry is not None and entry.attempts > 0)

    def _find_due(self, due: datetime, feed: Feed, key: str, now: datetime) -> Blocked | None:
        entry = self.entries.get((feed, key))
        is_current = entry is not None and entry.due == due <= now and not entry.held
        return entry if is_current and not self.is_moving((feed, key)) else None
