"""The history of one record: what is stored, the runs that covered it, findings, events and their deliveries.

:func:`explain` says why it has no event, or none of its last reading: the first rule that applies gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

import msgspec

from dockbell.config import FeedSettings, ResourceSettings, SinkSettings, format_duration
from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.page_diff import Finding
from dockbell.core.counting import count_of
from dockbell.core.key import decode, encode
from dockbell.core.model import Event, Feed
from dockbell.core.publishing.filters import Filter
from dockbell.core.publishing.settlement import Attempt
from dockbell.core.reading.shape import is_own_id
from dockbell.host.evaluator import SHARED, Evaluator, LimitedEvaluator
from dockbell.ports import FeedState, KeyStatus, Noted, Quarantined, ReadStore, RunRecord, StoredRecord

_NOTES_MOST: Final = 100
_EVENTS_MOST: Final = 100
_RUNS_MOST: Final = 200
ATTEMPTS_MOST: Final = 1000
"""So many attempts at the events of one record are looked at: the last."""
_SLACK: Final = timedelta(seconds=5)
"""The service tells its time in whole seconds, and a run goes on after its first request."""


class _Data(msgspec.Struct):
    unjudged: bool = False


class _Body(msgspec.Struct):
    data: _Data


_BODY: Final = msgspec.json.Decoder(_Body)


class Presence(StrEnum):
    UNKNOWN = "unknown"
    PRESENT = "present"
    SUSPECTED = "suspected to be gone"
    DORMANT = "absent, kept until it is seen again"
    GONE = "gone"


class Stage(StrEnum):
    DELIVERED = "delivered"
    OWED = "owed"
    WAITING = "waiting"  # behind an earlier event of its key
    BLOCKED = "blocked"
    DEAD = "dead"
    FILTERED = "filtered"
    UNBEGUN = "not begun"  # the sink is newer than the daemon's last start
    PRIOR = "before its beginning"  # the sink began after it, or began again
    HELD = "held"  # behind its dead letter, until an operator decides


class SinkTrace(msgspec.Struct, frozen=True):
    """The state of one event at one sink."""

    sink: str
    stage: Stage
    attempts: int = 0  # how often delivery was tried, where it is blocked or dead
    error: str = ""
    """Why the last attempt failed; where it is filtered, the filter that holds it back; else that its filter took too
    long to evaluate, so that it is sent."""
    due: datetime | None = None  # when the next attempt may be made; of a dead letter, when it became one
    log: tuple[Attempt, ...] = ()  # the attempts that are kept, oldest first


class EventTrace(msgspec.Struct, frozen=True):
    """One event of a record, and its state at each sink."""

    recorded_at: datetime  # when it was recorded, by our clock
    event: Event
    traces: tuple[SinkTrace, ...] = ()

    @property
    def is_unjudged(self) -> bool:
        """Whether it is a named event that was published because its condition took too long to judge."""
        return _BODY.decode(self.event.body).data.unjudged


class RecordHistory(msgspec.Struct, frozen=True):
    at: datetime
    feed: Feed
    key: str
    settings: FeedSettings | None  # how the feed is read; None where it is not
    state: FeedState | None = None  # what is stored of the feed; None before its first reading
    record: StoredRecord | None = None
    quarantined: tuple[Quarantined, ...] = ()
    runs: tuple[RunRecord, ...] = ()  # the last runs whose window held the record's date, oldest first
    notes: tuple[Noted, ...] = ()  # its last findings, oldest first
    events: tuple[EventTrace, ...] = ()  # its last events, oldest first

    @property
    def is_known(self) -> bool:
        """Whether the store has anything about the record."""
        return bool(self.record or self.quarantined or self.notes or self.events)

    @property
    def presence(self) -> Presence:
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
    """Return the history of a record; ``given`` is its key string, or its key as the API writes it.

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
    """Return one event and its state at each sink; None where it is not kept."""
    state = next((state for state in await read_store.load_feeds() if state.feed == feed), None)
    if state is None or (found := await read_store.find_event(feed, sequence)) is None:
        return None
    # The events before it tell whether it is tried now, or waits behind one of them.
    last = await read_store.read_events_of(state.id, found[1].key, _EVENTS_MOST)
    events = [*(each for each in last if each[1].sequence < sequence), found]
    return (await _trace_events(read_store, state, found[1].key, events, sinks))[-1]


