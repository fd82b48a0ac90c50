from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from dockbell.scheduler import Scheduler, next_time

SATURDAY = datetime(2026, 11, 21, 12, tzinfo=UTC)


async def test_a_repeated_alarm_rings_at_once_and_then_at_its_interval() -> None:
    async with Scheduler() as scheduler:
        alarm = scheduler.repeat("poll", timedelta(seconds=0.05))
        with anyio.fail_after(5):
            began = anyio.current_time()
            for _ in range(3):
                await alarm.wait()
        assert anyio.current_time() - began >= 0.09


async def test_rings_that_come_while_the_agent_is_busy_count_as_one() -> None:
    async with Scheduler() as scheduler:
        alarm = scheduler.alarm("pass")
        for _ in range(3):
            await alarm.ring()
        await alarm.wait()
        with anyio.move_on_after(0.05) as waiting:
            await alarm.wait()
        assert waiting.cancelled_caught


async def test_an_alarm_rings_at_its_time_and_at_once_for_a_time_that_is_past() -> None:
    async with Scheduler() as scheduler:
        alarm = scheduler.alarm("pass")
        with anyio.fail_after(5):
            alarm.ring_at(SATURDAY - timedelta(days=400))
            await alarm.wait()
            moment = datetime.now(UTC) + timedelta(seconds=0.2)
            alarm.ring_at(moment)
            await alarm.wait()
            assert datetime.now(UTC) >= moment


async def test_a_new_time_replaces_the_one_before() -> None:
    async with Scheduler() as scheduler:
        alarm = scheduler.alarm("pass")
        alarm.ring_at(datetime.now(UTC) + timedelta(seconds=0.05))
        alarm.ring_at(datetime.now(UTC) + timedelta(hours=1))
        with anyio.move_on_after(0.2) as waiting:
            await alarm.wait()
        assert waiting.cancelled_caught


async def test_a_crontab_line_with_names_of_days_rings_too() -> None:
    async with Scheduler() as scheduler:
        alarm = scheduler.repeat("poll", "* * * * mon-sun")
        with anyio.move_on_after(0.05) as waiting:
            await alarm.wait()
        assert waiting.cancelled_caught  # at the next full minute, not now


@pytest.mark.parametrize(
    ("every", "due"),
    [
        (timedelta(hours=24), SATURDAY + timedelta(hours=24)),
        ("30 6 * * mon-fri", datetime(2026, 11, 23, 6, 30, tzinfo=UTC)),
        ("0 12 * * sat", datetime(2026, 11, 28, 12, tzinfo=UTC)),
    ],
)
def test_the_next_time_counts_from_the_last(every: timedelta | str, due: datetime) -> None:
    assert next_time(every, SATURDAY) == due
