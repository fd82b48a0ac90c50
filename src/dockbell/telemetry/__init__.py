"""A fact, told once: agents and adapters emit it, the log (and whoever else listens) hears it.

A fact is a frozen dataclass whose ``str()`` is its line in the log and whose fields are the structured form of it.
Nothing secret may enter a fact.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from dockbell.core.model import Delivery, Feed, Outcome, RunKind, Statement, StatementKind, Urgency


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened and that somebody may want to know."""

    @property
    def level(self) -> int:
        """How much it matters, on the scale of :mod:`logging`."""
        return self.weight

    weight: ClassVar[int] = logging.INFO


@dataclass(frozen=True, slots=True)
class RequestSent(Fact):
    """The API answered one request (or did not: ``status`` is then None)."""

    weight: ClassVar[int] = logging.DEBUG
    source: str
    urgency: Urgency
    path: str
    status: int | None
    round_trip: timedelta
    remaining: int | None
    method: str = "GET"

    def __str__(self) -> str:
        """Return the log line."""
        answer = "no answer" if self.status is None else f"HTTP {self.status}"
        return f"{self.source}: {self.method} {self.path}: {answer} in {self.round_trip.total_seconds():.3f} s"


@dataclass(frozen=True, slots=True)
class SourceWaits(Fact):
    """A request failed and will be tried again."""

    weight: ClassVar[int] = logging.WARNING
    source: str
    reason: str
    delay: timedelta

    def __str__(self) -> str:
        """Return the log line."""
        return f"source {self.source}: {self.reason}; asking again in {self.delay.total_seconds():.1f} s"


@dataclass(frozen=True, slots=True)
class RunEnded(Fact):
    """A poll or a pass ended; ``problem`` is empty when it read everything."""

    feed: Feed
    kind: RunKind
    pages: int
    records: int
    events: int
    elapsed: timedelta
    problem: str = ""

    @property
    def level(self) -> int:
        """Return less for a poll that went well: there are thousands a day."""
        if self.problem:
            return logging.WARNING
        return logging.INFO if self.kind is RunKind.PASS else logging.DEBUG

    def __str__(self) -> str:
        """Return the log line."""
        state = f"incomplete, {self.problem}" if self.problem else "complete"
        return (
            f"{self.feed}: {self.kind} {state}: {_count(self.pages, 'page')}, {_count(self.records, 'record')}, "
            f"{_count(self.events, 'event')} in {self.elapsed.total_seconds():.1f} s"
        )


@dataclass(frozen=True, slots=True)
class FeedFails(Fact):
    """A feed cannot be read; it goes on trying, the others are not concerned."""

    weight: ClassVar[int] = logging.ERROR
    feed: Feed
    reason: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"{self.feed}: {self.reason}"


@dataclass(frozen=True, slots=True)
class FeedMended(Fact):
    """A feed that could not be read can be read again."""

    feed: Feed

    def __str__(self) -> str:
        """Return the log line."""
        return f"{self.feed}: can be read again"


@dataclass(frozen=True, slots=True)
class Stated(Fact):
    """Something was stated about a feed."""

    statement: Statement

    @property
    def level(self) -> int:
        """Return more for what somebody should look at."""
        return _WEIGHTS.get(self.statement.kind, logging.INFO)

    def __str__(self) -> str:
        """Return the log line."""
        details = ", ".join(f"{name} {value}" for name, value in self.statement.details.items() if value is not None)
        return f"{self.statement.feed}: {self.statement.kind}: {details}"


