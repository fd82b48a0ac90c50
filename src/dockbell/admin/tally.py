"""What one run over all feeds and sinks came to, counted from the facts that it told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dockbell.core.model import Feed, OutcomeKind
from dockbell.telemetry import DeliverySettled, EventDied, Fact, FeedFails, RunEnded, SinkFails


@dataclass(slots=True)
class FeedTally:
    """What was read of one feed."""

    runs: list[str] = field(default_factory=list)
    pages: int = 0
    records: int = 0
    events: int = 0
    problem: str = ""


@dataclass(slots=True)
class SinkTally:
    """What was delivered to one sink."""

    delivered: int = 0
    failed: int = 0
    dead: int = 0
    problem: str = ""


class Tally:
    """Counts what it hears, feed by feed and sink by sink; a listener of :class:`dockbell.telemetry.Telemetry`."""

    def __init__(self, feeds: Iterable[Feed], sinks: Iterable[str]) -> None:
        self.feeds = {feed: FeedTally() for feed in feeds}
        self.sinks = {name: SinkTally() for name in sinks}

    def hear(self, fact: Fact) -> None:
        """Count a fact."""
        match fact:
            case RunEnded():
                feed = self.feeds[fact.feed]
                feed.runs.append(fact.kind)
                feed.pages += fact.pages
                feed.records += fact.records
                feed.events += fact.events
                feed.problem = fact.problem or feed.problem
            case FeedFails():
                self.feeds[fact.feed].problem = fact.reason
            case DeliverySettled():
                sink = self.sinks[fact.sink]
                if fact.outcome.kind is OutcomeKind.DELIVERED:
                    sink.delivered += 1
                else:
                    sink.failed += 1
                    sink.problem = fact.outcome.reason
            case SinkFails():
                self.sinks[fact.sink].problem = fact.reason
            case EventDied():
                self.sinks[fact.sink].dead += 1
