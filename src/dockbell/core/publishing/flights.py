"""The deliveries of a delivery queue that the sink has now, and how many more it may have."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dockbell.core.model import Event
from dockbell.core.publishing.settlement import Blocked, DeadLetter, Place, Replay


@dataclass(frozen=True, slots=True)
class Flight:
    """A delivery that the sink has now.

    Attributes:
        event: The event.
        attempt: The number of the attempt, from 1.
        since: When the sink got it.
        replay: The replay that it belongs to; None for a live delivery.
    """

    event: Event
    attempt: int
    since: datetime
    replay: Replay | None = None

    @property
    def place(self) -> Place:
        """The event's key in its feed."""
        return self.event.feed, self.event.key

    def block(
        self, due: datetime, error: str = "", *, held: bool = False, planned_at: datetime | None = None
    ) -> Blocked:
        """Return the entry of the key after this attempt has failed."""
        return Blocked(*self.place, self.event.sequence, self.attempt, due, error, held, planned_at)

    def to_dead_letter(self, now: datetime, error: str) -> DeadLetter:
        """Return the dead letter of the event after this attempt."""
        return DeadLetter(*self.place, self.event.sequence, self.attempt, now, error)


@dataclass(slots=True)
class Flights:
    """The deliveries in flight: at most a window of them, one for each key, spaced where a rate limit says so.

    Where a method takes ``probe_at``, the breaker is open until then, and one delivery goes at a time; None: it is
    closed.

    Args:
        window: The most deliveries in flight.
        spacing: The least time from one delivery to the next.
    """

    window: int
    spacing: timedelta
    by_key: dict[Place, Flight] = field(default_factory=dict)
    _next_at: datetime | None = None
    """When the next delivery may be taken, where they are spaced."""

    def __len__(self) -> int:
        """Return how many deliveries are in flight."""
        return len(self.by_key)

    @property
    def is_full(self) -> bool:
        """Whether the window is used up."""
        return len(self.by_key) >= self.window

    def has_live(self, place: Place) -> bool:
        """Return whether a key has a delivery in flight; a replay does not count."""
        return place in self.by_key and self.by_key[place].replay is None

    def free(self, now: datetime, probe_at: datetime | None) -> int:
        """Return how many deliveries may be taken now."""
        if self._next_at is not None and now < self._next_at:
            return 0
        if probe_at is None:
            free = self.window - len(self.by_key)
            return min(free, 1) if self.spacing else free
        return 1 if now >= probe_at and not self.by_key else 0

    def next_at(self, earliest: datetime, probe_at: datetime | None) -> datetime | None:
        """Return when the next delivery may be taken, not before ``earliest``; None: when one is settled."""
        if self.is_full or (self.by_key and probe_at is not None):
            return None
        return max(moment for moment in (earliest, self._next_at, probe_at) if moment is not None)

    def space(self, now: datetime) -> None:
        """Space the next delivery from the one that was taken just now.

        Not from when that could have gone: otherwise a burst would follow a pause.
        """
        if self.spacing:
            self._next_at = now + self.spacing

    def inherit_spacing(self, before: Flights, now: datetime) -> None:
        """Space the first delivery from the last one of the queue before."""
        if self.spacing and before._next_at is not None:
            self._next_at = min(before._next_at, now + self.spacing)
