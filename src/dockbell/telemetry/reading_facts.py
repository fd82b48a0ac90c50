"""What happened to sources, feeds and their runs."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from dockbell.core.counting import count_of
from dockbell.core.model import RESOURCES, ChangeKind, Feed, RunKind, Statement, StatementKind, Urgency
from dockbell.core.publishing.statement import describe_gap
from dockbell.errors import NOT_SENT, drop_subject
from dockbell.ports import Tally
from dockbell.telemetry.facts import Fact, describe_retry

_NOTABLE: Final = timedelta(seconds=10)
"""A pass that takes so long is logged, whatever it finds."""


class RequestSent(Fact, frozen=True):
    """The API answered one request (or did not: ``status`` is then None).

    ``remaining`` of ``limit`` requests are left to all users of the key until its window ends, in ``resets_in``; None
    where the answer did not say so.
    """

    weight = logging.DEBUG
    source: str
    urgency: Urgency
    path: str
    status: int | None
    round_trip: timedelta
    remaining: int | None
    method: str = "GET"
    limit: int | None = None
    resets_in: timedelta | None = None

    def __str__(self) -> str:
        answer = "no answer" if self.status is None else f"HTTP {self.status}"
        return f"{self.source}: {self.method} {self.path}: {answer} in {self.round_trip.total_seconds():.3f} s"


class SourceWaits(Fact, frozen=True):
    weight = logging.WARNING
    source: str
    reason: str
    delay: timedelta

    @property
    def sameness(self) -> Hashable:
        return self.source, drop_subject(self.reason)

    def __str__(self) -> str:
        return f"source {self.source}: {self.reason}; {describe_retry(self.delay)}"


class SourceFails(Fact, frozen=True):
    """Several requests in a row were not answered: single ones probe from now on, and all others wait."""

    weight = logging.WARNING
    line = "source {source}: all requests fail, the last: {reason}; probing with one request at a time until it answers"
    source: str
    reason: str


class SourceAnswers(Fact, frozen=True):
    """A source answers again that had failed; what waited is asked for at once."""

    line = "source {source}: answers again after {after:.0f} s"
    source: str
    after: timedelta


class PageRead(Fact, frozen=True):
    """A run read and committed one more page; the numbers count since it began, for a pass also before a crash."""

    weight = logging.DEBUG
    line = "{feed}: {kind}: {pages:# page}, {records:# record} so far"
    feed: Feed
    kind: RunKind
    began_at: datetime
    pages: int
    records: int
    events: int


class RunEnded(Fact, frozen=True):
    """A poll or a pass ended; ``problem`` is empty when it read everything.

    ``asked_at`` is S of its first request, None where none was answered, and ``sent_at`` the same by our clock.
    ``late``: it asked later than its schedule says, or was not answered; None where no schedule says anything.
    ``is_first``: it is of a baseline. What a pass did not show is judged after this.
    """

    feed: Feed
    kind: RunKind
    pages: int
    records: int
    events: int
    elapsed: timedelta
    problem: str = ""
    asked_at: datetime | None = None
    late: bool | None = None
    tally: Tally = msgspec.field(default_factory=Tally)
    sent_at: datetime | None = None
    is_first: bool = False

    @property
    def level(self) -> int:
        """Less for a poll that went well, and for a short pass that found nothing of a list that is read often."""
        if self.problem:
            return logging.WARNING
        is_rare = self.is_first or RESOURCES[self.feed.resource].polled
        is_notable = is_rare or self.events > 0 or self.elapsed >= _NOTABLE
        return logging.INFO if self.kind is RunKind.PASS and is_notable else logging.DEBUG

    @property
    def sameness(self) -> Hashable:
        """What was not sent fails by one cause, whichever feed of the source it was for."""
        if not self.problem:
            return None
        subject = self.feed.source if self.problem.startswith(NOT_SENT) else self.feed
        return subject, drop_subject(self.problem)

    def __str__(self) -> str:
        if self.problem and not self.pages:
            return f"{self.feed}: {self.kind} failed: {self.problem}"
        state = f"incomplete, {self.problem}" if self.problem else "complete"
        return (
            f"{self.feed}: {self.kind} {state}: {count_of(self.pages, 'page')}, {count_of(self.records, 'record')}, "
            f"{count_of(self.events, 'event')} in {self.elapsed.total_seconds():.1f} s"
        )


class ChangesStored(Fact, frozen=True):
    """Changes of a feed were stored together, and their events with them."""

    weight = logging.DEBUG
    feed: Feed
    kinds: Mapping[ChangeKind, int]  # how many there are of each kind
    ages: tuple[timedelta, ...] = ()
    """How long they had been visible in the API when an answer showed them, of those whose delay is measured."""
    took: timedelta = timedelta(0)  # from that answer until they were stored

    def __str__(self) -> str:
        return f"{self.feed}: stored " + ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())


class FeedFails(Fact, frozen=True):
    """A feed cannot be read; it goes on trying, the others are not concerned."""

    weight = logging.ERROR
    feed: Feed
    reason: str
    delay: timedelta | None = None

    @property
    def sameness(self) -> Hashable:
        """A key that is rejected stops all feeds of its source, each with a request of its own."""
        return self.feed.source, drop_subject(self.reason)

    def __str__(self) -> str:
        again = "" if self.delay is None else f"; {describe_retry(self.delay)}"
        return f"{self.feed}: {self.reason}{again}"


class FeedMended(Fact, frozen=True):
    line = "{feed}: can be read again"
    feed: Feed


class Stated(Fact, frozen=True):
    statement: Statement

    @property
    def level(self) -> int:
        details = self.statement.details
        if self.statement.kind is StatementKind.RECONCILED:
            is_notable = any(details[name] for name in ("missed", "held", "quarantined"))
            return logging.INFO if is_notable else logging.DEBUG
        return _WEIGHTS.get(self.statement.kind, logging.INFO)

    def __str__(self) -> str:
        said, details = self.statement, self.statement.details
        if said.kind is StatementKind.GAP:
            return f"{said.feed}: {describe_gap(details)}"
        values = ", ".join(f"{name} {value}" for name, value in details.items() if value is not None)
        return f"{said.feed}: {said.kind}: {values}"


_WEIGHTS: Mapping[str, int] = {
    StatementKind.GAP: logging.WARNING,
    StatementKind.REBASELINED: logging.WARNING,
    StatementKind.HELD: logging.ERROR,
}


class FeedCleaned(Fact, frozen=True):
    """What must not be stored any more was taken out of what was stored; ``problem``: why traces of it may be left."""

    feed: Feed
    places: tuple[str, ...]
    records: int
    events: int
    problem: str = ""

    @property
    def level(self) -> int:
        return logging.WARNING if self.problem else logging.INFO

    def __str__(self) -> str:
        found = f"{count_of(self.records, 'record')} and {count_of(self.events, 'event')}"
        problem = f', but {self.problem}; the next pass or "dockbell once" tries again' if self.problem else ""
        return f"{self.feed}: {', '.join(self.places)} dropped from {found}{problem}"


class ListingChanged(Fact, frozen=True):
    weight = logging.WARNING
    line = "{feed}: the API behaves differently: {words}"
    feed: Feed
    words: str


class StoreWrittenAside(Fact, frozen=True):
    """A record is not stored as this process stored it: each page is compared in full from now on."""

    weight = logging.WARNING
    line = "{feed}: another program has changed records in the store; let only dockbell write to it"
    feed: Feed


class SignalTold(Fact, frozen=True):
    """Another feed's polls are a signal for a feed from now on, or no longer."""

    weight = logging.INFO
    line = "{feed}: {words}"
    feed: Feed
    words: str


class IntervalPlanned(Fact, frozen=True):
    """The planner reads a feed at another interval than it told of last; ``reason`` says why it is this one."""

    weight = logging.INFO
    line = "{feed}: read every {interval:.3g} s, {reason}; that is {requests_per_minute:.1f} requests a minute"
    feed: Feed
    interval: timedelta
    reason: str
    requests_per_minute: float


class LookbackNarrow(Fact, frozen=True):
    weight = logging.WARNING
    line = (
        "{feed}: records become visible up to {lateness:.0f} s after their timestamps, but polls look back"
        " {lookback:.0f} s; raise lookback, or remove it"
    )
    feed: Feed
    lookback: timedelta
    lateness: timedelta


class NamedEventUnanswered(Fact, frozen=True):
    """The condition of a named event was neither true nor false of some changes.

    It did not follow them; or, where its condition took too long to judge, it did.
    """

    line = "{feed}: named event {name}: {answer}, for {count:# change}"
    feed: Feed
    name: str
    answer: str
    count: int
    is_first: bool = False

    @property
    def level(self) -> int:
        """Enough to be seen for the first of its kind: it may be a slip in the condition."""
        return logging.WARNING if self.is_first else logging.DEBUG
