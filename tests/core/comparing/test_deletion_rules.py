from __future__ import annotations

import itertools

import pytest

from dockbell.core.comparing.deletion_rules import (
    SAMPLE,
    Absence,
    Census,
    NotDeleted,
    allowance,
    assess_absences,
    choose_sample,
    decide_deletion,
    purge,
)
from dockbell.core.model import ChangeKind, DeletionReason, Feed, Key
from tests.fakes import NOON

FEED = Feed("main", "stock")


def test_the_next_change_of_a_purged_record_is_a_deletion_without_content() -> None:
    change = purge(FEED, Key("a,7", ["a", 7]), 6, NOON)
    assert (change.kind, change.reason, change.revision) == (ChangeKind.DELETED, DeletionReason.PURGED, 7)
    assert (change.feed, change.key.id, change.changed_between) == (FEED, ["a", 7], (None, NOON))
    assert (change.before, change.after, change.patch, change.changed, change.modified_at) == (None,) * 5


@pytest.mark.parametrize(
    ("stored", "allowed"),
    [(1, 2), (3, 2), (15, 7), (40, 20), (200, 20), (600, 60), (20_000, 2000)],
)
def test_a_feed_may_lose_a_tenth_a_day_and_a_small_one_half(stored: int, allowed: int) -> None:
    assert allowance(stored) == allowed


@pytest.mark.parametrize(
    ("census", "absence"),
    [
        (Census(stored=600, absent=0, shown=600, deleted_lately=0), Absence.NONE),
        (Census(stored=600, absent=60, shown=540, deleted_lately=0), Absence.SUSPECTED),
        (Census(stored=600, absent=400, shown=200, deleted_lately=0), Absence.SUSPENDED_MANY),
        (Census(stored=15, absent=14, shown=1, deleted_lately=0), Absence.SUSPENDED_MANY),
        (Census(stored=540, absent=1, shown=539, deleted_lately=60), Absence.SUSPENDED_MANY),
        (Census(stored=1, absent=1, shown=0, deleted_lately=0), Absence.SUSPENDED_EMPTY),
        (Census(stored=0, absent=0, shown=0, deleted_lately=0), Absence.NONE),
    ],
)
def test_absence_is_suspected_or_suspends_deletions(census: Census, absence: Absence) -> None:
    assert assess_absences(census) is absence
    assert absence.is_suspended == absence.name.startswith("SUSPENDED")


@pytest.mark.parametrize(
    ("answer", "confirmed", "repeated", "under_query", "decision"),
    [
        (False, False, False, False, NotDeleted.WAITS),  # one answer may come from a replica that lags
        (False, False, True, False, DeletionReason.NOT_FOUND),
        (False, True, False, False, DeletionReason.NOT_FOUND),
        (True, False, False, False, NotDeleted.WAITS),
        (True, True, False, False, NotDeleted.THERE),
        (True, False, False, True, NotDeleted.WAITS),
        (True, True, False, True, DeletionReason.LEFT),
        (None, False, True, False, NotDeleted.WAITS),
        (None, True, False, False, DeletionReason.ABSENT),
    ],
)
def test_an_absent_record_is_deleted_when_answer_and_passes_agree(
    *, answer: bool | None, confirmed: bool, repeated: bool, under_query: bool, decision: DeletionReason | NotDeleted
) -> None:
    assert decide_deletion(answer, confirmed=confirmed, repeated=repeated, under_query=under_query) is decision


def test_a_sample_is_spread_evenly_and_whole_where_there_are_few() -> None:
    assert choose_sample(range(1, 4)) == [1, 2, 3]
    sample = choose_sample(range(10 * SAMPLE))
    assert (len(sample), {later - row for row, later in itertools.pairwise(sample)}) == (SAMPLE, {10})
