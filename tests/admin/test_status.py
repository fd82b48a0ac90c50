from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dockbell.admin.as_json import WebModel, describe_status
from dockbell.admin.delays import FeedDelays
from dockbell.admin.quantities import format_age
from dockbell.admin.reasons import find_reasons, list_reasons
from dockbell.admin.remarks import describe_feed, describe_feeds
from dockbell.admin.status import FeedStatus, Gap, Status, load_status
from dockbell.app.next_time import next_time
from dockbell.config import FeedSettings, ResourceSettings, SinkSettings
from dockbell.core.comparing.drift import Decision, Drift
from dockbell.core.delays import Reading
from dockbell.core.model import NOTICES, Feed, NoticeKind, RunKind, Statement
from dockbell.core.planning.division import Reason as DivisionReason
from dockbell.core.planning.stored_plan import StoredPlan
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.statement import GapReason, gap, notice_key
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.signal_state import Phase, SignalState
from dockbell.core.reading.window import Progress
from dockbell.ports import Condition, Failing, FeedState, Found, RunRecord, SinkState
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FEED = Feed("main", "shipments")
READ = FeedStatus(FEED, MINUTE, 7, FeedState(1, FEED), NOON + MINUTE)
DRIFT = Drift(frozenset({"/b", "/a"}))
QUIET = SinkState("erp", owed=0, blocked=0, dead=0, oldest=None, error="")
STDOUT = SinkSettings(type="stdout")


def run(kind: RunKind, ended_at: datetime) -> RunRecord:
    return RunRecord(kind, ended_at, None, ended_at, pages=1, records=1, events=0)


def feed(problem: str = "", held: int = 0) -> FeedStatus:
    full = run(RunKind.PASS, NOON - 5 * MINUTE)
    return replace(READ, state=FeedState(1, FEED, held=held, problem=problem, full=full))


def stands(**fields: Any) -> FeedStatus:
    """Return a feed that was read a moment ago, and of which this is stored."""
    full = run(RunKind.PASS, NOON - 5 * MINUTE)
    return replace(READ, state=replace(FeedState(1, FEED, proven=True, full=full), **fields))


def failure(count: int, minutes: float, problem: str = "HTTP 503") -> Failing:
    """Return how readings fail, the first of them so many minutes ago, the last just now."""
    return Failing(count, NOON - minutes * MINUTE, NOON, problem)


def of(status: FeedStatus, resource: str) -> FeedStatus:
    """Return what is known of a feed as that of another feed of its source."""
    feed = Feed("main", resource)
    return replace(status, feed=feed, state=None if status.state is None else replace(status.state, feed=feed))


def judge(*feeds: FeedStatus, holder: str = "process 1", sink: SinkState = QUIET) -> list[str]:
    return list(list_reasons(Status(NOON, holder, feeds or (feed(),), (sink,))))


def test_there_is_no_reason_when_all_is_well() -> None:
    assert judge() == []


@pytest.mark.parametrize("ahead", [-60, 0, 60])
def test_what_is_known_of_a_feed_ages_by_our_clock_whatever_the_service_s_says(ahead: int) -> None:
    asked_at, sent_at = NOON + (ahead - 3) * MINUTE, NOON - 3 * MINUTE
    poll = replace(run(RunKind.POLL, NOON - 2 * MINUTE), asked_at=asked_at, sent_at=sent_at)
    blind = Gap(None, asked_at, "refused")
    read = replace(stands(poll=poll, progress=Progress(asked_at - MINUTE)), gap=blind)
    assert read.find_age(NOON) == 3 * MINUTE
    assert read.seen_until == NOON - 4 * MINUTE
    assert list(describe_feed(read, NOON)) == ["was not read until 3m ago: the API refused the requests"]


def test_a_reading_of_before_our_clock_was_set_back_makes_nothing_fresher() -> None:
    poll = run(RunKind.POLL, NOON - 4 * MINUTE)
    assert stands(full=run(RunKind.PASS, NOON + 60 * MINUTE), poll=poll).find_age(NOON) == 4 * MINUTE
    assert stands(full=run(RunKind.PASS, NOON + 60 * MINUTE)).find_age(NOON) == timedelta(0)
    assert (READ.find_age(NOON), READ.seen_until) == (None, None)


