"""What is told of delivering: of sinks, and of the events that they are owed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from dockbell.config import Answer
from dockbell.core.model import Delivery, Feed, Outcome
from dockbell.telemetry.facts import Fact


@dataclass(frozen=True, slots=True)
class DeliverySettled(Fact):
    """An attempt to deliver an event came to an end.

    Attributes:
        sink: Whose.
        delivery: What was sent.
        outcome: What came of it.
        waited: For how long the event had been stored; None where that is unknown, and for replays.
        age: How long before its change was made, as the record says; None where it does not say, and for replays.
    """

    weight = logging.DEBUG
    sink: str
    delivery: Delivery
    outcome: Outcome
    waited: timedelta | None = None
    age: timedelta | None = None

    def __str__(self) -> str:
        event = self.delivery.event
        reason = f" ({self.outcome.reason})" if self.outcome.reason else ""
        return (
            f"sink {self.sink}: {event.type} {event.key} #{event.sequence}, attempt {self.delivery.attempt}: "
            f"{self.outcome.kind}{reason}"
        )


@dataclass(frozen=True, slots=True)
class EventDied(Fact):
    """An event became a dead letter."""

    weight = logging.ERROR
    sink: str
    feed: Feed
    key: str
    sequence: int
    reason: str

    line = "sink {sink}: {feed} {key} #{sequence} is a dead letter: {reason}"


@dataclass(frozen=True, slots=True)
class EventsTakenBack(Fact):
    """Dead letters are owed again: the receiver refuses whatever it is offered."""

    weight = logging.WARNING
    sink: str
    count: int

    line = "sink {sink}: {count:# dead letter} taken back: it refuses whatever it is offered"


@dataclass(frozen=True, slots=True)
class SinkLeft(Fact):
    """A sink that was owed events is no longer configured."""

    weight = logging.WARNING
    sink: str
    owed: int

    line = (
        "sink {sink}: is no longer configured; {owed:# event} that it had not taken are kept for keep_events only;"
        " under its old name it would go on with them"
    )


@dataclass(frozen=True, slots=True)
class LettersForgotten(Fact):
    """Dead letters that no operator has looked after are deleted; what was held behind them goes on."""

    weight = logging.WARNING
    sink: str
    count: int

    line = "sink {sink}: {count:# dead letter} older than max_owed, deleted"


@dataclass(frozen=True, slots=True)
class EventsSifted(Fact):
    """A sink's filters have looked at events of a feed's records: so many they let through, so many they hold back."""

    weight = logging.DEBUG
    sink: str
    feed: Feed
    passed: int
    held_back: int

    line = "sink {sink}: {feed}: {passed:# event} let through, {held_back} held back"


@dataclass(frozen=True, slots=True)
class FilterUnanswered(Fact):
    """A sink's condition was neither true nor false of some events.

    They were held back, or are dead letters; or, where it took too long to judge, they were let through.
    """

    sink: str
    answer: str
    count: int
    is_first: bool = False

    @property
    def level(self) -> int:
        """Return enough to be seen for the first of what is let through unjudged."""
        return logging.WARNING if self.is_first and self.answer == Answer.COSTLY else logging.DEBUG

    line = "sink {sink}: where {answer}, for {count:# event}"


@dataclass(frozen=True, slots=True)
class SinkPaused(Fact):
    """A sink takes nothing until an operator resumes it; what it is owed is kept."""

    weight = logging.WARNING
    sink: str
    reason: str

    line = 'sink {sink}: paused, {reason}; "dockbell resume {sink}" lets it go on'


@dataclass(frozen=True, slots=True)
class SinkResumed(Fact):
    """An operator let a sink go on."""

    sink: str

    line = "sink {sink}: resumed"


@dataclass(frozen=True, slots=True)
class SinkOverrun(Fact):
    """A sink lost events that it was owed for too long; it will be told of the stored records instead."""

    weight = logging.ERROR
    sink: str
    feed: Feed
    lost_since: datetime | None

    def __str__(self) -> str:
        since = "" if self.lost_since is None else f" recorded since {self.lost_since:%Y-%m-%d %H:%M:%S}"
        return f"sink {self.sink}: overrun: has lost the events of {self.feed}{since}; begins again with what is stored"


@dataclass(frozen=True, slots=True)
class SinkConnected(Fact):
    """A sink reached its receiver."""

    sink: str
    detail: str

    line = "sink {sink}: connected, {detail}"


@dataclass(frozen=True, slots=True)
class StateRepaired(Fact):
    """A sink brought the states at its receiver up to what is stored, or can do so only in part."""

    sink: str
    detail: str

    line = "sink {sink}: state, {detail}"


@dataclass(frozen=True, slots=True)
class SinkOmits(Fact):
    """A sink publishes nothing to a topic, because the receiver does not take it; deliveries go on."""

    weight = logging.WARNING
    sink: str
    topic: str
    reason: str

    line = "sink {sink}: leaves out {topic}, {reason}"


@dataclass(frozen=True, slots=True)
class SinkFails(Fact):
    """A sink cannot reach its receiver, or is refused by it; it goes on trying."""

    weight = logging.WARNING
    sink: str
    reason: str
    delay: timedelta

    line = "sink {sink}: {reason}; trying again in {delay:.1f} s"
