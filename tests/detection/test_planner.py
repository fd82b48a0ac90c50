"""How the intervals of the feeds of a key follow what their runs find."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from dockbell.core.model import RunKind
from dockbell.core.planning.division import Reason
from dockbell.core.running.budget import Load
from dockbell.detection.planner import Planner
from dockbell.telemetry import IntervalPlanned
from tests.rig import PACKAGES, STOCK, CountedAlarm, Rig, open_rig, run_until_quiet

PLENTY = Load(limit=300, allowed=270, foreign=0.0, beside=0, pauses=0)
SECOND = timedelta(seconds=1)


class Key:
    """A key with one feed that is polled and one that is read whole."""

    def __init__(self, polled: Rig, stock: Rig) -> None:
        self.polled, self.stock = polled, stock
        self.load = PLENTY
        self.planner = self.make_planner()

    def make_planner(self) -> Planner:
        return Planner(
            lambda: [self.polled.tracked, self.stock.tracked],
            lambda: self.load,
            telemetry=self.polled.ear.telemetry,
            clocks=self.polled.tracked.clocks,
        )

    @property
    def intervals(self) -> tuple[float, float]:
        """The intervals of the polled feed and of stock, in seconds."""
        polled, stock = self.polled.tracked.schedule.interval, self.stock.tracked.schedule.interval
        assert polled is not None
        assert stock is not None
        return round(polled.total_seconds(), 1), round(stock.total_seconds(), 1)

    async def read_and_plan(self, times: int, *, changed: int) -> None:
        """Poll every 10 seconds, and divide after each poll."""
        self.polled.source.page_size = 200
        for _ in range(times):
            for key in "abcde"[:changed]:
                self.polled.source.put(key, status=f"{self.polled.clock()}")
            await self.polled.poll(after=10)
            await self.planner.plan()


@pytest.fixture
async def key(tmp_path: Path) -> AsyncIterator[Key]:
    auto: dict[str, Any] = {"every": "auto", "at_most": "60s"}
    async with open_rig(tmp_path, **auto) as polled:
        settings = {"every": "auto", "at_most": "15m", "reconcile": None}
        stock = Rig(polled.store, polled.clock, polled.source, feed=STOCK, settings=settings, ear=polled.ear)
        await polled.read_whole()
        await stock.read_whole()
        yield Key(polled, stock)


async def test_a_feed_that_changes_more_is_read_more_often(key: Key) -> None:
    key.load = replace(PLENTY, allowed=20)
    await key.planner.plan()
    before, stock_before = key.intervals
    await key.read_and_plan(6, changed=5)
    after, stock_after = key.intervals
    assert after < before
    assert stock_after > stock_before


async def test_no_more_is_planned_than_the_key_allows(key: Key) -> None:
    for allowed in (2, 20, 270, 6000):
        key.load = replace(PLENTY, allowed=allowed)
        await key.planner.plan()
        assert key.planner.division is not None
        assert key.planner.division.used <= allowed / 61


async def test_what_others_use_and_what_is_asked_beside_is_left_to_them(key: Key) -> None:
    await key.planner.plan()
    assert key.planner.division is not None
    budget = key.planner.division.budget
    key.load = replace(PLENTY, foreign=2.5)
    await key.planner.plan()
    assert key.planner.division.budget == pytest.approx(budget * 150 / 270)
    key.load = replace(PLENTY, foreign=0.5)  # the share leaves them that
    await key.planner.plan()
    assert key.planner.division.budget == pytest.approx(budget)
    for beside in range(1, 600):
        key.polled.clock.pass_(10)
        key.load = replace(PLENTY, beside=beside * 10)
        await key.planner.plan()
    assert key.planner.division.budget == pytest.approx(budget - 1, rel=0.01)


async def test_after_a_pause_that_the_api_asked_for_less_is_planned_for_some_minutes(key: Key) -> None:
    await key.planner.plan()
    assert key.planner.division is not None
    budget = key.planner.division.budget
    key.load = replace(PLENTY, pauses=1)
    key.polled.clock.pass_(10)
    await key.planner.plan()
    assert key.planner.division.budget < budget * 0.82
    key.polled.clock.pass_(3600)
    await key.planner.plan()
    assert key.planner.division.budget == pytest.approx(budget, rel=0.02)


async def test_an_interval_is_told_once_until_it_moves_by_more_than_a_quarter(key: Key) -> None:
    def told() -> list[str]:
        return [str(fact) for fact in key.polled.ear.facts if isinstance(fact, IntervalPlanned)]

    await key.planner.plan()
    assert len(told()) == 2
    assert told()[0].startswith("main/packages: read every 1 s, its shortest interval; that is ")
    await key.planner.plan()
    assert len(told()) == 2
    key.load = replace(PLENTY, allowed=10)
    await key.planner.plan()
    assert len(told()) == 4


async def test_a_fixed_interval_is_kept_as_long_as_the_requests_suffice(key: Key) -> None:
    key.polled.restart(every="5s", at_most=None)
    await key.polled.tracked.state()
    await key.planner.plan()
    assert key.intervals[0] == 5
    key.load = replace(PLENTY, allowed=10)
    await key.planner.plan()
    assert key.intervals[0] > 5
    assert key.planner.division is not None
    assert key.planner.division.feeds[0].reason is Reason.STRETCHED


async def test_what_was_learned_and_decided_is_known_after_a_restart(key: Key) -> None:
    key.load = replace(PLENTY, allowed=20)
    await key.read_and_plan(6, changed=5)
    key.polled.clock.pass_(60)
    await key.planner.plan()
    plan, intervals = key.polled.tracked.workload.plan, key.intervals
    key.polled.restart()
    key.stock.restart()
    for rig in (key.polled, key.stock):
        await rig.tracked.state()
    assert key.intervals == intervals
    assert key.polled.tracked.workload.plan.rate.per_second == pytest.approx(plan.rate.per_second, rel=0.01)
    assert key.polled.tracked.workload.plan.cost == plan.cost


async def test_what_runs_teach_is_stored_now_and_then_and_a_new_interval_at_once(
    key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = list[str]()

    async def note(plan: str) -> None:
        saved.append(plan)

    monkeypatch.setattr(key.polled.tracked.store, "save_plan", note)
    await key.read_and_plan(1, changed=5)
    assert len(saved) == 1
    key.polled.clock.pass_(3600)
    await key.planner.plan()
    assert len(saved) == 1  # no run has taught anything since
    interval = key.intervals[0]
    await key.read_and_plan(13, changed=5)
    assert key.intervals[0] == interval
    assert len(saved) == 1 + 3  # the first after this hour, and then one a minute


@pytest.mark.parametrize(("every", "rests"), [("8s", [10]), ("2m", [60]), ("1h", [300])])
async def test_a_key_whose_feeds_are_read_seldom_is_planned_seldom(
    tmp_path: Path, every: str, rests: list[float]
) -> None:
    async with open_rig(tmp_path, every=every) as rig:
        await rig.read_whole()
        planner = Planner(lambda: [rig.tracked], lambda: PLENTY, telemetry=rig.ear.telemetry, clocks=rig.tracked.clocks)
        alarm = CountedAlarm(0)
        await run_until_quiet(planner.run, alarm)
        assert alarm.delays == rests


async def test_a_first_pass_is_read_without_rest_and_the_others_have_the_rest(key: Key) -> None:
    await key.planner.plan()
    assert key.planner.division is not None
    budget = key.planner.division.budget
    assert key.stock.tracked.schedule.page_every > timedelta(0)
    await key.stock.tracked.store.save_read_settings({}, rebaseline=None)
    state = await key.stock.tracked.reload()
    key.stock.tracked._state = replace(state, passes=0)
    await key.planner.plan()
    assert key.planner.division.budget == pytest.approx(budget)  # it is not read yet, and may never be
    key.stock.tracked.schedule.is_passing = True
    await key.planner.plan()
    assert key.planner.division.budget == pytest.approx(budget * 0.3)
    assert [each.demand.feed for each in key.planner.division.feeds] == [PACKAGES]
    assert key.stock.tracked.schedule.page_every == timedelta(0)


async def test_a_reconcile_takes_a_fifth_of_the_budget(key: Key) -> None:
    await key.planner.plan()
    assert key.planner.division is not None
    budget, seen = key.planner.division.budget, []

    async def look() -> None:
        await key.planner.plan()
        assert key.planner.division is not None
        seen.append(key.planner.division.budget)

    key.polled.source.page_size = 3
    key.polled.meanwhile(RunKind.PASS, look)
    await key.polled.read_whole()
    assert seen[0] == pytest.approx(budget - 270 / 61 / 5)


async def test_the_pages_of_a_pass_are_spread_over_its_interval_but_no_cursor_is_kept_long(key: Key) -> None:
    key.load = replace(PLENTY, allowed=20)
    key.stock.source.page_size = 1
    await key.stock.read_whole()
    await key.planner.plan()
    schedule = key.stock.tracked.schedule
    assert schedule.interval is not None
    pages = key.stock.tracked.workload.plan.cost.mean
    assert pages is not None
    assert schedule.page_every == min(schedule.interval / pages, 5 * SECOND)


async def test_a_reconcile_is_over_before_its_cursors_are_refused(key: Key) -> None:
    await key.polled.read_whole()
    key.load = replace(PLENTY, allowed=10)
    await key.planner.plan()
    schedule = key.polled.tracked.schedule
    assert schedule.page_every > SECOND
    schedule.cursor_life = SECOND
    await key.planner.plan()
    assert schedule.page_every <= SECOND / 2


@pytest.mark.parametrize("foreign", [5.0, 50.0])
async def test_where_others_use_the_whole_key_a_twentieth_is_used_all_the_same(key: Key, foreign: float) -> None:
    key.load = replace(PLENTY, allowed=300, foreign=foreign)
    await key.planner.plan()
    assert key.planner.division is not None
    assert key.planner.division.budget == pytest.approx(300 / 61 / 20)
    assert key.stock.tracked.schedule.page_every > timedelta(0)


async def test_a_pass_that_an_operator_waits_for_is_not_spread(key: Key) -> None:
    schedule = key.stock.tracked.schedule
    schedule.page_every = timedelta(hours=1)
    key.stock.source.page_size = 1
    with anyio.fail_after(10):
        await key.stock.reconciler.reconcile()
    assert not schedule.is_awaited
