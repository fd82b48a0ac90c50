from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dockbell.core.comparing.candidate import Candidate, micros
from dockbell.core.comparing.holding import supersede
from dockbell.core.comparing.page_diff import Stored
from dockbell.core.comparing.staleness import Staleness, find_staleness
from dockbell.core.model import ClockSource, Key, Page
from dockbell.core.moment import to_micros

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
WINDOW = timedelta(seconds=60)
OLD, NEW, OTHER = b"o" * 16, b"n" * 16, b"x" * 16


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else NOON + timedelta(seconds=seconds)


def find(
    stored: Stored | None,
    *,
    modified: float | None = None,
    fingerprint: bytes = NEW,
    asked_at: float = 15,
    answered_at: float = 20,
    window: timedelta = WINDOW,
) -> Staleness | None:
    asked, answered = NOON + timedelta(seconds=asked_at), NOON + timedelta(seconds=answered_at)
    page = Page((), None, "shipments", asked, ClockSource.DATE, answered, asked)
    candidate = Candidate(Key("a", "a"), b"{}", fingerprint, {}, fingerprint, at(modified), stored)
    return find_staleness(candidate, page, window)


def make_stored(
    modified: float | None = None, *, gone_at: float | None = None, superseded: bytes | None = None
) -> Stored:
    return Stored(1, OLD, OLD, micros(at(modified)), 3, gone_at=micros(at(gone_at)), superseded=superseded)


@pytest.mark.parametrize(
    ("modified", "stored", "is_stale"),
    [
        (5, 10, True),
        (10, 5, False),
        (5, 20, True),
        (5, 80, True),  # the replica's answer may be as old as the window
        (5, 80.001, False),  # what is stored lies in the future of every answer, and says nothing of age
        (-(10**6), 10, True),
    ],
)
def test_a_dated_reading_is_stale_when_its_date_is_before_the_stored_one(
    modified: float, stored: float, *, is_stale: bool
) -> None:
    assert find(make_stored(stored), modified=modified) is (Staleness.DATED_BEFORE_STORED if is_stale else None)


@pytest.mark.parametrize(("modified", "stored"), [(None, None), (None, 5), (5, None), (5, 5)])
def test_where_dates_do_not_tell_a_return_to_what_was_replaced_lately_is_stale(
    modified: float | None, stored: float | None
) -> None:
    record = make_stored(stored, superseded=supersede(None, OTHER, NOON, WINDOW))

    def find_at(fingerprint: bytes, seconds: float) -> Staleness | None:
        return find(record, modified=modified, fingerprint=fingerprint, asked_at=seconds, answered_at=seconds)

    assert find_at(OTHER, 59) is Staleness.SUPERSEDED
    assert find_at(OTHER, 60) is None
    assert find_at(NEW, 59) is None


def test_where_dates_tell_content_does_not_count() -> None:
    record = make_stored(5, superseded=supersede(None, OTHER, NOON, WINDOW))
    assert find(record, modified=10, fingerprint=OTHER) is None


def test_a_stored_record_is_never_stale_without_a_window() -> None:
    record = make_stored(10, superseded=supersede(None, OTHER, NOON, WINDOW))
    assert find(record, modified=5, window=timedelta(0)) is None
    assert find(record, modified=10, fingerprint=OTHER, window=timedelta(0)) is None


@pytest.mark.parametrize(
    ("fingerprint", "modified", "asked_at", "expected"),
    [
        (OLD, 5, 15, Staleness.BACK_UNCHANGED),
        (OLD, 5, 70, None),  # so long after the deletion, every replica knows of it
        (OLD, 12, 15, None),
        (NEW, 9, 15, Staleness.DATED_BEFORE_DELETION),
        (NEW, 9, 70, None),
        (NEW, 12, 15, None),
        (NEW, None, 15, None),
    ],
)
def test_a_record_comes_back_changed_or_later_than_its_deletion(
    fingerprint: bytes, modified: float | None, asked_at: float, expected: Staleness | None
) -> None:
    record = make_stored(5, gone_at=10)
    assert find(record, modified=modified, fingerprint=fingerprint, asked_at=asked_at) is expected


def test_an_unknown_record_is_not_stale() -> None:
    assert find(None, modified=-(10**6)) is None


def test_the_first_rule_that_applies_names_the_reason() -> None:
    gone = make_stored(9, gone_at=10)
    assert to_micros(NOON) < (gone.gone_at or 0)
    assert find(gone, modified=9, fingerprint=OLD) is Staleness.BACK_UNCHANGED
    assert find(gone, modified=9) is Staleness.DATED_BEFORE_DELETION
