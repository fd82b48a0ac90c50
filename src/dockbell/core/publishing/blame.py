"""Whether a failed delivery speaks against its event or against the receiver.

It speaks against the event while the receiver takes others: an event that it refuses is a dead letter at once. Where
several attempts in a row fail or are refused, of more than one event, the receiver is to blame: the breaker opens, or
the receiver recovers before that. Either way the delivery queue takes the dead letters of that streak back and does not
count its attempts. The events of the streak are *suspects* from then on: one that fails again is to blame itself, and
does not speak against the receiver any more.

In the same way the whole sink waits when the receiver answers an event for the first time with Retry-After. If it has
taken others since and answers the same event so again, only this event waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.core.publishing.flights import Flight
from dockbell.core.publishing.retry import Breaker, count_events
from dockbell.core.publishing.settlement import DeadLetter, Place

_EVER: Final = datetime.min.replace(tzinfo=UTC)


class Verdict(Enum):
    """What an outcome means for its event."""

    SETTLED = auto()
    RETRY = auto()  # the attempt counts
    WAIT = auto()  # the receiver takes nothing: the attempt does not count
    REFUSED = auto()  # a dead letter, taken back should the receiver turn out to be to blame
    DEAD = auto()


@dataclass(slots=True)
class Blame:
    """The failures of one sink, and whether each is its event's or the receiver's.

    Attributes:
        breaker: Whether the receiver is left alone.
    """

    breaker: Breaker = field(default_factory=Breaker)
    _refused: dict[Place, list[DeadLetter]] = field(default_factory=dict)
    """The dead letters since the receiver last took an event, which may be taken back."""
    _suspects: dict[Place, int] = field(default_factory=dict)
    """The sequences of events that failed while the receiver was to blame."""
    _delayed: dict[Place, int] = field(default_factory=dict)
    """The sequences of events for which the whole sink has waited, because of Retry-After."""
    _suspect_replays: set[int] = field(default_factory=set)
    """The ids of replays that failed while the receiver was to blame, or again after that."""
    _taken_at: datetime | None = None
    """When the receiver last took an event."""

    def inherit(self) -> Blame:
        """Return the blame for the next queue of the same receiver."""
        return replace(self, _taken_at=None)

    def reset(self) -> None:
        """Forget all failures, but not the refusals."""
        self.breaker.reset()
        self._suspects.clear()
        self._delayed.clear()
        self._suspect_replays.clear()

    # Outcomes -------------------------------------------------------------------------------------------------------

    def judge(self, flight: Flight, outcome: Outcome, now: datetime) -> tuple[Verdict, Sequence[Place]]:
        """Return what an outcome means for its event, and the keys whose failures turn out to be the receiver's."""
        if outcome.kind is OutcomeKind.DELIVERED:
            return Verdict.SETTLED, self._note_success(flight, now)
        is_repeated = self._take_suspicion(flight, outcome)
        match outcome.kind:
            case OutcomeKind.UNFIT:
                return Verdict.DEAD, ()
            case OutcomeKind.CLOSED:
                return Verdict.WAIT, ()
            case _:
                return self._judge_failure(flight, outcome, now, is_repeated=is_repeated)

    def _take_suspicion(self, flight: Flight, outcome: Outcome) -> bool:
        """Return whether an event has failed so before, while the receiver was to blame; forget a final answer."""
        if flight.replay is not None:
            is_suspect = flight.replay.id in self._suspect_replays
            self._suspect_replays.discard(flight.replay.id)
            return is_suspect
        earlier = self._suspects if outcome.retry_after is None else self._delayed
        is_suspect = earlier.get(flight.place) == flight.event.sequence
        if outcome.kind is OutcomeKind.REFUSED and not self.breaker.is_open:
            self._suspects.pop(flight.place, None)
        return is_suspect

    def _note_success(self, flight: Flight, now: datetime) -> Sequence[Place]:
        """Note that the receiver took an event; return the keys whose failures were the receiver's.

        There are some if it took none of several events before this attempt began: then it was ill, and recovers. The
        success of a replay does not count: the operator who ordered it handles the dead letters.
        """
        since, taken_at = flight.since, self._taken_at or _EVER
        self._taken_at = now
        failed = [each for each in self.breaker.streak if taken_at < each.at <= since]
        is_recovery = flight.replay is None and not self.breaker.is_open and count_events(failed) > 1
        self.breaker.succeed(since)
        return [each.place for each in failed] if is_recovery else ()

    def _judge_failure(
        self, flight: Flight, outcome: Outcome, now: datetime, *, is_repeated: bool
    ) -> tuple[Verdict, Sequence[Place]]:
        speaks_for_itself = outcome.kind is not OutcomeKind.UNREACHABLE and not self.breaker.is_open
        is_own = speaks_for_itself and (is_repeated or outcome.is_own)
        opened = not is_own and self.breaker.fail(flight.event, outcome, now, flight.since)
        streak = [failure.place for failure in self.breaker.streak] if opened else ()
        if self.breaker.is_open:
            self._suspect(flight, outcome)
            return Verdict.WAIT, streak
        if is_own and flight.replay is not None:
            self._suspect_replays.add(flight.replay.id)
        if outcome.kind is OutcomeKind.FAILED:
            return Verdict.RETRY, streak
        return Verdict.DEAD if is_own or flight.replay is not None else Verdict.REFUSED, streak

    def _suspect(self, flight: Flight, outcome: Outcome) -> None:
        """Remember an event that failed while the receiver is to blame; or the one of its key that is taken back."""
        if outcome.kind is OutcomeKind.UNREACHABLE:
            return
        if flight.replay is not None:
            self._suspect_replays.add(flight.replay.id)
            return
        refused = self._refused.get(flight.place)
        self._suspects[flight.place] = refused[0].sequence if refused else flight.event.sequence
        if outcome.retry_after is not None:
            self._delayed[flight.place] = flight.event.sequence

    # Suspects -------------------------------------------------------------------------------------------------------

    @property
    def suspects(self) -> Mapping[Place, int]:
        """The sequences of events that failed while the receiver was to blame."""
        return self._suspects

    def suspect(self, place: Place, sequence: int) -> None:
        """Note an event whose failure turns out to be the receiver's."""
        self._suspects[place] = sequence

    def clear(self, place: Place) -> None:
        """Forget the failures of a key whose event is settled."""
        self._suspects.pop(place, None)
        self._delayed.pop(place, None)

    def clear_replay(self, replay_id: int) -> None:
        """Forget the failures of a replay that is settled."""
        self._suspect_replays.discard(replay_id)

    # Refusals -------------------------------------------------------------------------------------------------------

    @property
    def refused(self) -> Collection[Place]:
        """The keys with dead letters that may be taken back."""
        return self._refused

    def add_refusal(self, letter: DeadLetter) -> None:
        """Note a dead letter that may be taken back."""
        self._refused.setdefault((letter.feed, letter.key), []).append(letter)

    def pop_refusals(self, place: Place) -> Sequence[DeadLetter]:
        """Remove the dead letters of a key that may be taken back, and return them."""
        return self._refused.pop(place, [])

    def confirm_refusals(self, since: datetime, is_in_flight: Callable[[Place], bool]) -> None:
        """Make the refusals final that came before a successful attempt began.

        Those of a key in flight wait: the outcome of its next event tells more.
        """
        if self.breaker.is_open or not self._refused:  # open: the attempt began before it opened
            return
        for place in [place for place in self._refused if not is_in_flight(place)]:
            self._refused[place] = [letter for letter in self._refused[place] if letter.died_at > since]
            if not self._refused[place]:
                del self._refused[place]

    def forget_refusals(self) -> None:
        """Make all refusals final."""
        self._refused.clear()
