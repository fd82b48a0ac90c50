"""What agents tell of their work, for metrics and for the page: with the times that it took."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from dockbell.core.model import ChangeKind, Feed, RunKind
from dockbell.detection.detail_fetcher import DetailFetcher
from dockbell.errors import SourceUnavailable
from dockbell.stores.sqlite.command_store import SqliteCommandStore
from dockbell.telemetry import ChangesStored, DeliverySettled, EventsSifted, Fact, RunEnded
from tests.fakes import Clock, Ear, FakeSink
from tests.relaying import change, make_relay, opened
from tests.rig import SHIPMENTS, Rig, open_rig, open_stock

F = TypeVar("F", bound=Fact)


def told(ear: Ear, kind: type[F]) -> list[F]:
    """Return the facts of one kind, and forget all."""
    facts = [fact for fact in ear.facts if isinstance(fact, kind)]
    ear.facts.clear()
    return facts


def seconds(*numbers: float) -> tuple[timedelta, ...]:
    return tuple(timedelta(seconds=number) for number in numbers)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """Return a rig after its first pass."""
    async with open_rig(tmp_path) as rig:
        await rig.read_whole()
        rig.ear.facts.clear()
        yield rig


# Runs -----------------------------------------------------------------------------------------------------------------


async def test_a_run_tells_when_it_asked_and_what_it_found(rig: Rig) -> None:
    rig.source.put("a", status="closed")
    rig.source.put("f", status="open")
    await rig.poll()
    [run] = told(rig.ear, RunEnded)
    assert (run.kind, run.asked_at, run.tally.updated, run.tally.created) == (RunKind.POLL, rig.clock(), 1, 1)


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
async def test_a_run_tells_and_keeps_when_it_asked_by_our_clock(rig: Rig, ahead: int) -> None:
    rig.source.ahead = timedelta(seconds=ahead)
    await rig.read_whole()
    [run] = told(rig.ear, RunEnded)
    full = (await rig.tracked.reload()).full
    assert full is not None
    assert run.asked_at == full.asked_at == rig.clock() + rig.source.ahead
    assert run.sent_at == full.sent_at == rig.clock()


async def test_a_poll_is_late_that_asks_later_than_its_interval_after_the_last(rig: Rig) -> None:
    for after in (15, 15, 16.9, 17.1, 60, 5):
        await rig.poll(after)
    assert [run.late for run in told(rig.ear, RunEnded)] == [None, False, False, True, True, False]


async def test_other_runs_are_never_late(rig: Rig) -> None:
    await rig.poll()
    await rig.read_whole(3600)
    await rig.poller.trail_once()
    assert [run.late for run in told(rig.ear, RunEnded)] == [None, None, None]


async def test_a_run_that_is_not_answered_is_not_in_time_and_neither_is_the_next(rig: Rig) -> None:
    def fail(_: int) -> None:
        raise SourceUnavailable("HTTP 503")

    await rig.poll()
    answer, rig.source.before_page = rig.source.before_page, fail
    await rig.poll()
    rig.source.before_page = answer
    await rig.poll()
    runs = told(rig.ear, RunEnded)
    assert [run.late for run in runs] == [None, True, True]
    assert runs[1].asked_at is None


async def test_passes_are_due_an_interval_after_the_end_of_the_last(tmp_path: Path) -> None:
    async with open_stock(tmp_path) as rig:
        rig.source.put("a", n=1)
        for after in (0, 300, 331, 329):
            await rig.read_whole(after)
        assert [run.late for run in told(rig.ear, RunEnded)] == [None, False, True, False]


# Changes --------------------------------------------------------------------------------------------------------------


async def test_changes_tell_how_old_they_were_when_they_were_read(rig: Rig) -> None:
    rig.source.put("a", status="closed")
    rig.clock.pass_(4)
    rig.source.put("f", status="open")
    await rig.poll(6)
    [stored] = told(rig.ear, ChangesStored)
    assert stored.kinds == {ChangeKind.UPDATED: 1, ChangeKind.CREATED: 1}
    check_ages(sorted(stored.ages), 6, 10)


async def test_a_change_that_did_not_move_its_timestamp_is_as_old_as_any_moment_since_the_last_reading(
    rig: Rig,
) -> None:
    rig.source.records["a"]["status"] = "closed"
    await rig.read_whole(3600)
    [stored] = told(rig.ear, ChangesStored)
    assert stored.kinds == {ChangeKind.UPDATED: 1}
    [age] = stored.ages
    assert timedelta(0) < age < timedelta(hours=1, minutes=1)


async def test_a_page_without_changes_tells_of_none(rig: Rig) -> None:
    await rig.poll()
    assert told(rig.ear, ChangesStored) == []


async def test_deletions_are_told_of_when_a_pass_has_confirmed_them(rig: Rig) -> None:
    del rig.source.records["a"]
    await rig.read_whole(3600)
    assert told(rig.ear, ChangesStored) == []
    await rig.read_whole(3600)
    assert [stored.kinds for stored in told(rig.ear, ChangesStored)] == [{ChangeKind.DELETED: 1}]


async def test_a_change_that_waited_for_its_detail_took_that_long(tmp_path: Path) -> None:
    async with open_rig(tmp_path, detail=("lines",), detail_timeout="30s") as rig:
        rig.feed = SHIPMENTS
        rig.restart()
        await rig.read_whole()
        detail_fetcher = DetailFetcher(rig.tracked)
        for key in "ab":
            rig.source.put(key, status="closed")
        await rig.poll(5)
        assert told(rig.ear, ChangesStored) == []
        rig.source.before_alone = _refuse_b
        rig.clock.pass_(2)
        await detail_fetcher.run_once()
        check_updated(told(rig.ear, ChangesStored), age=5, took=2)
        rig.clock.pass_(60)
        await detail_fetcher.run_once()
        check_updated(told(rig.ear, ChangesStored), age=37, took=30)  # 67 seconds in all


def _refuse_b(key: str) -> None:
    if key == "b":
        raise SourceUnavailable("HTTP 503")


def check_updated(facts: Sequence[ChangesStored], age: float, took: float) -> None:
    """Check that one update was told of, so old and so long after the answer that showed it."""
    [fact] = facts
    assert (fact.feed, fact.kinds, fact.took) == (SHIPMENTS, {ChangeKind.UPDATED: 1}, timedelta(seconds=took))
    check_ages(fact.ages, age)


def check_ages(ages: Sequence[timedelta | None], *most: float) -> None:
    """Check ages of what is dated to the second: each may be less by that."""
    assert len(ages) == len(most)
    for age, seconds_most in zip(ages, most, strict=True):
        assert age is not None
        assert timedelta(seconds=seconds_most - 1) <= age <= timedelta(seconds=seconds_most)


# Deliveries -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("passed", "waited"), [(7, 7), (-3600, 0)], ids=["", "our clock was set back"])
async def test_a_delivery_tells_how_long_its_event_has_waited(tmp_path: Path, passed: int, waited: int) -> None:
    clock, ear, sink = Clock(), Ear(), FakeSink()
    async with opened(tmp_path) as store:
        await change(store, {"id": "a", "n": 0})
        clock.pass_(passed)
        await make_relay(store, sink, clock, ear=ear).drain(timedelta(seconds=5))
    assert [fact.waited for fact in told(ear, DeliverySettled)] == list(seconds(waited))


async def deliver(rig: Rig, after: float) -> list[timedelta | None]:
    """Deliver what is owed, some seconds later; return how long before that each change was made."""
    rig.clock.pass_(after)
    rig.ear.facts.clear()
    assert await make_relay(rig.store, FakeSink(), rig.clock, ear=rig.ear).drain(timedelta(seconds=5))
    return [fact.age for fact in told(rig.ear, DeliverySettled) if fact.delivery.event.key]


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
async def test_a_delivery_tells_how_old_its_change_is_by_the_clock_of_the_service(tmp_path: Path, ahead: int) -> None:
    async with open_rig(tmp_path) as rig:
        rig.source.ahead = rig.source.offset = timedelta(seconds=ahead)
        await rig.read_whole()
        await rig.store.sink("screen").enroll("now")
        rig.source.put("f", status="open")
        await rig.poll(6)
        check_ages(await deliver(rig, after=2), 8)


async def test_each_delivery_of_a_change_has_an_age_and_no_replay_has_one(rig: Rig) -> None:
    await rig.store.sink("screen").enroll("now")
    rig.source.records["a"]["status"] = "closed"
    await rig.read_whole(3600)
    rig.source.put("b", status="closed")
    await rig.poll()
    events = [event for event in await rig.store.read_events(rig.feed, 0, 9) if event.key]
    ages = await deliver(rig, after=1)
    check_ages(ages[1:], 16)
    assert ages[0] is not None
    assert timedelta(0) < ages[0] < timedelta(hours=1, minutes=1)
    command_store = await SqliteCommandStore.open(rig.store.path)
    await command_store.offer("screen", rig.feed, [(event.sequence, event.key) for event in events], rig.clock())
    await command_store.aclose()
    assert await deliver(rig, after=1) == [None, None]


async def test_filters_tell_what_they_let_through_and_what_they_hold_back(tmp_path: Path) -> None:
    ear, sink = Ear(), FakeSink()
    async with opened(tmp_path) as store:
        await change(store, *({"id": str(number), "n": number} for number in range(5)))
        relay = make_relay(store, sink, Clock(), ear=ear, where="after.n < 2")
        await relay.drain(timedelta(seconds=5))
    assert told(ear, EventsSifted) == [EventsSifted("screen", Feed("main", "shipments"), 2, 3)]
