"""What the comparison of a page is to know of its feed and of the run that read it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from dockbell.config import ResourceSettings
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.model import RunKind, Via
from dockbell.core.reading.window import covered_until
from dockbell.detection.profile import FeedProfile
from dockbell.ports import FeedState

_VIA: Final = {RunKind.POLL: Via.POLL, RunKind.TRAILING: Via.TRAILING, RunKind.PASS: Via.PASS}


def find_covered(state: FeedState, *, polled: bool) -> datetime | None:
    """Return up to when the feed was read whole, by the service's clock; None where that is not known.

    What a feed showed before it was read differently, its polls have not covered.
    """
    if not polled:
        return None if state.full is None else state.full.asked_at
    return None if state.progress.watermark is None or state.rebaselining else covered_until(state.progress)


def find_last_poll(state: FeedState) -> tuple[datetime, datetime] | None:
    """Return the window that the last poll has proven to be read; None where there is none."""
    poll, proven = state.poll, state.progress.watermark
    if poll is None or poll.since is None or proven is None:
        return None
    return poll.since, min(proven, poll.asked_at)


def make_context(
    kind: RunKind,
    state: FeedState,
    first_asked_at: datetime,
    *,
    settings: ResourceSettings,
    profile: FeedProfile,
    polled: bool,
    is_provisional: bool,
    is_withholding: bool,
) -> ReadContext:
    """Return what the comparison of a page is to know.

    A feed ``is_provisional`` while its learned key is not proven; while it ``is_withholding``, nothing is published.
    """
    baseline = state.passes == 0
    # Once snapshots were published, what they state is known to others: from then on a difference is a change.
    is_emitting = is_provisional and state.emitted is not None
    provisional = is_withholding and not is_emitting
    covered = find_covered(state, polled=polled)
    skew = profile.listing.skew
    waits = kind is RunKind.POLL or covered is None or baseline or not polled
    return ReadContext(
        Via.FIRST_PASS if kind is RunKind.PASS and baseline else _VIA[kind],
        first_asked_at,
        boundary=state.boundary,
        baseline=baseline,
        settling=state.passes == 1,
        emit=settings.first_pass == "emit" and not (state.rebaselining or is_emitting),
        provisional=provisional,
        rebaselining=state.rebaselining,
        last_poll=find_last_poll(state),
        last_pass=None if state.full is None else state.full.asked_at,
        is_pass_whole=state.full is not None and state.full.tally.repeated == 0 and not state.held,
        skew=None if skew is None else timedelta(seconds=skew),
        precision=profile.listing.precision,
        covered_until=covered,
        polled_from=None if waits or covered is None else covered - profile.lookback,
        stale_window=timedelta(0) if provisional else settings.stale_window,
        drift=state.drift,
    )
