from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator

from dockbell.core.model import (
    DELIVERED,
    NOTICES,
    Delivery,
    Feed,
    NoticeKind,
    Outcome,
    OutcomeKind,
    RunKind,
    Statement,
)
from dockbell.core.moment import format_moment, to_micros
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.narrate import narrate
from dockbell.core.publishing.statement import GapReason, HoldReason, gap, held, rebaselined
from dockbell.delivery.notifier import Notifier
from dockbell.ports import Compose, Condition
from dockbell.stores.sqlite import SqliteStore
from dockbell.telemetry import (
    AgentFails,
    Crowded,
    DeliverySettled,
    DiskFills,
    DiskHasRoom,
    EventDied,
    EventsTakenBack,
    Fact,
    FeedFails,
    FeedMended,
    ProcessDied,
    RunEnded,
    SinkConnected,
    SinkFails,
    SinkOverrun,
    SinkPaused,
    SinkResumed,
    SourceAnswers,
    SourceFails,
    SourcesClaimed,
    Stated,
)
from tests.fakes import NOON, Clock, Ear

FEED, STOCK, ITEMS = Feed("main", "shipments"), Feed("main", "stock"), Feed("main", "items")
HOUR = timedelta(hours=1)
TOLD_NOON = format_moment(NOON)
FULL = DiskFills(3_000_000)
SCHEMA = json.loads((files("dockbell.core.publishing") / "event.schema.json").read_bytes())
DOWN = SinkFails("erp", "connection refused", timedelta(seconds=1))
HANGS = Outcome(OutcomeKind.UNREACHABLE, "no answer")
UP = SinkConnected("erp", "accepts events again")
REFUSED = "HTTP 401; the API does not accept the key, check api_key"
REFUSAL = f"GET /v1/shipments: {REFUSED}"
PAUSED = SinkPaused("erp", "HTTP 410")


def died(number: int, feed: Feed = FEED) -> EventDied:
    return EventDied("erp", feed, f"key{number}", number, "HTTP 422")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON)
    yield store
    await store.aclose()


async def open_notifier(store: SqliteStore) -> tuple[Notifier, Ear, Clock]:
    ear, clock = Ear(), Clock()
    notifier = Notifier(store, ear.telemetry, name="acme", now=clock)
    await notifier.open()
    return notifier, ear, clock


async def read_all(store: SqliteStore) -> Sequence[dict[str, Any]]:
    return [json.loads(event.body) for event in await store.read_events(NOTICES, 0, 100)]


async def told(store: SqliteStore) -> Sequence[str]:
    return [narrate(event, width=200) for event in await read_all(store)]


@pytest.mark.parametrize(
    ("facts", "notices"),
    [
        ([died(1)], ["dead_letter: sink erp: main/shipments key1: HTTP 422"]),
        ([died(1), died(2)], ["dead_letter: sink erp: main/shipments key2: HTTP 422, 2 times"]),
        ([died(1, NOTICES)], []),
        ([SinkOverrun("erp", FEED, None)], ["overrun: sink erp: lost events of main/shipments"]),
        ([SinkOverrun("erp", NOTICES, None)], []),
        ([DOWN, DOWN], ["unreachable: sink erp: connection refused"]),
        ([UP, SinkResumed("erp")], []),
        ([PAUSED, SinkResumed("erp")], ["paused: sink erp: HTTP 410", "recovered: sink erp: was resumed"]),
        ([DOWN, PAUSED], ["unreachable: sink erp: connection refused", "paused: sink erp: HTTP 410"]),
        ([PAUSED, UP], ["paused: sink erp: HTTP 410"]),
        ([FeedFails(FEED, REFUSAL), FeedFails(FEED, REFUSAL)], [f"refused: feed main/shipments: {REFUSAL}"]),
        (
            [FeedFails(FEED, REFUSAL), FeedFails(STOCK, f"GET /v1/stock: {REFUSED}")],
            [f"refused: source main: shipments and stock are not read: {REFUSAL}"],
        ),
        (
            [FeedFails(FEED, REFUSAL), FeedFails(STOCK, "GET /v1/stock: HTTP 404")],
            [f"refused: feed main/shipments: {REFUSAL}", "refused: feed main/stock: GET /v1/stock: HTTP 404"],
        ),
        ([FeedMended(FEED)], []),
        (
            [Crowded(3, 500, "::1"), Crowded(41, 500, "::2")],
            ["crowded: server web: 41 connections refused or closed (limit 500), the last from ::2, 2 times"],
        ),
        (
            [Crowded(0, 500, "", "Too many open files")],
            ["crowded: server web: no connection could be accepted: Too many open files"],
        ),
        (
            [Stated(held(FEED, NOON, reason=HoldReason.DELETIONS, count=14, since=NOON))],
            ["held: feed main/shipments: 14 records absent, too many to believe that they were deleted"],
        ),
        ([Stated(rebaselined(FEED, NOON, ["query"]))], []),
        (
            [
                Stated(gap(FEED, NOON, began_at=NOON - HOUR, ended_at=NOON, reason=GapReason.UNAVAILABLE)),
                Stated(gap(STOCK, NOON, began_at=None, ended_at=NOON, reason=GapReason.DOWN)),
            ],
            [
                (
                    "gap: source main: shipments and stock were not read from an unknown time to 2026-11-21 12:00:00Z:"
                    " the API did not answer and dockbell did not run"
                )
            ],
        ),
        (
            [FULL, DiskHasRoom()],
            [f"disk: store disk: {FULL.describe()}", "recovered: store disk: has free space again"],
        ),
        ([DiskHasRoom()], []),
        ([ProcessDied("process 4711")], ["died: process 4711: it was killed, or its machine went down"]),
        ([SourcesClaimed(30, 90)], []),
        (
            [SourcesClaimed(30, 90, taken_over=20)],
            ["died: process unknown: another process now reads 20 of its sources"],
        ),
    ],
)
async def test_what_somebody_should_look_at_is_told_once(
    store: SqliteStore, facts: Sequence[Fact], notices: Sequence[str]
) -> None:
    notifier, ear, clock = await open_notifier(store)
    for fact in facts:
        ear.telemetry.emit(fact)
    clock.pass_(60)
    await notifier.run_once()
    assert sorted(await told(store)) == sorted(notices)
    for event in await read_all(store):
        Draft202012Validator(SCHEMA).validate(event)


