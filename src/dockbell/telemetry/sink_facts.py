"""What happened to sinks, and to the events that they are owed."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from datetime import datetime, timedelta

from dockbell.config import Answer
from dockbell.core.model import Delivery, Feed, Outcome
from dockbell.telemetry.facts import Fact, describe_retry


class DeliverySettled(Fact, frozen=True):
    weight = logging.DEBUG
    sink: str
    delivery: Delivery
    outcome: Outcome
    waited: timedelta | None = None
    """For how long the event had been stored; None where that is unknown, and for replays."""
    age: timedelta | None = None
    """For how long its change had been visible in the API; None where that is not measured, and for replays."""

    def __str__(self) -> str:
        event = self.delivery.event
        reason = f" ({self.outcome.reason})" if self.outcome.reason else ""
        return (
            f"sink {self.sink}: {event.type} {event.key} #{event.sequence}, attempt {self.delivery.attempt}: "
            f"{self.outcome.kind}{reason}"
        )


class EventDied(Fact, frozen=True):
    weight = logging.ERROR
    sink: str
    feed: Feed
    key: str
    sequence: int
    reason: str

    def __str__(self) -> str:
        key = f" {self.key}" if self.key else ""
        return f"sink {self.sink}: {self.feed}{key} #{self.sequence} is a dead letter: {self.reason}"


class EventsTakenBack(Fact, frozen=True):
    """Dead letters are owed again."""

    weight = logging.WARNING
    line = "sink {sink}: {count:# dead letter} owed again: its receiver refuses every event"
    sink: str
    count: int


class SinkLeft(Fact, frozen=True):
    weight = logging.WARNING
    line = (
        "sink {sink}: no longer configured; dockbell keeps {owed:# undelivered event} for keep_events only;"
        " a sink with the same name would continue with them"
    )
    sink: str
    owed: int


class LettersForgotten(Fact, frozen=True):
    """Dead letters that no operator has looked after are deleted; what was held behind them goes on."""

    weight = logging.WARNING
    line = "sink {sink}: deleted {count:# dead letter} older than max_owed"
    sink: str
    count: int


class EventsSifted(Fact, frozen=True):
    """A sink's filters have evaluated events of a feed's records."""

    weight = logging.DEBUG
    line = "sink {sink}: {feed}: {passed:# event} let through, {held_back} held back"
    sink: str
    feed: Feed
    passed: int
    held_back: int


class FilterUnanswered(Fact, frozen=True):
    """A sink's condition was neither true nor false of some events.

    They were held back, or are dead letters; or, where it took too long to judge, they were let through.
    """

    line = "sink {sink}: where {answer}, for {count:# event}"
    sink: str
    answer: str
    count: int
    is_first: bool = False

    @property
    def level(self) -> int:
        """Enough to be seen for the first of what is let through unjudged."""
        return logging.WARNING if self.is_first and self.answer == Answer.COSTLY else logging.DEBUG


class SinkPaused(Fact, frozen=True):
    weight = logging.WARNING
    line = 'sink {sink}: paused, {reason}; "dockbell resume {sink}" resumes delivery'
    sink: str
    reason: str


class SinkResumed(Fact, frozen=True):
    line = "sink {sink}: resumed"
    sink: str


class SinkOverrun(Fact, frozen=True):
    """A sink lost events that it was owed for too long; it will be told of the stored records instead."""

    weight = logging.ERROR
    sink: str
    feed: Feed
    lost_since: datetime | None

    def __str__(self) -> str:
        since = "" if self.lost_since is None else f" recorded since {self.lost_since:%Y-%m-%d %H:%M:%S}"
        return (
            f"sink {self.sink}: overrun: lost the events of {self.feed}{since}; it starts again with the stored records"
        )


class SinkConnected(Fact, frozen=True):
    line = "sink {sink}: connected, {detail}"
    sink: str
    detail: str


class StateRepaired(Fact, frozen=True):
    """A sink brought the states at its receiver up to what is stored, or can do so only in part."""

    line = "sink {sink}: state, {detail}"
    sink: str
    detail: str


class SinkOmits(Fact, frozen=True):
    """A sink publishes nothing to a topic, because the receiver does not take it; deliveries go on."""

    weight = logging.WARNING
    line = "sink {sink}: publishes nothing to {topic}, {reason}"
    sink: str
    topic: str
    reason: str


class SinkFails(Fact, frozen=True):
    """A sink cannot reach its receiver, or is refused by it."""

    weight = logging.WARNING
    sink: str
    reason: str
    delay: timedelta

    @property
    def sameness(self) -> Hashable:
        return self.sink, self.reason

    def __str__(self) -> str:
        return f"sink {self.sink}: {self.reason}; {describe_retry(self.delay)}"
