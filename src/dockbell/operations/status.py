"""How feeds and sinks stand, and whether somebody should look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dockbell.config import FeedSettings, ResourceSettings, format_duration
from dockbell.core.comparing.drift import Decision
from dockbell.core.document import decode
from dockbell.core.model import RESOURCES, ClockSource, Feed, StatementKind
from dockbell.core.moment import parse_moment
from dockbell.core.reading.habits import Habits
from dockbell.core.reading.window import choose_lookback
from dockbell.ports import FeedState, Quarantined, SinkState, View

OWED_MOST: Final = timedelta(minutes=5)
"""A sink that owes an event for longer is worth a look."""

_BAD_MOST: Final = 5
_INTERVALS_MOST: Final = 3
_GRACE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which dockbell was blind.

    Attributes:
        began_at: Until when it had seen everything, by the service's clock; None where nobody knows.
        ended_at: From when on it saw again, by the service's clock.
        reason: Why, in the words of the event.
    """

    began_at: datetime | None
    ended_at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """How one configured feed stands.

    Attributes:
        feed: The feed.
        every: How often it is read: an interval, or a cron line.
        records: How many of its records are stored.
        state: What else is stored; None before its first reading.
        expected_at: When at the latest it should have been read completely again; None before its first such reading.
        lookback: How far before the watermark polls start; None where there are none.
        gap: The last time in which dockbell was blind, of those whose event is kept.
        bad: Some of the records in quarantine, the last met before the others.
    """

    feed: Feed
    every: timedelta | str
    records: int = 0
    state: FeedState | None = None
    expected_at: datetime | None = None
    lookback: timedelta | None = None
    gap: Gap | None = None
    bad: tuple[Quarantined, ...] = ()

    @property
    def read_at(self) -> datetime | None:
        """When the last complete reading ended, poll or pass."""
        return None if self.state is None else _last_reading(self.state)

    @property
    def learned(self) -> Sequence[tuple[str, str]]:
        """What was learned of the feed's listing, as names and words."""
        return () if self.state is None else Habits.from_json(self.state.habits).describe()


@dataclass(frozen=True, slots=True)
class Status:
    """How everything stands.

    Attributes:
        at: When it was looked at.
        holder: Who works on the store; empty when nobody does.
        feeds: In the order of the configuration.
        sinks: In the order of the configuration.
    """

    at: datetime
    holder: str
    feeds: tuple[FeedStatus, ...]
    sinks: tuple[SinkState, ...]


async def load_status(
    view: View,
    feeds: Iterable[FeedSettings],
    sinks: Iterable[str],
    *,
    at: datetime,
    holder: str,
    next_time: Callable[[timedelta | str, datetime], datetime],
) -> Status:
    """Return how the feeds and sinks of a configuration stand in a store; what has left the configuration is left out.

    Args:
        view: Of the store.
        feeds: Those that are configured.
        sinks: The names of those that are configured.
        at: The time.
        holder: Who works on the store; empty when nobody does.
        next_time: When something is due that happens at an interval or by a cron line, and happened at a given time.
    """
    states = {state.feed: state for state in await view.load_feeds()}
    records = await view.count_records()
    known = {state.name: state for state in await view.load_sinks()}
    return Status(
        at=at,
        holder=holder,
        feeds=tuple([await _load_feed(view, each, states, records, at=at, next_time=next_time) for each in feeds]),
        sinks=tuple(known.get(name, SinkState(name, 0, 0, 0, None, "")) for name in sinks),
    )


def judge_status(status: Status) -> Sequence[str]:
    """Return each reason why somebody should look, as one line; nothing when all is well."""
    reasons = [] if status.holder else ['daemon: does not run; start it by "dockbell run"']
    for feed in status.feeds:
        reasons += [f"{feed.feed}: {reason}" for reason in _judge_feed(feed, status.at)]
    for sink in status.sinks:
        reasons += [f"sink {sink.name}: {reason}" for reason in _judge_sink(sink, status.at)]
    return reasons


def format_age(age: timedelta) -> str:
    """Return a duration in two units at most: ``3m20s``, ``2d4h``."""
    whole = max(age, timedelta(0))
    if whole >= timedelta(days=1):
        grain = timedelta(hours=1)
    elif whole >= timedelta(hours=1):
        grain = timedelta(minutes=1)
    else:
        grain = timedelta(seconds=1)
    return format_duration(whole - whole % grain)


