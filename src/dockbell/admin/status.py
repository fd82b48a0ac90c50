"""How feeds and sinks stand, and whether somebody should look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from dockbell.config import FeedSettings, ResourceSettings, format_duration
from dockbell.core.comparing.drift import Decision
from dockbell.core.document import decode
from dockbell.core.model import NOTICES, RESOURCES, ClockSource, Feed, NoticeKind, StatementKind
from dockbell.core.moment import parse_moment
from dockbell.core.reading.listing_profile import ListingProfile
from dockbell.core.reading.shape import is_own_id
from dockbell.core.reading.window import choose_lookback
from dockbell.ports import Condition, FeedState, Footprint, Quarantined, ReadStore, SinkState

OWED_MOST: Final = timedelta(minutes=5)
"""A sink that owes an event for longer is worth a look."""
DOWN_MOST: Final = timedelta(minutes=1)
"""And one whose receiver cannot be reached for longer."""

ROOM_LEAST: Final = 256 * 1024 * 1024
"""So many bytes should be left on the disk of the store, or a twentieth of it where it is a small one."""

_ROOM_SHARE: Final = 20
_BAD_MOST: Final = 5
_INTERVALS_MOST: Final = 3
_GRACE: Final = timedelta(minutes=1)


CROWDED_FOR: Final = timedelta(hours=1)
"""For so long after more came to the web server than there is room for, somebody should look."""

PASSES_FAILED: Final = 3
"""So many passes in a row must have failed,"""
PASSES_FAILING: Final = timedelta(minutes=15)
"""the first of them so long ago, before an operator is told; or none was made when the third was due."""
PASSES_BLIND: Final = "deletions and changes without a new updated_at are not seen"


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
class Crowding:
    """That more came to the web server than there is room for.

    Attributes:
        at: When that was told last, by our clock.
        reason: What became of them, in the words of the notice.
    """

    at: datetime
    reason: str


class Quiet(StrEnum):
    """Which kind of silence there is."""

    NONE = ""
    SOURCE = "quiet"  # all is read as it should be, and nothing changes
    BLIND = "blind"  # it is not read as it should be: whether anything changes, nobody knows
    FILTERED = "filtered"  # there are events, and filters hold back all that was looked at


@dataclass(frozen=True, slots=True)
class Silence:
    """Why nothing is heard of a feed, or from a sink; see :mod:`dockbell.admin.silence`.

    Attributes:
        kind: In one word; empty where something is heard, or nobody has listened.
        words: The same for people.
    """

    kind: Quiet = Quiet.NONE
    words: str = ""


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """How one configured feed stands.

    Attributes:
        feed: The feed.
        every: How often it is read: an interval, or a cron line.
        records: How many of its records are stored.
        state: What else is stored; None before its first reading.
        expected_at: When at the latest it should have been read completely again; None before its first such reading.
        pass_expected_at: When at the latest a polled feed should have been read whole again; None before its first
            complete pass.
        lookback: How far before the watermark polls start; None where there are none.
        gap: The last time in which dockbell was blind, of those whose event is kept.
        bad: Some of the records in quarantine, the last met before the others.
        undropped: Pointers of ``drop`` to what may still be stored from before.
        changed_at: When its last change was recorded; None where none was, none is kept, or nobody has listened.
        silence: Why nothing is heard of it.
    """

    feed: Feed
    every: timedelta | str
    records: int = 0
    state: FeedState | None = None
    expected_at: datetime | None = None
    pass_expected_at: datetime | None = None
    lookback: timedelta | None = None
    gap: Gap | None = None
    bad: tuple[Quarantined, ...] = ()
    undropped: tuple[str, ...] = ()
    changed_at: datetime | None = None
    silence: Silence = Silence()

    @property
    def read_at(self) -> datetime | None:
        """When the last complete reading ended, poll or pass."""
        return None if self.state is None else _last_reading(self.state)

    @property
    def offset(self) -> timedelta:
        """How far our clock was ahead of the service's at the last complete reading, as far as that was kept."""
        run = None if self.state is None else self.state.poll or self.state.full
        return timedelta(0) if run is None else run.known_at - run.asked_at

    @property
    def seen_until(self) -> datetime | None:
        """Up to when polls have proven to have seen all, by our clock: the watermark is of the service's."""
        watermark = None if self.state is None else self.state.progress.watermark
        return None if watermark is None else watermark + self.offset

    def find_age(self, at: datetime) -> timedelta | None:
        """Return how old what is known of it is at a time; None before its first complete reading."""
        runs = () if self.state is None else (self.state.poll, self.state.full)
        ages = [at - run.known_at for run in runs if run is not None]
        # One that seems to come is of before our clock was set back.
        return min((age for age in ages if age >= timedelta(0)), default=timedelta(0)) if ages else None

    @property
    def learned(self) -> Sequence[tuple[str, str]]:
        """What was learned of the feed's listing, as names and words."""
        return () if self.state is None else ListingProfile.from_json(self.state.listing_profile).describe()


