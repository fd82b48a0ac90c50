"""The blocked keys of a delivery queue: when the next attempt of each is due, and which may be resumed now."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

from dockbell.core.model import Feed
from dockbell.core.publishing.blame import Blame
from dockbell.core.publishing.flights import Flights
from dockbell.core.publishing.settlement import Blocked, Place

_STALE_MOST: Final = 1000
_Due: TypeAlias = tuple[datetime, Feed, str]


@dataclass(slots=True)
class BlockedKeys:
    """The entries of blocked keys, in the order in which they are due.

    A key is *resumed* from :meth:`take_due` until its entry is set anew or removed: its next event is being read, or is
    ready, or in flight.

    Args:
        flights: The deliveries in flight; no more keys are resumed than fit into its window.
        blame: The suspects; they count as failed before.

    Attributes:
        changed: The entries that were set since :meth:`take_changes`.
        freed: The keys whose entries were removed since.
    """

    flights: Flights
    blame: Blame
    changed: dict[Place, Blocked] = field(default_factory=dict)
    freed: set[Place] = field(default_factory=set)
    _entries: dict[Place, Blocked] = field(default_factory=dict)
    _held: set[Place] = field(default_factory=set)
    _resumed: set[Place] = field(default_factory=set)
    _due: list[_Due] = field(default_factory=list)
    """A heap. An item is stale when the key's entry has another time."""
    _retries: deque[_Due] = field(default_factory=deque)
    """Items that are due, but have failed before and are more than may be resumed."""
    _probed: int = 0
    """Where in the heap the search for the next probe begins."""

    @property
    def entries(self) -> Mapping[Place, Blocked]:
        """All entries."""
        return self._entries

    @property
    def held(self) -> AbstractSet[Place]:
        """The keys that wait for an operator."""
        return self._held

    @property
    def resumed(self) -> AbstractSet[Place]:
        """The keys that are resumed."""
        return self._resumed

    def is_moving(self, place: Place) -> bool:
        """Return whether a key is resumed, or has a live delivery in flight from before it was blocked."""
        return place in self._resumed or self.flights.has_live(place)

    def take_changes(self) -> tuple[dict[Place, Blocked], set[Place]]:
        """Return ``changed`` and ``freed``, and begin both anew."""
        changes = self.changed, self.freed
        self.changed, self.freed = {}, set()
        return changes

    # Entries --------------------------------------------------------------------------------------------------------

    def put(self, entry: Blocked) -> None:
        """Set the entry of a key; the key is not resumed any more."""
        place = (entry.feed, entry.key)
        self._entries[place] = self.changed[place] = entry
        self._resumed.discard(place)
        self.freed.discard(place)
        if entry.held:
            self._held.add(place)
            return
        self._held.discard(place)
        heapq.heappush(self._due, (entry.due, entry.feed, entry.key))
        if len(self._due) > 2 * len(self._entries) + _STALE_MOST:
            self._due = [(each.due, *each_place) for each_place, each in self._entries.items() if not each.held]
            heapq.heapify(self._due)

    def move_on(self, entry: Blocked, sequence: int) -> None:
        """Note the number of the next event of a resumed key, where the events before it are not owed after all."""
        self._entries[entry.feed, entry.key] = replace(entry, sequence=sequence, attempts=0)

    def remove(self, place: Place) -> None:
        """Remove the entry of a key that owes nothing any more."""
        self._resumed.discard(place)
        del self._entries[place]
        self.changed.pop(place, None)
        self.freed.add(place)

    def advance_all(self, now: datetime) -> None:
        """Make due all entries that wait for their next attempt."""
        for place, entry in list(self._entries.items()):
            if not entry.held and entry.due > now and not self.is_moving(place):
                self.put(replace(entry, due=now, planned_at=None))

    # What is due ----------------------------------------------------------------------------------------------------

    def take_due(self, now: datetime, most: int) -> list[Blocked]:
        """Return entries that are due, the keys of which are resumed now; half of the window may have failed before."""
        most = min(most, self.flights.window - len(self._resumed))
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
            self._resumed.add((entry.feed, entry.key))
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
                self._resumed.add((entry.feed, entry.key))
                return [entry]
        return []

    def return_retries(self) -> None:
        """Put those that were due and had failed before in line with all others."""
        for item in self._retries:
            heapq.heappush(self._due, item)
        self._retries.clear()

    def next_due(self, now: datetime) -> datetime | None:
        """Return when :meth:`take_due` may return an entry, or None."""
        if self._retries and self._free_retries:
            return now
        return self._due[0][0] if self._due else None

    @property
    def _free_retries(self) -> int:
        """How many more keys that have failed before may be resumed."""
        return max(0, max(1, self.flights.window // 2) - sum(map(self._has_failed, self._resumed)))

    def _has_failed(self, place: Place) -> bool:
        entry = self._entries.get(place)
        return place in self.blame.suspects or (entry is not None and entry.attempts > 0)

    def _find_due(self, due: datetime, feed: Feed, key: str, now: datetime) -> Blocked | None:
        entry = self._entries.get((feed, key))
        is_current = entry is not None and entry.due == due <= now and not entry.held
        return entry if is_current and not self.is_moving((feed, key)) else None
