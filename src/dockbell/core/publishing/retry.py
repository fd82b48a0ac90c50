"""When a failed delivery is attempted again, and when a sink is left alone for a while (docs/guarantees.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from dockbell.core.model import Fate, Feed, Outcome

SCHEDULE: Final = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
"""The pause after the first, second, … failed attempt; when it is used up the event is a dead letter."""

_JITTER_SHARE: Final = 0.1
_STREAK_KEYS: Final = 5
_PROBE_FIRST: Final = timedelta(seconds=1)
_PROBE_MOST: Final = timedelta(seconds=30)
_PROBE_MOST_SOON: Final = timedelta(seconds=5)
_SOON: Final = timedelta(minutes=10)
"""Where somebody answers, it may be but one kind of event that is not taken: for so long others are tried sooner."""
_RETRY_AFTER_MOST: Final = timedelta(hours=24)


def next_attempt(attempts: int, now: datetime, jitter: float) -> datetime | None:
    """Return when to try again after ``attempts`` failures, or None when it was the last.

    Args:
        attempts: Attempts made, at least 1.
        now: The time of the failure.
        jitter: 0 to 1, spreads retries over a tenth of the pause.
    """
    if attempts > len(SCHEDULE):
        return None
    return now + SCHEDULE[attempts - 1] * (1 + _JITTER_SHARE * jitter)


def latest_attempt(attempts: int, now: datetime) -> datetime:
    """Return when at the latest to try again after ``attempts`` failures, whenever the last of them was."""
    return now + SCHEDULE[min(max(attempts, 1), len(SCHEDULE)) - 1] * (1 + _JITTER_SHARE)


@dataclass(slots=True)
class Breaker:
    """Leaves a sink alone that takes nothing, and probes it with one event at a time.

    It opens when nobody is there to judge an event, when the receiver asks to wait, or when several keys in a row
    fail or are refused: then the fault is the sink's, not the events', and their attempts are given back.

    Attributes:
        probe_at: When the next probe may go; None while the breaker is closed.
        streak: The keys that failed since the last success, each with when it did last; those that opened it while it
            is open.
        is_answered: The last failure was an answer of the receiver, or its silence about one event: somebody is there.
    """

    probe_at: datetime | None = None
    streak: dict[tuple[Feed, str], datetime] = field(default_factory=dict)
    is_answered: bool = False
    _opened_at: datetime | None = None
    _pause: timedelta = _PROBE_FIRST

    @property
    def is_open(self) -> bool:
        """Whether deliveries wait for a probe."""
        return self.probe_at is not None

    def succeed(self, since: datetime) -> bool:
        """Note that the receiver took an event, in an attempt that began at ``since``; return whether it is closed.

        What was under way already when others failed says nothing of what has become of the receiver since.
        """
        if self._opened_at is not None and since < self._opened_at:
            return False
        self.probe_at = self._opened_at = None
        self._pause = _PROBE_FIRST
        self.streak = {place: failed_at for place, failed_at in self.streak.items() if failed_at > since}
        return True

    def forgive(self) -> None:
        """Begin anew, as if nothing had failed."""
        self.probe_at = self._opened_at = None
        self._pause = _PROBE_FIRST
        self.streak.clear()

    def fail(self, place: tuple[Feed, str], outcome: Outcome, now: datetime, since: datetime) -> bool:
        """Note the failure of an attempt that began at ``since``; return whether it opened the breaker."""
        if not self.is_open:
            self.streak[place] = now
        if self.is_open and not self.is_answered and outcome.fate is Fate.REFUSED and outcome.retry_after is None:
            self.forgive()  # nobody was there, and now somebody is, who judges events
            self.streak[place] = now
        self.is_answered = outcome.fate is not Fate.UNREACHABLE
        if outcome.retry_after is not None:
            # A wish for no pause at all must not become a storm.
            probe_at = now + max(_PROBE_FIRST, min(outcome.retry_after, _RETRY_AFTER_MOST))
            if self._opened_at is not None and self.probe_at is not None and since <= self._opened_at:
                self.probe_at = max(self.probe_at, probe_at)  # several were under way: the longest wish holds
                return False
            opened, self._opened_at, self.probe_at = self._opened_at is None, now, probe_at
            return opened
        if self._opened_at is None:
            if outcome.fate is Fate.UNREACHABLE or len(self.streak) >= _STREAK_KEYS:
                self._opened_at = now
                self.probe_at = now + self._pause
                return True
        elif since > self._opened_at:  # a probe, not one that was under way when the breaker opened
            is_soon = self.is_answered and now - self._opened_at < _SOON
            self._pause = min(self._pause * 2, _PROBE_MOST_SOON if is_soon else _PROBE_MOST)
            self.probe_at = now + self._pause
        return False