def test_a_store_that_nobody_works_on_is_a_reason() -> None:
    assert judge(holder="") == ['daemon: is not running; start it with "dockbell run"']


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (replace(READ, state=None), "not read completely yet"),
        (READ, "not read completely yet"),
        (
            replace(READ, state=FeedState(1, FEED, failing={RunKind.PASS: failure(1, 2, "cannot connect")})),
            "not read completely yet; last attempt: cannot connect",
        ),
        (replace(feed(), expected_at=NOON - MINUTE), "last read completely 5m ago, expected every 1m"),
        (
            replace(feed(), every="*/5 * * * mon", expected_at=NOON - MINUTE),
            "last read completely 5m ago, expected cron */5 * * * mon",
        ),
        (feed(problem="the API does not accept the key"), "the API does not accept the key"),
        (
            feed(held=30),
            (
                "30 records are absent, too many to believe that they were deleted; check the API, then run"
                ' "dockbell deletes approve main/shipments" or "dockbell deletes reject main/shipments"'
            ),
        ),
        (
            stands(drift=DRIFT, drifted=12),
            (
                '12 readings that differ only by /a, /b are held; decide with "dockbell drift absorb main/shipments" or'
                ' "dockbell drift publish main/shipments"'
            ),
        ),
        (
            stands(drift=DRIFT),
            (
                'readings that differ only by /a, /b are held; decide with "dockbell drift absorb main/shipments" or'
                ' "dockbell drift publish main/shipments"'
            ),
        ),
        (
            stands(quarantined=3),
            '3 records in quarantine cannot be read or told apart; "dockbell status --verbose" shows why',
        ),
    ],
)
def test_a_feed_that_needs_a_look_gives_its_reason(status: FeedStatus, reason: str) -> None:
    assert judge(status) == [f"main/shipments: {reason}"]


def test_a_feed_gives_every_reason_that_it_has_and_each_cause_once() -> None:
    stopped = replace(feed(problem="no key", held=3), expected_at=NOON - MINUTE)
    first, second = judge(stopped)
    assert first == "main/shipments: no key; last read completely 5m ago"
    assert second.startswith("main/shipments: 3 records are absent")


def test_what_stops_several_feeds_of_a_source_is_one_reason() -> None:
    refusal = "HTTP 401; the API does not accept the key, check api_key"
    feeds = [
        replace(of(each, resource), expected_at=NOON - MINUTE)
        for resource in ("items", "shipments", "stock")
        for each in [feed(problem=f"GET /v1/{resource}: {refusal}")]
    ]
    assert judge(*feeds) == [f"source main: no feed is read for 5m: GET /v1/items: {refusal}"]
    well = of(feed(), "warehouses")
    assert judge(*feeds, well) == [
        f"source main: items, shipments and stock are not read for 5m: GET /v1/items: {refusal}"
    ]
    (reason,) = find_reasons(Status(NOON, "process 1", (*feeds, well), ()))
    assert reason.hinders
    assert [reason.is_about(each.feed) for each in (*feeds, well)] == [True, True, True, False]


def test_an_outage_to_which_several_feeds_were_blind_is_one_remark() -> None:
    gaps = {"items": Gap(NOON - 9 * MINUTE, NOON - MINUTE, "down"), "stock": Gap(NOON - 8 * MINUTE, NOON, "down")}
    feeds = [replace(of(stands(), resource), gap=each) for resource, each in gaps.items()]
    other = replace(of(stands(), "warehouses"), gap=Gap(None, NOON - MINUTE, "store_lost"))
    assert [*describe_feeds(Status(NOON, "process 1", (*feeds, other), ()))] == [
        "main: items and stock were not read for up to 8m until 0s ago: dockbell did not run",
        "main/warehouses: was not read until 1m ago: the store was lost, or restored from a backup",
    ]


def test_gaps_of_two_outages_are_two_remarks() -> None:
    first, second = (Gap(NOON - (end + 3) * MINUTE, NOON - end * MINUTE, "unavailable") for end in (6, 0))
    gaps = {"items": first, "packages": first, "shipments": second, "stock": second}
    feeds = [replace(of(stands(), resource), gap=each) for resource, each in gaps.items()]
    assert [*describe_feeds(Status(NOON, "process 1", tuple(feeds), ()))] == [
        "main: shipments and stock were not read for up to 3m until 0s ago: the API did not answer",
        "main: items and packages were not read for up to 3m until 6m ago: the API did not answer",
    ]