@dataclass(frozen=True, slots=True)
class Status:
    """How everything stands.

    Attributes:
        at: When it was looked at.
        holder: Who works on the store; empty when nobody does.
        feeds: In the order of the configuration.
        sinks: In the order of the configuration.
        footprint: What the store uses of its disk, and what is left; None where nobody knows.
        silences: Why nothing is heard from a sink, by name; empty where nobody has listened.
        crowding: That more came to the web server than there is room for, within the last hour; None where none did.
    """

    at: datetime
    holder: str
    feeds: tuple[FeedStatus, ...]
    sinks: tuple[SinkState, ...]
    footprint: Footprint | None = None
    silences: Mapping[str, Silence] = field(default_factory=dict)
    crowding: Crowding | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why somebody should look.

    Attributes:
        kind: ``daemon``, ``store``, ``web``, ``feed`` or ``sink``.
        name: Which feed or sink; empty for the others.
        words: What is wrong with it, and what to do.
        hinders: It keeps dockbell from doing its work now: a feed is not seen, a sink not reached. What merely waits
            for somebody does not.
    """

    kind: str
    name: str
    words: str
    hinders: bool = False

    @property
    def about(self) -> str:
        """What it is about: ``daemon``, ``store``, ``web``, ``feed:main/stock``, ``sink:erp``."""
        return f"{self.kind}:{self.name}" if self.name else self.kind

    def __str__(self) -> str:
        """Return it as one line."""
        subject = self.name if self.kind == "feed" else f"{self.kind} {self.name}".rstrip()
        return f"{subject}: {self.words}"


async def load_status(
    read_store: ReadStore,
    feeds: Iterable[FeedSettings],
    sinks: Iterable[str],
    *,
    at: datetime,
    holder: str,
    next_time: Callable[[timedelta | str, datetime], datetime],
) -> Status:
    """Return how the feeds and sinks of a configuration stand in a store; what has left the configuration is left out.

    Args:
        read_store: Of the store.
        feeds: Those that are configured.
        sinks: The names of those that are configured.
        at: The time.
        holder: Who works on the store; empty when nobody does.
        next_time: When something is due that happens at an interval or by a cron line, and happened at a given time.
    """
    states = {state.feed: state for state in await read_store.load_feeds()}
    records = await read_store.count_records()
    known = {state.name: state for state in await read_store.load_sinks()}
    return Status(
        at=at,
        holder=holder,
        feeds=tuple(
            [await _load_feed(read_store, each, states, records, at=at, next_time=next_time) for each in feeds]
        ),
        sinks=tuple(known.get(name, SinkState(name, 0, 0, 0, None, "")) for name in sinks),
        footprint=await read_store.measure(),
        crowding=await _find_crowding(read_store, states, at),
    )


def judge_status(status: Status) -> Sequence[str]:
    """Return each reason why somebody should look, as one line; nothing when all is well."""
    return list(map(str, find_reasons(status)))


def find_reasons(status: Status) -> Sequence[Reason]:
    """Return each reason why somebody should look; nothing when all is well."""
    words = 'does not run; start it by "dockbell run"'
    reasons = [] if status.holder else [Reason("daemon", "", words, hinders=True)]
    reasons += [Reason("store", "", words) for words in _judge_disk(status.footprint)]
    if status.crowding is not None:
        reasons.append(Reason("web", "", _describe_crowding(status.crowding, status.at)))
    for feed in status.feeds:
        name = str(feed.feed)
        reasons += [Reason("feed", name, words, hinders=hinders) for words, hinders in _judge_feed(feed, status.at)]
    for sink in status.sinks:
        reasons += [
            Reason("sink", sink.name, words, hinders=hinders) for words, hinders in _judge_sink(sink, status.at)
        ]
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
        missing = "no deletions" if is_own_id(state.shape.key, state.feed.resource) else "nothing is published"
        yield f"key {' + '.join(state.shape.key)} is learned, not proven yet: {missing}"
    if state.full is not None and state.full.tally.skipped:
        count = state.full.tally.skipped
        yield f"{count} records that the last pass was the first to show are baseline: an earlier pass was not whole"
    if state.rebaselining:
        yield "is read differently now: what differs is stored silently until a pass is complete"
    if state.holds:
        yield f"{state.holds} readings are held: older than what is stored, maybe a lagging replica's"
    if state.drift is not None and state.drift.decision is not Decision.HOLD:
        yield f"drift of {_write_paths(state)}: {state.drift.decision}, until a pass meets no more of it"
    if status.undropped:
        yield f"{', '.join(status.undropped)} may still be stored, from before it was dropped: a daemon removes it"
    if status.gap is not None:
        gap = status.gap
        length = "" if gap.began_at is None else f" for {format_age(gap.ended_at - gap.began_at)}"
        yield f"was blind{length} until {format_age(at - gap.ended_at - status.offset)} ago: {gap.reason}"


async def _load_feed(
    read_store: ReadStore,
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
        _find_pass_expectation(each.settings, state, next_time) if RESOURCES[feed.resource].polled else None,
        _find_lookback(each.settings, state, at) if RESOURCES[feed.resource].polled else None,
        await _find_gap(read_store, state),
        tuple(await read_store.find_quarantined(state.id, _BAD_MOST)),
        tuple(place for place in each.settings.drop if place not in state.dropped),
    )


def _find_pass_expectation(
    settings: ResourceSettings, state: FeedState, next_time: Callable[[timedelta | str, datetime], datetime]
) -> datetime | None:
    """Return when at the latest a polled feed should have been read whole again: passes may take their time."""
    full = state.full
    if full is None or settings.reconcile is None:
        return None
    due = full.ended_at
    for _ in range(_INTERVALS_MOST):
        due = next_time(settings.reconcile, due)
    return due + _GRACE + max(full.ended_at - full.known_at, timedelta(0))


def _find_lookback(settings: ResourceSettings, state: FeedState, at: datetime) -> timedelta:
    is_blind = ListingProfile.from_json(state.listing_profile).clock.value == ClockSource.LOCAL
    clock = ClockSource.LOCAL if is_blind else ClockSource.DATE
    return choose_lookback(settings.lookback, clock, state.lateness.lookback(at))


async def _find_gap(read_store: ReadStore, state: FeedState) -> Gap | None:
    for _, event in await read_store.read_events_of(state.id, "", 1, change=StatementKind.GAP):
        data = decode(event.body)["data"]
        ended_at = parse_moment(data["to"])
        assert ended_at is not None, "a gap has an end"
        return Gap(parse_moment(data["from"]), ended_at, data["reason"])
    return None


async def _find_crowding(read_store: ReadStore, states: Mapping[Feed, FeedState], at: datetime) -> Crowding | None:
    if NOTICES not in states:
        return None
    for told_at, event in await read_store.read_events_of(states[NOTICES].id, "", 1, change=NoticeKind.CROWDED):
        if at - told_at <= CROWDED_FOR:
            return Crowding(told_at, decode(event.body)["data"]["reason"])
    return None


def _describe_crowding(crowding: Crowding, at: datetime) -> str:
    remedy = "keep strangers from [web] listen, by a firewall or a proxy"
    return f"{format_age(at - crowding.at)} ago, {crowding.reason}; {remedy}"


def _last_reading(state: FeedState) -> datetime | None:
    return max((run.ended_at for run in (state.poll, state.full) if run is not None), default=None)


def _judge_disk(footprint: Footprint | None) -> Iterator[str]:
    if footprint is None:
        return
    left = footprint.left + footprint.free
    if left < min(ROOM_LEAST, footprint.disk // _ROOM_SHARE):
        yield (
            f"{left / 1_000_000:,.0f} MB are left for it on its disk; free some space: when it is full,"
            " reading and delivering wait"
        )


def _judge_feed(status: FeedStatus, at: datetime) -> Iterator[tuple[str, bool]]:
    """Yield each reason why somebody should look at a feed, and whether it hinders."""
    state = status.state
    failure = f"; last attempt: {state.failed.problem}" if state is not None and state.failed is not None else ""
    if state is not None and state.problem:
        yield state.problem, True
    elif status.read_at is None:
        yield f"never read to its end yet{failure}", bool(failure)  # the first pass takes its time
    if status.read_at is not None and status.expected_at is not None and status.expected_at < at:
        every = f"cron {status.every}" if isinstance(status.every, str) else f"every {format_duration(status.every)}"
        yield f"last read to its end {format_age(at - status.read_at)} ago, expected {every}{failure}", True
    if state is not None:
        if words := _judge_passes(status, state, at):
            yield words, True
        yield from ((words, False) for words in judge_waiting(state))


def _judge_passes(status: FeedStatus, state: FeedState, at: datetime) -> str:
    """Return why a polled feed is seen in part only, because no pass comes to its end; empty where one does.

    Where there are no polls, the feed as a whole is not read any more, which is another reason.
    """
    failing, full = state.failing, state.full
    fails = failing is not None and failing.count >= PASSES_FAILED and at - failing.since > PASSES_FAILING
    overdue = status.pass_expected_at is not None and status.pass_expected_at < at
    if not RESOURCES[status.feed.resource].polled or not (fails or overdue):
        return ""
    ago = "yet" if full is None else f"for {format_age(at - full.ended_at)}"
    failed = "" if failing is None else f", {failing.count} failed in a row: {failing.problem}"
    polls = "; polls go on" if status.expected_at is not None and status.expected_at >= at and state.poll else ""
    return f"no complete pass {ago}{failed}; {PASSES_BLIND}{polls}"


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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _write_paths(state: FeedState) -> str:
    return "" if state.drift is None else ", ".join(sorted(state.drift.paths))


def _judge_sink(state: SinkState, at: datetime) -> Iterator[tuple[str, bool]]:
    """Yield each reason why somebody should look at a sink, and whether it hinders."""
    if state.dead:
        holds = "holds its key" if state.held == 1 else "hold their key"
        holding = f", {state.held} of them {holds} back" if state.held else ""
        lists = f'"dockbell dead {state.name}" lists {"it" if state.dead == 1 else "them"}'
        yield f"{_count(state.dead, 'dead letter')}{holding}; {lists}", False
    found = state.found
    is_down = found is not None and found.condition is Condition.DOWN and at - found.since > DOWN_MOST
    if state.paused:
        ago = "" if state.paused_at is None else f" {format_age(at - state.paused_at)} ago"
        owed = _count(state.owed, "event")
        yield f'paused{ago}, {owed} owed: {state.paused}; "dockbell resume {state.name}" lets it go on', False
    elif state.oldest is not None and at - state.oldest > OWED_MOST:
        error = f"; last error: {state.error}" if state.error else ""
        waiting = f"{_count(state.owed, 'event')} owed, {_count(state.blocked, 'key')} blocked"
        yield f"an event waits for {format_age(at - state.oldest)}, {waiting}{error}", is_down
    elif found is not None and is_down:
        yield f"its receiver cannot be reached for {format_age(at - found.since)}: {found.reason}", True
