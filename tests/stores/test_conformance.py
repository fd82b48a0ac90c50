"""What every database must do; each test runs on each of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dockbell.core.comparing.absence import SeenRows
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.judge import Judge, Judgement, Reading, Snapshots
from dockbell.core.model import Change, ClockSource, Event, Feed, Page, RunKind, Via
from dockbell.core.publishing.event import compose
from dockbell.core.publishing.ledger import Blocked, DeadLetter, Settlement
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.ports import Committed, FeedState, RunRecord, Store
from dockbell.stores.sqlite import SqliteStore

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FEED = Feed("main", "shipments")
OTHER = Feed("main", "stock")
JUDGE = Judge(FEED, key=("/id",), updated_at=None, created_at=None, canon=Canon())


@pytest.fixture(params=["sqlite"])
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON, epoch="epoch")
    yield store
    await store.aclose()


def number(change: Change, sequence: int) -> Event:
    return compose(change, name="acme", singular="shipment", epoch="epoch", sequence=sequence)


def page(*records: Mapping[str, Any]) -> Page:
    raws = tuple(json.dumps(record).encode() for record in records)
    return Page(raws, None, "shipments", NOON, ClockSource.DATE, NOON, NOON)


async def commit(
    store: Store, state: FeedState, *records: Mapping[str, Any], number: Callable[[Change, int], Event] = number
) -> Committed:
    reading = Reading(Via.POLL, NOON)
    return await store.commit_page(state.id, partial(JUDGE.judge, page(*records), reading), number)


def a_run(kind: RunKind = RunKind.PASS, problem: str = "") -> RunRecord:
    since = NOON if kind is RunKind.POLL else None
    return RunRecord(kind, NOON, since, NOON, pages=1, records=2, events=3, problem=problem)


async def test_a_new_feed_knows_nothing_and_keeps_what_it_is_told(store: Store) -> None:
    state = await store.open_feed(FEED)
    assert (state.shape, state.first_asked_at, state.progress, state.passes) == (None, None, Progress(), 0)
    shape = Shape(("/sku", "/warehouse_id"), "/updated_at", None)
    await store.begin_feed(state.id, NOON)
    await store.save_shape(state.id, shape)
    await store.save_problem(state.id, "key refused")
    state = await store.open_feed(FEED)
    assert (state.shape, state.first_asked_at, state.problem) == (shape, NOON, "key refused")
    assert state.progress == Progress(NOON)


async def test_the_first_request_of_a_feed_stays_the_first(store: Store) -> None:
    state = await store.open_feed(FEED)
    await store.begin_feed(state.id, NOON)
    await store.begin_feed(state.id, NOON + timedelta(days=1))
    assert (await store.open_feed(FEED)).first_asked_at == NOON


async def test_the_last_run_is_known_for_its_failure_until_one_is_complete(store: Store) -> None:
    state = await store.open_feed(FEED)
    later = replace(a_run(RunKind.POLL, problem="cut short"), ended_at=NOON + timedelta(seconds=15))
    await store.close_run(state.id, a_run(RunKind.POLL), Progress())
    await store.close_run(state.id, later, Progress())
    assert (await store.open_feed(FEED)).failed == later
    await store.close_run(state.id, replace(later, problem="", ended_at=NOON + timedelta(seconds=30)), Progress())
    assert (await store.open_feed(FEED)).failed is None


async def test_the_end_of_a_run_is_stored_with_what_it_proved(store: Store) -> None:
    state = await store.open_feed(FEED)
    progress = Progress(NOON, NOON + timedelta(seconds=15))
    await store.close_run(state.id, a_run(RunKind.POLL), progress)
    await store.close_run(state.id, a_run(RunKind.POLL, problem="cut short"), progress)
    state = await store.open_feed(FEED)
    assert (state.progress, state.poll) == (progress, a_run(RunKind.POLL))


async def test_events_are_numbered_per_feed_without_gaps(store: Store) -> None:
    first, second = await store.open_feed(FEED), await store.open_feed(OTHER)
    await commit(store, first, {"id": "a"}, {"id": "b"})
    await commit(store, second, {"id": "a"})
    await commit(store, first, {"id": "a", "x": 1}, {"id": "b"})
    assert [event.sequence for event in await store.read_events(FEED, 0, 10)] == [1, 2, 3]
    assert [event.sequence for event in await store.read_events(OTHER, 0, 10)] == [1]
    assert await store.last_sequences() == {FEED: 3, OTHER: 1}


async def test_a_page_is_committed_whole_or_not_at_all(store: Store) -> None:
    state = await store.open_feed(FEED)

    def fail(change: Change, sequence: int) -> Event:
        if sequence == 2:
            raise RuntimeError("power is lost")
        return number(change, sequence)

    with pytest.raises(RuntimeError):
        await commit(store, state, {"id": "a"}, {"id": "b"}, number=fail)
    assert await store.read_events(FEED, 0, 10) == []
    committed = await commit(store, state, {"id": "a"})
    assert committed.events == 1


async def test_an_unchanged_page_adds_nothing_and_does_not_ring(store: Store) -> None:
    state = await store.open_feed(FEED)
    await commit(store, state, {"id": "a"})
    rings = store.outbox.rings
    committed = await commit(store, state, {"id": "a"})
    assert (committed.events, committed.judgement.seen) == (0, [1])
    assert store.outbox.rings == rings


async def test_a_page_with_changes_rings_the_outbox(store: Store) -> None:
    rings = store.outbox.rings
    await commit(store, await store.open_feed(FEED), {"id": "a"})
    assert store.outbox.rings == rings + 1


async def test_events_can_be_read_of_one_key_up_to_a_sequence(store: Store) -> None:
    state = await store.open_feed(FEED)
    for value in range(4):
        await commit(store, state, {"id": "a", "x": value}, {"id": "b", "x": value})
    events = await store.read_events(FEED, 2, 10, key="a", until=6)
    assert [(event.sequence, event.key) for event in events] == [(3, "a"), (5, "a")]
    assert len(await store.read_events(FEED, 0, 3)) == 3


async def test_the_latest_state_of_a_key_is_what_was_committed_last(store: Store) -> None:
    state = await store.open_feed(FEED)
    await commit(store, state, {"id": "a", "x": 1}, {"id": "b"})
    await commit(store, state, {"id": "a", "x": 2})
    assert await store.read_states([(FEED, "a"), (FEED, "none")]) == {(FEED, "a"): b'{"id": "a", "x": 2}'}


async def absent(store: Store, state: FeedState, seen: SeenRows) -> list[int]:
    return [row for row, _ in await store.find_absent(state.id, seen)]


async def test_absent_are_rows_of_the_feed_that_were_not_seen(store: Store) -> None:
    state, other = await store.open_feed(FEED), await store.open_feed(OTHER)
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await commit(store, other, {"id": "a"})
    seen = SeenRows(await store.last_row(state.id))
    seen.add((await commit(store, state, {"id": "b"}, {"id": "new"})).judgement.seen)
    assert await absent(store, state, seen) == [1]


async def test_what_is_suspected_and_absent_again_is_buried_with_an_event(store: Store) -> None:
    state = await store.open_feed(FEED)
    await commit(store, state, {"id": "a"}, {"id": "b"})
    await store.close_pass(state.id, a_run(), suspected=[1], held=0, confirm_at=NOON)
    assert await store.find_absent(state.id, SeenRows(2)) == [(1, NOON), (2, None)]
    bury = partial(JUDGE.bury, until=NOON, now=NOON)
    assert await store.bury(state.id, [1], bury, number) == 1
    event = (await store.read_events(FEED, 2, 10))[0]
    assert (event.change, event.key, event.revision) == ("deleted", "a", 2)
    assert await absent(store, state, SeenRows(2)) == [2]
    assert await store.read_states([(FEED, "a")]) == {}
    assert await store.count_deleted(state.id, NOON) == 1
    committed = await commit(store, state, {"id": "a"})
    assert [change.kind for change in committed.judgement.changes] == ["restored"]
    assert await store.read_states([(FEED, "a")]) == {(FEED, "a"): b'{"id": "a"}'}


async def test_a_buried_record_was_there_at_the_last_pass_before_the_first_that_did_not_show_it(store: Store) -> None:
    state = await store.open_feed(FEED)
    await commit(store, state, {"id": "a"})
    for hours, suspected in ((0, []), (1, [1]), (2, [])):
        run = replace(a_run(), asked_at=NOON + timedelta(hours=hours))
        await store.close_pass(state.id, run, suspected=suspected, held=0, confirm_at=None)
    await store.bury(state.id, [1], partial(JUDGE.bury, until=NOON + timedelta(hours=2), now=NOON), number)
    (event,) = await store.read_events(FEED, 1, 10)
    assert json.loads(event.body)["data"]["changed_between"] == ["2026-11-21T12:00:00.000Z", "2026-11-21T14:00:00.000Z"]


async def test_a_run_that_proves_nothing_leaves_the_watermark(store: Store) -> None:
    state = await store.open_feed(FEED)
    await store.close_run(state.id, a_run(RunKind.POLL), Progress(NOON, NOON))
    await store.close_run(state.id, a_run(problem="cut short"))
    assert (await store.open_feed(FEED)).progress == Progress(NOON, NOON)


async def test_a_row_that_was_seen_again_is_not_buried(store: Store) -> None:
    state = await store.open_feed(FEED)
    await commit(store, state, {"id": "a"})
    await store.close_pass(state.id, a_run(), suspected=[1], held=0, confirm_at=NOON)
    await commit(store, state, {"id": "a"})
    bury = partial(JUDGE.bury, until=NOON, now=NOON)
    assert await store.bury(state.id, [1], bury, number) == 0
    assert await store.find_absent(state.id, SeenRows(1)) == [(1, None)]


async def test_the_end_of_a_pass_is_counted_with_what_it_holds(store: Store) -> None:
    state = await store.open_feed(FEED)
    await store.close_pass(state.id, a_run(), suspected=[], held=14, confirm_at=NOON)
    state = await store.open_feed(FEED)
    assert (state.passes, state.held, state.confirm_at, state.full) == (1, 14, NOON, a_run())


async def test_a_new_sink_starts_at_now_or_at_the_beginning_and_keeps_its_place(store: Store) -> None:
    state = await store.open_feed(FEED)
    await commit(store, state, {"id": "a"})
    await store.enroll("late", "now")
    await store.enroll("early", "beginning")
    await commit(store, state, {"id": "b"})
    await store.enroll("late", "now")
    assert (await store.load_ledger("late"))[0] == {FEED: 1}
    assert (await store.load_ledger("early"))[0] == {FEED: 0}


async def test_a_feed_that_comes_later_owes_a_known_sink_everything(store: Store) -> None:
    await store.open_feed(FEED)
    await store.enroll("screen", "now")
    await commit(store, await store.open_feed(OTHER), {"id": "a"})
    await store.enroll("screen", "now")
    assert (await store.load_ledger("screen"))[0] == {FEED: 0, OTHER: 0}


async def test_what_a_sink_settled_is_what_it_begins_from(store: Store) -> None:
    await store.open_feed(FEED)
    await store.enroll("erp", "now")
    entries = {(FEED, key): Blocked(FEED, key, 3, 2, NOON, "HTTP 500") for key in "ab"}
    dead = DeadLetter(FEED, "c", 4, 10, NOON, "HTTP 422")
    await store.settle("erp", Settlement({FEED: 7}, dict(entries), set(), [dead]))
    await store.settle("erp", Settlement(freed={(FEED, "a")}))
    positions, blocked = await store.load_ledger("erp")
    assert positions == {FEED: 7}
    assert list(blocked) == [entries[FEED, "b"]]


async def count_events(store: Store) -> list[int]:
    return [event.sequence for event in await store.read_events(FEED, 0, 100)]


async def test_old_events_are_pruned_unless_a_sink_owes_them(store: Store) -> None:
    state = await store.open_feed(FEED)
    await store.enroll("erp", "beginning")
    await store.enroll("gone", "beginning")
    await commit(store, state, *({"id": key} for key in "abcdef"))
    owed = Blocked(FEED, "b", 2, 1, NOON)
    dead = DeadLetter(FEED, "c", 3, 10, NOON, "")
    await store.settle("erp", Settlement({FEED: 5}, {(FEED, "b"): owed}, set(), [dead]))
    future = NOON + timedelta(days=1)
    assert await store.prune_events(NOON, ["erp"], 10) == 0
    assert await store.prune_events(future, ["erp"], 2) == 2
    assert await store.prune_events(future, ["erp"], 10) == 1
    assert await count_events(store) == [2, 3, 6]


async def test_a_store_without_sinks_keeps_events_only_for_their_time(store: Store) -> None:
    await commit(store, await store.open_feed(FEED), {"id": "a"}, {"id": "b"})
    assert await store.prune_events(NOON + timedelta(days=1), [], 10) == 2


async def test_the_judge_sees_what_earlier_pages_of_any_size_stored(store: Store) -> None:
    state = await store.open_feed(FEED)
    records = [{"id": str(number)} for number in range(1201)]
    await commit(store, state, *records)
    sizes: list[int] = []

    def judge(snapshots: Snapshots) -> Judgement:
        found = snapshots.find([record["id"] for record in records])
        sizes.append(len(found))
        sizes.append(len(snapshots.bodies([stored.row for stored in found.values()])))
        return Judgement()

    await store.commit_page(state.id, judge, number)
    assert sizes == [1201, 1201]