def read_key(given: str) -> Sequence[str]:
    """Return the key strings that a text may mean, the likeliest first: itself, or the key string of a raw key.

    Raises:
        ValueError: It can be no key.
    """
    if not given:
        raise ValueError("a key must not be empty")
    parts = given.split(",")
    try:
        readings = [encode([given]), encode(parts), encode([unquote(part, errors="strict") for part in parts])]
    except UnicodeError as error:
        raise ValueError(f"key {given!r}: is not UTF-8") from error
    try:
        decode(given)
    except ValueError:
        return list(dict.fromkeys(readings[::-1]))
    return list(dict.fromkeys([given, *readings]))


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
        await _trace_events(read_store, state, key, events, sinks),
    )


# Deliveries ----------------------------------------------------------------------------------------------------------


async def _trace_events(
    read_store: ReadStore,
    state: FeedState,
    key: str,
    events: Sequence[tuple[datetime, Event]],
    sinks: Mapping[str, SinkSettings],
) -> tuple[EventTrace, ...]:
    statuses = {status.sink: status for status in await read_store.load_key_statuses(state.id, key)}
    attempts = await read_store.read_attempts(state.feed, key, ATTEMPTS_MOST)
    listed, evaluator = [event for _, event in events], LimitedEvaluator(SHARED)
    traces = {
        name: await trace_events(listed, statuses[name], settings, evaluator, attempts.get(name, ()))
        if name in statuses
        else [SinkTrace(name, Stage.UNBEGUN)] * len(listed)
        for name, settings in sinks.items()
    }
    return tuple(
        EventTrace(recorded_at, event, tuple(traces[name][number] for name in sinks))
        for number, (recorded_at, event) in enumerate(events)
    )


async def trace_events(
    events: Sequence[Event],
    status: KeyStatus,
    settings: SinkSettings,
    evaluator: Evaluator,
    attempts: Sequence[Attempt] = (),
) -> Sequence[SinkTrace]:
    """Return the state of the events of one key at a sink; they are given in the order of their sequences."""
    dead = {letter.sequence: letter for letter in status.dead}
    blocked = status.blocked
    sieve = Filter(settings)
    is_first, traces = True, []
    answers = [await evaluator.evaluate_event(sieve, event) for event in events]
    judged = [*zip(events, answers, strict=True)]
    last = max((event.sequence for event, answer in judged if event.is_change and answer.lets_through), default=0)
    for event, answer in judged:
        stage, tries, error, due = Stage.DELIVERED, 0, sieve.explain(event, answer), None
        if (letter := dead.get(event.sequence)) is not None:
            stage, tries, error, due = Stage.DEAD, letter.attempts, letter.error, letter.died_at
        elif not answer.lets_through:
            stage = Stage.FILTERED
        elif event.sequence <= status.origin:
            stage = Stage.PRIOR
        elif blocked is not None and event.sequence >= blocked.sequence:
            stage = Stage.HELD if blocked.held else Stage.WAITING
            if is_first and not blocked.held:
                stage, error, due = Stage.BLOCKED, blocked.error, blocked.due
                tries = blocked.attempts if event.sequence == blocked.sequence else 0
            is_first = False
        elif event.sequence > status.position:
            stage = Stage.OWED
        log = tuple(each for each in attempts if each.sequence == event.sequence)
        if settings.coalesce and stage is Stage.DELIVERED and event.is_change and event.sequence < last and not log:
            error = f"sent, or replaced by a later change up to #{last}: coalesce"
        traces.append(SinkTrace(status.sink, stage, tries, error, due, log))
    return traces


# Why a record has no event -------------------------------------------------------------------------------------------


def explain(account: RecordHistory) -> str:
    """Return why a record has no event, or none of its last reading; empty where that has its event."""
    if account.settings is None:
        return f"{account.feed} is not configured or is disabled, so dockbell does not read it"
    if account.state is None:
        return f'{account.feed} was never read; "dockbell run" reads it'
    if account.state.problem:
        return f"{account.feed} is stopped: {account.state.problem}"
    return (
        _explain_reading(account, account.settings.settings)
        or _explain_purge(account)
        or _explain_absence(account.record, account.state)
        or _explain_finding(account)
        or (_explain_unseen(account.state) if account.record is None else "")
        or _explain_drift(account.state)
        or ("" if account.record is None or account.events else _explain_silence(account.record, account.state))
    )


