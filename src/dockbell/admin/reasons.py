"""The rules by which an operator should look at a feed, a sink, the store or the daemon, each with its reason.

``dockbell status``, ``/status``, ``/readyz``, the page and the metrics all show the reasons that are found here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import Final

import msgspec

from dockbell.admin.quantities import format_age
from dockbell.admin.status import FeedStatus, Status
from dockbell.core.comparing.drift import Decision
from dockbell.core.counting import count_of, list_of
from dockbell.core.model import RESOURCES, Feed, RunKind
from dockbell.errors import NOT_SENT, drop_subject
from dockbell.ports import Condition, Failing, FeedState, Footprint, SinkState
from dockbell.telemetry.facts import DiskFills

OWED_MOST: Final = timedelta(minutes=5)
"""How long a sink may owe an event."""
DOWN_MOST: Final = timedelta(seconds=10)
"""How long a receiver may be unreachable: it may have been restarted."""
PASSES_FAILED: Final = 3
"""So many passes in a row may fail,"""
PASSES_FAILING: Final = timedelta(minutes=15)
"""and for so long."""
PASSES_BLIND: Final = "deletions and changes without a new updated_at are not detected"


class Weight(StrEnum):
    """How much a reason weighs, the heaviest first."""

    FAILING = "failing"  # it stops dockbell's work now: a feed is not read, a sink not reached
    WAITING = "waiting"  # an operator is to decide, or to look
    PROGRESS = "progress"  # it passes by itself: a first reading


class Reason(msgspec.Struct, frozen=True):
    """Why an operator should look."""

    kind: str  # ``daemon``, ``store``, ``web``, ``source``, ``feed`` or ``sink``
    name: str  # which source, feed or sink; empty for the others
    words: str  # what is wrong, and what to do
    weight: Weight = Weight.WAITING
    feeds: tuple[Feed, ...] = ()  # those of a source that it is about; empty: all

    @property
    def hinders(self) -> bool:
        return self.weight is Weight.FAILING

    @property
    def about(self) -> str:
        """``daemon``, ``store``, ``web``, ``source:main``, ``feed:main/stock``, ``sink:erp``."""
        return f"{self.kind}:{self.name}" if self.name else self.kind

    def is_about(self, feed: Feed) -> bool:
        """Return whether it is about a feed, alone or with others of its source."""
        if self.kind == "source":
            return self.name == feed.source and (not self.feeds or feed in self.feeds)
        return self.kind == "feed" and self.name == str(feed)

    def __str__(self) -> str:
        subject = self.name if self.kind == "feed" else f"{self.kind} {self.name}".rstrip()
        return f"{subject}: {self.words}"


def list_reasons(status: Status) -> Sequence[str]:
    return list(map(str, find_reasons(status)))


def find_reasons(status: Status) -> Sequence[Reason]:
    """Return the reasons, the heaviest first; none if all is well.

    Among equals they are in the order of daemon, store, web server, sources, each with its feeds, and sinks.
    """
    words = 'is not running; start it with "dockbell run"'
    reasons = [] if status.holder else [Reason("daemon", "", words, Weight.FAILING)]
    reasons += [Reason("store", "", words) for words in _check_disk(status.footprint)]
    if (crowding := status.crowding) is not None:
        remedy = "restrict access to [web] listen with a firewall or a proxy"
        reasons.append(Reason("web", "", f"{format_age(status.at - crowding.at)} ago, {crowding.reason}; {remedy}"))
    firsts = [each for each in status.feeds if _is_read_first(each)]
    if len(firsts) > 1:  # progress, and one line however many they are
        of_all = "all" if len(firsts) == len(status.feeds) else f"{len(firsts)} of"
        words = f"reads {of_all} {len(status.feeds)} feeds for the first time; changes are detected after that"
        reasons.append(Reason("daemon", "", words, Weight.PROGRESS))
    for source, feeds in groupby(status.feeds, lambda each: each.feed.source):
        reasons += _check_source(source, tuple(feeds), status.at, are_firsts_told=len(firsts) > 1)
    for sink in status.sinks:
        found = _check_sink(sink, status.at)
        reasons += [Reason("sink", sink.name, words, weight) for words, weight in found]
    weights = list(Weight)
    return sorted(reasons, key=lambda each: weights.index(each.weight))


def _check_disk(footprint: Footprint | None) -> Iterator[str]:
    if footprint is not None and footprint.is_short:
        yield DiskFills(footprint.room).describe()


def _is_read_first(status: FeedStatus) -> bool:
    """Return whether a feed was never read to its end, and nothing has failed."""
    state = status.state
    return not status.paused and status.read_at is None and (state is None or not (state.problem or state.last_failure))


def _check_source(source: str, feeds: Sequence[FeedStatus], at: datetime, *, are_firsts_told: bool) -> Iterator[Reason]:
    """Yield the reasons of a source, whose feeds are given, and of these; one where they fail together."""
    failing = {each.feed: failing for each in feeds if (failing := _find_failing(each)) is not None}
    since = min((each.since for each in failing.values()), default=at)
    others = [each for each in feeds if each.feed not in failing and not each.paused]
    is_down = len(failing) > 1 and all(each.read_at is None or each.read_at < since for each in others)
    if is_down:
        last = max(failing.values(), key=attrgetter("until"))
        failed = f"{count_of(sum(each.count for each in failing.values()), 'reading')} failed"
        words = f"{_describe_stop(feeds, feeds, at, last.problem.removeprefix(NOT_SENT))} ({failed})"
        yield Reason("source", source, words, Weight.FAILING)
    stopped = _find_alike(feeds, _cause_of_stop)
    for alike in stopped:
        problem = "" if alike[0].state is None else alike[0].state.problem
        yield Reason("source", source, _describe_stop(alike, feeds, at, problem), Weight.FAILING, _feeds_of(alike))
    drifting = _find_alike(feeds, _drift_held)
    for alike in drifting:
        words = _describe_drift([each.state for each in alike if each.state is not None])
        yield Reason("source", source, words, feeds=_feeds_of(alike))
    stopped_together = {each.feed for alike in stopped for each in alike}
    drifting_together = {each.feed for alike in drifting for each in alike}
    for each in feeds:
        is_told = is_down or each.feed in stopped_together or (are_firsts_told and _is_read_first(each))
        is_drift_told = each.feed in drifting_together
        found = _check_feed(
            each, at, None if is_down else failing.get(each.feed), is_told=is_told, is_drift_told=is_drift_told
        )
        yield from (Reason("feed", str(each.feed), words, weight) for words, weight in found)


def _find_alike(feeds: Iterable[FeedStatus], cause: Callable[[FeedStatus], str]) -> Sequence[Sequence[FeedStatus]]:
    """Return the feeds that have a cause in common, where several have it; an empty cause is none."""
    alike: dict[str, list[FeedStatus]] = {}
    for each in feeds:
        if found := cause(each):
            alike.setdefault(found, []).append(each)
    return [some for some in alike.values() if len(some) > 1]


def _feeds_of(feeds: Iterable[FeedStatus]) -> tuple[Feed, ...]:
    return tuple(each.feed for each in feeds)


def _list_resources(feeds: Iterable[FeedStatus]) -> str:
    return list_of(each.feed.resource for each in feeds)


def _cause_of_stop(status: FeedStatus) -> str:
    """Return why a feed waits for an operator, without the request that met it; empty where it does not.

    A key that is refused stops all feeds of a source, each by an answer to a request of its own.
    """
    return "" if status.state is None or status.paused else drop_subject(status.state.problem)


def _describe_stop(stopped: Sequence[FeedStatus], feeds: Sequence[FeedStatus], at: datetime, problem: str) -> str:
    """Return why several feeds of a source are not read any more, and for how long none of them was."""
    read_at = max((each.read_at for each in stopped if each.read_at is not None), default=None)
    lapse = "" if read_at is None else f" for {format_age(at - read_at)}"
    which = "no feed is read" if len(stopped) == len(feeds) else f"{_list_resources(stopped)} are not read"
    return f"{which}{lapse}: {problem}"


def _drift_held(status: FeedStatus) -> str:
    """Return of which fields a feed holds drift; empty where it holds none. A service was deployed with these."""
    state = status.state
    return write_paths(state) if state is not None and not status.paused and _is_drift_held(state) else ""


def _describe_drift(states: Sequence[FeedState]) -> str:
    """Return what is held of one feed, or of several by the same fields, with the commands that decide."""
    count = sum(state.drifted for state in states)
    held = f"{count} readings" if count else "readings"
    several = f" in {', '.join(state.feed.resource for state in states)}" if len(states) > 1 else ""
    feed = "FEED" if several else states[0].feed
    return (
        f"{held}{several} that differ only by {write_paths(states[0])} are held;"
        f' decide with "dockbell drift absorb {feed}" or "dockbell drift publish {feed}"'
    )


def _is_drift_held(state: FeedState) -> bool:
    return state.drift is not None and state.drift.decision is Decision.HOLD


def _find_failing(status: FeedStatus) -> Failing | None:
    """Return how the runs of a feed fail that show its changes; None where the last did not, or waits for an operator.

    Those are polls; where there are none, or before a first reading, passes.
    """
    state = status.state
    if state is None or state.problem or status.paused:
        return None
    is_polled = RESOURCES[status.feed.resource].polled and status.read_at is not None
    return state.failing.get(RunKind.POLL if is_polled else RunKind.PASS)


def _check_feed(
    status: FeedStatus, at: datetime, failing: Failing | None, *, is_told: bool, is_drift_told: bool
) -> Iterator[tuple[str, Weight]]:
    """Yield the reasons of a feed, with the weight of each; of one that an operator has paused there is none.

    ``is_told``: why it is not read, or that it was not read yet, is said of several feeds at once.
    ``is_drift_told``: so is the drift that it holds.
    """
    if status.paused:
        return
    state = status.state
    last_failure = "" if state is None else state.last_failure.removeprefix(NOT_SENT)
    failure = f"; last attempt: {last_failure}" if last_failure else ""
    is_late = status.expected_at is not None and status.expected_at < at
    late = (
        "" if status.read_at is None or not is_late else f"last read completely {format_age(at - status.read_at)} ago"
    )
    if state is not None and state.problem:
        if not is_told:
            yield "; ".join(filter(None, (state.problem, late))), Weight.FAILING
    elif status.read_at is None and not is_told:
        yield f"not read completely yet{failure}", Weight.FAILING if failure else Weight.PROGRESS
    elif late and not is_told:
        yield f"{late}, expected {status.schedule}{failure}", Weight.FAILING
    elif failing is not None and status.read_at is not None:
        ago = f"{format_age(at - failing.since)} ago"
        failed = f"reading failed {ago}" if failing.count == 1 else f"{failing.count} readings failed, the first {ago}"
        yield f"the last {failed}: {failing.problem.removeprefix(NOT_SENT)}", Weight.FAILING
    if state is not None:
        if words := _check_passes(status, state, at):
            yield words, Weight.FAILING
        waiting = find_waiting(state, is_drift_told=is_drift_told)
        yield from ((words, Weight.WAITING) for words in waiting)


def _check_passes(status: FeedStatus, state: FeedState, at: datetime) -> str:
    """Return that a polled feed has no complete pass any more, so that it is read in part only; empty where it has.

    A feed without polls is then not read at all, which is another reason.
    """
    failing, full = state.failing.get(RunKind.PASS), state.full
    fails = failing is not None and failing.count >= PASSES_FAILED and at - failing.since > PASSES_FAILING
    overdue = status.pass_expected_at is not None and status.pass_expected_at < at
    if not RESOURCES[status.feed.resource].polled or not (fails or overdue):
        return ""
    ago = "yet" if full is None else f"for {format_age(at - full.ended_at)}"
    failed = "" if failing is None else f", {failing.count} failed in a row: {failing.problem}"
    polls = "; polls continue" if status.expected_at is not None and status.expected_at >= at and state.poll else ""
    return f"no complete pass {ago}{failed}; {PASSES_BLIND}{polls}"


def find_waiting(state: FeedState, *, is_drift_told: bool = False) -> Iterator[str]:
    """Yield what waits for an operator's decision on a feed, each with the commands."""
    if state.held:
        yield (
            f"{state.held} records are absent, too many to believe that they were deleted; check the API, then run"
            f' "dockbell deletes approve {state.feed}" or "dockbell deletes reject {state.feed}"'
        )
    if _is_drift_held(state) and not is_drift_told:
        yield _describe_drift([state])
    if state.quarantined:
        yield (
            f"{state.quarantined} records in quarantine cannot be read or told apart;"
            ' "dockbell status --verbose" shows why'
        )


