from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from dockbell.app.janitor import Janitor
from dockbell.config import StoreSettings
from dockbell.core.delays import MeasuredDelays
from dockbell.core.model import RunKind
from dockbell.core.publishing.settlement import Settlement
from dockbell.errors import StoreFull
from dockbell.ports import Footprint
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from dockbell.telemetry import AgentFails, SinkOverrun
from tests.fakes import NOON, Clock, Ear
from tests.stores.pages import FEED, a_run, close_pass, commit, delete_records, later


class Bells:
    """An alarm that has rung once."""

    def __init__(self) -> None:
        self.rings = 1

    async def wait(self) -> None:
        if not self.rings:
            await anyio.sleep_forever()
        self.rings -= 1

    def ring_in(self, delay: timedelta) -> None:
        raise AssertionError(delay)


async def test_events_are_kept_for_their_time_and_while_a_sink_owes_them(tmp_path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=clock)
    state = await store.feed(FEED).open()
    await store.sink("slow").enroll("beginning")
    await commit(store, state, *({"id": str(each)} for each in range(2500)))
    ear = Ear()
    owing, free = (
        Janitor(store, settings=StoreSettings(), sinks=sinks, telemetry=ear.telemetry, now=clock)
        for sinks in (["slow"], [])
    )
    clock.pass_(7 * 86_400)
    assert await free.run_once() == 0
    clock.pass_(1)
    assert await owing.run_once() == 0
    assert await free.run_once() == 2500
    assert await store.read_events(FEED, 0, 10) == []
    await store.aclose()


async def test_measured_delays_are_kept_for_a_week(tmp_path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=clock)
    await store.feed(FEED).open()
    days = [MeasuredDelays(FEED, "erp", NOON + timedelta(days=day), {1: 1}) for day in range(3)]
    await store.health.note_delays(days)
    clock.pass_(8 * 86_400)
    await Janitor(store, settings=StoreSettings(), sinks=[], telemetry=Ear().telemetry, now=clock).run_once()
    read_store = await SqliteReadStore.open(store.path)
    assert await read_store.read_delays(NOON) == days[1:]
    await read_store.aclose()
    await store.aclose()


async def test_a_store_of_which_no_more_is_asked_does_not_grow_over_the_months(tmp_path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=clock)
    state = await store.feed(FEED).open()
    janitor = Janitor(store, settings=StoreSettings(), sinks=[], telemetry=Ear().telemetry, now=clock)
    sizes = []
    for day in range(60):
        await commit(store, state, *({"id": str(each), "x": f"{day}" * 500} for each in range(60)))
        for _ in range(10):
            await store.feed(state.feed).close_run(a_run(RunKind.POLL, hours=24 * day))
        clock.pass_(86_400)
        await janitor.run_once()
        used = await store.retention.measure()
        sizes.append(used.used + used.free)
    assert max(sizes[20:]) <= 1.05 * max(sizes[:20])
    await store.aclose()


async def test_a_store_that_cannot_be_written_any_more_has_it_make_room_at_once(tmp_path: Path) -> None:
    clock, ear = Clock(), Ear()
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=clock)
    state = await store.feed(FEED).open()
    await commit(store, state, {"id": "a"})
    janitor = Janitor(store, settings=StoreSettings(), sinks=(), telemetry=ear.telemetry, now=clock)
    clock.pass_(8 * 86_400)
    never = Bells()
    never.rings = 0
    async with anyio.create_task_group() as group:
        group.start_soon(janitor.run, never)
        await anyio.wait_all_tasks_blocked()
        assert len(await store.read_events(FEED, 0, 10)) == 1
        store.health.stalled.ring()
        with anyio.fail_after(5):
            while await store.read_events(FEED, 0, 10):  # noqa: ASYNC110  # the janitor tells nobody
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    await store.aclose()


async def test_what_the_store_tells_of_itself_is_not_told_by_the_janitor_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, ear = Clock(), Ear()
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=clock)
    janitor = Janitor(store, settings=StoreSettings(), sinks=(), telemetry=ear.telemetry, now=clock)

    async def fail(*_: object) -> None:
        raise StoreFull("store dockbell.db: disk full; free some space")

    monkeypatch.setattr(store.retention, "forget_letters", fail)
    async with anyio.create_task_group() as group:
        group.start_soon(janitor.run, Bells())
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert ear.facts == []
    await store.aclose()


