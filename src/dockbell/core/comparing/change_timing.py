"""When a change was made: between which times, and whether earlier runs should have shown it."""

from __future__ import annotations

from datetime import datetime, timedelta

from dockbell.core.comparing.candidate import Facts
from dockbell.core.comparing.page_diff import PageDiff
from dockbell.core.moment import from_micros


def bound_change(facts: Facts) -> tuple[datetime | None, bool]:
    """Return the earliest time of a change, and whether the last complete run before should have shown it.

    The earliest time is the start of that run; but no later than the record's own date where that moved and is
    plausible, and no later than the first reading that showed it where that was held.
    """
    candidate, known, context = facts.candidate, facts.known, facts.context
    modified, until = candidate.modified, facts.page.answered_at
    since = context.unseen_since(modified, known)
    is_dated = known is None or known.is_met or candidate.has_moved
    is_late = is_dated and context.is_late(modified, since, until)
    made = context.date(modified, until) if is_dated else None
    first_seen = _first_seen(facts)
    if since is not None and first_seen is not None and since >= first_seen:
        return (made if made is not None and made < first_seen else None), is_late
    return (since if since is None or made is None else min(since, made)), is_late


def _first_seen(facts: Facts) -> datetime | None:
    """Return when a reading was first held that shows what this one does: runs since then showed it in vain."""
    hold = facts.hold
    is_same = hold is not None and hold.fingerprint == facts.candidate.fingerprint
    return from_micros(hold.asked_at) if hold is not None and is_same else None


def count_timing(facts: Facts, late: timedelta | None, result: PageDiff) -> None:
    """Count what a change says of the feed's timestamps and of earlier polls; ``late`` as ReadContext.lateness says."""
    candidate, known, polled_from = facts.candidate, facts.known, facts.context.polled_from
    modified = candidate.modified
    if modified is None:
        return
    if known is not None and not known.is_met and not candidate.has_moved:
        result.silent += 1
        return
    if late is None:
        result.on_time += 1
    else:
        result.lateness.append(late)
    is_news = known is None or candidate.has_advanced
    if is_news and polled_from is not None and modified < polled_from:
        result.missed += 1
