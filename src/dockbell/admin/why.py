"""The history of one record: what is stored, the runs that covered it, findings, events and their deliveries.

:mod:`dockbell.admin.explaining` says why it has no event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

import msgspec

from dockbell.config import FeedSettings, SinkSettings
from dockbell.core.key import decode, encode
from dockbell.core.model import Event, Feed
from dockbell.core.publishing.filters import Filter
from dockbell.host.evaluator import SHARED, Evaluator, LimitedEvaluator
from dockbell.ports import FeedState, Noted, Quarantined, ReadStore, RunRecord, Standing, StoredRecord

_NOTES_MOST: Final = 100
_EVENTS_MOST: Final = 100
_RUNS_MOST: Final = 200
_SLACK: Final = timedelta(seconds=5)
"""The service tells its time in whole seconds, and a run goes on after its first request."""


class _Data(msgspec.Struct):
    unjudged: bool = False


class _Body(msgspec.Struct):
    data: _Data


_BODY: Final = msgspec.json.Decoder(_Body)


class Presence(StrEnum):
    """How a record is stored."""

    UNKNOWN = "unknown"
    PRESENT = "present"
    SUSPECTED = "suspected to be gone"
    DORMANT = "absent, kept until it is seen again"
    GONE = "gone"


class Stage(StrEnum):
    """The state of one event at one sink."""

    DELIVERED = "delivered"
    OWED = "owed"
    WAITING = "waiting"  # behind an earlier event of its key
    BLOCKED = "blocked"
    DEAD = "dead"
    FILTERED = "filtered"
    UNBEGUN = "not begun"  # the sink is newer than the daemon's last start
    PRIOR = "before its beginning"  # the sink began after it, or began again
    HELD = "held"  # behind its dead letter, until an operator decides


@dataclass(frozen=True, slots=True)
class SinkTrace:
    """The state of one event at one sink.

    Attributes:
        sink: As in ``[sinks.NAME]``.
        stage: Its state.
        attempts: How often delivery was tried, where it is blocked or dead.
        error: Why the last attempt failed; where it is filtered, the filter that holds it back; else that its filter
            took too long to evaluate, so that it is sent.
        due: When the next attempt may be made; of a dead letter, when it became one.
    """

    sink: str
    stage: Stage
    attempts: int = 0
    error: str = ""
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class EventTrace:
    """One event of a record, and its state at each sink.

    Attributes:
        recorded_at: When it was recorded, by our clock.
        event: The event.
        transits: Its state at each sink.
    """

    recorded_at: datetime
    event: Event
    transits: tuple[SinkTrace, ...] = ()

    @property
    def is_unjudged(self) -> bool:
        """Whether it is a named event that was published because its condition took too long to judge."""
        return _BODY.decode(self.event.body).data.unjudged


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """The history of one record.

    Attributes:
        at: When it was read.
        feed: Where the record is.
        key: Its key string.
        settings: How the feed is read; None where it is not.
        state: What is stored of the feed; None before its first reading.
        record: What is stored of the record.
        quarantined: Readings of it that are in quarantine.
        runs: The last runs whose window held the record's date, oldest first.
        notes: Its last findings, oldest first.
        events: Its last events, oldest first.
    """

    at: datetime
    feed: Feed
    key: str
    settings: FeedSettings | None
    state: FeedState | None = None
    record: StoredRecord | None = None
    quarantined: tuple[Quarantined, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    notes: tuple[Noted, ...] = ()
    events: tuple[EventTrace, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the store has anything about the record."""
        return bool(self.record or self.quarantined or self.notes or self.events)

    @property
    def presence(self) -> Presence:
        """How the record is stored."""
        record = self.record
        if record is None:
            return Presence.UNKNOWN
        if record.gone_at is not None:
            return Presence.GONE
        if record.is_dormant:
            return Presence.DORMANT
        return Presence.PRESENT if record.suspected_at is None else Presence.SUSPECTED


async def find_history(
    read_store: ReadStore,
    feed: Feed,
    given: str,
    *,
    feeds: Sequence[FeedSettings],
    sinks: Mapping[str, SinkSettings],
    at: datetime,
) -> RecordHistory:
    """Return the history of a record.

    Args:
        read_store: Of the store.
        feed: Where the record is.
        given: Its key string, or what it may be taken for: the key as the API writes it.
        feeds: Those that are configured.
        sinks: Those that are configured, by name.
        at: The time.

    Raises:
        ValueError: What is given can be no key.
    """
    settings = next((each for each in feeds if Feed(each.source, each.resource) == feed), None)
    state = next((state for state in await read_store.load_feeds() if state.feed == feed), None)
    keys = read_key(given)
    accounts = [await _find_account(read_store, RecordHistory(at, feed, key, settings, state), sinks) for key in keys]
    return next((account for account in accounts if account.is_known), accounts[0])


