"""The witness: takes in what arrives and what the sandbox did, counts it, keeps the account, and shows it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio
import msgspec
from rich.text import Text

from dockbell.core.model import RESOURCES, ChangeKind, Outcome, OutcomeKind, RunKind, Statement, StatementKind
from dockbell.core.moment import parse_moment
from dockbell.core.publishing.statement import HoldReason
from dockbell.demo import lines
from dockbell.demo.account import Account, Balance, Run
from dockbell.demo.arrival import Arrival, Figures, Inbox, Pairing, Sighting
from dockbell.demo.lines import Screen
from dockbell.sandbox import LoggedChange
from dockbell.telemetry import DeliverySettled, Fact, PageRead, RequestSent, RunEnded, Started, Stated

_QUIET_FOR: Final = timedelta(minutes=1)


class Witness:
    """Everything that the demo knows; it alone writes lines.

    ``changes`` returns the sandbox's logged changes after a sequence; ``clock`` returns monotonic seconds.
    """

    def __init__(
        self,
        sinks: Sequence[str],
        changes: Callable[[int], Sequence[LoggedChange]],
        confirm_after: timedelta,
        screen: Screen,
        clock: Callable[[], float],
    ) -> None:
        self.figures = Figures(sinks)
        self.has_started = anyio.Event()  # the daemon
        self.has_begun = anyio.Event()  # the daemon has begun to read every resource
        self._asked: set[str] = set()
        self._changes = changes
        self._sequence = 0
        self._account = Account(confirm_after)
        self._held: set[str] = set()
        self._inbox = Inbox()
        self._pairing = Pairing(sinks)
        self._lines = lines.EventLines(sinks)
        self._screen = screen
        self._clock = clock
        self._statements: set[str] = set()
        self._told_at: dict[str, datetime] = {}
        self._last_arrival = clock()

    def is_calm(self, seconds: float) -> bool:
        """Return whether all receivers have the same events, and none has arrived for so many seconds."""
        return self._pairing.is_settled and self._clock() - self._last_arrival >= seconds

    def hear(self, fact: Fact) -> None:
        """Take in a fact of the daemon; a problem is shown."""
        match fact:
            case Started():
                self.has_started.set()
            case RequestSent():
                self.figures.requests.add(self._clock(), fact.status)
                if fact.status is not None:
                    self._asked.add(fact.path)
                if len(self._asked) == len(RESOURCES):
                    self.has_begun.set()
            case DeliverySettled(age=timedelta() as age, outcome=Outcome(kind=OutcomeKind.DELIVERED)):
                self.figures.add_measured(self._clock(), age.total_seconds())
            case PageRead(pages=1):
                self._account.note_answer(fact.feed.resource, datetime.now(UTC))
            case RunEnded(problem=""):
                self._note_run(fact)
            case Stated(Statement(feed=feed, kind=StatementKind.HELD, details={"reason": HoldReason.DELETIONS})):
                self._held.add(feed.resource)
        if fact.level >= logging.WARNING and not isinstance(fact, Stated):  # what is stated arrives as an event
            subject = getattr(fact, "feed", None) or getattr(fact, "sink", None) or getattr(fact, "source", None)
            self.warn(f"{type(fact).__name__} {subject}", str(fact), fact.level)

    def take(self, arrival: Arrival) -> None:
        """Take in what a receiver got.

        Statements about a feed count as no news of a record. Each is shown once, but not that a pass is complete: in
        the demo that comes every few seconds.
        """
        if arrival.is_statement:
            event = arrival.event
            if event["data"]["statement"] != StatementKind.RECONCILED and event["id"] not in self._statements:
                self._statements.add(event["id"])
                self._screen.show(self._lines.statement(arrival, self._screen.width))
            return
        if not self.figures.inboxes[arrival.sink].take(arrival):
            return
        self._last_arrival = self._clock()
        resource, key = arrival.place
        if self._inbox.take(arrival):
            data = arrival.event["data"]
            self.figures.events[resource, arrival.change] += 1
            self._account.note_event(resource, key, _parse(data["detected_at"]), data["after"])
        delay = self._delay(arrival.event, arrival.at)
        self.figures.add_delay(self._clock(), resource, delay, deletion=arrival.change == ChangeKind.DELETED)
        if sighting := self._pairing.add(arrival):
            self._show(sighting)

    def refuse(self, reason: str) -> None:
        """Take in that the receiver was sent a webhook that is not genuine."""
        self.figures.forged += 1
        self.warn(f"forged {reason}", f"receiver: refused a webhook, {reason}", logging.ERROR)

    def warn(self, topic: str, text: str, level: int = logging.WARNING) -> None:
        """Show a problem, each topic once a minute."""
        now = datetime.now(UTC)
        last = self._told_at.get(topic)
        if last is None or now - last >= _QUIET_FOR:
            self._told_at[topic] = now
            self._screen.show(lines.note(text, now, level))

    def show_heading(self) -> None:
        self._screen.show(Text(), self._lines.heading(self._screen.width))

    def tick(self) -> None:
        """Read the sandbox's log on, and show what has waited for a second receiver long enough."""
        self._read_log()
        for sighting in self._pairing.overdue(datetime.now(UTC)):
            self._show(sighting)

    def balance(self, until: datetime) -> Balance:
        """Return what became of every change; readings that ended after ``until`` prove no loss."""
        self._read_log()
        return self._account.close(until, self._held)

    def _note_run(self, fact: RunEnded) -> None:
        ended, is_pass = datetime.now(UTC), fact.kind is RunKind.PASS
        self._account.note_run(fact.feed.resource, Run(fact.sent_at or ended - fact.elapsed, ended, is_pass))
        if is_pass:
            self.figures.records[fact.feed.resource] = fact.records

    def _read_log(self) -> None:
        for change in self._changes(self._sequence):
            self._sequence = change.sequence
            before, after = (msgspec.json.decode(raw or b"null") for raw in (change.before, change.after))
            self._account.note_change(change.resource, change.identity, change.at, before, after)

    def _show(self, sighting: Sighting) -> None:
        delay = self._delay(sighting.event, sighting.complete_at)
        self._screen.show(self._lines.event(sighting, delay, self._screen.width))

    def _delay(self, event: dict[str, dict[str, str]], at: datetime) -> float:
        """Return the seconds from the change to an arrival.

        A change is dated by the record's own timestamp. A deleted record has none that says when: there the sandbox's
        log does.
        """
        data = event["data"]
        made_at = parse_moment(data["modified_at"])
        if made_at is None:
            self._read_log()
            made_at = self._account.deleted_at(data["resource"], data["key"]) or _parse(data["detected_at"])
        return (at - made_at).total_seconds()


def _parse(text: str) -> datetime:
    moment = parse_moment(text)
    assert moment is not None
    return moment
