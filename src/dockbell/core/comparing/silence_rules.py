"""Why a difference is not published: the rules in order, of which the first that applies decides.

A difference that no rule covers is a change. What is done with one that a rule covers (left alone, marked, or stored
without an event) is in :mod:`~dockbell.core.comparing.recording`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dockbell.core.comparing.candidate import Facts
from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.holding import is_believed
from dockbell.core.comparing.page_diff import UNDECIDED, Finding
from dockbell.core.comparing.staleness import find_staleness


class Rule(NamedTuple):
    """A reason not to publish, and when it applies."""

    finding: Finding
    applies: Callable[[Facts], bool]


def find_silence(facts: Facts) -> Finding | None:
    """Return why a difference is not published; None where it is a change."""
    for finding, applies in RULES:
        if applies(facts):
            return finding
    return None


def _is_stale(facts: Facts) -> bool:
    """A lagging replica may have answered: the reading is older than the stored record, and has not lasted yet."""
    candidate, page, window = facts.candidate, facts.page, facts.context.stale_window
    if find_staleness(candidate, page, window) is None:
        return False
    return not is_believed(facts.hold, candidate.fingerprint, page.shown_at, window)


def _is_news_under_unproven_key(facts: Facts) -> bool:
    """The key may turn out to be another: the first poll, which starts before the record's date, publishes it."""
    return facts.context.provisional and not facts.is_baseline


def _is_undated_news_of_second_pass(facts: Facts) -> bool:
    """Nothing tells a new record from one that the first pass has skipped, until the second pass ends."""
    known = facts.known
    return facts.context.settles and facts.date is None and (known is None or known.raw_hash == UNDECIDED)


def _is_key_unproven(facts: Facts) -> bool:
    """The key may turn out to be another, and every id with it."""
    return facts.context.provisional


def _matches_new_query(facts: Facts) -> bool:
    """A tombstone was gone for the old query, and may only match the new one: no news, like an unknown record.

    Where a complete pass still counts, the query is the same, and the record is back.
    """
    known, context, modified = facts.known, facts.context, facts.candidate.modified
    is_gone = known is not None and known.gone_at is not None
    return is_gone and context.rebaselining and context.baseline and (modified is None or modified < context.began_at)


def _is_read_differently(facts: Facts) -> bool:
    """The stored record was read with other settings, and the service does not call it modified."""
    return facts.context.rebaselining and _is_unexplained(facts)


def _is_absorbed_drift(facts: Facts) -> bool:
    """The service's schema changed, not the record, and the operator wants no events of it."""
    return _is_drift(facts, Decision.ABSORB)


def _is_undecided_drift(facts: Facts) -> bool:
    """The service's schema changed, not the record, and the operator has not decided yet."""
    return _is_drift(facts, Decision.HOLD)


RULES: Final = (
    Rule(Finding.HELD, _is_stale),
    Rule(Finding.POSTPONED, _is_news_under_unproven_key),
    Rule(Finding.UNDECIDED, _is_undated_news_of_second_pass),
    Rule(Finding.UNPROVEN, _is_key_unproven),
    Rule(Finding.REBASELINED, _matches_new_query),
    Rule(Finding.REBASELINED, _is_read_differently),
    Rule(Finding.ABSORBED, _is_absorbed_drift),
    Rule(Finding.DRIFT, _is_undecided_drift),
)
"""In order: the first that applies decides."""


def _is_unexplained(facts: Facts) -> bool:
    """Return whether a record differs from a stored body, and no later timestamp of its own says why."""
    return facts.difference.patch is not None and not facts.candidate.has_advanced


def _is_drift(facts: Facts, decision: Decision) -> bool:
    drift, difference = facts.drift, facts.difference
    if drift is None or drift.decision is not decision or not _is_unexplained(facts):
        return False
    return drift.covers(difference.patch or (), difference.previous)