async def find_event_trace(
    read_store: ReadStore, feed: Feed, sequence: int, *, sinks: Mapping[str, SinkSettings]
) -> EventTrace | None:
    """Return one event and its state at each sink; None where it is not kept.

    Args:
        read_store: Of the store.
        feed: Its feed.
        sequence: Its number there.
        sinks: Those that are configured, by name.
    """
    state = next((state for state in await read_store.load_feeds() if state.feed == feed), None)
    found = None if state is None else await read_store.find_event(feed, sequence)
    if state is None or found is None:
        return None
    # The events before it tell whether it is tried now, or waits behind one of them.
    last = await read_store.read_events_of(state.id, found[1].key, _EVENTS_MOST)
    events = [*(each for each in last if each[1].sequence < sequence), found]
    standings = {standing.sink: standing for standing in await read_store.load_standings(state.id, found[1].key)}
    return (await _trace_events(events, standings, sinks))[-1]


def read_key(given: str) -> Sequence[str]:
    """Return the key strings that a text may mean, the likeliest first: itself, or the key string of a raw key.

    Raises:
        ValueError: It can be no key.
    """
    if not given:
        raise ValueError("a key is never empty")
    parts = given.split(",")
    try:
        readings = [encode([given]), encode(parts), encode([unquote(part, errors="strict") for part in parts])]
    except UnicodeError as error:
        raise ValueError(f"key {given!r}: is not UTF-8") from error
    return list(dict.fromkeys([given, *readings] if _is_key(given) else readings[::-1]))


def _is_key(text: str) -> bool:
    try:
        decode(text)
    except ValueError:
        return False
    return True


async def _find_account(
    read_store: ReadStore, account: RecordHistory, sinks: Mapping[str, SinkSettings]
) -> RecordHistory:
    state, key, at = account.state, account.key, account.at
    if state is None:
        return account
    record = await read_store.find_record(state.id, key)
    notes = await read_store.read_notes(state.id, key, _NOTES_MOST)
    dated = record.modified if record is not None else notes[-1].modified if notes else None
    after = at if dated is None else min(dated, at) - _SLACK
    events = await read_store.read_events_of(state.id, key, _EVENTS_MOST)
    standings = {standing.sink: standing for standing in await read_store.load_standings(state.id, key)}
    return RecordHistory(
        at,
        account.feed,
        key,
        account.settings,
        state,
        record,
        tuple(await read_store.find_quarantined(state.id, 2, key=key)),
        tuple(await read_store.read_covering_runs(state.id, dated, after, _RUNS_MOST)),
        tuple(notes),
        await _trace_events(events, standings, sinks),
    )


# Deliveries ----------------------------------------------------------------------------------------------------------


async def _trace_events(
    events: Sequence[tuple[datetime, Event]], standings: Mapping[str, Standing], sinks: Mapping[str, SinkSettings]
) -> tuple[EventTrace, ...]:
    listed, evaluator = [event for _, event in events], LimitedEvaluator(SHARED)
    transits = {
        name: await trace_events(listed, standings[name], settings, evaluator)
        if name in standings
        else [SinkTrace(name, Stage.UNBEGUN)] * len(listed)
        for name, settings in sinks.items()
    }
    return tuple(
        EventTrace(recorded_at, event, tuple(transits[name][number] for name in sinks))
        for number, (recorded_at, event) in enumerate(events)
    )


async def trace_events(
    events: Sequence[Event], standing: Standing, settings: SinkSettings, evaluator: Evaluator
) -> Sequence[SinkTrace]:
    """Return the state of the events of one key at a sink, in their order.

    Args:
        events: In the order of their sequences.
        standing: The sink's position in the feed, and what it has blocked and dead of the key.
        settings: Its filters.
        evaluator: Evaluates them.
    """
    dead = {letter.sequence: letter for letter in standing.dead}
    blocked = standing.blocked
    sieve = Filter(settings)
    is_first = True
    transits = []
    for event in events:
        answer = await evaluator.evaluate_event(sieve, event)
        doubt = sieve.explain(event, answer)
        transit = SinkTrace(standing.sink, Stage.DELIVERED, error=doubt)
        if event.sequence in dead:
            letter = dead[event.sequence]
            transit = SinkTrace(standing.sink, Stage.DEAD, letter.attempts, letter.error, letter.died_at)
        elif not answer.lets_through:
            transit = SinkTrace(standing.sink, Stage.FILTERED, error=doubt)
        elif event.sequence <= standing.origin:
            transit = SinkTrace(standing.sink, Stage.PRIOR, error=doubt)
        elif blocked is not None and event.sequence >= blocked.sequence:
            transit = SinkTrace(standing.sink, Stage.HELD if blocked.held else Stage.WAITING, error=doubt)
            if is_first and not blocked.held:
                attempts = blocked.attempts if event.sequence == blocked.sequence else 0
                transit = SinkTrace(standing.sink, Stage.BLOCKED, attempts, blocked.error, blocked.due)
            is_first = False
        elif event.sequence > standing.position:
            transit = SinkTrace(standing.sink, Stage.OWED, error=doubt)
        transits.append(transit)
    return transits


# Runs ----------------------------------------------------------------------------------------------------------------


def gather(runs: Sequence[RunRecord]) -> Sequence[Sequence[RunRecord]]:
    """Return runs, oldest first, grouped where consecutive ones have one kind and one outcome."""
    groups: list[list[RunRecord]] = []
    for run in runs:
        last = groups[-1][-1] if groups else None
        if last is not None and (last.kind, last.problem) == (run.kind, run.problem):
            groups[-1].append(run)
        else:
            groups.append([run])
    return groups
