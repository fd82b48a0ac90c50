"""What the receivers got: one event at several of them, new or repeated, and how many and how quickly."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dockbell.core.model import JSON

MQTT: Final = "mqtt"  # the name of a sink
HOOK: Final = "hook"


class Arrival(msgspec.Struct, frozen=True):
    """One event at one receiver: a decoded CloudEvent, and when it came by which sink."""

    sink: str
    event: JSON
    at: datetime

    @property
    def is_statement(self) -> bool:
        """Whether the event is about a feed as a whole: it has neither key nor revision."""
        return "statement" in self.event["data"]

    @property
    def place(self) -> tuple[str, str]:
        """The resource and the key that the event is about."""
        return self.event["data"]["resource"], self.event["data"]["key"]

    @property
    def change(self) -> str:
        return str(self.event["data"]["change"])


class Inbox:
    """Counts what one receiver without filters got; it knows the last revision of each key."""

    def __init__(self) -> None:
        self.events = 0  # different ones
        self.repeated = 0
        self.gaps = 0  # revisions were missing
        self._revisions: dict[tuple[str, str], int] = {}

    def take(self, arrival: Arrival) -> bool:
        """Take an arrival in; return whether it is new, by its revision."""
        revision = int(arrival.event["data"]["revision"])
        last = self._revisions.get(arrival.place, 0)
        if revision <= last:
            self.repeated += 1
            return False
        self._revisions[arrival.place] = revision
        self.events += 1
        self.gaps += revision > last + 1
        return True


GRACE: Final = timedelta(seconds=0.25)
"""How long a line waits for the other receivers before it is shown with those that have the event."""


@dataclass(slots=True)
class Sighting:
    """One event, and when it arrived, by sink; a late one was shown before, for other sinks."""

    event: JSON
    arrived: dict[str, datetime] = field(default_factory=dict)
    is_late: bool = False

    @property
    def complete_at(self) -> datetime:
        """When the last of these receivers had it."""
        return max(self.arrived.values())


class Pairing:
    """Brings the arrivals of each event together, repetitions left out: they are milliseconds apart."""

    def __init__(self, sinks: Collection[str]) -> None:
        self._sinks = set(sinks)
        self._open: dict[str, Sighting] = {}
        self._shown: dict[str, set[str]] = {}

    @property
    def is_settled(self) -> bool:
        """Whether every event has arrived at every receiver, and was shown."""
        return not self._open and not self._shown

    def add(self, arrival: Arrival) -> Sighting | None:
        """Take an arrival in; return what can be shown now: all receivers have it, or it comes late."""
        event_id = arrival.event["id"]
        if event_id in self._shown:
            self._note_shown(event_id, {arrival.sink})
            return Sighting(arrival.event, {arrival.sink: arrival.at}, is_late=True)
        sighting = self._open.setdefault(event_id, Sighting(arrival.event))
        sighting.arrived[arrival.sink] = arrival.at
        return self._show(event_id) if sighting.arrived.keys() == self._sinks else None

    def overdue(self, now: datetime) -> Iterator[Sighting]:
        """Yield what has waited long enough for the other receivers."""
        for event_id, sighting in list(self._open.items()):
            if min(sighting.arrived.values()) + GRACE <= now:
                yield self._show(event_id)

    def _show(self, event_id: str) -> Sighting:
        sighting = self._open.pop(event_id)
        self._note_shown(event_id, set(sighting.arrived))
        return sighting

    def _note_shown(self, event_id: str, sinks: set[str]) -> None:
        known = self._shown.pop(event_id, set()) | sinks
        if known != self._sinks:
            self._shown[event_id] = known


MINUTE: Final = 60.0


class Spread(msgspec.Struct, frozen=True):
    """How delays are distributed, in seconds; the others mean nothing where ``count`` is 0."""

    count: int
    mean: float
    median: float
    p99: float
    longest: float

    @classmethod
    def of(cls, delays: Iterable[float]) -> Spread:
        ordered = sorted(delays)
        if not ordered:
            return cls(0, 0.0, 0.0, 0.0, 0.0)
        count = len(ordered)
        return cls(count, sum(ordered) / count, ordered[count // 2], ordered[(count * 99 - 1) // 100], ordered[-1])


class Requests:
    """Counts the requests to the API: all, those answered with 429, and the most within any minute."""

    def __init__(self) -> None:
        self.total = 0
        self.refused = 0
        self.busiest = 0
        self._recent: deque[float] = deque()

    def add(self, now: float, status: int | None) -> None:
        self.total += 1
        self.refused += status == 429  # noqa: PLR2004  # Too Many Requests
        self._recent.append(now)
        self.busiest = max(self.busiest, self.within_a_minute(now))

    def within_a_minute(self, now: float) -> int:
        while self._recent and self._recent[0] <= now - MINUTE:
            self._recent.popleft()
        return len(self._recent)


class Figures:
    """Everything that is counted; times are seconds of a monotonic clock."""

    def __init__(self, sinks: Sequence[str]) -> None:
        self.inboxes = {sink: Inbox() for sink in sinks}
        self.forged = 0  # webhooks whose signature did not match
        self.events: Counter[tuple[str, str]] = Counter()  # different ones, by resource and change
        self.requests = Requests()
        self.records: dict[str, int] = {}  # that the last pass over each resource showed
        self._delays: dict[tuple[str, bool], array[float]] = {}
        self._recent: deque[tuple[float, float]] = deque()
        self._measured: deque[tuple[float, float]] = deque()

    def add_delay(self, now: float, resource: str, delay: float, *, deletion: bool) -> None:
        """Count how long one arrival took; deletions apart, since they are only believed at a second look."""
        self._delays.setdefault((resource, deletion), array("d")).append(delay)
        if not deletion:
            self._recent.append((now, delay))

    def delays(self, resource: str | None = None, *, deletions: bool = False) -> Spread:
        return Spread.of(
            delay
            for (name, deletion), delays in self._delays.items()
            if deletion == deletions and resource in (None, name)
            for delay in delays
        )

    def add_measured(self, now: float, delay: float) -> None:
        """Count how long the daemon says that a change took to one sink."""
        self._measured.append((now, delay))

    def recent_delays(self, now: float) -> Spread:
        """Return how long what arrived within the last minute took."""
        return _spread_minute(self._recent, now)

    def recent_measured(self, now: float) -> Spread:
        """Return the same as the daemon has measured it."""
        return _spread_minute(self._measured, now)

    def count(self, change: str | None = None) -> int:
        return sum(number for (_, kind), number in self.events.items() if change in (None, kind))


def _spread_minute(delays: deque[tuple[float, float]], now: float) -> Spread:
    """Forget what is older than a minute; return how the rest is distributed."""
    while delays and delays[0][0] <= now - MINUTE:
        delays.popleft()
    return Spread.of(delay for _, delay in delays)
