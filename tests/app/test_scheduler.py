from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import anyio
import pytest
import time_machine

from dockbell.app import scheduler as module
from dockbell.app.scheduler import Alarm, Scheduler
from dockbell.host.system import elapsed

SATURDAY = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
YEARS = timedelta(days=10_000)
STEPS = [HOUR, -HOUR, YEARS, -YEARS]


@pytest.fixture
def wall() -> Iterator[time_machine.Traveller]:
    """Return our wall clock, to be set; it goes on by itself."""
    with time_machine.travel(SATURDAY) as clock:
        yield clock


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the clocks more often than once a second."""
    monkeypatch.setattr(module, "_LOOK_EVERY", timedelta(seconds=0.02))


async def rings(alarm: Alarm, seconds: float) -> int:
    """Return how often an alarm rings from now on, for a while."""
    count = 0
    with anyio.move_on_after(seconds):
        while True:
            await alarm.wait()
            count += 1
    return count


async def test_a_repeated_alarm_rings_at_once_and_then_at_its_interval() -> None:
    every = timedelta(seconds=0.3)
    async with Scheduler() as scheduler:
        began = anyio.current_time()
        alarm = scheduler.repeat("poll", every)
        with anyio.fail_after(5):
            await alarm.wait()
            assert anyio.current_time() - began < every.total_seconds()
            for _ in range(2):
                await alarm.wait()
        # A ring that follows a late one may come earlier by what a ring may be early.
        assert anyio.current_time() - began >= (2 * (every - module._EARLY)).total_seconds()


async def test_rings_that_come_while_the_agent_is_busy_count_as_one() -> None:
    async with Scheduler() as scheduler:
        alarm = scheduler.alarm()
        for _ in range(3):
            alarm.ring()
        await alarm.wait()
        with anyio.move_on_after(0.05) as waiting:
            await alarm.wait()
        assert waiting.cancelled_caught


async def test_a_loop_that_is_late_skips_no_ring(caplog: pytest.LogCaptureFixture) -> None:
    async with Scheduler() as scheduler:
        scheduler.repeat("poll", timedelta(milliseconds=1))
        other = scheduler.alarm()
        for _ in range(3):  # each look of APScheduler finds the poll due again, before the ring of the last is done
            other.ring_in(HOUR)
            asyncio.get_running_loop().call_soon(time.sleep, 0.005)
        await anyio.wait_all_tasks_blocked()
    assert not [each for each in caplog.messages if "skipped" in each]


# The wall clock steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_of_the_wall_clock_neither_stops_an_interval_nor_makes_it_ring_more_often(
    wall: time_machine.Traveller, quick: None, step: timedelta
) -> None:
    async with Scheduler() as scheduler:
        alarm = scheduler.repeat("poll", timedelta(seconds=0.1))
        await alarm.wait()
        wall.shift(step)
        assert 2 <= await rings(alarm, 0.55) <= 6


async def test_without_a_look_in_between_a_step_ahead_rings_no_interval_early(wall: time_machine.Traveller) -> None:
    async with Scheduler() as scheduler:
        long = scheduler.repeat("pass", HOUR)
        short = scheduler.repeat("poll", timedelta(seconds=0.1))
        once = scheduler.alarm()
        once.ring_in(HOUR)
        await long.wait()
        wall.shift(YEARS)
        assert await rings(short, 0.35) >= 2  # whenever this one rings, APScheduler looks at all
        assert await rings(long, 0.01) == 0
        assert await rings(once, 0.01) == 0


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_of_the_wall_clock_changes_no_delay(
    wall: time_machine.Traveller, quick: None, step: timedelta
) -> None:
    async with Scheduler() as scheduler:
        soon, late = scheduler.alarm(), scheduler.alarm()
        soon.ring_in(timedelta(seconds=0.3))
        late.ring_in(HOUR * 2)
        began = time.monotonic()
        wall.shift(step)
        with anyio.fail_after(5):
            await soon.wait()
        assert 0.25 < time.monotonic() - began < 2
        assert await rings(soon, 0.1) == await rings(late, 0.1) == 0


async def test_time_that_the_machine_slept_counts(
    wall: time_machine.Traveller, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Scheduler() as scheduler:
        poll, daily = scheduler.repeat("poll", HOUR / 2), scheduler.repeat("daily", 24 * HOUR)
        soon, late = scheduler.alarm(), scheduler.alarm()
        soon.ring_in(HOUR / 2)
        late.ring_in(HOUR * 2)
        assert (await rings(poll, 0.05), await rings(daily, 0.01)) == (1, 1)

        awake = elapsed
        monkeypatch.setattr(module, "elapsed", lambda: awake() + HOUR)
        wall.shift(HOUR)

        assert (await rings(poll, 0.2), await rings(soon, 0.1)) == (1, 1)
        assert (await rings(daily, 0.1), await rings(late, 0.1)) == (0, 0)


# Delays --------------------------------------------------------------------------------------------------------------


async def test_an_alarm_rings_once_when_its_delay_has_passed_and_not_before() -> None:
    async with Scheduler() as scheduler:
        alarm = scheduler.alarm()
        began = time.monotonic()
        alarm.ring_in(timedelta(seconds=0.2))
        with anyio.fail_after(5):
            await alarm.wait()
        assert time.monotonic() - began >= 0.15
        assert await rings(alarm, 0.1) == 0


@pytest.mark.parametrize("delay", [timedelta(0), -HOUR, timedelta.min])
async def test_a_delay_that_is_none_rings_now(delay: timedelta) -> None:
    async with Scheduler() as scheduler:
        alarm = scheduler.alarm()
        alarm.ring_in(delay)
        assert await rings(alarm, 0.2) == 1


async def test_a_later_delay_replaces_the_one_before() -> None:
    async with Scheduler() as scheduler:
        alarm = scheduler.alarm()
        alarm.ring_in(timedelta(seconds=0.05))
        alarm.ring_in(timedelta.max)
        assert await rings(alarm, 0.2) == 0
        alarm.ring_in(timedelta(0))
        assert await rings(alarm, 0.2) == 1
