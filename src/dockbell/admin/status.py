"""The status of feeds, sinks, store and web server; :mod:`dockbell.admin.reasons` says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from dockbell.admin.delays import Delays, FeedDelays, load_delays
from dockbell.config import FeedSettings, ResourceSettings, SinkSettings
from dockbell.config.values import format_duration
from dockbell.core.delays import Delay, find_share_within
from dockbell.core.document import decode
from dockbell.core.model import NOTICES, RESOURCES, ClockSource, Event, Feed, NoticeKind, StatementKind
from dockbell.core.moment import parse_moment
from dockbell.core.planning.stored_plan import StoredPlan
from dockbell.core.publishing.filters import leaves_out
from dockbell.core.publishing.statement import notice_key
from dockbell.core.reading.embedding import PAIRS
from dockbell.core.reading.listing_profile import ListingProfile
from dockbell.core.reading.signal_state import Phase, SignalState
from dockbell.core.reading.window import choose_lookback
from dockbell.ports import FeedState, Footprint, Member, Quarantined, ReadStore, SinkState

_BAD_MOST: Final = 5
_INTERVALS_MOST: Final = 3
_GRACE: Final = timedelta(minutes=1)
_SHORT: Final = 10.0
"""Intervals below so many seconds are shown by tenths."""


CROWDED_FOR: Final = timedelta(hours=1)
"""How long the status shows that the web server refused connections."""


class Gap(msgspec.Struct, frozen=True):
    """A time in which dockbell could not read a feed, by the service's clock; its beginning may be unknown."""

    began_at: datetime | None
    ended_at: datetime
    reason: str


class Crowding(msgspec.Struct, frozen=True):
    """The web server refused too many connections: when the last notice said so, by our clock, and its words."""

    at: datetime
    reason: str


class Quiet(StrEnum):
    NONE = ""
    SOURCE = "quiet"  # the feed is read as it should be, and nothing changes
    BLIND = "blind"  # the feed is not read as it should be, so changes may be missed
    FILTERED = "filtered"  # there are events, but filters hold back all of the last ones


class Silence(msgspec.Struct, frozen=True):
    """Why a feed has no events, or a sink gets none; empty where there are events, or it was not looked for."""

    kind: Quiet = Quiet.NONE
    words: str = ""