@pytest.mark.parametrize(
    "status", [stands(drift=replace(DRIFT, decision=Decision.ABSORB)), stands(holds=3), stands(rebaselining=True)]
)
def test_what_passes_by_itself_is_no_reason_to_look(status: FeedStatus) -> None:
    assert judge(status) == []


@pytest.mark.parametrize(
    ("status", "remarks"),
    [
        (replace(READ, state=None), []),
        (stands(), []),
        (stands(shape=Shape(("/id",), None, None)), []),
        (
            stands(shape=Shape(("/id",), None, None), proven=False),
            ["key /id is learned but not proven unique yet: no deletions are published"],
        ),
        (
            stands(shape=Shape(("/sku", "/bin"), None, None), proven=False),
            ["key /sku + /bin is learned but not proven unique yet: nothing is published"],
        ),
        (
            stands(rebaselining=True),
            ["its read settings changed: differences are stored without events until a pass is complete"],
        ),
        (
            stands(holds=3),
            ["3 readings are held: they are older than the stored records, maybe from a lagging replica"],
        ),
        (
            stands(drift=replace(DRIFT, decision=Decision.PUBLISH)),
            ["drift of /a, /b: publish, until a pass finds no more of it"],
        ),
        (
            replace(stands(), gap=Gap(NOON - 9 * MINUTE, NOON - MINUTE, "down")),
            ["was not read for 8m until 1m ago: dockbell did not run"],
        ),
        (
            replace(stands(), gap=Gap(None, NOON - MINUTE, "store_lost")),
            ["was not read until 1m ago: the store was lost, or restored from a backup"],
        ),
    ],
)
def test_what_is_worth_knowing_of_a_feed_is_said(status: FeedStatus, remarks: list[str]) -> None:
    assert list(describe_feed(status, NOON)) == remarks


async def test_what_may_still_be_stored_though_it_is_dropped_is_remarked(tmp_path: Path) -> None:
    settings = FeedSettings("main", "shipments", ResourceSettings(every=MINUTE, drop=("/a", "/b")))
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON)
    state = await store.feed(FEED).open()
    await store.feed(state.feed).mark_dropped(["/b"])
    read_store = await SqliteReadStore.open(store.path)
    try:
        found = await load_status(read_store, [settings], {}, at=NOON, holder="", next_time=next_time)
    finally:
        await read_store.aclose()
        await store.aclose()
    assert found.feeds[0].undropped == ("/a",)
    assert list(describe_feed(found.feeds[0], NOON)) == [
        "/a may still be stored from before it was dropped: a daemon removes it"
    ]


@pytest.mark.parametrize(
    ("sink", "reasons"),
    [
        (replace(QUIET, dead=2), ['sink erp: 2 dead letters; "dockbell dead erp" lists them']),
        (
            replace(QUIET, dead=2, held=1),
            ['sink erp: 2 dead letters, 1 of them holds back its key; "dockbell dead erp" lists them'],
        ),
        (
            replace(QUIET, owed=9, oldest=NOON - 9 * MINUTE, paused="HTTP 410", paused_at=NOON - 2 * MINUTE),
            ['sink erp: paused 2m ago, 9 events owed: HTTP 410; "dockbell resume erp" resumes delivery'],
        ),
        (replace(QUIET, owed=9, oldest=NOON - 5 * MINUTE), []),
        (
            replace(QUIET, owed=9, oldest=NOON - 6 * MINUTE),
            ["sink erp: an event has waited for 6m, 9 events owed, 0 keys blocked"],
        ),
        (
            replace(QUIET, owed=9, owed_at_most=True, oldest=NOON - 6 * MINUTE),
            ["sink erp: an event has waited for 6m, at most 9 events owed, 0 keys blocked"],
        ),
        (
            replace(QUIET, blocked=1, oldest=NOON - timedelta(days=2), error="HTTP 503"),
            ["sink erp: an event has waited for 2d, 0 events owed, 1 key blocked; last error: HTTP 503"],
        ),
    ],
)
def test_a_sink_that_needs_a_look_gives_its_reason(sink: SinkState, reasons: list[str]) -> None:
    assert judge(sink=sink) == reasons


