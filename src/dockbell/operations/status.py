"""How feeds and sinks stand, and whether somebody should look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dockbell.config import FeedSettings, format_duration
from dockbell.core.model import Feed
from dockbell.ports import FeedState, SinkState, View

OWED_MOST: Final = timedelta(minutes=5)
"""A sink that owes an event for longer is worth a look."""

_INTERVALS_MOST: Final = 3
_GRACE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """How one configured feed stands.

    Attributes:
        feed: The feed.
        every: How often it is read: an interval, or a cron line.
        records: How many of its records are stored.
        state: What else is stored; None before its first reading.
        expected_at: When at the latest it should have been read completely again; None before its first such reading.
    """

    feed: Feed
    every: timedelta | str
    records: int = 0
    state: FeedState | None = None
    expected_at: datetime | None = None

    @property
    def read_at(self) -> datetime | None:
        """When the last complete reading ended, poll or pass."""
        return None if self.state is None else _last_reading(self.state)


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
        feeds=tuple(_feed_status(each, states, records, next_time) for each in feeds),
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


def _feed_status(
    each: FeedSettings,
    states: Mapping[Feed, FeedState],
    records: Mapping[Feed, int],
    next_time: Callable[[timedelta | str, datetime], datetime],
) -> FeedStatus:
    feed = Feed(each.source, each.resource)
    every, state = each.settings.schedule, states.get(feed)
    expected_at = None if state is None else _last_reading(state)
    if expected_at is not None:
        for _ in range(_INTERVALS_MOST):
            expected_at = next_time(every, expected_at)
        expected_at += _GRACE
    return FeedStatus(feed, every, records.get(feed, 0), state, expected_at)


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
    if state is not None and state.held:
        yield f"{state.held} records are absent, too many to believe that they were deleted; look at the API"


def _judge_sink(state: SinkState, at: datetime) -> Iterator[str]:
    if state.dead:
        yield f"{state.dead} dead letters"
    if state.oldest is not None and at - state.oldest > OWED_MOST:
        error = f"; last error: {state.error}" if state.error else ""
        waiting = f"{state.owed} events owed, {state.blocked} keys blocked"
        yield f"an event waits for {format_age(at - state.oldest)}, {waiting}{error}"
