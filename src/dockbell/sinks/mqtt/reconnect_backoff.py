"""How long to wait after a connection that ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dockbell.core.running.backoff import delay
from dockbell.sinks.mqtt.connection import Ending

_BACKOFF_FIRST: Final = timedelta(seconds=1)
_BACKOFF_MOST: Final = timedelta(seconds=15)
# Two clients with one id throw each other out: the one thrown out leaves the broker to the other for a long while.
_TAKEOVER_FIRST: Final = timedelta(minutes=1)
_TAKEOVER_MOST: Final = timedelta(hours=1)
_TAKEOVER_OVER: Final = timedelta(minutes=10)
"""A connection that lasted so long and had a delivery acknowledged shows that the other client is gone."""
# MQTT 3.1.1 has no reason code for a takeover, and Mosquitto sends none before 2.0.15. Then the sign of it is several
# connections in a row that are closed soon, with no publication to blame.
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
    """Counts failures, and returns how long to wait before the next connection.

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
        """Return how long to wait before connecting again; ``jitter`` is a random number from 0 to 1."""
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
