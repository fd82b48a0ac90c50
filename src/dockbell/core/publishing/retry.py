"""The times of retries, and the circuit breaker of a sink (docs/guarantees.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from dockbell.core.model import Event, Feed, Outcome, OutcomeKind
from dockbell.core.publishing.settlement import Blocked, Pause, Place

_JITTER_SHARE: Final = 0.1
_STREAK: Final = 5
_PROBE_FIRST: Final = timedelta(seconds=1)
_PROBE_MOST: Final = timedelta(seconds=30)
_PROBE_MOST_SOON: Final = timedelta(seconds=5)
_SOON: Final = timedelta(minutes=10)
"""A receiver that answers may refuse one kind of event only: for so long, others are probed more often."""
_RETRY_AFTER_MOST: Final = timedelta(hours=24)


def next_attempt(
    schedule: Sequence[timedelta], attempts: int, now: datetime, jitter: float, retry_after: timedelta | None = None
) -> datetime | None:
    """Return when to try again after ``attempts`` failures, or None when it was the last.

    Args:
        schedule: The pause before each attempt.
        attempts: Attempts made, at least 1.
        now: The time of the failure.
        jitter: 0 to 1, spreads retries over a tenth of the pause.
        retry_after: How long the receiver asks to wait, which counts up to a day.
    """
    if attempts >= len(schedule):
        return None
    pause = schedule[attempts] if retry_after is None else max(schedule[attempts], min(retry_after, _RETRY_AFTER_MOST))
    return now + pause * (1 + _JITTER_SHARE * jitter)


def plan_anew(planned_at: datetime | None, due: datetime, now: datetime) -> datetime:
    """Return when a planned attempt is due by a clock that may have been set back since.

    It waits no longer than it was to: a ``planned_at`` in the future is a time of the clock before.
    """
    if planned_at is None:
        return min(due, now)
    return now + (due - planned_at) if planned_at > now else due


def plan_entry_anew(entry: Blocked, now: datetime) -> Blocked:
    """Return a blocked key as :func:`plan_anew` says of its next attempt."""
    due = plan_anew(entry.planned_at, entry.due, now)
    return replace(entry, due=due, planned_at=None if entry.planned_at is None else min(entry.planned_at, now))


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt."""

    feed: Feed
    key: str
    sequence: int
    at: datetime

    @property
    def place(self) -> Place:
        """The event's key in its feed."""
        return self.feed, self.key


def count_events(failures: Iterable[Failure]) -> int:
    """Return of how many events some failures are."""
    return len({(failure.place, failure.sequence) for failure in failures})


@dataclass(slots=True)
class Breaker:
    """The circuit breaker of a sink: while it is open, the receiver is probed with one event at a time.

    It opens when the receiver is unreachable, when the receiver asks to wait, or when several attempts in a row fail or
    are refused, of more than one event: then the receiver is to blame, and these attempts do not count.

    Attributes:
        probe_at: When the next probe may go; None while the breaker is closed.
        streak: The failures since the last success; those that opened it while it is open.
        is_answered: The last failure was not for an unreachable receiver.
        asked_at: When the receiver asked for the pause that ends at ``probe_at``; None where it did not ask.
    """

    probe_at: datetime | None = None
    streak: list[Failure] = field(default_factory=list)
    is_answered: bool = False
    asked_at: datetime | None = None
    _opened_at: datetime | None = None
    _pause: timedelta = _PROBE_FIRST

    @property
    def is_open(self) -> bool:
        """Whether deliveries wait for a probe."""
        return self.probe_at is not None

    @property
    def pause(self) -> Pause | None:
        """The pause that the receiver has asked for."""
        return None if self.asked_at is None or self.probe_at is None else Pause(self.asked_at, self.probe_at)

    def succeed(self, since: datetime) -> bool:
        """Note that the receiver took an event, in an attempt that began at ``since``; return whether it is closed.

        An attempt that began before the breaker opened does not close it.
        """
        if self._opened_at is not None and since < self._opened_at:
            return False
        self.probe_at = self.asked_at = self._opened_at = None
        self._pause = _PROBE_FIRST
        self.streak = [failure for failure in self.streak if failure.at > since]
        return True

    def reset(self) -> None:
        """Begin anew, as if nothing had failed."""
        self.probe_at = self.asked_at = self._opened_at = None
        self._pause = _PROBE_FIRST
        self.streak.clear()

    def wait(self, asked_at: datetime, until: datetime) -> None:
        """Open until the end of a pause that the receiver has asked for."""
        self.asked_at = self._opened_at = asked_at
        self.probe_at, self.is_answered = until, True

    def shift_pause(self, step: timedelta) -> None:
        """Move the pause that the receiver has asked for: the clock was set forward by ``step`` meanwhile."""
        if self.asked_at is not None and self.probe_at is not None:
            self.wait(self.asked_at + step, self.probe_at + step)

    def fail(self, event: Event, outcome: Outcome, now: datetime, since: datetime) -> bool:
        """Note the failure of an attempt that began at ``since``; return whether it opened the breaker."""
        failure = Failure(event.feed, event.key, event.sequence, now)
        if not self.is_open:
            self.streak.append(failure)
        if (
            self.is_open
            and not self.is_answered
            and outcome.kind is OutcomeKind.REFUSED
            and outcome.retry_after is None
        ):
            self.reset()  # the receiver was unreachable, and now answers
            self.streak.append(failure)
        self.is_answered = outcome.kind is not OutcomeKind.UNREACHABLE
        if outcome.retry_after is not None:
            # Retry-After: 0 must not become a storm of requests.
            probe_at = now + max(_PROBE_FIRST, min(outcome.retry_after, _RETRY_AFTER_MOST))
            if self._opened_at is not None and self.probe_at is not None and since <= self._opened_at:
                if probe_at > self.probe_at:  # of several attempts that began before, the longest pause counts
                    self.asked_at, self.probe_at = now, probe_at
                return False
            opened = self._opened_at is None
            self.asked_at, self._opened_at, self.probe_at = now, now, probe_at
            return opened
        if self._opened_at is None:
            if outcome.kind is OutcomeKind.UNREACHABLE or (
                len(self.streak) >= _STREAK and count_events(self.streak) > 1
            ):
                self._opened_at = now
                self.probe_at = now + self._pause
                return True
        elif since > self._opened_at:  # a probe, not an attempt from before the breaker opened
            is_soon = self.is_answered and now - self._opened_at < _SOON
            self._pause = min(self._pause * 2, _PROBE_MOST_SOON if is_soon else _PROBE_MOST)
            self.asked_at, self.probe_at = None, now + self._pause
        return False
