"""What every database must do; each test runs on each of them."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from dockbell.core.comparing.drift import Decision, Drift
from dockbell.core.comparing.page_diff import UNDECIDED, Bad, Collision, Finding, Note, PageDiff, Pending, Snapshots
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import Change, Event, Feed, RunKind, Statement, StatementKind, Via
from dockbell.core.publishing.settlement import Blocked, DeadLetter, Settlement, StartOffset
from dockbell.core.publishing.statement import rebaselined
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.ports import Checkpoint, Failing, FeedState, RunRecord, Store, Tally
from tests.fakes import NOON
from tests.stores.pages import (
    COMPOSE,
    DETAILED,
    DETECTOR,
    FEED,
    OTHER,
    a_run,
    a_statement,
    close_pass,
    commit,
    complete,
    datas,
    delete_records,
    later,
    make_composer,
    page,
    told,
)
from tests.stores.places import Place, open_store

pytestmark = pytest.mark.parametrize("make_place", ["sqlite", "postgres", "pgbouncer"], indirect=True)

WINDOW = timedelta(seconds=60)
DAY = timedelta(days=1)


async def reload(store: Store) -> FeedState:
    return await store.feed(FEED).open()


# Feeds ---------------------------------------------------------------------------------------------------------------


async def test_a_new_feed_knows_nothing_and_keeps_what_it_is_told(store: Store) -> None:
    state = await store.feed(FEED).open()
    assert state == FeedState(state.id, FEED)
    shape = Shape(("/sku", "/warehouse_id"), "/updated_at", None)
    await store.feed(state.feed).begin_feed(NOON)
    await store.feed(state.feed).save_shape(shape, proven=False)
    await store.feed(state.feed).save_read_settings({"key": ["/sku"], "query": {"status": "all"}})
    await store.feed(state.feed).save_listing_profile('{"order": "none"}')
    await store.feed(state.feed).save_plan('{"every": 60}')
    await store.feed(state.feed).save_signal('{"phase": "used"}')
    await store.feed(state.feed).save_problem("key refused")
    assert await reload(store) == FeedState(
        state.id,
        FEED,
        shape=shape,
        read_settings={"key": ["/sku"], "query": {"status": "all"}},
        first_asked_at=NOON,
        progress=Progress(NOON),
        listing_profile='{"order": "none"}',
        plan='{"every": 60}',
        signal='{"phase": "used"}',
        problem="key refused",
    )


async def test_feeds_are_added_at_once_and_a_sink_begins_in_them_before_they_are_opened(store: Store) -> None:
    before = await store.feed(FEED).open()
    await store.add_feeds([FEED, OTHER])
    await store.sink("erp").enroll("now")
    positions, _ = await store.sink("erp").load_queue()
    assert positions == {FEED: 0, OTHER: 0}
    assert await store.feed(FEED).open() == before
    state = await store.feed(OTHER).open()
    assert state == FeedState(state.id, OTHER)


async def test_a_handle_writes_the_feed_that_it_is_bound_to_and_no_other(store: Store, state: FeedState) -> None:
    handle, other = store.feed(FEED), store.feed(OTHER)
    assert await handle.open() == state
    await other.open()
    await handle.save_problem("key refused")
    await handle.begin_feed(NOON)
    assert (await reload(store)).problem == "key refused"
    assert ((await other.open()).problem, (await other.open()).first_asked_at) == ("", None)
    await commit(store, state, {"id": "a"})
    assert await handle.last_row() == 1
    assert await handle.read_bodies([1]) == {1: b'{"id": "a"}'}


async def test_the_first_request_of_a_feed_stays_the_first(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).begin_feed(NOON)
    await store.feed(state.feed).begin_feed(NOON + DAY)
    assert (await reload(store)).first_asked_at == NOON


async def test_when_a_feed_was_first_asked_for_by_its_records_clock_is_kept_until_it_is_read_otherwise(
    store: Store, state: FeedState
) -> None:
    await store.feed(state.feed).end_baseline(proven=False, newest=None, boundary=None)
    assert (await reload(store)).boundary is None
    await store.feed(state.feed).begin_feed(NOON, NOON - DAY)
    assert ((await reload(store)).boundary, (await reload(store)).progress.newest) == (NOON - DAY, NOON - DAY)
    await store.feed(state.feed).end_baseline(proven=False, newest=None, boundary=NOON)
    assert (await reload(store)).boundary == NOON - DAY
    await store.feed(state.feed).save_read_settings({}, rebaseline=rebaselined(FEED, NOON, ["query"]), compose=COMPOSE)
    assert (await reload(store)).boundary is None
    await store.feed(state.feed).end_baseline(proven=False, newest=None, boundary=NOON)
    assert (await reload(store)).boundary == NOON


async def test_what_proves_a_key_is_not_forgotten_with_the_shape(store: Store, state: FeedState) -> None:
    shape = Shape(("/id",), None, None)
    await store.feed(state.feed).save_shape(shape, proven=True)
    await store.feed(state.feed).save_shape(shape, proven=False)
    assert (await reload(store)).proven
    await store.feed(state.feed).save_problem("key refused")
    await store.feed(state.feed).save_problem("")
    assert (await reload(store)).problem == ""


async def test_two_feeds_of_two_accounts_never_mix(store: Store, state: FeedState) -> None:
    twin = await store.feed(Feed("other", FEED.resource)).open()
    await commit(store, state, {"id": "7", "n": 1})
    await commit(store, twin, {"id": 7, "n": 2})
    assert await store.read_states([(FEED, "7"), (twin.feed, "7")]) == {
        (FEED, "7"): b'{"id": "7", "n": 1}',
        (twin.feed, "7"): b'{"id": 7, "n": 2}',
    }


# Runs ----------------------------------------------------------------------------------------------------------------


async def test_runs_that_fail_are_counted_until_one_of_their_kind_is_complete(store: Store, state: FeedState) -> None:
    feed = store.feed(state.feed)
    await feed.close_run(a_run(RunKind.POLL, "before", hours=0))
    await feed.close_run(a_run(RunKind.POLL), Progress())
    assert (await reload(store)).failing == {}
    for hours, problem in ((1, "cut short"), (2, "HTTP 503")):
        await feed.close_run(a_run(RunKind.POLL, problem, hours=hours), Progress())
    trailing = a_run(RunKind.TRAILING, hours=2)
    await feed.close_run(trailing)
    polls = Failing(2, later(hours=1), later(hours=2), "HTTP 503")
    assert (await reload(store)).failing == {RunKind.POLL: polls}
    assert (await reload(store)).trailing == trailing
    await feed.close_run(a_run(problem="cut short too", hours=3))
    whole = Failing(1, later(hours=3), later(hours=3), "cut short too")
    assert (await reload(store)).failing == {RunKind.POLL: polls, RunKind.PASS: whole}
    assert (await reload(store)).last_failure == "cut short too"
    await feed.close_run(a_run(RunKind.POLL, hours=4), Progress())
    assert (await reload(store)).failing == {RunKind.PASS: whole}
    await feed.close_run(a_run(hours=5))
    assert ((await reload(store)).failing, (await reload(store)).last_failure) == ({}, "")


async def test_the_runs_that_fail_are_those_of_their_feed(store: Store, state: FeedState) -> None:
    other = Feed("other", FEED.resource)
    await store.feed(other).open()
    await store.feed(state.feed).close_run(a_run(RunKind.POLL, "cut short", hours=1))
    await store.feed(other).close_run(a_run(problem="HTTP 503", hours=1))
    assert [*(await reload(store)).failing] == [RunKind.POLL]
    assert [*(await store.feed(other).open()).failing] == [RunKind.PASS]


async def test_the_last_run_is_the_last_although_our_clock_has_gone_back(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).close_run(a_run(RunKind.POLL, "cut short", hours=1))
    await store.feed(state.feed).close_run(a_run(RunKind.POLL))
    assert (await reload(store)).failing == {}


async def test_the_end_of_a_run_is_stored_with_what_it_proved(store: Store, state: FeedState) -> None:
    progress = Progress(NOON, later(seconds=15), later(seconds=14), later(seconds=13), 2)
    lateness = Lateness().observe([timedelta(seconds=90)], 3, NOON)
    run = a_run(RunKind.POLL, tally=Tally(created=1, updated=2, missed=3, bad=4), sent_at=later(hours=7))
    await store.feed(state.feed).close_run(run, progress, lateness=lateness)
    await store.feed(state.feed).close_run(a_run(RunKind.POLL, "cut short"))
    state = await reload(store)
    assert (state.progress, state.poll, state.lateness) == (progress, run, lateness)


async def test_the_end_of_a_run_tells_the_state_that_it_has_left_unless_a_run_failed(
    store: Store, state: FeedState
) -> None:
    left = await store.feed(state.feed).close_run(a_run(RunKind.POLL), Progress(NOON))
    assert left is not None
    assert left == await reload(store)
    assert await store.feed(state.feed).close_run(a_run(RunKind.POLL, "cut short")) is None


async def test_a_run_that_proves_nothing_leaves_the_watermark(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).close_run(a_run(RunKind.POLL), Progress(NOON, NOON))
    await store.feed(state.feed).close_run(a_run(problem="cut short"))
    assert (await reload(store)).progress == Progress(NOON, NOON)


async def test_a_run_that_knows_no_newest_date_leaves_the_one_that_another_run_found(
    store: Store, state: FeedState
) -> None:
    await store.feed(state.feed).close_run(a_run(RunKind.POLL), Progress(NOON, newest=NOON))
    await store.feed(state.feed).close_run(a_run(RunKind.POLL), Progress(later(hours=1)))
    assert (await reload(store)).progress == Progress(later(hours=1), newest=NOON)


async def test_the_end_of_a_pass_is_counted_with_what_it_holds(store: Store, state: FeedState) -> None:
    lateness = Lateness().observe([timedelta(seconds=90)], 3, NOON)
    await close_pass(store, state, held=14, confirm_at=NOON, proven=True, newest=NOON, lateness=lateness)
    await close_pass(store, state, a_run(hours=1), newest=None, confirm_at=later(hours=1))
    state = await reload(store)
    assert (state.passes, state.held, state.confirm_at, state.full) == (2, 0, later(hours=1), a_run(hours=1))
    assert (state.proven, state.progress.newest, state.lateness) == (True, NOON, lateness)


async def test_a_pass_that_breaks_at_its_end_is_not_counted_in_any_way(store: Store, state: FeedState) -> None:
    def fail(item: Change | Statement, sequence: int) -> Sequence[Event]:
        raise RuntimeError("power is lost")

    await store.feed(state.feed).save_checkpoint(Checkpoint("c", b"{}", SeenRows(1), SeenRows(1), NOON))
    before = await reload(store)
    with pytest.raises(RuntimeError):
        await close_pass(store, state, statements=[a_statement()], compose=fail, proven=True, newest=NOON, held=3)
    assert await reload(store) == before
    assert await store.feed(state.feed).load_checkpoint() is not None


async def test_statements_are_numbered_with_the_changes(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})
    rings = store.outbox.rings
    await store.feed(state.feed).publish([a_statement(StatementKind.HELD)], COMPOSE)
    await store.feed(state.feed).close_run(
        a_run(RunKind.POLL), statements=[a_statement(StatementKind.GAP)], compose=COMPOSE
    )
    await close_pass(store, state, statements=[a_statement()])
    await commit(store, state, {"id": "b"})
    assert await told(store) == ["a created 1", "held 0", "gap 0", "reconciled 0", "b created 1"]
    assert [data["through_sequence"] for data in (await datas(store))[1:4]] == [1, 2, 3]
    assert store.outbox.rings == rings + 4


# Pages ---------------------------------------------------------------------------------------------------------------


async def test_events_are_numbered_per_feed_without_gaps(store: Store, state: FeedState) -> None:
    second = await store.feed(OTHER).open()
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await commit(store, second, {"id": "a"})
    await commit(store, state, {"id": "a", "x": 1}, {"id": "b"})
    assert await told(store) == ["a created 1", "b created 1", "a updated 2"]
    assert await told(store, OTHER) == ["a created 1"]
    assert store.outbox.ends == {FEED: 3, OTHER: 1}
    assert (await reload(store)).sequence == 3


async def test_a_page_is_committed_whole_or_not_at_all(store: Store, state: FeedState) -> None:
    def fail(item: Change | Statement, sequence: int) -> Sequence[Event]:
        if sequence == 2:
            raise RuntimeError("power is lost")
        return COMPOSE(item, sequence)

    with pytest.raises(RuntimeError):
        await commit(store, state, {"id": "a"}, {"id": "b"}, compose=fail)
    assert await told(store) == []
    assert await store.feed(state.feed).last_row() == 0
    assert (await commit(store, state, {"id": "a"})).events == 1


async def test_named_events_take_numbers_and_findings_know_the_first(store: Store, state: FeedState) -> None:
    compose = make_composer(heavy="after.weight > 5", light="after.weight < 9")
    committed = await commit(
        store, state, {"id": "a", "weight": 7}, {"id": "b", "weight": 1}, {"id": "c", "weight": 9}, compose=compose
    )
    assert committed.events == 7
    events = await store.read_events(FEED, 0, 10)
    assert [(event.sequence, event.key, event.type.rpartition(".")[2]) for event in events] == [
        (1, "a", "created"),
        (2, "a", "heavy"),
        (3, "a", "light"),
        (4, "b", "created"),
        (5, "b", "light"),
        (6, "c", "created"),
        (7, "c", "heavy"),
    ]
    assert {event.revision for event in events} == {1}
    assert (await reload(store)).sequence == 7


async def test_an_unchanged_page_adds_nothing_and_does_not_ring(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})
    rings = store.outbox.rings
    committed = await commit(store, state, {"id": "a"})
    assert (committed.events, committed.page_diff.seen, committed.inserted) == (0, [1], range(0))
    assert store.outbox.rings == rings


async def test_a_page_with_changes_rings_the_outbox(store: Store, state: FeedState) -> None:
    rings = store.outbox.rings
    await commit(store, state, {"id": "a"})
    assert store.outbox.rings == rings + 1


async def test_new_records_are_the_rows_that_a_page_says_it_inserted(store: Store, state: FeedState) -> None:
    first = (await commit(store, state, {"id": "a"}, {"id": "b"})).inserted
    second = (await commit(store, state, {"id": "b", "x": 1}, {"id": "c"})).inserted
    assert await store.feed(state.feed).last_row() == second[-1]
    assert {row: json.loads(body) for row, body in (await store.feed(FEED).read_bodies([*first, *second])).items()} == {
        first[0]: {"id": "a"},
        first[1]: {"id": "b", "x": 1},
        second[0]: {"id": "c"},
    }


async def test_pages_of_several_feeds_that_come_together_are_stored_but_for_one_that_fails(store: Store) -> None:
    feeds = [Feed(f"source {number}", "shipments") for number in range(5)]
    states = [await store.feed(feed).open() for feed in feeds]
    failed: list[Feed] = []

    def collide(snapshots: Snapshots) -> PageDiff:
        snapshots.find({"a": None})
        raise Collision("twice")

    async def commit_twice(state: FeedState) -> None:
        for value in range(2):
            await commit(store, state, {"id": "a", "x": value})

    async def fail(state: FeedState) -> None:
        try:
            await store.feed(state.feed).commit_page(collide, COMPOSE, via=Via.POLL)
        except Collision:
            failed.append(state.feed)

    async with anyio.create_task_group() as group:
        for state in states:
            group.start_soon(fail if state.feed == feeds[2] else commit_twice, state)
    assert failed == [feeds[2]]
    assert [await told(store, feed) for feed in feeds] == [
        [] if feed == feeds[2] else ["a created 1", "a updated 2"] for feed in feeds
    ]
    assert store.outbox.ends == {feed: 0 if feed == feeds[2] else 2 for feed in feeds}


async def test_who_opens_a_feed_learns_what_was_published_of_it_meanwhile(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})
    store.outbox.ends[FEED] = 0  # as it was known before another process handed the feed over
    seen = store.outbox.rings
    await store.feed(FEED).open()
    assert store.outbox.ends == {FEED: 1}
    assert store.outbox.rings > seen


async def test_the_judge_sees_what_earlier_pages_of_any_size_stored(store: Store, state: FeedState) -> None:
    records = [{"id": str(number)} for number in range(1201)]
    bad = [Bad(number.to_bytes(16), "", "no key", b"{}") for number in range(701)]
    await commit(store, state, *records)
    sizes: list[int] = []

    def detect(snapshots: Snapshots) -> PageDiff:
        found = snapshots.find(dict.fromkeys(record["id"] for record in records))
        rows = [stored.row for stored in found.values()]
        sizes.extend([len(found), len(snapshots.bodies(rows)), len(snapshots.holds(rows))])
        sizes.append(len(snapshots.quarantined([each.digest for each in bad])))
        return PageDiff(bad=bad)

    for _ in range(2):
        await store.feed(state.feed).commit_page(detect, COMPOSE, via=Via.POLL)
    assert sizes == [1201, 1201, 0, 0, 1201, 1201, 0, 701]


async def test_events_can_be_read_of_one_key_up_to_a_sequence(store: Store, state: FeedState) -> None:
    for value in range(4):
        await commit(store, state, {"id": "a", "x": value}, {"id": "b", "x": value})
    events = await store.read_events(FEED, 2, 10, key="a", until=6)
    assert [(event.sequence, event.key) for event in events] == [(3, "a"), (5, "a")]
    assert len(await store.read_events(FEED, 0, 3)) == 3


async def test_events_are_read_with_the_times_at_which_their_changes_became_visible(
    store: Store, state: FeedState
) -> None:
    first, second = (later(microseconds=number) for number in (1, 2))
    compose = make_composer(own="true")
    for at, value in ((first, 1), (first, 2), (second, 3)):
        record = {"id": "a", "at": at.isoformat(), "x": value}
        await commit(store, state, record, compose=compose, at=5, precision=timedelta(0))
    await store.feed(state.feed).publish([a_statement()], COMPOSE)
    events = await store.read_events(FEED, 0, 10)
    behind = timedelta(seconds=5)  # our clock, which the page was received by
    times = [None if event.visible_at is None else event.visible_at + behind for event in events]
    assert times == [first, first, None, None, second, second, None]


async def test_the_latest_state_of_a_key_is_what_was_committed_last(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 1}, {"id": "b"})
    await commit(store, state, {"id": "a", "x": 2})
    assert await store.read_states([(FEED, "a"), (FEED, "none")]) == {(FEED, "a"): b'{"id": "a", "x": 2}'}


# Held readings, quarantine, drift ------------------------------------------------------------------------------------


def shipment(seconds: float, **fields: object) -> dict[str, object]:
    return {"id": "a", "at": later(seconds=seconds).isoformat(), **fields}


async def test_an_older_reading_is_held_until_it_has_lasted(store: Store, state: FeedState) -> None:
    look = partial(commit, store, state, stale_window=WINDOW)
    await look(shipment(20, x=2), at=30)
    assert (await look(shipment(10, x=1), at=40)).events == 0
    assert (await reload(store)).holds == 1
    assert (await look(shipment(10, x=1), at=99)).events == 0
    assert (await look(shipment(10, x=1), at=100)).events == 1
    assert await told(store) == ["a created 1", "a updated 2"]
    assert (await reload(store)).holds == 0


async def test_a_current_reading_ends_a_hold(store: Store, state: FeedState) -> None:
    look = partial(commit, store, state, stale_window=WINDOW)
    await look(shipment(20, x=2), at=30)
    await look(shipment(10, x=1), at=40)
    await look(shipment(20, x=2), at=50)
    assert (await reload(store)).holds == 0
    assert (await look(shipment(10, x=1), at=100)).events == 0  # it has not lasted: the hold begins anew


async def test_a_hold_ends_with_its_record(store: Store, state: FeedState) -> None:
    look = partial(commit, store, state, stale_window=WINDOW)
    await look(shipment(20, x=2), at=30)
    await look(shipment(10, x=1), at=40)
    await close_pass(store, state, suspected=[1])
    assert await delete_records(store, state, 1) == 1
    assert (await reload(store)).holds == 0


async def test_what_was_replaced_lately_is_remembered_of_records_without_a_date(store: Store, state: FeedState) -> None:
    look = partial(commit, store, state, stale_window=WINDOW)
    await look({"id": "a", "x": 1}, at=0)
    await look({"id": "a", "x": 2}, at=10)
    assert (await look({"id": "a", "x": 1}, at=20)).events == 0
    assert (await look({"id": "a", "x": 1}, at=80)).events == 1


async def test_a_bad_record_is_counted_and_known_until_a_complete_pass(store: Store, state: FeedState) -> None:
    first = await commit(store, state, {"name": "no key"}, {"id": "a"})
    again = await commit(store, state, {"name": "no key"}, {"id": "a"})
    assert [[bad.known for bad in each.page_diff.bad] for each in (first, again)] == [[False], [True]]
    assert (await reload(store)).quarantined == 1
    assert await told(store) == ["a created 1"]
    other = await commit(store, await store.feed(OTHER).open(), {"name": "no key"})
    assert [bad.known for bad in other.page_diff.bad] == [False]
    await close_pass(store, state)
    assert (await reload(store)).quarantined == 0
    assert (await store.feed(OTHER).open()).quarantined == 1
    assert not (await commit(store, state, {"name": "no key"})).page_diff.bad[0].known


async def find_drift(store: Store, state: FeedState) -> Drift:
    await commit(store, state, *({"id": str(each)} for each in range(20)))
    committed = await commit(store, state, *({"id": str(each), "new": 1} for each in range(20)))
    assert (committed.events, committed.page_diff.drifted) == (0, 20)
    return Drift(frozenset({"/new"}))


async def test_drift_is_kept_with_what_the_operator_says_of_it(store: Store, state: FeedState) -> None:
    drift = await find_drift(store, state)
    await close_pass(store, state, a_run(tally=Tally(drifted=20)))
    held = await reload(store)
    assert (held.drift, held.drift_at, held.drifted) == (drift, NOON, 20)
    await store.feed(state.feed).decide_drift(Decision.ABSORB)
    assert (await reload(store)).drift == replace(drift, decision=Decision.ABSORB)


async def test_drift_ends_with_a_pass_that_holds_nothing_for_it(store: Store, state: FeedState) -> None:
    await find_drift(store, state)
    await close_pass(store, state)
    ended = await reload(store)
    assert (ended.drift, ended.drift_at, ended.drifted) == (None, None, 0)
    await store.feed(state.feed).decide_drift(Decision.PUBLISH)  # too late, and nothing to decide
    await find_drift(store, state)
    assert (await reload(store)).drift == Drift(frozenset({"/new"}))


async def test_drift_that_was_found_since_a_pass_began_outlives_it(store: Store, state: FeedState) -> None:
    drift = await find_drift(store, state)
    for began_at in (None, later(seconds=-1)):
        await close_pass(store, state, drift_before=began_at)
        assert (await reload(store)).drift == drift
    await close_pass(store, state, drift_before=later(seconds=1))
    assert (await reload(store)).drift is None


def state_drift(page_diff: PageDiff) -> Statement | None:
    return a_statement(StatementKind.HELD, count=page_diff.drifted) if page_diff.drift is not None else None


async def test_what_is_stated_of_a_page_comes_after_its_changes(store: Store, state: FeedState) -> None:
    await commit(store, state, *({"id": str(each)} for each in range(20)), baseline=True)
    records = [{"id": str(each), "new": 1} for each in range(20)] + [{"id": "a"}]
    rings = store.outbox.rings
    committed = await commit(store, state, *records, find_statement=state_drift)
    assert (committed.events, committed.statement) == (1, a_statement(StatementKind.HELD, count=20))
    assert await told(store) == ["a created 1", "held 0"]
    assert store.outbox.rings == rings + 1
    drift = (await reload(store)).drift
    again = await commit(store, state, *records, find_statement=state_drift, drift=drift)
    assert (again.events, again.statement) == (0, None)
    assert await told(store) == ["a created 1", "held 0"]


async def test_what_is_stated_of_a_page_without_changes_rings_too(store: Store, state: FeedState) -> None:
    await commit(store, state, *({"id": str(each)} for each in range(20)), baseline=True)
    rings = store.outbox.rings
    await commit(store, state, *({"id": str(each), "new": 1} for each in range(20)), find_statement=state_drift)
    assert store.outbox.rings == rings + 1


async def test_a_page_is_stored_with_its_statement_or_not_at_all(store: Store, state: FeedState) -> None:
    def compose(item: Change | Statement, sequence: int) -> Sequence[Event]:
        assert not isinstance(item, Statement), "power loss"
        return COMPOSE(item, sequence)

    await commit(store, state, *({"id": str(each)} for each in range(20)), baseline=True)
    records = [{"id": str(each), "new": 1} for each in range(20)] + [{"id": "a"}]
    with pytest.raises(AssertionError, match="power loss"):
        await commit(store, state, *records, find_statement=state_drift, compose=compose)
    assert (await reload(store)).drift is None
    assert await told(store) == []
    assert (await commit(store, state, *records, find_statement=state_drift)).statement is not None


# Absence -------------------------------------------------------------------------------------------------------------


async def absent(store: Store, state: FeedState, seen: SeenRows) -> list[tuple[int, datetime | None, int]]:
    return list((await store.feed(state.feed).find_absent(seen)).rows)


async def test_absent_are_rows_of_the_feed_that_were_not_seen(store: Store, state: FeedState) -> None:
    other = await store.feed(OTHER).open()
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await commit(store, other, {"id": "a"})
    seen = SeenRows(await store.feed(state.feed).last_row())
    seen.add((await commit(store, state, {"id": "b"}, {"id": "new"})).page_diff.seen)
    absentees = await store.feed(state.feed).find_absent(seen)
    assert (absentees.rows, absentees.stored) == ([(1, None, 0)], 2)


async def test_absence_is_found_among_many_rows(store: Store, state: FeedState) -> None:
    count = 45_000
    for start in range(0, count, 5000):
        await commit(store, state, *({"id": str(each)} for each in range(start, start + 5000)), baseline=True)
    seen = SeenRows(count)
    seen.add([row for row in range(1, count + 1) if row % 15_000])
    absentees = await store.feed(state.feed).find_absent(seen)
    assert ([row for row, *_ in absentees.rows], absentees.stored) == ([15_000, 30_000, 45_000], count)


async def test_the_digest_tells_keys_and_contents_apart_and_not_their_order(
    make_place: Callable[[], Place],
) -> None:
    records = [{"id": str(number), "x": number % 7} for number in range(50)]

    async def digest(*pages: Sequence[dict[str, object]], missing: int | None = None) -> str:
        store = await open_store(make_place(), now=lambda: NOON)
        state = await store.feed(FEED).open()
        for records in pages:
            await commit(store, state, *records)
        seen = SeenRows(await store.feed(state.feed).last_row())
        seen.add([row for row in range(1, seen.last_row + 1) if row != missing])
        found = (await store.feed(state.feed).find_absent(seen)).digest
        await store.aclose()
        return found

    shuffled = random.Random(7).sample(records, len(records))
    whole = await digest(records)
    assert len(whole) == 32
    assert await digest(shuffled[:20], shuffled[20:]) == whole
    assert await digest([records[0] | {"x": 5}], records) == whole
    assert await digest(records[:-1]) == await digest(records, missing=50) != whole
    assert await digest(records, [records[0] | {"x": 5}]) != whole
    assert await digest() == "0" * 32


async def test_what_is_suspected_and_absent_again_is_buried_with_an_event(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await close_pass(store, state, suspected=[1], confirm_at=NOON)
    assert await absent(store, state, SeenRows(2)) == [(1, NOON, 1), (2, None, 0)]
    assert await store.feed(state.feed).find_suspected() == [1]
    assert await delete_records(store, state, 1) == 1
    assert await told(store, after=2) == ["a deleted 2"]
    assert await absent(store, state, SeenRows(2)) == [(2, None, 0)]
    assert await store.feed(state.feed).find_suspected() == []
    assert await store.read_states([(FEED, "a")]) == {}
    assert await store.feed(state.feed).count_deleted(NOON) == 1
    assert await store.feed(state.feed).count_deleted(later(seconds=1)) == 0
    await close_pass(store, state, is_approved=True)
    assert await store.feed(state.feed).count_deleted(NOON) == 0
    await commit(store, state, {"id": "a"})
    assert await told(store, after=3) == ["a restored 3"]
    assert await store.read_states([(FEED, "a")]) == {(FEED, "a"): b'{"id": "a"}'}
    assert await store.feed(state.feed).count_deleted(NOON) == 0


async def test_it_is_known_since_when_and_by_how_many_passes_in_a_row_a_row_was_missed(
    store: Store, state: FeedState
) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    for hours, rows in ((1, [1]), (2, [1, 2]), (3, [1])):
        await close_pass(store, state, a_run(hours=hours), suspected=rows)
    assert await absent(store, state, SeenRows(2)) == [(1, later(hours=1), 3), (2, later(hours=2), 1)]
    await commit(store, state, {"id": "a"})
    await store.feed(state.feed).keep([2], Finding.THERE)
    assert await absent(store, state, SeenRows(2)) == [(1, None, 0), (2, None, 0)]
    await close_pass(store, state, a_run(hours=4), suspected=[1])
    await delete_records(store, state, 1)
    await commit(store, state, {"id": "a"})
    await close_pass(store, state, a_run(hours=5), suspected=[1])
    assert await absent(store, state, SeenRows(2)) == [(1, later(hours=5), 1), (2, None, 0)]


async def test_what_a_pass_suspected_that_was_never_closed_is_suspected_by_none(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})
    await close_pass(store, state, a_run(hours=1))
    await store.feed(state.feed).suspect([1], later(hours=2))
    assert await absent(store, state, SeenRows(1)) == [(1, None, 1)]
    await close_pass(store, state, a_run(hours=3), suspected=[1])
    assert await absent(store, state, SeenRows(1)) == [(1, later(hours=3), 1)]


async def test_a_row_that_is_suspected_again_was_there_when_it_was_before_its_first_absence(
    store: Store, state: FeedState
) -> None:
    """Whatever passes were complete between the first that missed it and the last."""
    await commit(store, state, {"id": "a"})
    for hours, suspected in ((0, []), (1, [1]), (2, [1]), (3, [1])):
        await close_pass(store, state, a_run(hours=hours), suspected=suspected)
    await store.feed(state.feed).delete_records(
        [1], partial(DETECTOR.deletion, until=later(hours=3), now=NOON), COMPOSE
    )
    assert (await datas(store))[-1]["changed_between"][0] == "2026-11-21T12:00:00.000Z"


async def test_nothing_is_buried_that_nobody_suspects_or_that_is_gone_already(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await close_pass(store, state, suspected=[2])
    assert await delete_records(store, state, 1, 2, 3) == 1
    rings = store.outbox.rings
    assert await delete_records(store, state, 1, 2, 3) == 0
    assert store.outbox.rings == rings
    assert await told(store, after=2) == ["b deleted 2"]


async def test_a_buried_record_was_there_at_the_last_pass_before_the_first_that_did_not_show_it(
    store: Store, state: FeedState
) -> None:
    await commit(store, state, {"id": "a"})
    for hours, suspected in ((0, []), (1, [1]), (2, [])):
        await close_pass(store, state, a_run(hours=hours), suspected=suspected)
    await store.feed(state.feed).delete_records(
        [1], partial(DETECTOR.deletion, until=later(hours=2), now=NOON), COMPOSE
    )
    assert (await datas(store))[-1]["changed_between"] == ["2026-11-21T12:00:00.000Z", "2026-11-21T14:00:00.000Z"]


async def test_a_row_that_was_seen_again_is_not_buried(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})
    await close_pass(store, state, suspected=[1])
    await commit(store, state, {"id": "a"})
    assert await delete_records(store, state, 1) == 0
    assert await absent(store, state, SeenRows(1)) == [(1, None, 0)]


async def test_a_row_that_came_back_changed_is_not_suspected_any_more(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})
    await close_pass(store, state, suspected=[1])
    await commit(store, state, {"id": "a", "x": 1})
    assert await delete_records(store, state, 1) == 0
    assert await told(store) == ["a created 1", "a updated 2"]


async def test_rows_are_numbered_per_feed_and_the_row_of_an_erased_record_is_not_used_again(
    store: Store, state: FeedState
) -> None:
    other = await store.feed(OTHER).open()
    first = (await commit(store, state, {"id": "a"}, {"id": "b"})).inserted
    second = (await commit(store, other, {"id": "a"}, baseline=True)).inserted
    assert [*first, *second] == [1, 2, 1]
    assert await store.feed(OTHER).read_bodies([1, 2]) == {1: b'{"id": "a"}'}
    await close_pass(store, other, suspected=[1])
    assert await store.feed(FEED).find_suspected() == []
    assert [row for row, *_ in (await store.feed(FEED).find_absent(SeenRows(2))).rows] == [1, 2]
    assert await store.feed(OTHER).last_row() == 1

    def leave_undecided(snapshots: Snapshots) -> PageDiff:
        diff = DETECTOR.detect(page({"id": "b"}), ReadContext(Via.PASS, NOON), snapshots)
        return dataclasses.replace(
            diff, writes=[write._replace(raw_hash=UNDECIDED) for write in diff.writes], changes=[], notes=[]
        )

    def never(*_: object) -> Change:
        raise AssertionError

    assert (await store.feed(OTHER).commit_page(leave_undecided, COMPOSE, via=Via.PASS)).inserted == range(2, 3)
    await store.privacy.purge(OTHER, "b", never, COMPOSE)
    assert await store.feed(OTHER).read_bodies([2]) == {}
    assert await store.feed(OTHER).last_row() == 2
    assert (await commit(store, other, {"id": "c"})).inserted == range(3, 4)


async def test_when_a_suspected_row_was_first_not_found_is_kept_until_it_is_shown(
    store: Store, state: FeedState
) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await close_pass(store, state, suspected=[1], confirm_at=NOON)
    assert await store.feed(FEED).find_missing([1, 2]) == {1: None}
    await store.feed(FEED).note_missing([1, 2])
    (since,) = (await store.feed(FEED).find_missing([1, 2])).values()
    assert since is not None
    await store.feed(FEED).note_missing([1])
    assert await store.feed(FEED).find_missing([1]) == {1: since}
    absentees = await store.feed(state.feed).find_absent(SeenRows(2))
    assert (absentees.missing, absentees.is_partial) == ({1: since}, False)
    assert not await store.feed(state.feed).end_suspicion()
    await store.feed(state.feed).keep([1], Finding.THERE, ignored_until_seen=True)
    assert await store.feed(state.feed).end_suspicion()
    absentees = await store.feed(state.feed).find_absent(SeenRows(2))
    assert (absentees.rows, absentees.missing, absentees.is_partial) == ([(2, None, 0)], {}, True)
    assert (await reload(store)).confirm_at is None


async def test_a_spared_row_must_be_suspected_again(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})
    await close_pass(store, state, suspected=[1], confirm_at=NOON, held=1)
    await store.feed(state.feed).keep([1], Finding.THERE)
    assert await delete_records(store, state, 1) == 0
    assert await absent(store, state, SeenRows(1)) == [(1, None, 0)]
    assert ((await reload(store)).held, (await reload(store)).confirm_at) == (1, NOON)


async def test_dormant_rows_are_not_missed_until_they_are_seen(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await close_pass(store, state, suspected=[1, 2], confirm_at=NOON, held=2)
    await store.feed(state.feed).keep([1, 2], Finding.KEPT, ignored_until_seen=True)
    state = await reload(store)
    assert (state.held, state.confirm_at) == (0, None)
    assert (await store.feed(state.feed).find_absent(SeenRows(2))).stored == 0
    assert await delete_records(store, state, 1, 2) == 0
    assert (await commit(store, state, {"id": "a"})).events == 0
    assert await absent(store, state, SeenRows(2)) == [(1, None, 0)]
    assert (FEED, "b") in await store.read_states([(FEED, "b")])


# Details -------------------------------------------------------------------------------------------------------------


async def test_a_change_waits_for_its_detail(store: Store, state: FeedState) -> None:
    committed = await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED, at=5)
    assert (committed.events, committed.inserted) == (0, range(1, 2))
    (awaited,) = await store.feed(state.feed).load_awaited(10)
    assert (awaited.row, awaited.queued_at, awaited.pending.key) == (1, NOON, "a")
    assert (awaited.pending.kind, awaited.pending.until, awaited.pending.via) == ("created", later(seconds=5), Via.POLL)
    rings = store.outbox.rings
    assert await complete(store, state, 1, {"id": "a", "x": 1, "lines": [1]}) == 1
    assert store.outbox.rings == rings + 1
    assert await told(store) == ["a created 1"]
    assert (await datas(store))[0]["after"] == {"id": "a", "x": 1, "lines": [1]}
    assert await store.feed(state.feed).load_awaited(10) == []
    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)
    assert await store.feed(state.feed).load_awaited(10) == []


async def test_the_longest_waiting_come_first_each_feed_for_itself(place: Place) -> None:
    clock = [later(seconds=2), later(seconds=1), NOON]
    store = await open_store(place, now=lambda: clock[-1])
    state = await store.feed(FEED).open()
    for number in range(3):
        await commit(store, state, {"id": str(number)}, detector=DETAILED)
        clock.pop() if len(clock) > 1 else None
    assert [awaited.pending.key for awaited in await store.feed(state.feed).load_awaited(2)] == ["0", "1"]
    await store.feed(OTHER).open()
    assert await store.feed(OTHER).load_awaited(2) == []
    await store.aclose()


async def test_a_second_change_joins_the_one_that_waits(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)
    await commit(store, state, {"id": "a", "x": 2}, detector=DETAILED, at=5)
    (awaited,) = await store.feed(state.feed).load_awaited(10)
    assert (awaited.pending.kind, awaited.pending.until) == ("created", later(seconds=5))
    await complete(store, state, 1, {"id": "a", "x": 2, "lines": []})
    assert [(data["change"], data["after"]["x"]) for data in await datas(store)] == [("created", 2)]


@pytest.mark.parametrize(
    ("at", "expected"),
    [((1, 2), 2), ((1, 1), 1), ((1, None), 1), ((None, 2), 2), ((None, None), None)],
    ids=["both say when", "the second is silent", "the second is undated", "the first is undated", "none says"],
)
async def test_changes_that_waited_together_became_visible_with_the_last_of_which_it_is_known(
    store: Store, state: FeedState, at: tuple[int | None, ...], expected: int | None
) -> None:
    for number, second in enumerate(at):
        record = {"id": "a", "x": number, "at": None if second is None else later(seconds=second).isoformat()}
        await commit(store, state, record, detector=DETAILED, at=5, precision=timedelta(0))
    await complete(store, state, 1, {"id": "a", "lines": []})
    [event] = await store.read_events(FEED, 0, 10)
    assert event.visible_at == (None if expected is None else later(seconds=expected - 5))  # by our clock


async def test_a_change_that_is_undone_while_it_waits_is_none(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)
    await complete(store, state, 1, {"id": "a", "x": 1, "lines": [1]})
    for version in (2, 1):
        await commit(store, state, {"id": "a", "x": version}, detector=DETAILED)
    (awaited,) = await store.feed(state.feed).load_awaited(10)
    assert json.loads(awaited.pending.raw) == {"id": "a", "x": 1}
    assert await complete(store, state, 1, {"id": "a", "x": 1, "lines": [1]}) == 0
    assert await store.read_states([(FEED, "a")]) == {(FEED, "a"): b'{"id":"a","x":1,"lines":[1]}'}


@pytest.mark.parametrize(
    "reading",
    [
        pytest.param({"drift": Drift(frozenset({"/new"}), Decision.ABSORB)}, id="absorbed"),
        pytest.param({"rebaselining": True}, id="rebaselined"),
        pytest.param({"provisional": True}, id="unproven"),
    ],
)
async def test_what_is_stored_silently_keeps_its_detail(
    store: Store, state: FeedState, reading: dict[str, Any]
) -> None:
    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)
    await complete(store, state, 1, {"id": "a", "x": 1, "lines": [1]})
    await commit(store, state, {"id": "a", "x": 1, "new": 2}, detector=DETAILED, **reading)
    assert await told(store) == ["a created 1"]
    assert await store.feed(state.feed).load_awaited(10) == []
    (body,) = (await store.read_states([(FEED, "a")])).values()
    assert json.loads(body) == {"id": "a", "x": 1, "new": 2, "lines": [1]}


async def test_details_take_the_chain_of_a_record_on(store: Store, state: FeedState) -> None:
    for version in (1, 2, 3):
        await commit(store, state, {"id": "a", "x": version}, detector=DETAILED)
        await complete(store, state, 1, {"id": "a", "x": version, "lines": [version]})
    events = await datas(store)
    assert [(data["change"], data["revision"]) for data in events] == [("created", 1), ("updated", 2), ("updated", 3)]
    assert [data["before"] for data in events] == [None, *(data["after"] for data in events[:-1])]
    assert set(events[-1]["changed"]) == {"/lines/0", "/x"}


async def test_a_detail_that_does_not_come_leaves_what_is_stored_of_it(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)
    await complete(store, state, 1, {"id": "a", "x": 1, "lines": [1]})
    await commit(store, state, {"id": "a", "x": 2}, detector=DETAILED)
    await complete(store, state, 1, None)
    last = (await datas(store))[-1]
    assert (last["after"], last["detail_missing"]) == ({"id": "a", "x": 2, "lines": [1]}, True)


async def test_a_detail_that_the_list_no_longer_fits_completes_nothing(store: Store, state: FeedState) -> None:
    def detect(pending: Pending, before: bytes | None, revision: int) -> Change | None:
        return DETAILED.complete(pending, before, b'{"id": "a", "lines": [1]}', revision, now=NOON)

    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)
    (first,) = await store.feed(state.feed).load_awaited(10)
    await commit(store, state, {"id": "a", "x": 2}, detector=DETAILED)
    assert await store.feed(state.feed).complete(1, detect, COMPOSE, listed=first.pending.raw) == 0
    (second,) = await store.feed(state.feed).load_awaited(10)
    assert await store.feed(state.feed).complete(1, detect, COMPOSE, listed=second.pending.raw) == 1
    (event,) = await datas(store)
    assert (event["change"], event["after"]) == ("created", {"id": "a", "x": 2, "lines": [1]})


async def test_what_was_postponed_least_often_comes_first_and_then_the_oldest(store: Store, state: FeedState) -> None:
    for key in "abc":
        await commit(store, state, {"id": key}, detector=DETAILED)
    for row in (1, 1, 2):
        await store.feed(FEED).postpone(row)
    await commit(store, state, {"id": "a", "x": 2}, detector=DETAILED)  # a newer state of it is no other change
    assert [each.row for each in await store.feed(state.feed).load_awaited(10)] == [3, 2, 1]
    assert [each.row for each in await store.feed(state.feed).load_awaited(2)] == [3, 2]


async def test_what_is_overdue_is_completed_in_its_order_and_the_rest_waits(store: Store, state: FeedState) -> None:
    def detect(pending: Pending, before: bytes | None, revision: int) -> Change | None:
        return None if pending.key == "b" else DETAILED.complete(pending, before, None, revision, now=NOON)

    other = await store.feed(OTHER).open()
    await commit(store, other, {"id": "z"}, detector=DETAILED)
    for key in "abc":
        await commit(store, state, {"id": key}, detector=DETAILED)
    since = [each.queued_at for each in await store.feed(state.feed).load_awaited(10)]
    assert {*await store.feed(state.feed).load_waits()} == {*since}
    await store.feed(state.feed).complete_overdue([since[0] - timedelta(seconds=1)], detect, COMPOSE, 10)
    assert await told(store) == []
    rings = store.outbox.rings
    await store.feed(state.feed).complete_overdue(since, detect, COMPOSE, 2)
    assert store.outbox.rings > rings
    assert await told(store) == ["a created 1"]
    assert [each.row for each in await store.feed(state.feed).load_awaited(10)] == [3]
    await store.feed(state.feed).complete_overdue(since, detect, COMPOSE, 2)
    assert await store.feed(state.feed).load_waits() == []
    assert await told(store) == ["a created 1", "c created 1"]
    assert len(await store.feed(other.feed).load_awaited(10)) == 1


async def test_a_change_of_which_nothing_is_left_is_no_event(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 1})
    await commit(store, state, {"id": "a", "x": 2}, detector=DETAILED)

    rings = store.outbox.rings
    assert await store.feed(state.feed).complete(1, lambda *_: None, COMPOSE) == 0
    assert store.outbox.rings == rings
    assert await store.feed(state.feed).load_awaited(10) == []
    assert await store.feed(state.feed).complete(1, lambda *_: None, COMPOSE) == 0  # completed twice
    assert await told(store) == ["a created 1"]


async def test_completing_counts_named_events_too(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)
    assert await complete(store, state, 1, {"id": "a", "x": 1}, any="true", all="true") == 3
    assert (await reload(store)).sequence == 3


async def test_a_completion_that_breaks_keeps_the_change_waiting(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)

    def fail(*_: object) -> Change | None:
        raise RuntimeError("power is lost")

    with pytest.raises(RuntimeError):
        await store.feed(state.feed).complete(1, fail, COMPOSE)
    assert len(await store.feed(state.feed).load_awaited(10)) == 1
    assert await complete(store, state, 1, {"id": "a"}) == 1
    assert await told(store) == ["a created 1"]


async def test_a_record_is_not_buried_before_its_last_change_is_told(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 1}, detector=DETAILED)
    await close_pass(store, state, suspected=[1])
    assert await delete_records(store, state, 1) == 0
    await complete(store, state, 1, None)
    assert await delete_records(store, state, 1) == 1
    assert await told(store) == ["a created 1", "a deleted 2"]


async def test_a_return_waits_for_its_detail_and_has_no_before(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 1})
    await close_pass(store, state, suspected=[1])
    await delete_records(store, state, 1)
    await prune(store, NOON + DAY)
    await commit(store, state, {"id": "a", "x": 2}, detector=DETAILED)
    assert await told(store) == ["a created 1", "a deleted 2"]
    assert await store.read_states([(FEED, "a")]) == {(FEED, "a"): b'{"id": "a", "x": 2}'}
    await complete(store, state, 1, {"id": "a", "lines": []})
    assert await told(store, after=2) == ["a restored 3"]
    assert (await datas(store))[-1]["before"] is None


# First pass and another reading --------------------------------------------------------------------------------------


async def emit(store: Store, state: FeedState, limit: int = 2) -> int:
    return await store.feed(state.feed).emit_snapshots(partial(DETECTOR.snapshot, now=NOON), COMPOSE, limit)


async def test_snapshots_are_published_in_portions_each_once(store: Store, state: FeedState) -> None:
    await commit(store, await store.feed(OTHER).open(), {"id": "other"}, baseline=True)
    await commit(store, state, *({"id": key} for key in "abc"), baseline=True)
    assert await emit(store, state) == 0  # nobody wants them
    await store.feed(state.feed).begin_emitting()
    assert await emit(store, state) == 2
    await store.feed(state.feed).begin_emitting()  # after a crash
    assert [await emit(store, state) for _ in range(3)] == [1, 0, 0]
    assert await told(store) == ["a snapshot 0", "b snapshot 0", "c snapshot 0"]


async def test_no_snapshot_is_published_of_what_has_events_or_is_gone(store: Store, state: FeedState) -> None:
    await commit(store, state, *({"id": key} for key in "abc"), baseline=True)
    await commit(store, state, {"id": "b", "x": 1})
    await close_pass(store, state, suspected=[1])
    await delete_records(store, state, 1)
    await store.feed(state.feed).begin_emitting()
    assert await emit(store, state, 10) == 1
    assert await told(store) == ["b updated 1", "a deleted 1", "c snapshot 0"]


async def test_no_snapshot_is_published_of_what_was_only_met(store: Store, state: FeedState) -> None:
    """The first poll makes an event of it."""
    look = partial(commit, store, state, baseline=True, provisional=True)
    await look({"id": "old"}, shipment(5), at=10)
    await look(shipment(6, x=1), at=10)
    await commit(store, state, shipment(5) | {"id": "later"}, at=10, provisional=True)
    assert await told(store) == []
    await store.feed(state.feed).begin_emitting()
    assert await emit(store, state, 10) == 1
    await commit(store, state, shipment(6, x=1), shipment(5) | {"id": "later"}, at=20)
    assert await told(store) == ["old snapshot 0", "a updated 1", "later created 1"]
    assert (await datas(store))[1]["before"] is None


async def rebaseline(store: Store, state: FeedState, *parts: str) -> None:
    statement = a_statement(StatementKind.REBASELINED, parts=list(parts))
    await store.feed(state.feed).save_read_settings({"new": True}, rebaseline=statement, compose=COMPOSE)


async def test_a_feed_that_is_read_differently_begins_anew_but_for_records_revisions_and_numbers(
    store: Store, state: FeedState
) -> None:
    await store.feed(state.feed).begin_feed(NOON)
    await store.feed(state.feed).save_shape(Shape(("/id",), "/at", None), proven=True)
    look = partial(commit, store, state, stale_window=WINDOW)
    await look(shipment(20, x=2), at=30)
    await look(shipment(10, x=1), at=40)
    await close_pass(store, state, suspected=[1], held=1, confirm_at=NOON, newest=NOON)
    await store.feed(state.feed).save_checkpoint(Checkpoint("c", b"{}", SeenRows(1), SeenRows(1), NOON))
    rings = store.outbox.rings
    await rebaseline(store, state, "query", "base_url")
    assert store.outbox.rings == rings + 1
    assert await told(store) == ["a created 1", "rebaselined 0"]
    assert replace(await reload(store), full=None) == FeedState(
        state.id, FEED, read_settings={"new": True}, rebaselining=True, last_row=1, sequence=2
    )
    assert await store.feed(state.feed).load_checkpoint() is None
    assert await store.feed(state.feed).find_suspected() == []
    assert await absent(store, state, SeenRows(1)) == []
    assert (await look(shipment(20, x=3), at=50, rebaselining=True)).events == 0
    assert (await look(shipment(60, x=4), at=70)).events == 1
    assert await told(store, after=2) == ["a updated 2"]
    await store.feed(state.feed).end_baseline(proven=False, newest=None)
    assert not (await reload(store)).rebaselining


async def test_a_feed_of_which_the_same_records_are_read_otherwise_keeps_its_shape_and_its_proof(
    store: Store, state: FeedState
) -> None:
    shape = Shape(("/id",), "/at", None)
    await store.feed(state.feed).save_shape(shape, proven=True)
    await rebaseline(store, state, "query", "expand", "detail")
    state = await reload(store)
    assert (state.shape, state.proven, state.rebaselining) == (shape, True, True)


@pytest.mark.parametrize("parts", [["expand"], ["detail", "expand"], ["ignore", "unordered"]])
async def test_a_feed_of_which_only_the_content_is_read_otherwise_goes_on_where_it_was(
    store: Store, state: FeedState, parts: list[str]
) -> None:
    await store.feed(state.feed).begin_feed(NOON)
    await store.feed(state.feed).save_shape(Shape(("/id",), "/at", None), proven=True)
    await store.feed(state.feed).save_listing_profile("{}")
    look = partial(commit, store, state, stale_window=WINDOW)
    await look(shipment(20, x=2), at=30)
    await look(shipment(10, x=1), at=40)
    await close_pass(store, state, suspected=[1], held=1, confirm_at=NOON, newest=NOON)
    progress = Progress(later(hours=1), later(hours=2), later(hours=3), later(hours=4), 5)
    await store.feed(state.feed).close_run(a_run(RunKind.POLL), progress)
    await store.feed(state.feed).save_checkpoint(Checkpoint("c", b"{}", SeenRows(1), SeenRows(1), NOON))
    before = await reload(store)
    await rebaseline(store, state, *parts)
    assert await told(store, after=before.sequence) == ["rebaselined 0"]
    assert await reload(store) == replace(
        before, read_settings={"new": True}, rebaselining=True, sequence=before.sequence + 1
    )
    assert before.holds == 1
    assert await store.feed(state.feed).load_checkpoint() is None
    assert await store.feed(state.feed).find_suspected() == [1]
    assert [row for row, *_ in await absent(store, state, SeenRows(1))] == [1]
    await close_pass(store, state)
    assert not (await reload(store)).rebaselining


async def test_what_waits_for_a_detail_goes_on_waiting_unless_the_key_is_another(
    store: Store, state: FeedState
) -> None:
    await commit(store, state, {"id": "a"}, detector=DETAILED)
    await rebaseline(store, state, "base_url", "query", "detail")
    assert len(await store.feed(state.feed).load_awaited(10)) == 1
    await rebaseline(store, state, "key")
    assert await store.feed(state.feed).load_awaited(10) == []
    assert await told(store) == ["rebaselined 0", "rebaselined 0"]


async def test_a_feed_whose_key_is_another_meets_its_old_records_never_again(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    for _ in range(2):
        await rebaseline(store, state, "query", "key")
        assert (await commit(store, state, {"id": "a"}, {"id": "b"}, baseline=True)).events == 0
    assert await absent(store, state, SeenRows(6)) == [(5, None, 0), (6, None, 0)]
    await commit(store, state, {"id": "a", "x": 1})
    assert await told(store, after=2) == ["rebaselined 0", "rebaselined 0", "a updated 1"]


async def test_a_signature_that_is_no_other_reading_changes_nothing_else(store: Store, state: FeedState) -> None:
    await store.feed(state.feed).begin_feed(NOON)
    await commit(store, state, {"id": "a"})
    rings = store.outbox.rings
    await store.feed(state.feed).save_read_settings({"key": ["/id"]})
    state = await reload(store)
    assert (state.rebaselining, state.first_asked_at, state.read_settings) == (False, NOON, {"key": ["/id"]})
    assert store.outbox.rings == rings


# Checkpoints ---------------------------------------------------------------------------------------------------------


async def test_a_checkpoint_of_a_hundred_thousand_rows_comes_back_as_it_was(store: Store, state: FeedState) -> None:
    rows = random.Random(7).sample(range(1, 100_001), 60_000)
    seen = SeenRows(100_000)
    seen.add(rows)
    assert await store.feed(state.feed).load_checkpoint() is None
    await store.feed(state.feed).save_checkpoint(Checkpoint("old", b"{}", SeenRows(3), SeenRows(3), NOON))
    shown = SeenRows(100_003)
    shown.add(rows[:9])
    walk = '{"pages": 7, "é": 1}'.encode()
    await store.feed(state.feed).save_checkpoint(Checkpoint("c+/=é", walk, seen, shown, later(hours=1)))
    found = await store.feed(state.feed).load_checkpoint()
    assert found is not None
    assert (found.cursor, found.run, found.saved_at) == ("c+/=é", walk, later(hours=1))
    assert (found.seen.last_row, found.seen.count) == (100_000, 60_000)
    assert set(found.seen.find_unseen(range(1, 100_001))) == set(range(1, 100_001)) - set(rows)
    assert found.rows.last_row == 100_003
    assert set(found.rows.find_unseen(range(1, 100_004))) == set(range(1, 100_004)) - set(rows[:9])


async def test_a_checkpoint_goes_when_its_pass_is_complete_or_given_up(store: Store, state: FeedState) -> None:
    other = await store.feed(OTHER).open()
    for each in (state, other):
        await store.feed(each.feed).save_checkpoint(Checkpoint("c", b"{}", SeenRows(3), SeenRows(3), NOON))
    await close_pass(store, state)
    assert await store.feed(state.feed).load_checkpoint() is None
    assert await store.feed(other.feed).load_checkpoint() is not None
    await store.feed(other.feed).drop_checkpoint()
    assert await store.feed(other.feed).load_checkpoint() is None


# Delivery ------------------------------------------------------------------------------------------------------------


async def test_a_new_sink_starts_at_now_or_at_the_beginning_and_keeps_its_place(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})
    await store.sink("late").enroll("now")
    await store.sink("early").enroll("beginning")
    await commit(store, state, {"id": "b"})
    await store.sink("late").enroll("now")
    assert (await store.sink("late").load_queue())[0] == {FEED: 1}
    assert (await store.sink("early").load_queue())[0] == {FEED: 0}


async def test_a_feed_that_comes_later_owes_a_known_sink_everything(store: Store, state: FeedState) -> None:
    await store.sink("screen").enroll("now")
    await commit(store, await store.feed(OTHER).open(), {"id": "a"})
    await store.sink("screen").enroll("now")
    assert (await store.sink("screen").load_queue())[0] == {FEED: 0, OTHER: 0}


async def test_what_a_sink_settled_is_what_it_begins_from(store: Store, state: FeedState) -> None:
    await store.sink("erp").enroll("now")
    entries = {(FEED, key): Blocked(FEED, key, 3, 2, NOON, "HTTP 500") for key in "ab"}
    dead = DeadLetter(FEED, "c", 4, 10, NOON, "HTTP 422")
    await store.sink("erp").settle(Settlement({FEED: 7}, dict(entries), set(), [dead]))
    await store.sink("erp").settle(Settlement(freed={(FEED, "a")}))
    positions, blocked = await store.sink("erp").load_queue()
    assert positions == {FEED: 7}
    assert list(blocked) == [entries[FEED, "b"]]


async def test_a_sink_that_begins_with_the_state_is_told_from_where_it_was_told_before(
    store: Store, state: FeedState
) -> None:
    await commit(store, state, *({"id": key} for key in "abc"))
    await store.sink("erp").enroll("state")
    begun = (await store.sink("erp").load_starts())[FEED]
    assert begun == StartOffset(3, NOON, 0)
    assert await store.sink("erp").read_backfill(FEED, begun, 0, 2) is None
    await store.feed(state.feed).save_shape(Shape(("/id",), None, None), proven=True)
    await close_pass(store, state)
    first, row, is_all = await store.sink("erp").read_backfill(FEED, begun, 0, 2) or ((), 0, True)
    assert ([each.key.text for each in first], is_all) == (["a", "b"], False)
    await store.sink("erp").settle(Settlement(backfilled_to={FEED: row}, origins={FEED: 3}))
    assert (await store.sink("erp").load_starts())[FEED].backfilled_to == row
    rest, _, is_all = await store.sink("erp").read_backfill(FEED, begun, row, 2) or ((), 0, False)
    assert ([each.key.text for each in rest], is_all) == (["c"], True)
    await store.sink("erp").settle(Settlement({FEED: 3}, backfilled_to={FEED: None}, origins={FEED: 3}))
    assert (await store.sink("erp").load_starts())[FEED].backfilled_to is None
    assert await store.sink("erp").find_backfilled(FEED, begun, "b") == first[1]


async def test_dead_letters_that_are_taken_back_are_none_and_those_of_one_number_are_told_apart(
    store: Store, state: FeedState
) -> None:
    await commit(store, state, *({"id": key} for key in "abc"))
    await store.sink("erp").enroll("now")
    letters = [DeadLetter(FEED, key, 3, 1, NOON, "HTTP 422") for key in "ab"]
    await store.sink("erp").settle(Settlement(dead=letters))
    again = DeadLetter(FEED, "a", 3, 2, NOON, "HTTP 400")
    await store.sink("erp").settle(Settlement(revived=letters, dead=[again]))
    await store.retention.prune_events(NOON + DAY, ["erp"], 10)
    assert await count_events(store) == [3]
    await store.sink("erp").settle(Settlement(revived=[again]))
    await store.retention.prune_events(NOON + DAY, ["erp"], 10)
    assert await count_events(store) == []


async def test_a_pause_is_kept_with_its_first_reason(store: Store, state: FeedState) -> None:
    await store.sink("erp").enroll("now")
    assert (await store.sink("erp").load_controls()).paused is None
    for reason in ("HTTP 410", "again"):
        await store.sink("erp").pause(reason)
    assert (await store.sink("erp").load_controls()).paused == "HTTP 410"
    assert (await store.sink("other").load_controls()).paused is None


async def test_held_keys_are_counted_and_kept_as_held(store: Store, state: FeedState) -> None:
    await store.sink("erp").enroll("now")
    entries = {(FEED, key): Blocked(FEED, key, 3, 2, NOON, "", held=key == "a") for key in "ab"}
    await store.sink("erp").settle(Settlement(blocked=entries))
    assert (await store.sink("erp").load_controls()).held == 1
    assert sorted((await store.sink("erp").load_queue())[1], key=lambda entry: entry.key) == list(entries.values())


async def count_events(store: Store) -> list[int]:
    return [event.sequence for event in await store.read_events(FEED, 0, 100)]


async def test_old_events_are_pruned_unless_a_sink_owes_them(store: Store, state: FeedState) -> None:
    await store.sink("erp").enroll("beginning")
    await store.sink("gone").enroll("beginning")
    await commit(store, state, *({"id": key} for key in "abcdef"))
    owed = Blocked(FEED, "b", 2, 1, NOON)
    dead = DeadLetter(FEED, "c", 3, 10, NOON, "")
    await store.sink("erp").settle(Settlement({FEED: 5}, {(FEED, "b"): owed}, set(), [dead]))
    assert await store.retention.prune_events(NOON, ["erp"], 10) == 0
    assert await store.retention.prune_events(NOON + DAY, ["erp"], 2) == 2
    assert await store.retention.prune_events(NOON + DAY, ["erp"], 10) == 1
    assert await count_events(store) == [2, 3, 6]


async def test_a_store_without_sinks_keeps_events_only_for_their_time(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"})
    assert await store.retention.prune_events(NOON + DAY, [], 10) == 2
    await commit(store, state, {"id": "c"})
    assert await told(store, after=2) == ["c created 1"]  # a pruned number is not given again


# History -------------------------------------------------------------------------------------------------------------


async def prune(store: Store, before: datetime, limit: int = 100) -> int:
    """Prune until nothing is left to prune; return how much it was."""
    pruned = 0
    while count := await store.retention.prune_history(before, limit):
        pruned += count
    return pruned


async def test_of_runs_that_found_nothing_one_a_minute_is_kept(store: Store, state: FeedState) -> None:
    feed = store.feed(state.feed)
    ends = {"idle": range(0, 180, 10), "found": (5, 65), "incomplete": (15,)}
    kept = {50, 110, 170, 5, 65, 15}
    runs = []
    for kind, seconds in ends.items():
        for second in seconds:
            run = replace(a_run(RunKind.POLL), ended_at=NOON + timedelta(seconds=second), events=int(kind == "found"))
            runs.append(replace(run, problem="HTTP 503") if kind == "incomplete" else run)
    for run in sorted(runs, key=lambda run: run.ended_at):
        await feed.close_run(run)
    assert await store.retention.thin_runs(NOON, 100) == 0
    assert await store.retention.thin_runs(NOON + DAY, 4) == 4
    assert await store.retention.thin_runs(NOON + DAY, 100) == len(runs) - 4 - len(kept)
    assert await store.retention.thin_runs(NOON + DAY, 100) == 0
    assert (await feed.open()).poll == runs[len(ends["idle"]) - 1]


async def test_the_last_runs_of_each_kind_are_kept_whatever_their_age(store: Store, state: FeedState) -> None:
    runs: list[RunRecord] = []
    for hours in range(3):
        for kind in RunKind:
            for problem in ("", "cut short"):
                runs.append(a_run(kind, problem, hours=hours))
                await store.feed(state.feed).close_run(runs[-1])
    before = await reload(store)
    assert await prune(store, NOON + DAY, limit=5) == 12
    assert await reload(store) == before


async def test_only_what_is_old_is_pruned(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"})  # with a finding
    await close_pass(store, state, suspected=[1])  # with another
    await delete_records(store, state, 1)  # a third, and a tombstone
    assert await prune(store, NOON) == 0
    assert await store.feed(FEED).read_bodies([1]) != {}
    assert await prune(store, later(seconds=1)) == 4
    assert await store.feed(FEED).read_bodies([1]) == {}


async def test_a_tombstone_without_a_body_can_still_return(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a", "x": 1})
    await close_pass(store, state, suspected=[1])
    await delete_records(store, state, 1)
    await prune(store, NOON + DAY)
    assert await absent(store, state, SeenRows(1)) == []
    await commit(store, state, {"id": "a", "x": 2})
    assert await told(store, after=2) == ["a restored 3"]
    await commit(store, state, {"id": "a", "x": 3})
    last = (await datas(store))[-1]
    assert (last["before"], last["after"]) == ({"id": "a", "x": 2}, {"id": "a", "x": 3})


async def test_a_tombstone_without_a_body_that_returns_with_a_detail_can_be_buried_again(
    store: Store, state: FeedState
) -> None:
    await commit(store, state, {"id": "a", "x": 1})
    await close_pass(store, state, suspected=[1])
    await delete_records(store, state, 1)
    await prune(store, NOON + DAY)
    await commit(store, state, {"id": "a", "x": 2}, detector=DETAILED)
    await commit(store, state, {"id": "a", "x": 3}, detector=DETAILED)
    await close_pass(store, state, suspected=[1])
    assert await delete_records(store, state, 1) == 0
    await complete(store, state, 1, None)
    assert await delete_records(store, state, 1) == 1
    assert await told(store, after=2) == ["a restored 3", "a deleted 4"]


async def test_no_body_is_pruned_of_a_record_that_is_there_or_on_its_way(store: Store, state: FeedState) -> None:
    await commit(store, state, {"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"})
    await close_pass(store, state, suspected=[1, 2, 3])
    await delete_records(store, state, 1, 2)
    await commit(store, state, {"id": "a"})  # it is back
    await commit(store, state, {"id": "b"}, detector=DETAILED)  # it is on its way back
    await prune(store, NOON + DAY)
    assert sorted(await store.feed(FEED).read_bodies([1, 2, 3, 4])) == [1, 2, 3, 4]


async def test_findings_without_an_event_are_kept_too(store: Store, state: FeedState) -> None:
    def detect(snapshots: Snapshots) -> PageDiff:
        return PageDiff(notes=[Note("a", finding) for finding in Finding])

    assert (await store.feed(state.feed).commit_page(detect, COMPOSE, via=Via.TRAILING)).events == 0
    assert await prune(store, NOON + DAY) == len(Finding)