def describe_feed(status: FeedStatus, at: datetime) -> Iterator[str]:
    """Yield what is worth knowing of a feed and passes by itself."""
    state = status.state
    if state is None:
        return
    if state.shape is not None and not state.proven:
        yield f"key {' + '.join(state.shape.key)} is learned, not proven yet: nothing is published"
    if state.rebaselining:
        yield "is read differently now: what differs is stored silently until a pass is complete"
    if state.holds:
        yield f"{state.holds} readings are held: older than what is stored, maybe a lagging replica's"
    if state.drift is not None and state.drift.decision is not Decision.HOLD:
        yield f"drift of {_write_paths(state)}: {state.drift.decision}, until a pass meets no more of it"
    if status.gap is not None:
        gap = status.gap
        length = "" if gap.began_at is None else f" for {format_age(gap.ended_at - gap.began_at)}"
        yield f"was blind{length} until {format_age(at - gap.ended_at)} ago: {gap.reason}"


async def _load_feed(
    view: View,
    each: FeedSettings,
    states: Mapping[Feed, FeedState],
    records: Mapping[Feed, int],
    *,
    at: datetime,
    next_time: Callable[[timedelta | str, datetime], datetime],
) -> FeedStatus:
    feed = Feed(each.source, each.resource)
    every, state = each.settings.schedule, states.get(feed)
    if state is None:
        return FeedStatus(feed, every)
    expected_at = _last_reading(state)
    if expected_at is not None:
        for _ in range(_INTERVALS_MOST):
            expected_at = next_time(every, expected_at)
        expected_at += _GRACE
    return FeedStatus(
        feed,
        every,
        records.get(feed, 0),
        state,
        expected_at,
        _find_lookback(each.settings, state, at) if RESOURCES[feed.resource].polled else None,
        await _find_gap(view, state),
        tuple(await view.find_quarantined(state.id, _BAD_MOST)),
    )


def _find_lookback(settings: ResourceSettings, state: FeedState, at: datetime) -> timedelta:
    is_blind = Habits.from_json(state.habits).clock.value == ClockSource.LOCAL
    clock = ClockSource.LOCAL if is_blind else ClockSource.DATE
    return choose_lookback(settings.lookback, clock, state.lateness.lookback(at))


async def _find_gap(view: View, state: FeedState) -> Gap | None:
    for _, event in await view.read_events_of(state.id, "", 1, change=StatementKind.GAP):
        data = decode(event.body)["data"]
        ended_at = parse_moment(data["to"])
        assert ended_at is not None, "a gap has an end"
        return Gap(parse_moment(data["from"]), ended_at, data["reason"])
    return None


def _last_reading(state: FeedState) -> datetime | None:
    return max((run.ended_at for run in (state.poll, state.full) if run is not None), default=None)


def _judge_feed(status: FeedStatus, at: datetime) -> Iterator[str]:
    state = status.state
    failure = f"; last attempt: {state.failed.problem}" if state is not None and state.failed is not None else ""
    if state is not None and state.problem:
        yield state.problem
    elif status.read_at is None:
        yield f"never read to its end yet{failure}"
    if status.read_at is not None and status.expected_at is not None and status.expected_at < at:
        every = f"cron {status.every}" if isinstance(status.every, str) else f"every {format_duration(status.every)}"
        yield f"last read to its end {format_age(at - status.read_at)} ago, expected {every}{failure}"
    if state is not None:
        yield from judge_waiting(state)


def judge_waiting(state: FeedState) -> Iterator[str]:
    """Yield what of a feed waits for an operator, each with what to do."""
    if state.held:
        yield (
            f"{state.held} records are absent, too many to believe that they were deleted; look at the API, then"
            f' "dockbell deletes approve {state.feed}" or "dockbell deletes reject {state.feed}"'
        )
    if state.drift is not None and state.drift.decision is Decision.HOLD:
        count = f"{state.drifted} readings" if state.drifted else "readings"
        yield (
            f"{count} are held that differ by {_write_paths(state)} alone;"
            f' "dockbell drift absorb {state.feed}" or "dockbell drift publish {state.feed}" decides'
        )
    if state.quarantined:
        yield f'{state.quarantined} records in quarantine cannot be read; "dockbell status --verbose" says why'


def _write_paths(state: FeedState) -> str:
    return "" if state.drift is None else ", ".join(sorted(state.drift.paths))


def _judge_sink(state: SinkState, at: datetime) -> Iterator[str]:
    if state.dead:
        holding = f", {state.held} of them hold their key back" if state.held else ""
        yield f'{state.dead} dead letters{holding}; "dockbell dead {state.name}" lists them'
    if state.paused:
        ago = "" if state.paused_at is None else f" {format_age(at - state.paused_at)} ago"
        yield f'paused{ago}, {state.owed} events owed: {state.paused}; "dockbell resume {state.name}" lets it go on'
    elif state.oldest is not None and at - state.oldest > OWED_MOST:
        error = f"; last error: {state.error}" if state.error else ""
        waiting = f"{state.owed} events owed, {state.blocked} keys blocked"
        yield f"an event waits for {format_age(at - state.oldest)}, {waiting}{error}"