def _explain_reading(account: RecordHistory, settings: ResourceSettings) -> str:
    """Return why its last reading was not compared or not believed."""
    record = account.record
    if account.quarantined:
        bad = account.quarantined[0]
        return f"it has been in quarantine since {write_time(bad.first_at)}: {bad.problem}"
    if record is not None and record.awaited_at is not None:
        most = format_duration(settings.detail_timeout)
        return f"its event has waited for its detail since {write_time(record.awaited_at)}, for at most {most}"
    if record is not None and record.held_at is not None:
        return (
            f"a reading of it has been held as stale since {write_time(record.held_at)}: it is older than the stored"
            f" record, and is believed if it is still the same {format_duration(settings.stale_window)} later"
        )
    return ""


def _explain_purge(account: RecordHistory) -> str:
    record = account.record
    if record is None or not record.is_purged:
        return ""
    at = next((f" at {write_time(note.at)}" for note in reversed(account.notes) if note.finding is Finding.PURGED), "")
    return f"an operator purged its content{at}; it is restored when the API shows it again"


def _explain_absence(record: StoredRecord | None, state: FeedState) -> str:
    if record is None or record.gone_at is not None:
        return ""
    if record.is_dormant:
        reason = "the feed's read settings changed" if state.rebaselining else "an operator rejected its deletion"
        return f"it is absent and kept until it is seen again: {reason}"
    if record.suspected_at is None:
        return ""
    since = f"it has been absent since {write_time(record.suspected_at)}"
    if state.held:
        return (
            f"{since}, and its deletion is one of {state.held} that are held;"
            f' decide with "dockbell deletes approve {state.feed}" or "dockbell deletes reject {state.feed}"'
        )
    due = ""
    if state.confirm_at is not None:  # so long after the last pass; each pass moves it, though not for this record
        pause = state.confirm_at - state.full.ended_at if state.full is not None else timedelta(0)
        due = f", due at {write_time(min(state.confirm_at, record.suspected_at + pause))}"
    return f"{since}, and counts as deleted once a second pass confirms it{due}"


def _explain_finding(account: RecordHistory) -> str:
    """Return what the last finding says, where it made no event."""
    if not account.notes or account.notes[-1].sequence is not None:
        return ""
    feed, note = account.feed, account.notes[-1]
    at = write_time(note.at)
    match note.finding:
        case Finding.TOUCHED:
            remedy = f"touch = true in [resources.{feed.resource}] publishes such changes"
            return f"only its timestamp changed, at {at}; {remedy}"
        case Finding.QUIET:
            return f"the reading of {at} differs only in ignored members"
        case Finding.DRIFT:
            return f"the reading of {at} was held as drift; {_drift_remedy(feed)}"
        case Finding.ABSORBED | Finding.REBASELINED | Finding.UNPROVEN | Finding.POSTPONED:
            return f"the reading of {at} was {note.finding}"
        case _:
            return ""


def _explain_unseen(state: FeedState) -> str:
    if state.full is None:
        return f"no run has seen it, and no pass over {state.feed} is complete yet{_tell_failure(state)}"
    last = (
        f"the last pass started at {write_time(state.full.asked_at)} and read {count_of(state.full.records, 'record')}"
    )
    if state.poll is not None:
        last += f", the last poll started at {write_time(state.poll.asked_at)}"
    return f"no complete run has ever seen it; {last}{_tell_failure(state)}"


def _explain_drift(state: FeedState) -> str:
    if state.drift is None or state.drift.decision is not Decision.HOLD:
        return ""
    paths = ", ".join(sorted(state.drift.paths))
    return f"readings that differ only by {paths} are held as drift; {_drift_remedy(state.feed)}"


def _explain_silence(record: StoredRecord, state: FeedState) -> str:
    """Return why a stored record has no event at all."""
    if record.revision:
        return f"its events, the last of revision {record.revision}, are older than keep_events"
    if not state.proven and (state.shape is None or not is_own_id(state.shape.key, state.feed.resource)):
        key = "" if state.shape is None else " + ".join(state.shape.key)
        return f"key {key} is learned but not proven unique yet: nothing is published until a pass is complete"
    began = "" if state.first_asked_at is None else f" of {write_time(state.first_asked_at)}"
    return f"it has not changed since the baseline{began}, which publishes no events{_tell_failure(state)}"


def _tell_failure(state: FeedState) -> str:
    return f"; the last run is incomplete: {state.last_failure}" if state.last_failure else ""


def _drift_remedy(feed: Feed) -> str:
    return f'decide with "dockbell drift absorb {feed}" or "dockbell drift publish {feed}"'


def write_time(moment: datetime) -> str:
    """Return a time for people: UTC, in whole seconds."""
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"