def down(minutes: float, **fields: Any) -> SinkState:
    """Return a sink whose receiver has not been reached for so long."""
    return replace(QUIET, found=Found(Condition.DOWN, NOON - minutes * MINUTE, "connection refused"), **fields)


def test_a_receiver_that_cannot_be_reached_is_a_reason_after_a_while() -> None:
    assert judge(sink=down(0.1)) == []
    assert judge(sink=down(0.5)) == ["sink erp: no event could be delivered for 30s: connection refused"]
    assert judge(sink=down(3)) == ["sink erp: no event could be delivered for 3m: connection refused"]
    assert judge(sink=down(6, owed=9, blocked=2, oldest=NOON - 6 * MINUTE)) == [
        "sink erp: an event has waited for 6m, 9 events owed, 2 keys blocked; last error: connection refused"
    ]
    assert judge(sink=replace(QUIET, found=Found(Condition.CONNECTED, NOON - 3 * MINUTE))) == []


@pytest.mark.parametrize(
    ("feed_", "sink", "hinders"),
    [
        (feed("HTTP 401"), QUIET, [True]),
        (feed(held=7), QUIET, [False]),
        (READ, QUIET, [False]),  # the first pass goes on
        (replace(READ, state=FeedState(1, FEED, failing={RunKind.PASS: failure(1, 2)})), QUIET, [True]),
        (stands(failing={RunKind.POLL: failure(1, 0.1)}), QUIET, [True]),
        (stands(failing={RunKind.TRAILING: failure(1, 2)}), QUIET, []),
        (replace(feed(), expected_at=NOON - MINUTE), QUIET, [True]),
        (feed(), replace(QUIET, dead=2), [False]),
        (feed(), down(3, paused="maintenance", paused_at=NOON), [False]),
        (feed(), replace(QUIET, owed=1, oldest=NOON - 9 * MINUTE), [False]),  # slow is not down
        (feed(), down(3), [True]),
        (feed(), down(9, owed=1, oldest=NOON - 9 * MINUTE), [True]),
    ],
)
def test_a_reason_says_whether_it_keeps_dockbell_from_its_work(
    feed_: FeedStatus, sink: SinkState, hinders: list[bool]
) -> None:
    reasons = find_reasons(Status(NOON, "process 1", (feed_,), (sink,)))
    assert [reason.hinders for reason in reasons] == hinders


def test_what_fails_is_told_before_what_waits_for_an_operator_and_that_before_what_passes_by_itself() -> None:
    feeds = (
        replace(READ, feed=Feed("main", "stock")),
        feed(held=7),
        replace(feed("HTTP 401"), feed=Feed("a", "items")),
    )
    reasons = find_reasons(Status(NOON, "process 1", feeds, (replace(QUIET, dead=16), down(3))))
    assert [(reason.weight.value, reason.about) for reason in reasons] == [
        ("failing", "feed:a/items"),
        ("failing", "sink:erp"),
        ("waiting", "feed:main/shipments"),
        ("waiting", "sink:erp"),
        ("progress", "feed:main/stock"),
    ]


def test_a_daemon_that_does_not_run_hinders_everything() -> None:
    assert [reason.hinders for reason in find_reasons(Status(NOON, "", (), ()))] == [True]


async def look(
    tmp_path: Path, every: timedelta | str = MINUTE, *, paused: bool = False, sink: SinkSettings = STDOUT
) -> Status:
    each = FeedSettings("main", "shipments", settings(every), paused)
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    read_store = await SqliteReadStore.open(tmp_path / "a.db")
    try:
        state = await store.feed(FEED).open()
        await store.feed(Feed("left", "items")).open()
        await store.sink("gone").enroll("now")
        await store.feed(state.feed).close_run(run(RunKind.PASS, NOON - MINUTE))
        await store.feed(state.feed).save_listing_profile('{"clock":["local",0],"order":["key",0]}')
        await store.feed(state.feed).publish(
            [
                gap(FEED, NOON, began_at=start, ended_at=NOON, reason=GapReason.REFUSED)
                for start in (None, NOON - MINUTE)
            ],
            Composer(FEED, name="acme", singular="shipment", epoch="epoch"),
        )
        await store.feed(state.feed).close_run(run(RunKind.POLL, NOON), Progress(NOON))
        other = FeedSettings("main", "stock", settings(MINUTE))
        return await load_status(read_store, [each, other], {"erp": sink}, at=NOON, holder="me", next_time=next_time)
    finally:
        await read_store.aclose()
        await store.aclose()


