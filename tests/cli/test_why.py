"""What ``dockbell why`` says of what seldom happens."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dockbell.admin.why import RecordHistory, SinkTrace, Stage
from dockbell.cli.why import _run_rows, _tell_record, _tell_transit
from dockbell.core.model import Feed, RunKind
from dockbell.ports import Quarantined, RunRecord, StoredRecord

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ACCOUNT = RecordHistory(NOON, Feed("main", "stock"), "a", None)
RECORD = StoredRecord("a", None, bytes(range(16)), 2)


@pytest.mark.parametrize(
    ("account", "told"),
    [
        (ACCOUNT, "unknown"),
        (
            replace(ACCOUNT, record=replace(RECORD, held_at=NOON)),
            (
                "present, revision 2, modified at no known time, fingerprint 00010203,"
                " a reading is held since 2026-11-21 12:00:00Z"
            ),
        ),
        (
            replace(ACCOUNT, record=replace(RECORD, gone_at=NOON, modified=NOON)),
            "gone, since 2026-11-21 12:00:00Z, revision 2, modified 2026-11-21 12:00:00Z, fingerprint 00010203",
        ),
        (
            replace(ACCOUNT, record=replace(RECORD, gone_at=NOON, modified=NOON, fingerprint=bytes(16))),
            "gone, since 2026-11-21 12:00:00Z, revision 2, modified 2026-11-21 12:00:00Z, purged",
        ),
        (
            replace(ACCOUNT, quarantined=(Quarantined("a", "key a: stands twice", NOON, NOON),)),
            "unknown, in quarantine",
        ),
    ],
)
def test_a_record_is_told_on_one_line(account: RecordHistory, told: str) -> None:
    assert _tell_record(account) == told


@pytest.mark.parametrize(
    ("transit", "told"),
    [
        (SinkTrace("erp", Stage.OWED), "owed"),
        (
            SinkTrace("erp", Stage.BLOCKED, 3, "HTTP 503", NOON),
            "blocked after 3 attempts: HTTP 503, next at 2026-11-21 12:00:00Z",
        ),
        (
            SinkTrace("erp", Stage.BLOCKED, 0, "", NOON),
            "blocked after 0 attempts, next at 2026-11-21 12:00:00Z",
        ),
        (SinkTrace("erp", Stage.DEAD, 9, "HTTP 400", NOON), "dead after 9 attempts: HTTP 400"),
    ],
)
def test_the_way_of_an_event_to_a_sink_is_told_in_words(transit: SinkTrace, told: str) -> None:
    assert _tell_transit(transit) == told


def test_runs_that_ended_alike_share_a_line() -> None:
    run = RunRecord(RunKind.PASS, NOON, None, NOON, pages=2, records=7, events=1)
    poll = replace(run, kind=RunKind.POLL, since=NOON, problem="HTTP 500")
    assert _run_rows([run, poll, poll]) == [
        ("2026-11-21 12:00:00Z", "pass", "complete, 2 pages, 7 records, 1 events"),
        ("2026-11-21 12:00:00Z to 2026-11-21 12:00:00Z", "2 times poll", "incomplete, HTTP 500"),
    ]
