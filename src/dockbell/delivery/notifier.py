"""Publishes operational alerts on the ``notices`` feed, which a sink takes with ``resources = ["notices"]``.

It also stores the condition of each receiver, where other processes can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import anyio
from msgspec.structs import replace

from dockbell.admin.reasons import PASSES_BLIND, PASSES_FAILED, PASSES_FAILING
from dockbell.core.counting import count_of
from dockbell.core.model import JSON, NOTICES, Feed, NoticeKind, OutcomeKind, RunKind, Statement, StatementKind
from dockbell.core.planning.forecast import in_words
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.statement import HoldReason, describe_gap, notice_key
from dockbell.delivery.refused_feeds import RefusedFeeds
from dockbell.ports import Bell, Condition, Found, Store
from dockbell.telemetry import (
    Crowded,
    DeliverySettled,
    DiskFills,
    DiskHasRoom,
    EventDied,
    EventsTakenBack,
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
_LASTING: Final = timedelta(minutes=1)
"""A fault that may pass by itself, and does so sooner, is no alert: of an API, a feed or a receiver."""
_GATHERED: Final = timedelta(seconds=10)
"""What happens to several feeds or events at once is published in one notice."""


_HELD_WORDS: Final = {
    HoldReason.DELETIONS: "absent, too many to believe that they were deleted",
    HoldReason.DRIFT: "changed in the same fields at once",
}


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
    is_whole: bool = False  # the reason tells of all that happened, not of the last


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
        self._refused = RefusedFeeds()
        self._gaps: dict[str, list[Statement]] = {}  # by source, those that are not published yet
        self._passes: dict[Feed, tuple[int, datetime]] = {}  # how many failed in a row, and since when
        self._blind: set[Feed] = set()  # feeds whose failing passes are published
        self._found: dict[str, Found] = {}
        self._failing: dict[str, datetime] = {}  # by sink, since when no event was delivered
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
        self._news = {each: news for each, news in self._news.items() if each[0][1:] not in gone}
        for source in sources:
            for kind in (NoticeKind.UNREACHABLE, NoticeKind.REFUSED):
                self._note_up(kind, "source", source, "is no longer read, or was reconfigured")
            self._refused.part(source)
        for feed in feeds:
            self._note_read(feed)
        self._blind -= {*feeds}
        self._found = {sink: found for sink, found in self._found.items() if ("sink", sink) not in gone}
        self._failing = {sink: since for sink, since in self._failing.items() if ("sink", sink) not in gone}

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
        """Publish all waiting notices at once, but of what may pass by itself: no more facts will come."""
        self._news = {
            each: news for each, news in self._news.items() if each[0] not in self._down or not self._is_early(news)
        }
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
        self._join_refusals(now)
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
                reason = f"{fact.feed} {fact.key}: {fact.reason}"
                self._note(NoticeKind.DEAD_LETTER, "sink", fact.sink, reason, after=_GATHERED)
            case EventsTakenBack():
                self._take_back(fact.sink, fact.count)
            case SinkFails():
                lasted = self._now() - self._failing.get(fact.sink, self._now())
                after = max(_LASTING - lasted, timedelta(0))
                self._note_down(NoticeKind.UNREACHABLE, "sink", fact.sink, fact.reason, after=after)
            case SinkConnected():
                self._note_up(NoticeKind.UNREACHABLE, "sink", fact.sink, "delivers again")
            case SinkResumed():
                self._note_up(NoticeKind.PAUSED, "sink", fact.sink, "was resumed")
            case SinkPaused():
                self._note_down(NoticeKind.PAUSED, "sink", fact.sink, fact.reason)
            case SinkOverrun() if fact.feed != NOTICES:
                self._note(NoticeKind.OVERRUN, "sink", fact.sink, f"lost events of {fact.feed}")

    def _hear_of_source(self, fact: Fact) -> None:
        match fact:
            case SourceFails():
                self._note_down(NoticeKind.UNREACHABLE, "source", fact.source, fact.reason, after=_LASTING)
            case SourceAnswers():
                words = f"answers again after {in_words(fact.after)}"
                self._note_up(NoticeKind.UNREACHABLE, "source", fact.source, words)
            case FeedFails():
                self._note_refused(fact.feed, fact.reason)
            case FeedMended():
                self._note_read(fact.feed)
            case Stated() if fact.statement.kind is StatementKind.HELD:
                details = fact.statement.details
                reason = f"{count_of(details['count'], 'record')} {_HELD_WORDS[details['reason']]}"
                self._note(NoticeKind.HELD, "feed", str(fact.statement.feed), reason)
            case Stated() if fact.statement.kind is StatementKind.GAP:
                self._note_gap(fact.statement)

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

    def _note_refused(self, feed: Feed, reason: str) -> None:
        """Alert of a feed that is not read, or of one more of those of which one alert tells already."""
        if self._refused.add(feed, reason):
            self._note_joined(feed.source)
        elif not self._refused.is_joined(feed):
            self._note_down(NoticeKind.REFUSED, "feed", str(feed), reason, after=_LASTING)

    def _note_read(self, feed: Feed) -> None:
        was_joined = self._refused.is_joined(feed)
        self._refused.remove(feed)
        if not was_joined:
            self._note_up(NoticeKind.REFUSED, "feed", str(feed), "is read again")
        elif not self._refused.has_joined(feed.source):
            self._note_up(NoticeKind.REFUSED, "source", feed.source, "is read again")

    def _join_refusals(self, now: datetime) -> None:
        """Make one alert of those that are due for several feeds of a source by one cause."""
        unpublished = {
            feed: news
            for feed in self._refused
            if (news := self._news.get((_Alert(NoticeKind.REFUSED, "feed", str(feed)), False))) and news.is_new
        }
        for alike in self._refused.find_alike(unpublished):
            if len(alike) > 1 and any(unpublished[feed].due <= now for feed in alike):
                for feed in alike:
                    alert = _Alert(NoticeKind.REFUSED, "feed", str(feed))
                    self._down.discard(alert)
                    del self._news[alert, False]
                self._refused.join(alike)
                self._down.add(_Alert(NoticeKind.REFUSED, "source", alike[0].source))
                self._note_joined(alike[0].source)

    def _note_joined(self, source: str) -> None:
        self._note(NoticeKind.REFUSED, "source", source, self._refused.describe_joined(source), is_whole=True)

    def _take_back(self, sink: str, count: int) -> None:
        """Tell of no dead letter that is owed again: its receiver refuses every event, which is told as such."""
        each = _Alert(NoticeKind.DEAD_LETTER, "sink", sink), False
        if (news := self._news.get(each)) is not None and self._is_early(news):
            news.count -= count
            if news.count <= 0:
                del self._news[each]

    def _note_gap(self, gap: Statement) -> None:
        """Tell of what a source did not show in one notice: its feeds are read again one after the other."""
        source = gap.feed.source
        news = self._news.get((_Alert(NoticeKind.GAP, "source", source), False))
        gaps = self._gaps[source] = [*(self._gaps[source] if news is not None and news.count else ()), gap]
        reason = describe_gap(*(each.details for each in gaps), feeds=sorted({each.feed.resource for each in gaps}))
        self._note(NoticeKind.GAP, "source", source, reason, after=_GATHERED, is_whole=True)

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
        if _Alert(NoticeKind.UNREACHABLE, "source", feed.source) in self._down:
            return  # that tells it
        if feed not in self._blind and count + 1 >= PASSES_FAILED and self._now() - since > PASSES_FAILING:
            self._blind.add(feed)
            reason = f"{count + 1} passes failed in a row: {problem}; {PASSES_BLIND}"
            self._note(NoticeKind.REFUSED, "feed", str(feed), reason)

    def _find_condition(self, fact: Fact) -> None:
        match fact:
            case DeliverySettled():
                if fact.outcome.kind is OutcomeKind.DELIVERED:
                    self._failing.pop(fact.sink, None)
                elif fact.outcome.kind in (OutcomeKind.UNREACHABLE, OutcomeKind.FAILED):
                    self._failing.setdefault(fact.sink, self._now())
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
            since = self._failing.get(sink) if condition is Condition.DOWN else None
            self._found[sink] = Found(condition, since or self._now(), reason)
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

    def _note_up(self, kind: NoticeKind, subject: str, name: str, words: str) -> None:
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
        is_whole: bool = False,
    ) -> None:
        new = _News(self._now() + after, is_whole=is_whole)
        news = self._news.setdefault((_Alert(kind, subject, name), is_over), new)
        news.reason = reason
        news.count += 1
        self._bell.ring()


def _state(alert: _Alert, is_over: bool, news: _News, now: datetime) -> Statement:  # the key of a dict
    details: dict[str, JSON] = {alert.subject: alert.name, "reason": news.reason}
    details["count"] = 1 if news.is_whole else news.count
    if is_over:
        return Statement(NOTICES, NoticeKind.RECOVERED, now, details | {"resolves": alert.kind}, notice_key(*alert))
    return Statement(NOTICES, alert.kind, now, details, notice_key(*alert))