class FeedStatus(msgspec.Struct, frozen=True):
    feed: Feed
    every: timedelta | str  # how often it is read: the interval as it is planned now, or a cron line
    records: int = 0  # how many of its records are stored
    state: FeedState | None = None  # what else is stored; None before its first reading
    expected_at: datetime | None = None
    """When at the latest it should have been read completely again; None before its first such reading."""
    pass_expected_at: datetime | None = None
    """When at the latest a polled feed should have been read whole again; None before its first complete pass."""
    lookback: timedelta | None = None  # how far before the watermark polls start; None where there are none
    gap: Gap | None = None  # the last time in which dockbell could not read it, if its event is kept
    bad: tuple[Quarantined, ...] = ()  # some of the records in quarantine, the last met before the others
    undropped: tuple[str, ...] = ()  # pointers of ``drop`` to what may still be stored from before
    changed_at: datetime | None = None
    """When its last change was recorded; None where no change is kept, or it was not looked for."""
    silence: Silence = Silence()
    short_of: str = ""  # what is configured and the requests do not suffice for: ``every 1s``, ``at_most 15m``
    is_dated: bool = True  # its records have timestamps; else delays of its changes are estimates
    delays: FeedDelays = msgspec.field(default_factory=FeedDelays)  # of its changes, in the last hour
    freshness_goal: timedelta | None = None  # how fresh its changes are to be, as configured
    paused: bool = False  # its source is: it is not read, and nothing is expected of it

    @property
    def goal_share(self) -> float | None:
        """Which share of the last hour's changes has met the goal; None without a goal, or without changes."""
        return None if self.freshness_goal is None else find_share_within(self.delays.buckets, self.freshness_goal)

    @property
    def schedule(self) -> str:
        """When it is read, in words: ``every 2.3s``, ``every 5m``, ``cron 0 6 * * *``."""
        if isinstance(self.every, str):
            return f"cron {self.every}"
        seconds = self.every.total_seconds()
        is_short = seconds < _SHORT and not seconds.is_integer()
        return f"every {f'{seconds:.1f}s' if is_short else format_duration(timedelta(seconds=round(seconds)))}"

    @property
    def read_at(self) -> datetime | None:
        """When the last complete reading ended, poll or pass."""
        return None if self.state is None else _last_reading(self.state)

    @property
    def offset(self) -> timedelta:
        """How far our clock was ahead of the service's at the last complete reading."""
        run = None if self.state is None else self.state.poll or self.state.full
        return timedelta(0) if run is None else run.known_at - run.asked_at

    @property
    def seen_until(self) -> datetime | None:
        """The watermark by our clock; it is stored by the service's."""
        watermark = None if self.state is None else self.state.progress.watermark
        return None if watermark is None else watermark + self.offset

    def find_age(self, at: datetime) -> timedelta | None:
        """Return the age of the last complete reading; None before the first."""
        runs = () if self.state is None else (self.state.poll, self.state.full)
        ages = [at - run.known_at for run in runs if run is not None]
        # A reading in the future was made before our clock was set back.
        return min((age for age in ages if age >= timedelta(0)), default=timedelta(0)) if ages else None

    @property
    def learned(self) -> Sequence[tuple[str, str]]:
        """What was learned of the feed's listing, as names and words."""
        if self.state is None:
            return ()
        words = () if self.signal is None else (("signal", self.signal[1]),)
        return (*ListingProfile.from_json(self.state.listing_profile).describe(), *words)

    @property
    def signal(self) -> tuple[Phase, str] | None:
        """Whether another feed's polls show its changes, and what was found of that; None where that is not asked."""
        pair = next((pair for pair in PAIRS if pair.target == self.feed.resource), None)
        if pair is None or self.state is None or not self.state.signal:
            return None
        known = SignalState.from_json(self.state.signal)
        return known.phase, known.describe(pair)


class Status(msgspec.Struct, frozen=True):
    at: datetime
    holder: str  # the process that works on the store, or several with commas; empty when none does
    feeds: tuple[FeedStatus, ...]  # in the order of the configuration, as the sinks are
    sinks: tuple[SinkState, ...]
    footprint: Footprint | None = None  # what the store uses of its disk, and what is left; None where that is unknown
    silences: Mapping[str, Silence] = msgspec.field(default_factory=dict)
    """Why a sink gets no events, by name; empty where it was not looked for."""
    delay: Delay | None = None  # of all changes to all sinks in the last hour; None where there were none
    delays: Mapping[str, Delay] = msgspec.field(default_factory=dict)
    """The delays of changes to each sink in the last hour, by name; those without any are left out."""
    members: tuple[Member, ...] = ()  # the processes that share the store; empty where it has one at most
    crowding: Crowding | None = None
    """Connections that the web server refused within the last hour; None where it refused none."""


async def load_status(
    read_store: ReadStore,
    feeds: Iterable[FeedSettings],
    sinks: Mapping[str, SinkSettings],
    *,
    at: datetime,
    holder: str,
    next_time: Callable[[timedelta | str, datetime], datetime],
) -> Status:
    """Return the status of the configured feeds and sinks; those that have left the configuration are left out.

    The holder is the process that works on the store; ``next_time`` returns the next time of an interval or a cron
    line after a given time.
    """
    states = {state.feed: state for state in await read_store.load_feeds()}
    gaps = await read_store.find_last(StatementKind.GAP)
    records = await read_store.count_records()
    known = {state.name: state for state in await read_store.load_sinks()}
    delays = await load_delays(read_store, tuple(sinks), at)
    return Status(
        at=at,
        holder=holder,
        feeds=tuple(
            [
                await _load_feed(read_store, each, states, records, delays, gaps=gaps, at=at, next_time=next_time)
                for each in feeds
            ]
        ),
        sinks=tuple(
            replace(known.get(name, SinkState(name, 0, 0, 0, None, "")), owed_at_most=leaves_out(settings))
            for name, settings in sinks.items()
        ),
        footprint=await read_store.measure(),
        delay=delays.whole,
        delays=delays.sinks,
        members=tuple(await read_store.load_members()),
        crowding=await _find_crowding(read_store, states, at),
    )


