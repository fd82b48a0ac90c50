"""The numbers of the demo: requests, events, delays. Times are seconds of a monotonic clock, delays seconds."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dockbell.core.model import ChangeKind
from dockbell.demo.arrival import Inbox

MINUTE: Final = 60.0
CHANGES: Final = (ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED, ChangeKind.RESTORED)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a number of delays are distributed; ``count`` 0 means that there are none, and nothing to say of them."""

    count: int
    mean: float
    median: float
    p95: float
    longest: float

    @classmethod
    def of(cls, delays: Iterable[float]) -> Spread:
        """Return the spread of some delays."""
        ordered = sorted(delays)
        if not ordered:
            return cls(0, 0.0, 0.0, 0.0, 0.0)
        count = len(ordered)
        return cls(count, sum(ordered) / count, ordered[count // 2], ordered[(count * 95 - 1) // 100], ordered[-1])


class Requests:
    """The requests to the API.

    Attributes:
        total: All of them.
        refused: Those that were answered with 429.
        busiest: The most within any minute.
    """

    def __init__(self) -> None:
        self.total = 0
        self.refused = 0
        self.busiest = 0
        self._recent: deque[float] = deque()

    def add(self, now: float, status: int | None) -> None:
        """Count a request."""
        self.total += 1
        self.refused += status == 429  # noqa: PLR2004  # Too Many Requests
        self._recent.append(now)
        self.busiest = max(self.busiest, self.within_a_minute(now))

    def within_a_minute(self, now: float) -> int:
        """Return how many there were in the last minute."""
        while self._recent and self._recent[0] <= now - MINUTE:
            self._recent.popleft()
        return len(self._recent)


class Figures:
    """Everything that is counted.

    Attributes:
        inboxes: What each receiver got, by sink.
        forged: Webhooks whose signature did not match.
        events: How many different events there were, by resource and change.
        requests: To the API.
        records: How many records the last pass over each resource showed.
    """

    def __init__(self, sinks: Sequence[str]) -> None:
        self.inboxes = {sink: Inbox() for sink in sinks}
        self.forged = 0
        self.events: Counter[tuple[str, str]] = Counter()
        self.requests = Requests()
        self.records: dict[str, int] = {}
        self._delays: dict[tuple[str, bool], array[float]] = {}
        self._recent: deque[tuple[float, float]] = deque()

    def add_delay(self, now: float, resource: str, delay: float, *, deletion: bool) -> None:
        """Count how long one arrival took; deletions apart, since they are only believed at a second look."""
        self._delays.setdefault((resource, deletion), array("d")).append(delay)
        if not deletion:
            self._recent.append((now, delay))

    def delays(self, resource: str | None = None, *, deletions: bool = False) -> Spread:
        """Return the delays of a resource, or of all."""
        return Spread.of(
            delay
            for (name, deletion), delays in self._delays.items()
            if deletion == deletions and resource in (None, name)
            for delay in delays
        )

    def recent_delays(self, now: float) -> Spread:
        """Return the delays of the last minute."""
        while self._recent and self._recent[0][0] <= now - MINUTE:
            self._recent.popleft()
        return Spread.of(delay for _, delay in self._recent)

    def count(self, change: str | None = None) -> int:
        """Return how many events there were of a kind of change, or in all."""
        return sum(number for (_, kind), number in self.events.items() if change in (None, kind))
