from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dockbell.core.model import ChangeKind, Feed, StatementKind
from dockbell.core.publishing import statement
from dockbell.core.publishing.statement import Certificate, GapReason, HoldReason, PassVerdict

FEED = Feed("main", "items")
NOW = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
THEN = NOW - timedelta(minutes=1)


def test_a_certificate_counts_every_kind_of_change() -> None:
    certificate = Certificate(
        began_at=THEN,
        ended_at=NOW,
        pages=1,
        records=9,
        found={ChangeKind.RESTORED: 2},
        missed=0,
        held=3,
        digest="00",
        verdict=PassVerdict.EQUAL,
    )
    made = statement.reconciled(FEED, NOW, certificate)
    assert (made.feed, made.kind, made.detected_at) == (FEED, StatementKind.RECONCILED, NOW)
    assert made.details == {
        "from": "2026-11-21T02:29:00.000Z",
        "to": "2026-11-21T02:30:00.000Z",
        "pages": 1,
        "records": 9,
        "created": 0,
        "updated": 0,
        "deleted": 0,
        "restored": 2,
        "missed": 0,
        "held": 3,
        "quarantined": 0,
        "digest": "00",
        "verdict": "equal",
    }


def test_the_begin_of_a_gap_may_be_unknown() -> None:
    made = statement.gap(FEED, NOW, began_at=None, ended_at=THEN, reason=GapReason.STORE_LOST)
    assert made.details == {"from": None, "to": "2026-11-21T02:29:00.000Z", "reason": "store_lost"}


def test_only_what_is_held_for_its_paths_names_paths() -> None:
    deletions = statement.held(FEED, NOW, reason=HoldReason.DELETIONS, count=7, since=THEN)
    drift = statement.held(FEED, NOW, reason=HoldReason.DRIFT, count=7, since=THEN, paths=("/a",))
    assert "paths" not in deletions.details
    assert drift.details == {"reason": "drift", "count": 7, "paths": ["/a"], "since": "2026-11-21T02:29:00.000Z"}


def test_a_new_way_of_reading_names_what_differs() -> None:
    assert statement.rebaselined(FEED, NOW, ("query",)).details == {"parts": ["query"]}
