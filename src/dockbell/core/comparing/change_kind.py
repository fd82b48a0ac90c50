"""What a change is called: created, updated, restored, or a snapshot of what was there before."""

from __future__ import annotations

from dockbell.core.comparing.candidate import Facts
from dockbell.core.comparing.page_diff import MET_IN_FIRST_PASS
from dockbell.core.model import ChangeKind


def find_kind(facts: Facts) -> ChangeKind | None:
    """Return what a change is called; None for a baseline record that has no event."""
    known = facts.known
    if known is not None and known.gone_at is not None:
        return ChangeKind.RESTORED
    if known is not None and not known.is_met:
        return ChangeKind.UPDATED
    if _is_unknown_baseline(facts):
        return ChangeKind.SNAPSHOT if facts.context.emit else None
    return ChangeKind.UPDATED if _existed_before(facts) else ChangeKind.CREATED


def _is_unknown_baseline(facts: Facts) -> bool:
    """Return whether a record that was never seen was there when the feed was first asked for."""
    context = facts.context
    if facts.known is not None or not facts.is_baseline:
        return False
    return context.baseline or (context.settles and facts.date is not None)


def _existed_before(facts: Facts) -> bool:
    """Return whether a record that was never published existed when the feed was first asked for."""
    context, known = facts.context, facts.known
    was_met = context.baseline or (known is not None and known.raw_hash == MET_IN_FIRST_PASS)
    if not was_met and not (context.settling and facts.date is not None):
        return False
    if facts.created is not None:
        return facts.created < context.began_at
    is_skipped = known is None and facts.is_baseline  # it was there by its date, and the first pass did not show it
    return was_met or is_skipped
