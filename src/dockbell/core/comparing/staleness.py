"""Whether a reading looks like a lagging replica's (docs/guarantees.md): the rules in order, the first decides.

A listing may be answered by replicas that lag behind, so a reading that is *older* than the stored record is no change
yet. Where records are dated, older means an earlier timestamp, unless the stored one is in the service's future, which
says nothing of age. Where they are not, or the timestamp did not move, older means content that was replaced less than
``stale_window`` ago. A tombstone's record must come back later than its deletion, or changed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from dockbell.core.comparing.candidate import Candidate
from dockbell.core.comparing.holding import was_superseded
from dockbell.core.comparing.page_diff import Stored
from dockbell.core.model import Page
from dockbell.core.moment import from_micros, to_micros


class Staleness(StrEnum):
    """Why a reading looks older than the stored record."""

    BACK_UNCHANGED = "it is as it was when it was deleted, and was deleted just now"
    DATED_BEFORE_DELETION = "its timestamp is before its deletion, and it was deleted just now"
    DATED_BEFORE_STORED = "its timestamp is before the stored one"
    SUPERSEDED = "its content was replaced just now"


class _Reading(NamedTuple):
    candidate: Candidate
    stored: Stored
    page: Page
    window: timedelta


def find_staleness(candidate: Candidate, page: Page, window: timedelta) -> Staleness | None:
    """Return why a reading looks older than the stored record; None where it does not, or nothing is stored.

    Args:
        candidate: The reading.
        page: The page that shows it.
        window: ``stale_window``, how far a replica may lag.
    """
    if candidate.known is None:
        return None
    reading = _Reading(candidate, candidate.known, page, window)
    for reason, applies in RULES:
        if applies(reading):
            return reason
    return None


def _is_back_unchanged(reading: _Reading) -> bool:
    candidate, stored = reading.candidate, reading.stored
    # A baseline record that was never decoded has the hash of its text for a fingerprint.
    is_same = candidate.fingerprint == stored.fingerprint or candidate.raw_hash == stored.raw_hash
    return is_same and not candidate.has_advanced and _was_just_deleted(reading)


def _is_dated_before_deletion(reading: _Reading) -> bool:
    gone_at, modified, page = reading.stored.gone_at, reading.candidate.modified, reading.page
    if gone_at is None or modified is None:
        return False
    service_ahead = page.asked_at - page.received_at
    return modified <= from_micros(gone_at) + service_ahead and _was_just_deleted(reading)


def _was_just_deleted(reading: _Reading) -> bool:
    """Return whether a replica may not know of the deletion yet; by our clock, which dates deletions."""
    gone_at, page = reading.stored.gone_at, reading.page
    return gone_at is not None and page.received_at - page.age < from_micros(gone_at) + reading.window


def _is_dated_before_stored(reading: _Reading) -> bool:
    modified, stored = reading.candidate.modified, reading.stored
    if not reading.window or stored.gone_at is not None or modified is None or stored.modified is None:
        return False
    return to_micros(modified) < stored.modified <= to_micros(reading.page.latest + reading.window)


def _is_superseded(reading: _Reading) -> bool:
    candidate, stored = reading.candidate, reading.stored
    if stored.gone_at is not None or (stored.modified is not None and candidate.has_moved):
        return False
    return was_superseded(stored.superseded, candidate.fingerprint, reading.page.shown_at, reading.window)


RULES: Final[tuple[tuple[Staleness, Callable[[_Reading], bool]], ...]] = (
    (Staleness.BACK_UNCHANGED, _is_back_unchanged),
    (Staleness.DATED_BEFORE_DELETION, _is_dated_before_deletion),
    (Staleness.DATED_BEFORE_STORED, _is_dated_before_stored),
    (Staleness.SUPERSEDED, _is_superseded),
)
"""In order: the first that applies decides."""