_WEIGHTS: Mapping[str, int] = {
    StatementKind.RECONCILED: logging.INFO,
    StatementKind.GAP: logging.WARNING,
    StatementKind.REBASELINED: logging.WARNING,
    StatementKind.HELD: logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class HabitChanged(Fact):
    """The API behaves otherwise than it did."""

    weight: ClassVar[int] = logging.WARNING
    feed: Feed
    words: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"{self.feed}: the API behaves differently: {self.words}"


@dataclass(frozen=True, slots=True)
class LookbackNarrow(Fact):
    """Records become visible nearly later than polls look back."""

    weight: ClassVar[int] = logging.WARNING
    feed: Feed
    lookback: timedelta
    lateness: timedelta

    def __str__(self) -> str:
        """Return the log line."""
        return (
            f"{self.feed}: records become visible up to {self.lateness.total_seconds():.0f} s after their timestamps,"
            f" polls look back {self.lookback.total_seconds():.0f} s; raise lookback, or leave it out"
        )


@dataclass(frozen=True, slots=True)
class NamedEventUnanswered(Fact):
    """The condition of a named event was neither true nor false of some changes, so that it did not follow them."""

    feed: Feed
    name: str
    answer: str
    count: int
    is_first: bool = False

    @property
    def level(self) -> int:
        """Return enough to be seen for the first of its kind: it may be a slip in the condition."""
        return logging.WARNING if self.is_first else logging.DEBUG

    def __str__(self) -> str:
        """Return the log line."""
        return f"{self.feed}: named event {self.name}: {self.answer}, for {_count(self.count, 'change')}"


@dataclass(frozen=True, slots=True)
class WishFulfilled(Fact):
    """What an operator asked for was done, or could not be."""

    feed: Feed
    wish: str
    outcome: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"{self.feed}: {self.wish}: {self.outcome}"


@dataclass(frozen=True, slots=True)
class DeliverySettled(Fact):
    """An attempt to deliver an event came to an end."""

    weight: ClassVar[int] = logging.DEBUG
    sink: str
    delivery: Delivery
    outcome: Outcome

    def __str__(self) -> str:
        """Return the log line."""
        event = self.delivery.event
        reason = f" ({self.outcome.reason})" if self.outcome.reason else ""
        return (
            f"sink {self.sink}: {event.type} {event.key} #{event.sequence}, attempt {self.delivery.attempt}: "
            f"{self.outcome.fate}{reason}"
        )


@dataclass(frozen=True, slots=True)
class EventDied(Fact):
    """An event became a dead letter."""

    weight: ClassVar[int] = logging.ERROR
    sink: str
    feed: Feed
    key: str
    sequence: int
    reason: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"sink {self.sink}: {self.feed} {self.key} #{self.sequence} is a dead letter: {self.reason}"


@dataclass(frozen=True, slots=True)
class EventsTakenBack(Fact):
    """Dead letters are owed again: the receiver refuses whatever it is offered."""

    weight: ClassVar[int] = logging.WARNING
    sink: str
    count: int

    def __str__(self) -> str:
        """Return the log line."""
        return f"sink {self.sink}: {_count(self.count, 'dead letter')} taken back: it refuses whatever it is offered"


@dataclass(frozen=True, slots=True)
class SinkLeft(Fact):
    """A sink that was owed events is no longer configured."""

    weight: ClassVar[int] = logging.WARNING
    sink: str
    owed: int

    def __str__(self) -> str:
        """Return the log line."""
        return (
            f"sink {self.sink}: is no longer configured; {_count(self.owed, 'event')} that it had not taken are kept"
            " for keep_events only; under its old name it would go on with them"
        )


@dataclass(frozen=True, slots=True)
class LettersForgotten(Fact):
    """Dead letters that no operator has looked after are deleted; what was held behind them goes on."""

    weight: ClassVar[int] = logging.WARNING
    sink: str
    count: int

    def __str__(self) -> str:
        """Return the log line."""
        return f"sink {self.sink}: {_count(self.count, 'dead letter')} older than max_owed, deleted"


@dataclass(frozen=True, slots=True)
class FilterUnanswered(Fact):
    """A sink's condition was neither true nor false of some events: they were held back, or are dead letters."""

    weight: ClassVar[int] = logging.DEBUG
    sink: str
    answer: str
    count: int

    def __str__(self) -> str:
        """Return the log line."""
        return f"sink {self.sink}: where {self.answer}, for {_count(self.count, 'event')}"


@dataclass(frozen=True, slots=True)
class SinkPaused(Fact):
    """A sink takes nothing until an operator resumes it; what it is owed is kept."""

    weight: ClassVar[int] = logging.WARNING
    sink: str
    reason: str

    def __str__(self) -> str:
        """Return the log line."""
        return f'sink {self.sink}: paused, {self.reason}; "dockbell resume {self.sink}" lets it go on'


@dataclass(frozen=True, slots=True)
class SinkResumed(Fact):
    """An operator let a sink go on."""

    sink: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"sink {self.sink}: resumed"


@dataclass(frozen=True, slots=True)
class SinkOverrun(Fact):
    """A sink lost events that it was owed for too long; it will be told of the stored records instead."""

    weight: ClassVar[int] = logging.ERROR
    sink: str
    feed: Feed
    lost_since: datetime | None

    def __str__(self) -> str:
        """Return the log line."""
        since = "" if self.lost_since is None else f" recorded since {self.lost_since:%Y-%m-%d %H:%M:%S}"
        return f"sink {self.sink}: overrun: has lost the events of {self.feed}{since}; begins again with what is stored"


@dataclass(frozen=True, slots=True)
class AgentFails(Fact):
    """An agent met an error that nobody foresaw; it begins again."""

    weight: ClassVar[int] = logging.ERROR
    agent: str
    error: BaseException

    def __str__(self) -> str:
        """Return the log line."""
        error = self.error
        while isinstance(error, BaseExceptionGroup):  # of several the first: it ended the others
            error = error.exceptions[0]
        return f"{self.agent}: {type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class SinkConnected(Fact):
    """A sink reached its receiver."""

    sink: str
    detail: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"sink {self.sink}: connected, {self.detail}"


@dataclass(frozen=True, slots=True)
class StateRepaired(Fact):
    """A sink brought the states at its receiver up to what is stored, or can do so only in part."""

    sink: str
    detail: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"sink {self.sink}: state, {self.detail}"


@dataclass(frozen=True, slots=True)
class SinkOmits(Fact):
    """A sink publishes nothing to a topic, because the receiver does not take it; deliveries go on."""

    weight: ClassVar[int] = logging.WARNING
    sink: str
    topic: str
    reason: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"sink {self.sink}: leaves out {self.topic}, {self.reason}"


@dataclass(frozen=True, slots=True)
class SinkFails(Fact):
    """A sink cannot reach its receiver, or is refused by it; it goes on trying."""

    weight: ClassVar[int] = logging.WARNING
    sink: str
    reason: str
    delay: timedelta

    def __str__(self) -> str:
        """Return the log line."""
        return f"sink {self.sink}: {self.reason}; trying again in {self.delay.total_seconds():.1f} s"


@dataclass(frozen=True, slots=True)
class Started(Fact):
    """The daemon runs."""

    name: str
    feeds: int
    sinks: tuple[str, ...]

    def __str__(self) -> str:
        """Return the log line."""
        return f"dockbell {self.name} runs: {self.feeds} feeds, sinks {', '.join(self.sinks) or 'none'}"


@dataclass(frozen=True, slots=True)
class Stopping(Fact):
    """The daemon was told to stop."""

    def __str__(self) -> str:
        """Return the log line."""
        return "stopping: delivering what is in flight"


class Telemetry:
    """Tells each fact to every listener, in the caller's own thread and at once."""

    def __init__(self, *listeners: Callable[[Fact], None]) -> None:
        self._listeners = list(listeners)

    def listen(self, listener: Callable[[Fact], None]) -> None:
        """Add a listener; it must return quickly and must not raise."""
        self._listeners.append(listener)

    def emit(self, fact: Fact) -> None:
        """Tell a fact."""
        for listener in self._listeners:
            listener(fact)