def write_paths(state: FeedState) -> str:
    return "" if state.drift is None else ", ".join(sorted(state.drift.paths))


def _check_sink(state: SinkState, at: datetime) -> Iterator[tuple[str, Weight]]:
    if state.dead:
        holds = "holds back its key" if state.held == 1 else "hold back their keys"
        holding = f", {state.held} of them {holds}" if state.held else ""
        lists = f'"dockbell dead {state.name}" lists {"it" if state.dead == 1 else "them"}'
        yield f"{count_of(state.dead, 'dead letter')}{holding}; {lists}", Weight.WAITING
    found = state.found
    is_down = found is not None and found.condition is Condition.DOWN and at - found.since > DOWN_MOST
    if state.paused:
        ago = "" if state.paused_at is None else f" {format_age(at - state.paused_at)} ago"
        owed = _count_owed(state)
        yield (
            f'paused{ago}, {owed} owed: {state.paused}; "dockbell resume {state.name}" resumes delivery',
            Weight.WAITING,
        )
    elif state.oldest is not None and at - state.oldest > OWED_MOST:
        error = f"; last error: {state.last_error}" if state.last_error else ""
        waiting = f"{_count_owed(state)} owed, {count_of(state.blocked, 'key')} blocked"
        yield (
            f"an event has waited for {format_age(at - state.oldest)}, {waiting}{error}",
            Weight.FAILING if is_down else Weight.WAITING,
        )
    elif found is not None and is_down:
        yield f"no event could be delivered for {format_age(at - found.since)}: {found.reason}", Weight.FAILING


def _count_owed(state: SinkState) -> str:
    at_most = "at most " if state.owed and state.owed_at_most else ""
    return f"{at_most}{count_of(state.owed, 'event')}"
