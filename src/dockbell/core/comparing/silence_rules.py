"""Why a difference is not published (docs/guarantees.md): the rules in order, of which the first that applies decides.

A difference that no rule covers is a change. What is done with one that a rule covers (left alone, marked, or stored
without an event) is in :mod:`~dockbell.core.comparing.recording`.

A listing may be answered by replicas that lag behind, so a reading that is *older* than the stored record is no change
yet. Where records are dated, older means an earlier timestamp, unless the stored one is in the service's future, which
says nothing of age. Where they are not, or the timestamp did not move, older means content that was replaced less than
``stale_window`` ago. A tombstone's record must come back later than its deletion, or changed. Such a reading is held,
and believed when the same content comes back in a request made ``stale_window`` later, with no current reading between.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from dockbell.core.comparing.candidate import Candidate, Facts
from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.page_diff import UNDECIDED, Finding, Hold
from dockbell.core.model import Page
from dockbell.core.moment import from_micros, to_micros

_ENTRY: Final = struct.Struct("<16sq")
_REMEMBERED: Final = 8


class Rule(NamedTuple):
    """A reason not to publish, and when it applies."""

    finding: Finding
    applies: Callable[[Facts], bool]


def find_silence(facts: Facts) -> Finding | None:
    for finding, applies in RULES:
        if applies(facts):
            return finding
    return None


def _is_stale(facts: Facts) -> bool:
    candidate, page, window = facts.candidate, facts.page, facts.context.stale_window
    if find_staleness(candidate, page, window) is None:
        return False
    return not is_believed(facts.hold, candidate.fingerprint, page.shown_at, window)


def _is_undated_news_of_second_pass(facts: Facts) -> bool:
    known = facts.known
    return facts.context.settles and facts.date is None and (known is None or known.raw_hash == UNDECIDED)


def _matches_new_query(facts: Facts) -> bool:
    """A tombstone was gone for the old query, and may only match the new one: no news, like an unknown record.

    Where a complete pass still counts, the query is the same, and the record is back.
    """
    known, context, modified = facts.known, facts.context, facts.candidate.modified
    is_gone = known is not None and known.gone_at is not None
    return is_gone and context.rebaselining and context.baseline and (modified is None or modified < context.began_at)


def _is_unexplained(facts: Facts) -> bool:
    """Return whether a record differs from a stored body, and no later timestamp of its own says why."""
    return facts.difference.patch is not None and not facts.candidate.has_advanced


def _is_drift(facts: Facts, decision: Decision) -> bool:
    drift, difference = facts.drift, facts.difference
    if drift is None or drift.decision is not decision or not _is_unexplained(facts):
        return False
    return drift.covers(difference.patch or (), difference.previous)


RULES: Final = (
    # A lagging replica may have answered: the reading is older than the stored record, and has not lasted yet.
    Rule(Finding.HELD, _is_stale),
    # The key may turn out to be another: the first poll, which starts before the record's date, publishes it.
    Rule(Finding.POSTPONED, lambda facts: facts.context.provisional and not facts.is_baseline),
    # Nothing tells a new record from one that the first pass has skipped, until the second pass ends.
    Rule(Finding.UNDECIDED, _is_undated_news_of_second_pass),
    # The key may turn out to be another, and every id with it.
    Rule(Finding.UNPROVEN, lambda facts: facts.context.provisional),
    Rule(Finding.REBASELINED, _matches_new_query),
    # The stored record was read with other settings, and the service does not call it modified.
    Rule(Finding.REBASELINED, lambda facts: facts.context.rebaselining and _is_unexplained(facts)),
    # The service's schema changed, not the record: the operator wants no events of it, or has not decided yet.
    Rule(Finding.ABSORBED, lambda facts: _is_drift(facts, Decision.ABSORB)),
    Rule(Finding.DRIFT, lambda facts: _is_drift(facts, Decision.HOLD)),
)
"""In order: the first that applies decides."""


class Staleness(StrEnum):
    """Why a reading looks older than the stored record."""

    BACK_UNCHANGED = "it was deleted just now, and is the same as before"
    DATED_BEFORE_DELETION = "it was deleted just now, and its timestamp is before the deletion"
    DATED_BEFORE_STORED = "its timestamp is before the stored one"
    SUPERSEDED = "a newer version replaced this content just now"


def find_staleness(candidate: Candidate, page: Page, window: timedelta) -> Staleness | None:
    """Return why a reading looks older than the stored record; None where it does not, or nothing is stored."""
    stored, modified = candidate.known, candidate.modified
    if stored is None:
        return None
    if stored.gone_at is None:
        if window and candidate.is_older(page, window):
            return Staleness.DATED_BEFORE_STORED
        is_undated = stored.modified is None or not candidate.has_moved
        is_back = is_undated and was_superseded(stored.superseded, candidate.fingerprint, page.shown_at, window)
        return Staleness.SUPERSEDED if is_back else None
    gone_at = from_micros(stored.gone_at)
    if page.received_at - page.age >= gone_at + window:  # by our clock, which dates deletions
        return None
    # A baseline record that was never decoded has the hash of its text for a fingerprint.
    is_same = candidate.fingerprint == stored.fingerprint or candidate.raw_hash == stored.raw_hash
    if is_same and not candidate.has_advanced:
        return Staleness.BACK_UNCHANGED
    service_ahead = page.asked_at - page.received_at
    is_older = modified is not None and modified <= gone_at + service_ahead
    return Staleness.DATED_BEFORE_DELETION if is_older else None


def supersede(superseded: bytes | None, fingerprint: bytes, at: datetime, window: timedelta) -> bytes | None:
    """Return the recently replaced fingerprints of a record after ``fingerprint`` was replaced, 24 bytes each.

    ``at`` is the service's time when it answered with the new content; the old one may have been current until then,
    and matters for a ``window``.
    """
    if not window:
        return None
    recent = [entry for entry in _entries(superseded) if from_micros(entry[1]) + window > at]
    recent.append((fingerprint, to_micros(at)))
    return b"".join(_ENTRY.pack(*entry) for entry in recent[-_REMEMBERED:])


def was_superseded(superseded: bytes | None, fingerprint: bytes, asked_at: datetime, window: timedelta) -> bool:
    """Return whether a record had this content less than a window before a request was made."""
    if not window:
        return False
    return any(replaced == fingerprint and from_micros(at) + window > asked_at for replaced, at in _entries(superseded))


def is_believed(hold: Hold | None, fingerprint: bytes, asked_at: datetime, window: timedelta) -> bool:
    return hold is not None and hold.fingerprint == fingerprint and from_micros(hold.asked_at) + window <= asked_at


def keep(hold: Hold | None, fingerprint: bytes, asked_at: datetime) -> Hold:
    return hold if hold is not None and hold.fingerprint == fingerprint else Hold(fingerprint, to_micros(asked_at))


def _entries(superseded: bytes | None) -> Iterator[tuple[bytes, int]]:
    return _ENTRY.iter_unpack(superseded) if superseded else iter(())