async def test_what_happens_again_within_a_minute_is_counted_and_told_in_one_notice(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)
    assert await notifier.run_once() is None
    crowded = [Crowded(number, 500, "::1") for number in range(1, 101)]
    ear.telemetry.emit(crowded[0])
    assert await notifier.run_once() == NOON + timedelta(minutes=1)
    for fact in crowded[1:99]:
        ear.telemetry.emit(fact)
    assert await notifier.run_once() == NOON + timedelta(minutes=1)
    assert len(await told(store)) == 1
    clock.pass_(60)
    assert await notifier.run_once() == NOON + timedelta(minutes=2)
    assert (await told(store))[1:] == [f"crowded: server web: {crowded[98].describe()}, 98 times"]
    clock.pass_(60)
    assert await notifier.run_once() is None
    ear.telemetry.emit(crowded[99])
    await notifier.run_once()
    assert len(await told(store)) == 3


async def test_dead_letters_of_ten_seconds_are_told_in_one_notice(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)
    for number in range(1, 46):
        ear.telemetry.emit(died(number))
        assert await notifier.run_once() == NOON + timedelta(seconds=10)
    clock.pass_(10)
    await notifier.run_once()
    assert await told(store) == ["dead_letter: sink erp: main/shipments key45: HTTP 422, 45 times"]


async def test_what_is_owed_again_is_no_dead_letter(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)
    for number in range(1, 5):
        ear.telemetry.emit(died(number))
    ear.telemetry.emit(EventsTakenBack("erp", 4))
    for number in range(5, 7):
        ear.telemetry.emit(EventDied("screen", FEED, f"key{number}", number, "HTTP 422"))
    ear.telemetry.emit(EventsTakenBack("screen", 1))
    clock.pass_(10)
    await notifier.run_once()
    assert await told(store) == ["dead_letter: sink screen: main/shipments key6: HTTP 422"]


async def test_a_receiver_is_away_since_the_first_event_that_it_did_not_take(store: SqliteStore) -> None:
    """One that hangs is known to be away only after several attempts, which take their time."""
    notifier, ear, clock = await open_notifier(store)
    notifier.expect("erp")
    (event,) = Composer(FEED, name="acme", singular="shipment", epoch="e")(rebaselined(FEED, NOON, ["query"]), 1)
    for outcome, pause in ((DELIVERED, 5), (HANGS, 40)):
        ear.telemetry.emit(DeliverySettled("erp", Delivery(event), outcome))
        clock.pass_(pause)
    ear.telemetry.emit(SinkFails("erp", "no answer", timedelta(seconds=5)))
    await notifier.run_once()
    with closing(sqlite3.connect(store.path)) as connection:
        found = connection.execute("SELECT condition, since FROM conditions").fetchall()
    assert found == [(Condition.DOWN, to_micros(NOON + timedelta(seconds=5)))]
    clock.pass_(20)
    await notifier.run_once()
    assert await told(store) == ["unreachable: sink erp: no answer"]


