from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from dockbell.core.delays import QUARTER, MeasuredDelays, find_bucket, merge
from dockbell.core.model import DELIVERED, Delivery, Event, Feed, Outcome, OutcomeKind
from dockbell.delivery.delay_log import DelayLog
from dockbell.errors import StoreUnavailable
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from dockbell.telemetry import DeliverySettled
from tests.fakes import NOON, Clock, Ear
from tests.relaying import FEED, STOCK, opened

SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    async with opened(tmp_path, clock=clock) as store:
        yield store


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def delay_log(store: SqliteStore, ear: Ear, clock: Clock) -> DelayLog:
    intervals = {FEED: 5 * SECOND}
    return DelayLog(store.health, ear.telemetry, predict=intervals.get, now=clock)


def settled(
    age: float | None = 4,
    feed: Feed = FEED,
    sink: str = "erp",
    outcome: Outcome = DELIVERED,
    *,
    state_only: bool = False,
) -> DeliverySettled:
    event = Event(feed, 1, "a", "evt_1", "dockbell.shipment.updated", "updated", 1, b"{}")
    delivery = Delivery(event, state_only=state_only)
    return DeliverySettled(sink, delivery, outcome, SECOND, None if age is None else age * SECOND)


async def read(store: SqliteStore) -> list[MeasuredDelays]:
    read_store = await SqliteReadStore.open(store.path)
    try:
        return list(await read_store.read_delays(NOON - QUARTER))
    finally:
        await read_store.aclose()


async def test_delays_are_kept_by_feed_sink_and_quarter(
    store: SqliteStore, ear: Ear, clock: Clock, delay_log: DelayLog
) -> None:
    for fact in (settled(), settled(), settled(9), settled(sink="floor"), settled(30, STOCK)):
        ear.telemetry.emit(fact)
    await delay_log.run_once()
    clock.pass_(60)
    ear.telemetry.emit(settled())
    await delay_log.run_once()
    clock.pass_(15 * 60)
    ear.telemetry.emit(settled())
    await delay_log.run_once()
    four, nine = find_bucket(4), find_bucket(9)
    assert await read(store) == [
        MeasuredDelays(FEED, "erp", NOON, {four: 3, nine: 1}, 4 * SECOND, 20 * SECOND),
        MeasuredDelays(FEED, "floor", NOON, {four: 1}, SECOND, 5 * SECOND),
        MeasuredDelays(STOCK, "erp", NOON, {find_bucket(30): 1}, SECOND, None),
        MeasuredDelays(FEED, "erp", NOON + QUARTER, {four: 1}, SECOND, 5 * SECOND),
    ]


async def test_what_is_no_delay_of_a_change_is_left_out(store: SqliteStore, ear: Ear, delay_log: DelayLog) -> None:
    failed = Outcome(OutcomeKind.FAILED, "HTTP 500")
    for fact in (settled(None), settled(outcome=failed), settled(state_only=True), settled(feed=Feed("old", "items"))):
        ear.telemetry.emit(fact)
    await delay_log.run_once()
    assert await read(store) == []


async def test_what_a_failing_store_does_not_take_is_saved_later(
    store: SqliteStore, ear: Ear, delay_log: DelayLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> None:
        ear.telemetry.emit(settled(9))  # meanwhile deliveries go on
        raise StoreUnavailable("store: disk full")

    ear.telemetry.emit(settled(4))
    with monkeypatch.context() as patch:
        patch.setattr(store.health, "note_delays", fail)
        with pytest.raises(StoreUnavailable):
            await delay_log.run_once()
        await delay_log.finish()
    assert await read(store) == []
    await delay_log.finish()
    [told] = await read(store)
    assert (told.buckets, told.waited) == ({find_bucket(4): 1, find_bucket(9): 2}, 3 * SECOND)
    delay = merge([told])
    assert delay is not None
    assert delay.count == 3
