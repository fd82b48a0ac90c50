"""What a receiver got, and what it can tell from what it has: is this new, a repetition, or is something missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from dockbell.core.model import JSON

MQTT: Final = "mqtt"
HOOK: Final = "hook"
"""The names of the demo's sinks."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One event at one receiver.

    Attributes:
        sink: The sink that it came by.
        event: The decoded CloudEvent.
        at: Our time when it was received.
    """

    sink: str
    event: JSON
    at: datetime

    @classmethod
    def of(cls, sink: str, body: bytes | bytearray, at: datetime) -> Arrival:
        """Return the arrival of a structured CloudEvent.

        Raises:
            ValueError: It is not JSON.
        """
        return cls(sink, json.loads(body), at)

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
        """What became of the record."""
        return str(self.event["data"]["change"])


class Novelty(StrEnum):
    """What the revision of an event says to a receiver that remembers the last one of each key."""

    NEW = "new"
    REPEATED = "repeated"
    GAP = "a revision is missing before it"


class Inbox:
    """One receiver without filters: it knows the last revision of each key.

    Attributes:
        events: How many different events it got.
        repeated: How many came once more.
        gaps: How often a revision was missing.
    """

    def __init__(self) -> None:
        self.events = 0
        self.repeated = 0
        self.gaps = 0
        self._revisions: dict[tuple[str, str], int] = {}

    def take(self, arrival: Arrival) -> Novelty:
        """Take an arrival in, and tell what it is."""
        revision = int(arrival.event["data"]["revision"])
        last = self._revisions.get(arrival.place, 0)
        if revision <= last:
            self.repeated += 1
            return Novelty.REPEATED
        self._revisions[arrival.place] = revision
        self.events += 1
        if revision > last + 1:
            self.gaps += 1
            return Novelty.GAP
        return Novelty.NEW