def settings(every: timedelta | str) -> ResourceSettings:
    return ResourceSettings(cron=every) if isinstance(every, str) else ResourceSettings(every=every)


async def test_a_feed_is_expected_three_intervals_and_a_minute_after_its_last_complete_reading(tmp_path: Path) -> None:
    status = (await look(tmp_path)).feeds[0]
    assert (status.feed, status.read_at, status.expected_at) == (FEED, NOON, NOON + 4 * MINUTE)


async def test_what_filters_may_leave_out_is_owed_at_most(tmp_path: Path) -> None:
    assert not (await look(tmp_path)).sinks[0].owed_at_most
    (tmp_path / "other").mkdir()
    sink = STDOUT.model_copy(update={"changes": ("deleted",)})
    assert (await look(tmp_path / "other", sink=sink)).sinks[0].owed_at_most


async def test_a_feed_whose_source_is_paused_is_not_expected(tmp_path: Path) -> None:
    status = (await look(tmp_path, paused=True)).feeds[0]
    assert (status.read_at, status.expected_at, status.pass_expected_at) == (NOON, None, None)


async def test_a_feed_that_was_never_read_is_not_expected(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    await store.feed(FEED).open()
    read_store = await SqliteReadStore.open(tmp_path / "a.db")
    each = FeedSettings("main", "shipments", settings(MINUTE))
    (status,) = (await load_status(read_store, [each], {}, at=NOON, holder="", next_time=next_time)).feeds
    assert (status.read_at, status.expected_at, status.gap) == (None, None, None)
    await read_store.aclose()
    await store.aclose()


async def test_a_feed_with_a_cron_line_is_expected_when_it_has_rung_three_times(tmp_path: Path) -> None:
    status = (await look(tmp_path, "*/5 * * * *")).feeds[0]
    assert status.expected_at == NOON + 16 * MINUTE


async def test_only_what_is_configured_is_looked_at_whether_the_store_knows_it_or_not(tmp_path: Path) -> None:
    status = await look(tmp_path)
    assert [str(each.feed) for each in status.feeds] == ["main/shipments", "main/stock"]
    assert (status.feeds[1].state, status.feeds[1].learned) == (None, ())
    assert status.sinks == (QUIET,)


@pytest.mark.parametrize(("minutes", "reasons"), [(60, ["web: 1h ago, 41 connections refused or closed"]), (61, [])])
async def test_that_more_came_than_there_is_room_for_is_a_reason_for_an_hour(
    tmp_path: Path, minutes: int, reasons: list[str]
) -> None:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON)
    await store.feed(NOTICES).open()
    compose = Composer(NOTICES, name="acme", singular="notice", epoch=store.epoch)
    key = notice_key(NoticeKind.CROWDED, "server", "web")
    for count in (3, 41):
        details = {"server": "web", "reason": f"{count} connections refused or closed", "count": 1}
        await store.feed(NOTICES).publish([Statement(NOTICES, NoticeKind.CROWDED, NOON, details, key)], compose)
    read_store = await SqliteReadStore.open(tmp_path / "dockbell.db")
    at = NOON + minutes * MINUTE
    status = await load_status(read_store, [], {}, at=at, holder="process 1", next_time=next_time)
    assert [reason.partition(";")[0] for reason in list_reasons(status)] == reasons
    assert not any(reason.hinders for reason in find_reasons(status))
    crowded = WebModel("2026-11-21T12:00:00.000Z", "41 connections refused or closed")
    assert describe_status(status).web == (crowded if reasons else None)
    await read_store.aclose()
    await store.aclose()