async def test_the_history_is_kept_as_long_as_the_events(tmp_path: Path) -> None:
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=clock)
    state = await store.feed(FEED).open()
    await commit(store, state, *({"id": str(each)} for each in range(1500)))
    for _ in range(1500):
        await store.feed(state.feed).close_run(a_run(RunKind.POLL))
    await close_pass(store, state, suspected=range(1, 1201))
    await delete_records(store, state, *range(1, 1201))
    janitor = Janitor(store, settings=StoreSettings(), sinks=[], telemetry=Ear().telemetry, now=clock)
    clock.pass_(7 * 86_400)
    assert await janitor.run_once() == 0
    assert len(await store.feed(FEED).read_bodies(range(1, 1501))) == 1500
    clock.pass_(1)
    assert await janitor.run_once() == 2700
    assert len(await store.feed(FEED).read_bodies(range(1, 1501))) == 300
    assert (await store.feed(FEED).open()).poll == a_run(RunKind.POLL)
    assert await store.retention.prune_history(clock(), 1) == 0
    await store.feed(state.feed).close_run(a_run(RunKind.POLL))
    assert await store.retention.prune_history(clock(), 10) == 1
    await store.aclose()


async def test_a_janitor_that_fails_says_so_and_goes_on(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=Clock())
    await store.aclose()
    ear = Ear()
    janitor = Janitor(store, settings=StoreSettings(), sinks=[], telemetry=ear.telemetry, now=Clock())
    with anyio.move_on_after(0.1):
        await janitor.run(Bells())
    assert [type(fact) for fact in ear.facts] == [AgentFails]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    """Return a store with an event on each of three days, all owed by one sink and none by another."""
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=clock)
    state = await store.feed(FEED).open()
    for sink in ("slow", "fast", "slower"):
        await store.sink(sink).enroll("beginning")
    for day in range(3):
        await commit(store, state, {"id": str(day)})
        clock.pass_(86_400)
    await store.sink("fast").settle(Settlement(positions={FEED: 3}))
    yield store
    await store.aclose()


async def test_a_sink_that_owes_events_for_too_long_loses_them_and_the_others_do_not_notice(
    store: SqliteStore, clock: Clock
) -> None:
    await store.sink("slower").settle(Settlement(positions={FEED: 1}))
    ear = Ear()
    sinks = ("slow", "fast", "slower")
    janitor = Janitor(store, settings=StoreSettings(), sinks=sinks, telemetry=ear.telemetry, now=clock)
    clock.time = later(days=30)
    assert await janitor.run_once() == 0
    assert ear.facts == []
    clock.time = later(days=30, seconds=1)
    assert await janitor.run_once() == 1
    assert ear.facts == [SinkOverrun("slow", FEED, NOON)]
    assert [(await store.sink(sink).load_queue())[0][FEED] for sink in sinks] == [3, 3, 1]
    assert [event.sequence for event in await store.read_events(FEED, 0, 9)] == [2, 3]


async def test_where_the_store_uses_too_much_of_the_disk_those_who_owe_longest_lose_their_events(
    store: SqliteStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.sink("slower").settle(Settlement(positions={FEED: 1}))
    footprints = [Footprint(21, 100)]

    async def measure() -> Footprint:
        return footprints[0] if len(footprints) == 1 else footprints.pop(0)

    monkeypatch.setattr(store.retention, "measure", measure)
    ear = Ear()
    sinks = ("slower", "fast", "slow")
    janitor = Janitor(store, settings=StoreSettings(), sinks=sinks, telemetry=ear.telemetry, now=clock)
    assert await janitor.run_once() == 0  # what is younger than keep_events stays, whatever it takes
    clock.time = later(days=9)
    footprints[:] = [Footprint(21, 100), Footprint(20, 100)]
    assert await janitor.run_once() == 1
    assert ear.facts == [SinkOverrun("slow", FEED, NOON)]
    footprints[:] = [Footprint(21, 100)]
    assert await janitor.run_once() == 1
    assert ear.facts[1:] == [SinkOverrun("slower", FEED, later(days=1))]


async def test_no_sink_loses_events_for_a_disk_of_which_nothing_is_known(
    store: SqliteStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measure() -> Footprint:
        return Footprint(21, 0)

    monkeypatch.setattr(store.retention, "measure", measure)
    ear = Ear()
    clock.time = later(days=9)
    await Janitor(store, settings=StoreSettings(), sinks=("slow",), telemetry=ear.telemetry, now=clock).run_once()
    assert ear.facts == []


async def test_no_sink_loses_events_while_it_is_enough_to_prune_what_nobody_owes(
    store: SqliteStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measure() -> Footprint:
        return Footprint(21 if await store.read_events(FEED, 0, 1, until=1) else 19, 100)

    monkeypatch.setattr(store.retention, "measure", measure)
    await store.sink("slow").settle(Settlement(positions={FEED: 1}))
    ear = Ear()
    janitor = Janitor(store, settings=StoreSettings(), sinks=("slow",), telemetry=ear.telemetry, now=clock)
    clock.time = NOON + timedelta(days=20)
    assert await janitor.run_once() == 1
    assert ear.facts == []
