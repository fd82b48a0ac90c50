"""How long to wait after a connection that ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dockbell.core.running.backoff import delay
from dockbell.sinks.mqtt.connection import Ending

_BACKOFF_FIRST: Final = timedelta(seconds=1)
_BACKOFF_MOST: Final = timedelta(seconds=15)
# Two clients with one id throw each other out: whoever is thrown out leaves the broker to the other for a long while.
_TAKEOVER_FIRST: Final = timedelta(minutes=1)
_TAKEOVER_MOST: Final = timedelta(hours=1)
_TAKEOVER_OVER: Final = timedelta(minutes=10)
"""A connection that lasted so long and delivered something shows that the other client is gone."""
# MQTT 3.1.1 has no word for it, and Mosquitto says none before 2.0.15: connections that are closed one after the other,
# each soon after it was made and with nothing to blame it on.
_BRIEF: Final = timedelta(seconds=5)
_BRIEF_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt to use the broker ended.

    Attributes:
        reason: For people.
        ending: How the connection ended; None where there was none.
        lasted: How long it lasted.
        delivered: The broker acknowledged a delivery on it.
        blameless: Neither was the broker gone, nor did it owe us an answer.
    """

    reason: str
    ending: Ending | None = None
    lasted: timedelta = timedelta(0)
    delivered: bool = False
    blameless: bool = True


@dataclass(slots=True)
class ReconnectBackoff:
    """What the waits depend on.

    Attributes:
        failures: How many connections in a row have ended without a delivery.
        takeovers: How many have ended because another client had our id.
        is_contested: Whether the last did.
    """

    failures: int = 0
    takeovers: int = 0
    is_contested: bool = False
    _brief: int = 0

    def pause(self, end: End, jitter: float) -> timedelta:
        """Return how long to wait before dialling again; ``jitter`` is a random number from 0 to 1."""
        self.failures = 1 if end.delivered else self.failures + 1
        if end.delivered and end.lasted >= _TAKEOVER_OVER:
            self.takeovers = 0
        if end.ending is not Ending.DROPPED or end.lasted >= _BRIEF:
            self._brief = 0
        elif end.blameless:
            self._brief += 1
        self.is_contested = end.ending is Ending.TAKEN_OVER or self._brief >= _BRIEF_MOST
        if self.is_contested:
            self.takeovers += 1
            self._brief = 0
            return min(_TAKEOVER_FIRST * 2.0 ** min(self.takeovers - 1, 10), _TAKEOVER_MOST)
        return delay(self.failures, base=_BACKOFF_FIRST, cap=_BACKOFF_MOST, jitter=jitter)