async def test_a_key_that_is_refused_is_one_alert_and_one_end(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)
    for feed in (FEED, STOCK):
        ear.telemetry.emit(FeedFails(feed, f"GET /v1/{feed.resource}: {REFUSED}"))
        clock.pass_(20)
        await notifier.run_once()
    assert await told(store) == []
    clock.pass_(20)
    await notifier.run_once()
    first = f"refused: source main: shipments and stock are not read: {REFUSAL}"
    assert await told(store) == [first]
    clock.pass_(60)
    ear.telemetry.emit(FeedFails(ITEMS, f"GET /v1/items: {REFUSED}"))
    ear.telemetry.emit(FeedFails(ITEMS, f"GET /v1/items: {REFUSED}"))
    await notifier.run_once()
    second = f"refused: source main: items, shipments and stock are not read: GET /v1/items: {REFUSED}"
    assert await told(store) == [first, second]
    for feed in (FEED, STOCK, ITEMS):
        ear.telemetry.emit(FeedMended(feed))
        await notifier.run_once()
    assert await told(store) == [first, second, "recovered: source main: is read again"]
    clock.pass_(120)
    assert await notifier.run_once() is None


async def test_a_feed_that_is_removed_is_no_part_of_an_alert_any_more(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)
    for feed in (FEED, STOCK):
        ear.telemetry.emit(FeedFails(feed, REFUSAL))
    clock.pass_(60)
    await notifier.run_once()
    notifier.forget([STOCK], [], [])
    ear.telemetry.emit(FeedMended(FEED))
    await notifier.run_once()
    assert (await told(store))[1:] == ["recovered: source main: is read again"]


async def test_a_gap_is_told_again_only_of_feeds_that_were_not_told_of(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)
    for feed in (FEED, STOCK):
        ear.telemetry.emit(Stated(gap(feed, NOON, began_at=NOON - HOUR, ended_at=NOON, reason=GapReason.REFUSED)))
        clock.pass_(10)
        await notifier.run_once()
    clock.pass_(60)
    await notifier.run_once()
    assert await told(store) == [
        f"gap: source main: {resource} was not read from 2026-11-21 11:00:00Z to 2026-11-21 12:00:00Z: "
        "the API refused the requests"
        for resource in ("shipments", "stock")
    ]


