"""Remarks on feeds that need no action; :mod:`dockbell.admin.reasons` says what does.

``dockbell status`` and the page show them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby

from dockbell.admin.quantities import format_age, write_share
from dockbell.admin.reasons import write_paths
from dockbell.admin.status import FeedStatus, Gap, Status
from dockbell.config import format_duration
from dockbell.core.comparing.drift import Decision
from dockbell.core.counting import list_of
from dockbell.core.planning.forecast import in_words
from dockbell.core.publishing.statement import GAP_WORDS
from dockbell.core.reading.shape import is_own_id


def describe_feeds(status: Status) -> Iterator[str]:
    """Yield remarks on all feeds that need no action; what several feeds of a source have in common is one."""
    for source, each_of in groupby(status.feeds, lambda each: each.feed.source):
        feeds = tuple(each_of)
        blind = _find_common_gaps(feeds)
        yield from (f"{source}: {_describe_gaps(alike, status.at)}" for alike in blind)
        told = {each.feed for alike in blind for each in alike}
        for each in feeds:
            remarks = describe_feed(each, status.at, is_gap_told=each.feed in told)
            yield from (f"{each.feed}: {remark}" for remark in remarks)


def describe_feed(status: FeedStatus, at: datetime, *, is_gap_told: bool = False) -> Iterator[str]:
    """Yield remarks on a feed that need no action."""
    state = status.state
    yield from _describe_reading(status)
    if state is None:
        return
    if state.shape is not None and not state.proven:
        missing = (
            "no deletions are published" if is_own_id(state.shape.key, state.feed.resource) else "nothing is published"
        )
        yield f"key {' + '.join(state.shape.key)} is learned but not proven unique yet: {missing}"
    if state.full is not None and state.full.tally.skipped:
        count = state.full.tally.skipped
        yield f"{count} records first shown by the last pass count as baseline: an earlier pass was incomplete"
    if state.rebaselining:
        yield "its read settings changed: differences are stored without events until a pass is complete"
    if state.holds:
        yield f"{state.holds} readings are held: they are older than the stored records, maybe from a lagging replica"
    if state.drift is not None and state.drift.decision is not Decision.HOLD:
        yield f"drift of {write_paths(state)}: {state.drift.decision}, until a pass finds no more of it"
    if status.undropped:
        yield f"{', '.join(status.undropped)} may still be stored from before it was dropped: a daemon removes it"
    yield from _describe_plan(status)
    if status.freshness_goal is not None and not status.paused and (share := status.goal_share) is not None:
        met, told = write_share(share), sum(status.delays.buckets.values())
        goal = f"the freshness goal of {format_duration(status.freshness_goal)}"
        yield f"{met} of {told:,} changes to sinks in the last hour met {goal}"
    if status.gap is not None and not is_gap_told:
        yield _describe_gaps([status], at)


def _find_common_gaps(feeds: Sequence[FeedStatus]) -> Sequence[Sequence[FeedStatus]]:
    """Return the feeds whose last gaps have a reason and some time in common: one outage made them."""
    common: list[list[FeedStatus]] = []
    gaps = [(each.gap, each) for each in feeds if each.gap is not None]
    for gap, each in sorted(gaps, key=lambda found: found[0].ended_at, reverse=True):
        known = next((some for some in common if _is_common(some, gap)), None)
        if known is None:
            common.append([each])
        else:
            known.append(each)
    return [[each for each in feeds if each in some] for some in common if len(some) > 1]


def _is_common(some: Sequence[FeedStatus], gap: Gap) -> bool:
    """Return whether a gap overlaps with one of some later ones, and has their reason."""
    others = [each.gap for each in some if each.gap is not None]
    began = [other.began_at or other.ended_at for other in others]
    return others[0].reason == gap.reason and gap.ended_at >= min(began)


def _describe_gaps(feeds: Sequence[FeedStatus], at: datetime) -> str:
    """Return how long a feed was not read, or the longest of several, and until when."""
    gaps = [(each.gap, each.offset) for each in feeds if each.gap is not None]
    lengths = [gap.ended_at - gap.began_at for gap, _ in gaps if gap.began_at is not None]
    ended = min(at - gap.ended_at - offset for gap, offset in gaps)
    resources = list_of(each.feed.resource for each in feeds)
    which, up_to = (f"{resources} were", "up to ") if len(feeds) > 1 else ("was", "")
    length = f" for {up_to}{format_age(max(lengths))}" if lengths else ""
    reason = gaps[0][0].reason
    return f"{which} not read{length} until {format_age(ended)} ago: {GAP_WORDS.get(reason, reason)}"


def _describe_reading(status: FeedStatus) -> Iterator[str]:
    if status.paused:
        yield f"source {status.feed.source} is paused: dockbell does not read it, but delivers its recorded events"
    elif status.read_at is None and status.state is not None and status.state.first_asked_at is not None:
        yield "is read for the first time"


def _describe_plan(status: FeedStatus) -> Iterator[str]:
    if status.short_of:
        plan = '"dockbell plan" shows what would help'
        yield f"is read {status.schedule}: the budget does not allow {status.short_of}; {plan}"
    if (slow := status.delays.slow) is not None and slow.predicted is not None and not status.paused:
        measured, predicted = in_words(slow.measured), in_words(slow.predicted)
        waits = f"changes have waited {measured} on average for an hour, the plan predicted {predicted}"
        yield f"{waits}: the API is slower, or changes in another way, than the plan assumes"
