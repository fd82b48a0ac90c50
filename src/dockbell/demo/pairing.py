"""Arrivals of one event at several receivers, brought together: milliseconds lie between them, one line tells more."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from dockbell.core.model import JSON
from dockbell.demo.arrival import Arrival

GRACE: Final = timedelta(seconds=0.25)
"""How long a line waits for the other receivers before it is shown with those that have the event."""


@dataclass(slots=True)
class Sighting:
    """One event, and where it arrived when.

    Attributes:
        event: The decoded CloudEvent.
        arrived: When it was received, by sink.
        is_late: It was shown before, for other sinks.
    """

    event: JSON
    arrived: dict[str, datetime] = field(default_factory=dict)
    is_late: bool = False

    @property
    def complete_at(self) -> datetime:
        """When the last of these receivers had it."""
        return max(self.arrived.values())


class Pairing:
    """Collects the arrivals of each event; what is repeated must be kept away from it."""

    def __init__(self, sinks: Collection[str]) -> None:
        self._sinks = set(sinks)
        self._open: dict[str, Sighting] = {}
        self._shown: dict[str, set[str]] = {}

    @property
    def is_settled(self) -> bool:
        """Whether every event has arrived at every receiver, and was shown."""
        return not self._open and not self._shown

    def add(self, arrival: Arrival) -> Sighting | None:
        """Take an arrival in; return what can be shown now: everybody has it, or it comes late."""
        event_id = arrival.event["id"]
        if event_id in self._shown:
            self._note_shown(event_id, {arrival.sink})
            return Sighting(arrival.event, {arrival.sink: arrival.at}, is_late=True)
        sighting = self._open.setdefault(event_id, Sighting(arrival.event))
        sighting.arrived[arrival.sink] = arrival.at
        return self._show(event_id) if sighting.arrived.keys() == self._sinks else None

    def overdue(self, now: datetime) -> Iterator[Sighting]:
        """Yield what has waited for the others long enough."""
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