async def test_what_happens_while_a_notice_is_written_is_told_in_the_next(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifier, ear, clock = await open_notifier(store)
    publish = store.feed(NOTICES).publish

    async def publish_slowly(statements: Sequence[Statement], compose: Compose) -> None:
        await publish(statements, compose)
        if statements[0].details["reason"].endswith("key1: HTTP 422"):
            ear.telemetry.emit(died(2))

    monkeypatch.setattr(store.feed(NOTICES), "publish", publish_slowly)
    ear.telemetry.emit(died(1))
    clock.pass_(10)
    await notifier.run_once()
    clock.pass_(60)
    await notifier.run_once()
    assert [event["data"]["count"] for event in await read_all(store)] == [1, 1]


async def test_notices_are_published_as_they_come_and_again_after_the_store_failed(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifier, ear, _ = await open_notifier(store)
    publish = store.feed(NOTICES).publish
    failed: list[NoticeKind] = []

    async def fail_once(statements: Sequence[Statement], compose: Compose) -> None:
        if not failed:
            failed.append(NoticeKind(statements[0].kind))
            raise OSError("database or disk is full")
        await publish(statements, compose)

    monkeypatch.setattr(store.feed(NOTICES), "publish", fail_once)
    async with anyio.create_task_group() as group:
        group.start_soon(notifier.run)
        rings = store.outbox.rings
        ear.telemetry.emit(Crowded(3, 500, "::1"))
        with anyio.fail_after(5):
            while not any(isinstance(fact, AgentFails) for fact in ear.facts):  # noqa: ASYNC110  # told by no event
                await anyio.sleep(0.002)
            ear.telemetry.emit(PAUSED)
            await store.outbox.wait(rings)
        group.cancel_scope.cancel()
    assert [notice.partition(":")[0] for notice in await told(store)] == ["crowded", "paused"]


async def test_what_was_wrong_with_a_sink_is_forgotten_with_it(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)
    for _ in range(2):
        ear.telemetry.emit(DOWN)
        clock.pass_(60)
        await notifier.run_once()
        notifier.forget([], ["erp"], [])
    ear.telemetry.emit(DOWN)
    notifier.forget([], ["erp"], [])
    clock.pass_(60)
    await notifier.run_once()
    assert await told(store) == ["unreachable: sink erp: connection refused"] * 2


async def test_a_source_that_answers_nothing_for_a_minute_is_told_and_that_it_is_back(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)
    ear.telemetry.emit(SourceFails("main", "HTTP 503"))
    assert await notifier.run_once() == NOON + timedelta(minutes=1)
    assert await told(store) == []
    clock.pass_(60)
    await notifier.run_once()
    ear.telemetry.emit(SourceAnswers("main", timedelta(minutes=4)))
    await notifier.run_once()
    assert await told(store) == [
        "unreachable: source main: HTTP 503",
        "recovered: source main: answers again after 4m",
    ]


async def test_the_alert_about_a_source_ends_with_its_reading(store: SqliteStore) -> None:
    """A reload begins it anew: if it still does not answer, that is told a minute later."""
    notifier, ear, clock = await open_notifier(store)
    ear.telemetry.emit(SourceFails("main", "HTTP 503"))
    clock.pass_(60)
    await notifier.run_once()
    notifier.forget([], [], ["main", "other"])
    await notifier.run_once()
    assert (await told(store))[1:] == ["recovered: source main: is no longer read, or was reconfigured"]


@pytest.mark.parametrize("end", ["answers", "is asked anew", "stops"])
async def test_nothing_is_told_of_a_short_outage(store: SqliteStore, end: str) -> None:
    notifier, ear, clock = await open_notifier(store)
    ear.telemetry.emit(SourceFails("main", "HTTP 503"))
    clock.pass_(59)
    if end == "answers":
        ear.telemetry.emit(SourceAnswers("main", timedelta(seconds=59)))
    elif end == "is asked anew":
        notifier.forget([], [], ["main"])
    await notifier.finish()
    clock.pass_(60)
    assert await notifier.run_once() is None
    assert await told(store) == []


async def test_what_happens_again_and_is_over_before_it_is_published_is_not_told(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)
    ear.telemetry.emit(PAUSED)
    await notifier.run_once()
    for fact in (SinkResumed("erp"), PAUSED, SinkResumed("erp")):
        clock.pass_(5)
        ear.telemetry.emit(fact)
        await notifier.run_once()
    assert await told(store) == ["paused: sink erp: HTTP 410", "recovered: sink erp: was resumed"]
    clock.pass_(120)
    assert await notifier.run_once() is None
    assert len(await told(store)) == 2
    ear.telemetry.emit(PAUSED)
    await notifier.run_once()
    assert (await told(store))[2:] == ["paused: sink erp: HTTP 410"]


async def test_an_alert_and_its_end_arrive_in_order_and_no_other_waits_for_them(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)
    for facts in ((DOWN, PAUSED, FeedFails(FEED, "HTTP 401")), (UP, died(1))):
        for fact in facts:
            ear.telemetry.emit(fact)
        clock.pass_(60)
        await notifier.run_once()
    events = await store.read_events(NOTICES, 0, 100)
    assert [(event.key, event.change) for event in events] == [
        ("unreachable,sink,erp", "unreachable"),
        ("paused,sink,erp", "paused"),
        ("refused,feed,main%2Fshipments", "refused"),
        ("unreachable,sink,erp", "recovered"),
        ("dead_letter,sink,erp", "dead_letter"),
    ]
    documents = await read_all(store)
    assert documents[3]["data"]["resolves"] == "unreachable"
    assert documents[3]["partitionkey"] == "dockbell/notices/unreachable,sink,erp"


async def test_passes_that_fail_for_long_are_told_once_and_that_one_is_complete(store: SqliteStore) -> None:
    notifier, ear, clock = await open_notifier(store)

    def end_pass(problem: str) -> RunEnded:
        return RunEnded(FEED, RunKind.PASS, 1, 1, 0, timedelta(0), problem)

    for problem in ("", "HTTP 500", "HTTP 500", "HTTP 500", "HTTP 500", "HTTP 500"):
        ear.telemetry.emit(end_pass(problem))
        await notifier.run_once()
        clock.pass_(400)
    ear.telemetry.emit(end_pass(""))
    await notifier.run_once()
    assert [notice["data"]["reason"] for notice in await read_all(store)] == [
        "4 passes failed in a row: HTTP 500; deletions and changes without a new updated_at are not detected",
        "is read completely again",
    ]