async def test_a_feed_tells_how_far_its_polls_look_back_and_when_dockbell_was_blind_last(tmp_path: Path) -> None:
    shipments, stock = (await look(tmp_path)).feeds
    assert (shipments.lookback, stock.lookback) == (2 * MINUTE, None)  # our clock stands in for the service's
    assert (shipments.gap, stock.gap) == (Gap(NOON - MINUTE, NOON, "refused"), None)
    assert shipments.bad == ()
    assert (dict(shipments.learned)["order"], stock.learned) == ("the key, ascending", ())


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


# Readings that fail --------------------------------------------------------------------------------------------------


def of_source(resource: str, **fields: Any) -> FeedStatus:
    """Return one of several feeds of a source, read 5 minutes ago."""
    return replace(stands(**fields), feed=Feed("main", resource))


def test_a_reading_that_fails_is_told_at_once_and_since_when() -> None:
    assert judge(stands(failing={RunKind.POLL: failure(1, 0.05)})) == [
        "main/shipments: the last reading failed 3s ago: HTTP 503"
    ]
    assert judge(stands(failing={RunKind.POLL: failure(4, 2)})) == [
        "main/shipments: the last 4 readings failed, the first 2m ago: HTTP 503"
    ]
    stock = replace(stands(failing={RunKind.PASS: failure(1, 1)}), feed=Feed("main", "stock"))
    assert judge(stock) == ["main/stock: the last reading failed 1m ago: HTTP 503"]


def test_feeds_of_a_source_that_fail_together_are_one_reason_also_for_those_that_are_late_or_not_due_yet() -> None:
    status = (
        of_source("shipments", failing={RunKind.POLL: failure(4, 2)}),
        replace(of_source("items", failing={RunKind.POLL: failure(3, 1, "no answer")}), expected_at=NOON - MINUTE),
        replace(of_source("warehouses"), expected_at=NOON + 60 * MINUTE),
        replace(of_source("stock"), expected_at=NOON - MINUTE),
    )
    (reason,) = find_reasons(Status(NOON, "process 1", status, ()))
    assert str(reason) in {
        "source main: no feed is read for 5m: HTTP 503 (7 readings failed)",
        "source main: no feed is read for 5m: no answer (7 readings failed)",
    }
    assert (reason.about, reason.hinders) == ("source:main", True)


def test_what_else_needs_a_look_is_told_of_a_source_that_is_down() -> None:
    failing = {RunKind.POLL: failure(4, 2)}
    reasons = judge(of_source("shipments", failing=failing), of_source("items", failing=failing, quarantined=2))
    assert [reason.partition(":")[0] for reason in reasons] == ["source main", "main/items"]


def test_a_source_of_which_a_feed_is_read_meanwhile_is_not_down() -> None:
    failing = {RunKind.POLL: failure(4, 6)}
    reasons = judge(of_source("shipments", failing=failing), of_source("items", failing=failing), of_source("packages"))
    assert [reason.partition(":")[0] for reason in reasons] == ["main/shipments", "main/items"]


def test_a_first_reading_that_fails_is_told_of_the_source() -> None:
    first = FeedState(1, FEED, failing={RunKind.PASS: failure(1, 0.5)})
    reasons = judge(replace(READ, state=first), replace(READ, feed=Feed("main", "items"), state=first))
    assert reasons == ["source main: no feed is read: HTTP 503 (2 readings failed)"]


def test_the_first_readings_of_many_feeds_are_one_line() -> None:
    """A start with 8 sources is progress, not 40 things to look at."""
    unread = [replace(READ, feed=Feed(source, "stock")) for source in ("a", "b", "c")]
    assert judge(*unread) == ["daemon: reads all 3 feeds for the first time; changes are detected after that"]
    assert judge(*unread, feed()) == ["daemon: reads 3 of 4 feeds for the first time; changes are detected after that"]


def test_a_first_reading_that_fails_is_told_beside_those_that_go_on() -> None:
    unread = [replace(READ, feed=Feed(source, "stock")) for source in ("a", "b")]
    failing = FeedState(1, FEED, failing={RunKind.PASS: failure(1, 0.5)})
    reasons = judge(*unread, replace(READ, feed=Feed("c", "stock"), state=failing))
    assert [reason.partition(";")[0] for reason in reasons] == [
        "c/stock: not read completely yet",
        "daemon: reads 2 of 3 feeds for the first time",
    ]


