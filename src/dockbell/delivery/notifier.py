"""Publishes operational alerts on the ``notices`` feed, which a sink takes with ``resources = ["notices"]``.

It also stores the condition of each receiver, where other processes can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import anyio

from dockbell.admin.reasons import PASSES_BLIND, PASSES_FAILED, PASSES_FAILING
from dockbell.core.model import JSON, NOTICES, Feed, NoticeKind, OutcomeKind, RunKind, Statement, StatementKind
from dockbell.core.planning.forecast import in_words
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.statement import notice_key
from dockbell.ports import Bell, Condition, Found, Store
from dockbell.telemetry import (
    Crowded,
    DeliverySettled,
    DiskFills,
    DiskHasRoom,
    EventDied,
    Fact,
    FeedFails,
    FeedMended,
    ProcessDied,
    RunEnded,
    SinkConnected,
    SinkFails,
    SinkOverrun,
    SinkPaused,
    SinkResumed,
    SourceAnswers,
    SourceFails,
    SourcesClaimed,
    Stated,
    Telemetry,
)

_QUIET: Final = timedelta(minutes=1)
"""Repeated alerts of one kind about the same thing within this time are counted in one notice."""
_SOURCE_DOWN: Final = timedelta(minutes=1)
"""An outage of an API that is over sooner is no alert."""


class _Alert(NamedTuple):
    """What is alerted: its kind, and what it is about."""

    kind: NoticeKind
    subject: str  # ``sink``, ``feed``, ``source``, ``process``, ``store`` or ``server``
    name: str


@dataclass(slots=True)
class _News:
    """What is not published yet of one alert, or of its end."""

    due: datetime
    reason: str = ""
    count: int = 0
    is_new: bool = True  # nothing of it was published yet


class Notifier:
    """Listens to facts, and publishes those that an operator should know as notices."""

    def __init__(self, store: Store, telemetry: Telemetry, *, name: str, now: Callable[[], datetime]) -> None:
        self._health = store.health
        self._feed_store = store.feed(NOTICES)
        self._telemetry = telemetry
        self._now = now
        self._compose = Composer(NOTICES, name=name, singular="notice", epoch=store.epoch)
        self._news: dict[tuple[_Alert, bool], _News] = {}  # of alerts, and whether it is their end
        self._down: set[_Alert] = set()
        self._passes: dict[Feed, tuple[int, datetime]] = {}  # how many failed in a row, and since when
        self._blind: set[Feed] = set()  # feeds whose failing passes are published
        self._found: dict[str, Found] = {}
        self._unsaved: set[str] = set()
        self._bell = Bell()

    async def open(self) -> None:
        """Create the ``notices`` feed if it does not exist, and begin to listen."""
        await self._feed_store.open()
        self._telemetry.listen(self.hear)

    def expect(self, sink: str) -> None:
        """Note that the condition of a sink's receiver is not known yet."""
        self._note_condition(sink, Condition.UNKNOWN)

    def forget(self, feeds: Collection[Feed], sinks: Iterable[str], sources: Iterable[str]) -> None:
        """Forget the alerts about feeds and sinks that were removed, and end those about sources that were ended."""
        gone = {("feed", str(feed)) for feed in feeds} | {("sink", sink) for sink in sinks}
        self._down = {alert for alert in self._down if alert[1:] not in gone}
        for source in sources:
            self._note_up(NoticeKind.UNREACHABLE, "source", source, "is no longer read, or was reconfigured")
        self._blind -= {*feeds}
        self._found = {sink: found for sink, found in self._found.items() if ("sink", sink) not in gone}

    async def run(self) -> None:
        while True:
            rings = self._bell.rings
            try:
                wake_at = await self.run_once()
            except Exception as error:  # noqa: BLE001  # the facts are in the log
                self._telemetry.emit_failure("notifier", error)
                wake_at = self._now() + _QUIET
            with anyio.move_on_after(None if wake_at is None else max(0.0, (wake_at - self._now()).total_seconds())):
                await self._bell.wait(rings)

    async def finish(self) -> None:
        """Publish all waiting notices at once: no more facts will come."""
        self._news = {each: news for each, news in self._news.items() if not self._is_early(news)}
        for news in self._news.values():
            news.due = self._now()
        try:
            await self.run_once()
        except Exception as error:  # noqa: BLE001  # the facts are in the log
            self._telemetry.emit_failure("notifier", error)

    async def run_once(self) -> datetime | None:
        """Publish the notices that are due; return when the next is due, or None."""
        if self._unsaved:
            unsaved, self._unsaved = self._unsaved, set()
            await self._health.note_conditions({sink: self._found[sink] for sink in unsaved if sink in self._found})
        now = self._now()
        due = {each: news for each, news in self._news.items() if news.due <= now}
        notices = [_state(*each, news, now) for each, news in due.items() if news.count]
        told = {each: news.count for each, news in due.items()}
        if notices:
            await self._feed_store.publish(notices, self._compose)
        for each, news in due.items():
            if news.count:
                news.due = now + _QUIET
                news.count -= told[each]  # more may have happened meanwhile
                news.is_new = False
            else:
                del self._news[each]
        return min((news.due for news in self._news.values()), default=None)

    def hear(self, fact: Fact) -> None:
        """Note a fact; a listener of :class:`dockbell.telemetry.Telemetry`."""
        self._find_condition(fact)
        self._count_pass(fact)
        self._hear_of_sink(fact)
        self._hear_of_source(fact)
        self._hear_of_dockbell(fact)

    def _hear_of_sink(self, fact: Fact) -> None:
        match fact:
            case EventDied() if fact.feed != NOTICES:  # a notice about a notice would give another
                self._note(NoticeKind.DEAD_LETTER, "sink", fact.sink, f"{fact.feed} {fact.key}: {fact.reason}")
            case SinkFails():
                self._note_down(NoticeKind.UNREACHABLE, "sink", fact.sink, fact.reason)
            case SinkConnected():
                self._note_up(NoticeKind.UNREACHABLE, "sink", fact.sink)
            case SinkResumed():
                self._note_up(NoticeKind.PAUSED, "sink", fact.sink)
            case SinkPaused():
                self._note_down(NoticeKind.PAUSED, "sink", fact.sink, fact.reason)
            case SinkOverrun() if fact.feed != NOTICES:
                self._note(NoticeKind.OVERRUN, "sink", fact.sink, f"lost events of {fact.feed}")

    def _hear_of_source(self, fact: Fact) -> None:
        match fact:
            case SourceFails():
                self._note_down(NoticeKind.UNREACHABLE, "source", fact.source, fact.reason, after=_SOURCE_DOWN)
            case SourceAnswers():
                words = f"answers again after {in_words(fact.after)}"
                self._note_up(NoticeKind.UNREACHABLE, "source", fact.source, words)
            case FeedFails():
                self._note_down(NoticeKind.REFUSED, "feed", str(fact.feed), fact.reason)
            case FeedMended():
                self._note_up(NoticeKind.REFUSED, "feed", str(fact.feed))
            case Stated() if fact.statement.kind is StatementKind.HELD:
                details = fact.statement.details
                reason = f"{details['reason']}: {details['count']} records wait"
                self._note(NoticeKind.HELD, "feed", str(fact.statement.feed), reason)
            case Stated() if fact.statement.kind is StatementKind.GAP:
                feed, details = fact.statement.feed, fact.statement.details
                reason = f"{feed} was not read from {details['from'] or 'an unknown time'} to {details['to']}"
                self._note(NoticeKind.GAP, "source", feed.source, f"{reason}: {details['reason']}")

    def _hear_of_dockbell(self, fact: Fact) -> None:
        match fact:
            case ProcessDied():
                name = fact.process.removeprefix("process ")
                self._note(NoticeKind.DIED, "process", name, "it was killed, or its machine went down")
            case SourcesClaimed() if fact.taken_over:
                words = f"another process now reads {fact.taken_over} of its sources"
                self._note(NoticeKind.DIED, "process", "unknown", words)
            case Crowded():
                self._note(NoticeKind.CROWDED, "server", "web", fact.describe())
            case DiskFills():
                self._note_down(NoticeKind.DISK, "store", "disk", fact.describe())
            case DiskHasRoom():
                self._note_up(NoticeKind.DISK, "store", "disk", "has free space again")

    def _count_pass(self, fact: Fact) -> None:
        """Alert when passes fail for long, and when one is complete again; polls may succeed meanwhile."""
        if not isinstance(fact, RunEnded) or fact.kind is not RunKind.PASS:
            return
        feed, problem = fact.feed, fact.problem
        if not problem:
            self._passes.pop(feed, None)
            if feed in self._blind:
                self._blind.discard(feed)
                self._note(NoticeKind.REFUSED, "feed", str(feed), "is read completely again", is_over=True)
            return
        count, since = self._passes.get(feed, (0, self._now()))
        self._passes[feed] = count + 1, since
        if feed not in self._blind and count + 1 >= PASSES_FAILED and self._now() - since > PASSES_FAILING:
            self._blind.add(feed)
            reason = f"{count + 1} passes failed in a row: {problem}; {PASSES_BLIND}"
            self._note(NoticeKind.REFUSED, "feed", str(feed), reason)

    def _find_condition(self, fact: Fact) -> None:
        match fact:
            case DeliverySettled():
                known = self._found.get(fact.sink)
                is_unknown = known is not None and known.condition is Condition.UNKNOWN
                if is_unknown and fact.outcome.kind is OutcomeKind.DELIVERED:
                    self._note_condition(fact.sink, Condition.CONNECTED)
            case SinkFails():
                self._note_condition(fact.sink, Condition.DOWN, fact.reason)
            case SinkConnected():
                self._note_condition(fact.sink, Condition.CONNECTED)

    def _note_condition(self, sink: str, condition: Condition, reason: str = "") -> None:
        known = self._found.get(sink)
        if known is not None and known.condition is condition:
            if known.reason == reason:
                return
            self._found[sink] = replace(known, reason=reason)
        else:
            self._found[sink] = Found(condition, self._now(), reason)
        self._unsaved.add(sink)
        self._bell.ring()

    def _note_down(
        self, kind: NoticeKind, subject: str, name: str, reason: str, *, after: timedelta = timedelta(0)
    ) -> None:
        """Alert of what goes on until it is over; ``after`` a while, so that nothing is told of what is over sooner."""
        alert = _Alert(kind, subject, name)
        if alert not in self._down:
            self._down.add(alert)
            self._note(*alert, reason, after=after)

    def _note_up(self, kind: NoticeKind, subject: str, name: str, words: str = "works again") -> None:
        """Publish that an alert is over, unless nothing was told of it."""
        alert = _Alert(kind, subject, name)
        if alert not in self._down:
            return
        self._down.discard(alert)
        news = self._news.get((alert, False))
        if news is not None and self._is_early(news):
            del self._news[alert, False]
        elif news is not None and news.count and news.due > self._now():
            news.count = 0  # it happened again, and is over before that was published
        else:
            self._note(*alert, words, is_over=True)

    def _is_early(self, news: _News) -> bool:
        """Return whether an alert may be over before it is published."""
        return news.is_new and news.due > self._now()

    def _note(
        self,
        kind: NoticeKind,
        subject: str,
        name: str,
        reason: str,
        *,
        after: timedelta = timedelta(0),
        is_over: bool = False,
    ) -> None:
        news = self._news.setdefault((_Alert(kind, subject, name), is_over), _News(self._now() + after))
        news.reason = reason
        news.count += 1
        self._bell.ring()


def _state(alert: _Alert, is_over: bool, news: _News, now: datetime) -> Statement:  # the key of a dict
    details: dict[str, JSON] = {alert.subject: alert.name, "reason": news.reason, "count": news.count}
    if is_over:
        return Statement(NOTICES, NoticeKind.RECOVERED, now, details | {"resolves": alert.kind}, notice_key(*alert))
    return Statement(NOTICES, alert.kind, now, details, notice_key(*alert))