async def _load_feed(
    read_store: ReadStore,
    each: FeedSettings,
    states: Mapping[Feed, FeedState],
    records: Mapping[Feed, int],
    delays: Delays,
    *,
    gaps: Mapping[Feed, Event],
    at: datetime,
    next_time: Callable[[timedelta | str, datetime], datetime],
) -> FeedStatus:
    feed = Feed(each.source, each.resource)
    every, state = each.settings.schedule, states.get(feed)
    if state is None:
        return FeedStatus(feed, every, paused=each.paused)
    if each.settings.signal == "off":
        state = replace(state, signal="")
    plan = StoredPlan.from_json(state.plan)
    if not isinstance(every, str):
        every = plan.every or every
    is_polled, read_at = RESOURCES[feed.resource].polled, _last_reading(state)
    return FeedStatus(
        feed,
        every,
        records.get(feed, 0),
        state,
        None if read_at is None or each.paused else _find_limit(every, read_at, next_time),
        _find_pass_expectation(each.settings, state, next_time) if is_polled and not each.paused else None,
        find_lookback(each.settings, state, at) if is_polled else None,
        None if feed not in gaps else _read_gap(gaps[feed]),
        tuple(await read_store.find_quarantined(state.id, _BAD_MOST)) if state.quarantined else (),
        tuple(place for place in each.settings.drop if place not in state.dropped),
        short_of=_name_interval(each.settings) if plan.is_short and not each.paused else "",
        is_dated=has_dates(each.settings, state),
        delays=delays.feeds.get(feed, FeedDelays()),
        freshness_goal=each.settings.freshness_goal,
        paused=each.paused,
    )


def has_dates(settings: ResourceSettings, state: FeedState) -> bool:
    """Return whether the records of a feed have timestamps that say when they changed, as far as that is known."""
    return bool(settings.updated_at or state.shape is None or state.shape.updated_at)


def _name_interval(settings: ResourceSettings) -> str:
    schedule = settings.schedule
    words = schedule if isinstance(schedule, str) else format_duration(schedule)
    return f"{'at_most' if settings.is_auto else 'every'} {words}"


def _find_limit(
    every: timedelta | str, at: datetime, next_time: Callable[[timedelta | str, datetime], datetime]
) -> datetime:
    for _ in range(_INTERVALS_MOST):
        at = next_time(every, at)
    return at + _GRACE


def _find_pass_expectation(
    settings: ResourceSettings, state: FeedState, next_time: Callable[[timedelta | str, datetime], datetime]
) -> datetime | None:
    """Return when the next complete pass of a polled feed is overdue; the time that the last one took is granted."""
    full = state.full
    if full is None or settings.reconcile is None:
        return None
    due = _find_limit(settings.reconcile, full.ended_at, next_time)
    return due + max(full.ended_at - full.known_at, timedelta(0))


def find_lookback(settings: ResourceSettings, state: FeedState, at: datetime) -> timedelta:
    """Return how far before the watermark the polls of a feed start."""
    is_blind = ListingProfile.from_json(state.listing_profile).clock.value == ClockSource.LOCAL
    clock = ClockSource.LOCAL if is_blind else ClockSource.DATE
    return choose_lookback(settings.lookback, clock, state.lateness.lookback(at))


def _read_gap(event: Event) -> Gap:
    data = decode(event.body)["data"]
    ended_at = parse_moment(data["to"])
    assert ended_at is not None, "a gap has an end"
    return Gap(parse_moment(data["from"]), ended_at, data["reason"])


async def _find_crowding(read_store: ReadStore, states: Mapping[Feed, FeedState], at: datetime) -> Crowding | None:
    if NOTICES not in states:
        return None
    key = notice_key(NoticeKind.CROWDED, "server", "web")
    for told_at, event in await read_store.read_events_of(states[NOTICES].id, key, 1):
        if at - told_at <= CROWDED_FOR:
            return Crowding(told_at, decode(event.body)["data"]["reason"])
    return None


def _last_reading(state: FeedState) -> datetime | None:
    return max((run.ended_at for run in (state.poll, state.full) if run is not None), default=None)