def test_that_a_feed_is_read_for_the_first_time_is_said_of_it() -> None:
    begun = replace(READ, state=FeedState(1, FEED, first_asked_at=NOON))
    assert list(describe_feed(begun, NOON)) == ["is read for the first time"]


def test_a_source_that_refuses_its_key_is_told_by_what_mends_it() -> None:
    stopped = stands(problem="HTTP 401", failing={RunKind.POLL: failure(4, 2)})
    assert judge(stopped) == ["main/shipments: HTTP 401"]


# Passes --------------------------------------------------------------------------------------------------------------


def fails(count: int, minutes: float, **fields: Any) -> FeedStatus:
    """Return a feed that is polled, but whose passes fail."""
    poll, full = run(RunKind.POLL, NOON), run(RunKind.PASS, NOON - 200 * MINUTE)
    failing = {RunKind.PASS: failure(count, minutes, "page 42: HTTP 500")}
    return replace(READ, state=replace(FeedState(1, FEED, full=full, poll=poll, failing=failing, **fields)))


def test_passes_that_fail_while_polls_go_on_are_a_reason_that_says_what_is_blind() -> None:
    (reason,) = find_reasons(Status(NOON, "process 1", (fails(7, 190),), ()))
    assert reason.words == (
        "no complete pass for 3h20m, 7 failed in a row: page 42: HTTP 500; deletions and changes without a new"
        " updated_at are not detected; polls continue"
    )
    assert reason.hinders


def test_a_first_pass_that_fails_while_polls_go_on_is_one_too() -> None:
    state = fails(3, 16).state
    assert state is not None
    (reason,) = judge(replace(READ, state=replace(state, full=None)))
    assert reason.startswith("main/shipments: no complete pass yet, 3 failed in a row: page 42")


@pytest.mark.parametrize(("count", "minutes"), [(2, 60), (30, 14)])
def test_a_few_passes_that_fail_or_many_within_minutes_are_none(count: int, minutes: float) -> None:
    assert judge(fails(count, minutes)) == []


def test_a_pass_that_was_not_made_when_the_third_was_due_is_one() -> None:
    state = replace(stands().state or FeedState(1, FEED), poll=run(RunKind.POLL, NOON))
    (reason,) = judge(replace(READ, state=state, pass_expected_at=NOON - MINUTE))
    assert reason.startswith("main/shipments: no complete pass for 5m; deletions")


def test_a_feed_without_polls_is_not_read_at_all_when_its_passes_fail() -> None:
    stock = replace(fails(7, 190), feed=Feed("main", "stock"), expected_at=NOON - MINUTE)
    assert [reason[:41] for reason in judge(stock)] == ["main/stock: last read completely 0s ago, "]


@pytest.mark.parametrize(
    ("resource", "signal", "words"),
    [
        (
            "stock",
            SignalState(Phase.USED, found=3),
            "used as a signal, which recently showed 3 changes first, 0 too late and 0 not at all",
        ),
        ("packages", SignalState(), "no signal: 50 changes are needed to tell"),
        ("items", SignalState(Phase.USED), None),
        ("stock", None, None),
    ],
)
def test_a_feed_tells_whether_another_is_a_signal_for_it(
    resource: str, signal: SignalState | None, words: str | None
) -> None:
    feed = Feed("main", resource)
    state = FeedState(1, feed, signal="" if signal is None else signal.to_json())
    each = FeedStatus(feed, MINUTE, state=state)
    told = dict(each.learned).get("signal")
    assert (each.signal is None) is (told is None) is (words is None)
    if words is not None:
        assert told is not None
        assert told.endswith(words)


# The plan, and what was measured -------------------------------------------------------------------------------------


def test_a_plan_that_the_requests_do_not_suffice_for_is_a_remark() -> None:
    status = replace(stands(), every=timedelta(seconds=12), short_of="every 1s")
    assert list(describe_feed(status, NOON)) == [
        'is read every 12s: the budget does not allow every 1s; "dockbell plan" shows what would help'
    ]
    assert judge(status) == []


