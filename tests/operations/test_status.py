from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dockbell.config import FeedSettings, ResourceSettings
from dockbell.core.model import Feed, RunKind
from dockbell.core.reading.window import Progress
from dockbell.operations.status import FeedStatus, Status, format_age, judge_status, load_status
from dockbell.ports import FeedState, RunRecord, SinkState
from dockbell.scheduler import next_time
from dockbell.stores.sqlite import SqliteStore, SqliteView

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FEED = Feed("main", "shipments")
READ = FeedStatus(FEED, MINUTE, 7, FeedState(1, FEED), NOON + MINUTE)
QUIET = SinkState("erp", owed=0, blocked=0, dead=0, oldest=None, error="")


def run(kind: RunKind, ended_at: datetime) -> RunRecord:
    return RunRecord(kind, ended_at, None, ended_at, pages=1, records=1, events=0)


def feed(problem: str = "", held: int = 0) -> FeedStatus:
    full = run(RunKind.PASS, NOON - 5 * MINUTE)
    return replace(READ, state=FeedState(1, FEED, held=held, problem=problem, full=full))


def judge(*feeds: FeedStatus, holder: str = "process 1", sink: SinkState = QUIET) -> list[str]:
    return list(judge_status(Status(NOON, holder, feeds or (feed(),), (sink,))))


def test_there_is_no_reason_when_all_is_well() -> None:
    assert judge() == []


def test_a_store_that_nobody_works_on_is_a_reason() -> None:
    assert judge(holder="") == ['daemon: does not run; start it by "dockbell run"']


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (replace(READ, state=None), "never read to its end yet"),
        (READ, "never read to its end yet"),
        (
            replace(READ, state=FeedState(1, FEED, failed=replace(run(RunKind.PASS, NOON), problem="cannot connect"))),
            "never read to its end yet; last attempt: cannot connect",
        ),
        (replace(feed(), expected_at=NOON - MINUTE), "last read to its end 5m ago, expected every 1m"),
        (
            replace(feed(), every="*/5 * * * mon", expected_at=NOON - MINUTE),
            "last read to its end 5m ago, expected cron */5 * * * mon",
        ),
        (feed(problem="the API does not accept the key"), "the API does not accept the key"),
        (feed(held=30), "30 records are absent, too many to believe that they were deleted; look at the API"),
    ],
)
def test_a_feed_that_needs_a_look_gives_its_reason(status: FeedStatus, reason: str) -> None:
    assert judge(status) == [f"main/shipments: {reason}"]


def test_a_feed_gives_every_reason_that_it_has() -> None:
    assert len(judge(replace(feed(problem="no key", held=3), expected_at=NOON - MINUTE))) == 3


@pytest.mark.parametrize(
    ("sink", "reasons"),
    [
        (replace(QUIET, dead=2), ["sink erp: 2 dead letters"]),
        (replace(QUIET, owed=9, oldest=NOON - 5 * MINUTE), []),
        (
            replace(QUIET, owed=9, oldest=NOON - 6 * MINUTE),
            ["sink erp: an event waits for 6m, 9 events owed, 0 keys blocked"],
        ),
        (
            replace(QUIET, blocked=1, oldest=NOON - timedelta(days=2), error="HTTP 503"),
            ["sink erp: an event waits for 2d, 0 events owed, 1 keys blocked; last error: HTTP 503"],
        ),
    ],
)
def test_a_sink_that_needs_a_look_gives_its_reason(sink: SinkState, reasons: list[str]) -> None:
    assert judge(sink=sink) == reasons


async def look(tmp_path: Path, every: timedelta | str = MINUTE) -> Status:
    each = FeedSettings("main", "shipments", settings(every))
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    view = await SqliteView.open(tmp_path / "a.db")
    try:
        state = await store.open_feed(FEED)
        await store.open_feed(Feed("left", "items"))
        await store.enroll("gone", "now")
        await store.close_pass(state.id, run(RunKind.PASS, NOON - MINUTE), suspected=(), held=0, confirm_at=None)
        await store.close_run(state.id, run(RunKind.POLL, NOON), Progress(NOON))
        other = FeedSettings("main", "stock", settings(MINUTE))
        return await load_status(view, [each, other], ["erp"], at=NOON, holder="me", next_time=next_time)
    finally:
        await view.aclose()
        await store.aclose()


def settings(every: timedelta | str) -> ResourceSettings:
    return ResourceSettings(cron=every) if isinstance(every, str) else ResourceSettings(every=every)


async def test_a_feed_is_expected_three_intervals_and_a_minute_after_its_last_complete_reading(tmp_path: Path) -> None:
    status = (await look(tmp_path)).feeds[0]
    assert (status.feed, status.read_at, status.expected_at) == (FEED, NOON, NOON + 4 * MINUTE)


async def test_a_feed_with_a_cron_line_is_expected_when_it_has_rung_three_times(tmp_path: Path) -> None:
    status = (await look(tmp_path, "*/5 * * * *")).feeds[0]
    assert status.expected_at == NOON + 16 * MINUTE


async def test_only_what_is_configured_is_looked_at_whether_the_store_knows_it_or_not(tmp_path: Path) -> None:
    status = await look(tmp_path)
    assert [str(each.feed) for each in status.feeds] == ["main/shipments", "main/stock"]
    assert status.feeds[1].state is None
    assert status.sinks == (QUIET,)


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=-3), "0s"),
        (timedelta(seconds=59.9), "59s"),
        (timedelta(minutes=3, seconds=20), "3m20s"),
        (timedelta(hours=2, minutes=5, seconds=7), "2h5m"),
        (timedelta(days=3, hours=4, minutes=5), "3d4h"),
    ],
)
def test_an_age_is_told_in_two_units_at_most(age: timedelta, text: str) -> None:
    assert format_age(age) == text
