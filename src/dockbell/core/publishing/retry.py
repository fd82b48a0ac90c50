"""When a delivery is tried again, and whether a failure speaks against its event or the receiver (docs/guarantees.md).

It speaks against the event while the receiver takes others: an event that it refuses is a dead letter at once. Where
several attempts in a row fail or are refused, of more than one event, the receiver is to blame: the breaker opens, or
the receiver recovers before that. Either way the delivery queue takes the dead letters of that streak back and does not
count its attempts. The events of the streak are *suspects* from then on: one that fails again is to blame itself, and
does not speak against the receiver any more. The pauses themselves are the sink's ``retry``: see ``RETRY_SCHEDULE`` in
``config/values.py``.

In the same way the whole sink waits when the receiver answers an event for the first time with Retry-After. If it has
taken others since and answers the same event so again, only this event waits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from dockbell.core.model import Event, Feed, Outcome, OutcomeKind
from dockbell.core.publishing.read_ahead import Flight
from dockbell.core.publishing.settlement import Blocked, DeadLetter, Pause, RecordId, Verdict

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
    """Return when to try again after ``attempts`` failures (at least 1), or None when it was the last.

    ``jitter``, 0 to 1, spreads retries over a tenth of the pause. The receiver's ``retry_after`` counts up to a day.
    """
    if attempts >= len(schedule):
        return None
    pause = schedule[attempts] if retry_after is None else max(schedule[attempts], min(retry_after, _RETRY_AFTER_MOST))
    return now + pause * (1 + _JITTER_SHARE * jitter)


def plan_anew(planned_at: datetime | None, due: datetime, now: datetime) -> datetime:
    """Return when a planned attempt is due by a clock that may have been set back since: after no longer than planned.

    A ``planned_at`` in the future is a time of the clock before.
    """
    if planned_at is None:
        return min(due, now)
    return now + (due - planned_at) if planned_at > now else due


def plan_entry_anew(entry: Blocked, now: datetime) -> Blocked:
    due = plan_anew(entry.planned_at, entry.due, now)
    return replace(entry, due=due, planned_at=None if entry.planned_at is None else min(entry.planned_at, now))


class Failure(msgspec.Struct, frozen=True):
    feed: Feed
    key: str
    sequence: int
    at: datetime

    @property
    def record_id(self) -> RecordId:
        return self.feed, self.key


def count_events(failures: Iterable[Failure]) -> int:
    return len({(failure.record_id, failure.sequence) for failure in failures})


@dataclass(slots=True)
class Breaker:
    """The circuit breaker of a sink: while it is open, the receiver is probed with one event at a time.

    It opens when the receiver is unreachable, when the receiver asks to wait, or when several attempts in a row fail or
    are refused, of more than one event: then the receiver is to blame, and these attempts do not count.
    """

    probe_at: datetime | None = None  # when the next probe may go; None while the breaker is closed
    streak: list[Failure] = field(default_factory=list)
    """The failures since the last success; those that opened it while it is open."""
    is_answered: bool = False  # the last failure was not for an unreachable receiver
    asked_at: datetime | None = None
    """When the receiver asked for the pause that ends at ``probe_at``; None where it did not ask."""
    _opened_at: datetime | None = None
    _pause: timedelta = _PROBE_FIRST

    @property
    def is_open(self) -> bool:
        return self.probe_at is not None

    @property
    def pause(self) -> Pause | None:
        return None if self.asked_at is None or self.probe_at is None else Pause(self.asked_at, self.probe_at)

    def succeed(self, since: datetime) -> bool:
        """Note a success; return whether the breaker is closed: by an attempt that began after it opened."""
        if self._opened_at is not None and since < self._opened_at:
            return False
        later = [failure for failure in self.streak if failure.at > since]
        self.reset()
        self.streak += later
        return True

    def reset(self) -> None:
        self.probe_at = self.asked_at = self._opened_at = None
        self._pause = _PROBE_FIRST
        self.streak.clear()

    def wait(self, asked_at: datetime, until: datetime) -> None:
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
        is_refusal = outcome.kind is OutcomeKind.REFUSED and outcome.retry_after is None
        if self.is_open and not self.is_answered and is_refusal:
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


@dataclass(slots=True)
class Blame:
    """The failures of one sink, and whether each is its event's or the receiver's."""

    breaker: Breaker = field(default_factory=Breaker)
    refused: dict[RecordId, list[DeadLetter]] = field(default_factory=dict)
    """The dead letters since the receiver last took an event, which may be taken back."""
    suspects: dict[RecordId, int] = field(default_factory=dict)
    """The sequences of events that failed while the receiver was to blame."""
    suspect_replays: set[int] = field(default_factory=set)
    """The ids of replays that failed while the receiver was to blame, or again after that."""
    _delayed: dict[RecordId, int] = field(default_factory=dict)
    """The sequences of events for which the whole sink has waited, because of Retry-After."""
    _taken_at: datetime | None = None  # when the receiver last took an event

    def inherit(self) -> Blame:
        return dataclasses.replace(self, _taken_at=None)

    def reset(self) -> None:
        """Forget all failures, but not the refusals."""
        self.breaker.reset()
        self.suspects.clear()
        self._delayed.clear()
        self.suspect_replays.clear()

    def judge(self, flight: Flight, outcome: Outcome, now: datetime) -> tuple[Verdict, Sequence[RecordId]]:
        """Return what an outcome means for its event, and the keys whose failures turn out to be the receiver's."""
        if outcome.kind is OutcomeKind.DELIVERED:
            return Verdict.SETTLED, self._note_success(flight, now)
        is_repeated = self._take_suspicion(flight, outcome)
        if outcome.kind is OutcomeKind.UNFIT:
            return Verdict.DEAD, ()
        if outcome.kind is OutcomeKind.CLOSED:
            return Verdict.WAIT, ()
        return self._judge_failure(flight, outcome, now, is_repeated=is_repeated)

    def _take_suspicion(self, flight: Flight, outcome: Outcome) -> bool:
        """Return whether an event has failed so before, while the receiver was to blame; forget a final answer."""
        if flight.replay is not None:
            is_suspect = flight.replay.id in self.suspect_replays
            self.suspect_replays.discard(flight.replay.id)
            return is_suspect
        earlier = self.suspects if outcome.retry_after is None else self._delayed
        is_suspect = earlier.get(flight.record_id) == flight.event.sequence
        if outcome.kind is OutcomeKind.REFUSED and not self.breaker.is_open:
            self.suspects.pop(flight.record_id, None)
        return is_suspect

    def _note_success(self, flight: Flight, now: datetime) -> Sequence[RecordId]:
        """Note that the receiver took an event; return the keys whose failures were the receiver's.

        There are some if it took none of several events before this attempt began: then it was ill, and recovers. The
        success of a replay does not count: the operator who ordered it handles the dead letters.
        """
        since, taken_at = flight.since, self._taken_at or datetime.min.replace(tzinfo=UTC)
        self._taken_at = now
        failed = [each for each in self.breaker.streak if taken_at < each.at <= since]
        is_recovery = flight.replay is None and not self.breaker.is_open and count_events(failed) > 1
        self.breaker.succeed(since)
        return [each.record_id for each in failed] if is_recovery else ()

    def _judge_failure(
        self, flight: Flight, outcome: Outcome, now: datetime, *, is_repeated: bool
    ) -> tuple[Verdict, Sequence[RecordId]]:
        speaks_for_itself = outcome.kind is not OutcomeKind.UNREACHABLE and not self.breaker.is_open
        is_own = speaks_for_itself and (is_repeated or outcome.is_own)
        opened = not is_own and self.breaker.fail(flight.event, outcome, now, flight.since)
        streak = [failure.record_id for failure in self.breaker.streak] if opened else ()
        if self.breaker.is_open:
            self._suspect(flight, outcome)
            return Verdict.WAIT, streak
        if is_own and flight.replay is not None:
            self.suspect_replays.add(flight.replay.id)
        if outcome.kind is OutcomeKind.FAILED:
            return Verdict.RETRY, streak
        return Verdict.DEAD if is_own or flight.replay is not None else Verdict.REFUSED, streak

    def _suspect(self, flight: Flight, outcome: Outcome) -> None:
        """Remember an event that failed while the receiver is to blame; or the one of its key that is taken back."""
        if outcome.kind is OutcomeKind.UNREACHABLE:
            return
        if flight.replay is not None:
            self.suspect_replays.add(flight.replay.id)
            return
        refused = self.refused.get(flight.record_id)
        self.suspects[flight.record_id] = refused[0].sequence if refused else flight.event.sequence
        if outcome.retry_after is not None:
            self._delayed[flight.record_id] = flight.event.sequence

    def clear(self, record_id: RecordId) -> None:
        self.suspects.pop(record_id, None)
        self._delayed.pop(record_id, None)

    def confirm_refusals(self, since: datetime, is_in_flight: Callable[[RecordId], bool]) -> None:
        """Make the refusals final that came before a successful attempt began.

        Those of a key in flight wait: the outcome of its next event tells more.
        """
        if self.breaker.is_open:  # the attempt began before it opened
            return
        for record_id in [record_id for record_id in self.refused if not is_in_flight(record_id)]:
            self.refused[record_id] = [letter for letter in self.refused[record_id] if letter.died_at > since]
            if not self.refused[record_id]:
                del self.refused[record_id]