def test_nothing_is_expected_of_a_paused_source() -> None:
    drifting = FeedState(1, FEED, problem="HTTP 401", held=3, drift=DRIFT)
    status = FeedStatus(FEED, MINUTE, 7, drifting, paused=True)
    assert judge(status) == []
    assert next(describe_feed(status, NOON)).startswith("source main is paused: dockbell does not read it")


def test_a_feed_that_is_slower_than_planned_for_an_hour_is_a_remark() -> None:
    slow = Reading(timedelta(seconds=16), timedelta(seconds=10))
    status = replace(stands(), delays=FeedDelays(slow=slow))
    (remark,) = describe_feed(status, NOON)
    assert remark.startswith(
        "changes have waited 16s on average for an hour, the plan predicted 10s: the API is slower"
    )
    assert judge(status) == []


@pytest.mark.parametrize(
    ("buckets", "words"),
    [
        ({1: 993, 200: 7}, "99.3 % of 1,000"),
        ({1: 9999, 200: 1}, "more than 99.9 % of 10,000"),
        ({1: 1, 200: 9999}, "less than 0.1 % of 10,000"),
        ({200: 4}, "0 % of 4"),
        ({1: 4}, "100 % of 4"),
    ],
)
def test_how_many_changes_meet_a_freshness_goal_is_a_remark(buckets: dict[int, int], words: str) -> None:
    status = replace(stands(), delays=FeedDelays(buckets=buckets), freshness_goal=timedelta(seconds=30))
    goal = "changes to sinks in the last hour met the freshness goal of 30s"
    assert list(describe_feed(status, NOON)) == [f"{words} {goal}"]
    assert judge(status) == []
    assert list(describe_feed(replace(status, delays=FeedDelays()), NOON)) == []


@pytest.mark.parametrize(
    ("settings", "short_of"),
    [
        (ResourceSettings(every=timedelta(seconds=1)), "every 1s"),
        (ResourceSettings(every="auto", at_most=15 * MINUTE), "at_most 15m"),
    ],
)
async def test_status_tells_what_the_requests_do_not_suffice_for(
    tmp_path: Path, settings: ResourceSettings, short_of: str
) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    await store.feed(FEED).open()
    plan = StoredPlan(every=timedelta(minutes=20), reason=DivisionReason.STRETCHED)
    await store.feed(FEED).save_plan(plan.to_json())
    await store.aclose()
    read_store = await SqliteReadStore.open(tmp_path / "a.db")
    (status,) = (
        await load_status(
            read_store,
            [FeedSettings(FEED.source, FEED.resource, settings)],
            {},
            at=NOON,
            holder="",
            next_time=next_time,
        )
    ).feeds
    await read_store.aclose()
    assert (status.short_of, status.every, status.is_dated) == (short_of, timedelta(minutes=20), True)


def drifting(resource: str, drift: Drift, count: int) -> FeedStatus:
    named = Feed("main", resource)
    full = run(RunKind.PASS, NOON - 5 * MINUTE)
    state = FeedState(1, named, proven=True, full=full, drift=drift, drifted=count)
    return replace(READ, feed=named, state=state)


def test_drift_of_the_same_fields_in_several_feeds_of_a_source_is_one_reason() -> None:
    feeds = (
        drifting("shipments", DRIFT, 12),
        drifting("stock", DRIFT, 30),
        drifting("items", replace(DRIFT, paths=frozenset({"/c"})), 5),
    )
    one, alone = find_reasons(Status(NOON, "process 1", feeds, ()))
    assert str(one) == (
        "source main: 42 readings in shipments, stock that differ only by /a, /b are held;"
        ' decide with "dockbell drift absorb FEED" or "dockbell drift publish FEED"'
    )
    assert [one.is_about(each.feed) for each in feeds] == [True, True, False]
    assert (alone.about, [alone.is_about(each.feed) for each in feeds]) == ("feed:main/items", [False, False, True])


def test_the_last_error_of_a_sink_whose_receiver_is_down_is_why_it_is_down() -> None:
    assert replace(down(2), error="HTTP 503").last_error == "connection refused"
    assert replace(QUIET, error="HTTP 503", found=Found(Condition.CONNECTED, NOON)).last_error == "HTTP 503"
    assert replace(QUIET, error="HTTP 503", found=Found(Condition.DOWN, NOON)).last_error == "HTTP 503"
