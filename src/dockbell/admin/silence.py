"""Why nothing is heard of a feed, or from a sink: nothing happens, dockbell does not see it, or filters hold it back.

The current filters are evaluated on the last events that are kept: so every process can tell, and
a filter that was mended speaks at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from dockbell.admin.quantities import format_age
from dockbell.admin.reasons import find_reasons
from dockbell.admin.status import FeedStatus, Quiet, Silence, Status
from dockbell.config import SinkSettings, format_duration
from dockbell.core.model import NOTICES, Event, Feed
from dockbell.core.publishing.filters import Filter
from dockbell.host.evaluator import SHARED, Evaluator, LimitedEvaluator
from dockbell.ports import Condition, ReadStore, SinkState

QUIET_AFTER: Final = timedelta(hours=1)
_JUDGED_MOST: Final = 10


class Sifted(msgspec.Struct, frozen=True):
    """How many of a feed's last events were looked at; the sinks that take its events at all, and one of these."""

    events: int = 0
    wanting: frozenset[str] = frozenset()
    passing: frozenset[str] = frozenset()


def judge_feed_silence(status: FeedStatus, changed_at: datetime | None, sifted: Sifted, at: datetime) -> Silence:
    """Return why nothing is heard of a feed; ``changed_at`` is None where no change was recorded, or none is kept."""
    if status.paused:  # which is said of it anyway
        return Silence()
    if status.read_at is None:
        return Silence(Quiet.BLIND, "it was never read completely, so its changes are unknown")
    read = f"{format_age(at - status.read_at)} ago"
    is_late = status.expected_at is not None and status.expected_at < at
    if is_late or (status.state is not None and status.state.problem):
        return Silence(Quiet.BLIND, f"it was last read completely {read}: changes since then are unknown")
    if sifted.events and sifted.wanting and not sifted.passing:
        return Silence(Quiet.FILTERED, f"filters hold back its last {_count(sifted.events)} from every sink")
    since = changed_at or _find_beginning(status)
    if since is None or at - since <= QUIET_AFTER:
        return Silence()
    age = format_age(at - since)
    lapse = f"for {age}" if changed_at else f"since it was first read {age} ago"
    return Silence(Quiet.SOURCE, f"no known change {lapse}; it was last read {read}")


def _find_beginning(status: FeedStatus) -> datetime | None:
    """Return since when changes of a feed would have been read, by our clock; None where that is unknown."""
    state = status.state
    if state is None or state.first_asked_at is None:
        return None
    asked_at = state.first_asked_at + status.offset
    # The first pass shows no changes, and may take hours.
    return state.full.ended_at if state.full is not None and state.passes <= 1 else asked_at


def judge_sink_silence(state: SinkState, feeds: Mapping[Feed, Silence], sifted: Mapping[Feed, Sifted]) -> Silence:
    """Return why nothing is heard from a sink that owes nothing; one that does is not silent, but late."""
    sink = state.name
    if state.owed or (state.found is not None and state.found.condition is Condition.DOWN):
        return Silence()
    wanted = [feed for feed, each in sifted.items() if sink in each.wanting]
    if not wanted:
        return Silence(Quiet.FILTERED, "its filters select none of the feeds")
    kinds = {feeds[feed].kind for feed in wanted}
    if kinds == {Quiet.BLIND}:
        return Silence(Quiet.BLIND, "none of its feeds can be read at the moment")
    looked_at = sum(sifted[feed].events for feed in wanted)
    if looked_at and not any(sink in sifted[feed].passing for feed in wanted):
        return Silence(Quiet.FILTERED, f"its filters hold back the last {_count(looked_at)} of its feeds")
    if kinds <= {Quiet.SOURCE, Quiet.BLIND}:
        return Silence(Quiet.SOURCE, f"no known change in its feeds for {format_duration(QUIET_AFTER)}")
    return Silence()


def describe_silences(status: Status) -> Iterator[str]:
    """Yield why nothing is heard of feeds and from sinks, but where a failure of the feeds explains it already."""
    failures = [each for each in find_reasons(status) if each.hinders]
    is_all_explained = any(each.kind in {"daemon", "store"} for each in failures)
    for feed, silence in ((each.feed, each.silence) for each in status.feeds):
        is_explained = is_all_explained or any(each.is_about(feed) for each in failures)
        if silence.kind and not (silence.kind is Quiet.BLIND and is_explained):
            yield f"{feed}: {silence.kind}: {silence.words}"
    is_explained = is_all_explained or any(each.kind in {"source", "feed"} for each in failures)
    for name, silence in status.silences.items():
        if silence.kind and not (silence.kind is Quiet.BLIND and is_explained):
            yield f"sink {name}: {silence.kind}: {silence.words}"


class Silences:
    """Finds silences again and again; evaluates the filters on a feed's last events only when these have changed."""

    def __init__(self, read_store: ReadStore) -> None:
        self._read_store = read_store
        self._evaluator = LimitedEvaluator(SHARED)
        self._sinks: Mapping[str, SinkSettings] = {}
        self._filters: Mapping[str, Filter] = {}
        self._sifted: dict[Feed, tuple[int, Sifted]] = {}

    async def listen(self, status: Status, sinks: Mapping[str, SinkSettings]) -> Status:
        """Return a status with why nothing is heard of its feeds, and from its sinks."""
        if sinks is not self._sinks:  # they were configured anew
            self._sinks, self._sifted = sinks, {}
            self._filters = {name: Filter(settings) for name, settings in sinks.items()}
        changed_at = await self._read_store.find_last_changes()
        sifted = {each.feed: await self._sift(each) for each in status.feeds}
        silent = {
            each.feed: judge_feed_silence(each, changed_at.get(each.feed), sifted[each.feed], status.at)
            for each in status.feeds
        }
        feeds = [
            replace(each, changed_at=changed_at.get(each.feed), silence=silent[each.feed]) for each in status.feeds
        ]
        heard = {name: Silence() for name in self._filters} | {
            state.name: judge_sink_silence(state, silent, sifted)
            for state in status.sinks
            if not self._filters[state.name].wants(NOTICES)
        }
        return replace(status, feeds=tuple(feeds), silences=heard)

    async def _sift(self, status: FeedStatus) -> Sifted:
        last = status.state.sequence if status.state is not None else 0
        known, sifted = self._sifted.get(status.feed, (-1, Sifted()))
        if known != last:
            events = await self._read_store.read_events(status.feed, max(0, last - _JUDGED_MOST), _JUDGED_MOST)
            changes = [event for event in events if event.key]
            sifted = await sift(status.feed, changes, self._filters, self._evaluator)
            self._sifted[status.feed] = last, sifted
        return sifted


async def sift(feed: Feed, events: Collection[Event], filters: Mapping[str, Filter], evaluator: Evaluator) -> Sifted:
    """Return what filters make of events of a feed's records; a dead letter of theirs is heard of, too."""
    wanting = frozenset(name for name, each in filters.items() if each.wants(feed))
    passing = set()
    for name in wanting:
        for event in events:
            if not (await evaluator.evaluate_event(filters[name], event)).is_held_back:
                passing.add(name)
                break
    return Sifted(len(events), wanting, frozenset(passing))


def _count(events: int) -> str:
    return "event" if events == 1 else f"{events} events"
