"""When things are due. Alarms ring then; what is done belongs to the agents, in the task group.

APScheduler decides when what repeats is due. A job of it is a bare asyncio task that outlives a cancelled task group
and swallows its end, so a job here only rings an alarm, and the agent that waits for it does the work. What is due
once, after a delay, has a timer of the loop: each reading of each feed sets one.

APScheduler reckons in wall time, which steps: an hour back, and every interval would stop for an hour; years ahead, and
it would count every interval of those years. The loop's clock stands still while the machine sleeps. So intervals and
delays are kept on a clock that only goes forward, and never stands still; from it the triggers and timers here work out
the next ring. A watch looks once a second whether the clocks have parted, and works it out anew.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Self

import anyio.lowlevel
from apscheduler.job import Job
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from dockbell.host.system import elapsed

_LOOK_EVERY: Final = timedelta(seconds=1)
_PARTED: Final = timedelta(seconds=2)
_EARLY: Final = timedelta(milliseconds=50)
_ZERO: Final = timedelta(0)
_LONGEST: Final = timedelta(days=3650)


class Alarm:
    """Rings for one agent; rings that come while it is busy count as one."""

    __slots__ = ("_alarms", "_due", "_has_rung", "_job", "_timer", "_waiter")

    def __init__(self, alarms: set[Alarm]) -> None:
        self._alarms = alarms
        alarms.add(self)
        self._has_rung = False
        self._waiter: asyncio.Future[None] | None = None  # a process has thousands of alarms: it is small
        self._due: timedelta | None = None  # when it rings once
        self._timer: asyncio.TimerHandle | None = None
        self._job: Job | None = None  # rings it at an interval

    def ring(self) -> None:
        self._has_rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        await anyio.lowlevel.checkpoint()
        if not self._has_rung:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._has_rung = False

    def ring_in(self, delay: timedelta) -> None:
        """Ring once after a delay, now if it is not positive; a delay set before is forgotten.

        The delay passes while the machine sleeps, and no step of the wall clock changes it.
        """
        self._due = elapsed() + min(max(delay, _ZERO), _LONGEST)
        self.look()

    def look(self) -> None:
        """Work out anew by the loop's clock, which stands still while the machine sleeps, when it rings once."""
        if self._timer is not None:
            self._timer.cancel()
        if self._due is not None:
            left = max(self._due - elapsed(), _ZERO)
            self._timer = asyncio.get_running_loop().call_later(left.total_seconds(), self._come_due)

    def _come_due(self) -> None:
        self._due = self._timer = None
        self.ring()

    def ring_by(self, job: Job) -> None:
        """Note the job of APScheduler that rings this alarm: it ends with the alarm."""
        self._job = job

    def close(self) -> None:
        """Let it ring no more, and forget it."""
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
        if self._job is not None:
            with suppress(JobLookupError):
                self._job.remove()
        self._alarms.discard(self)


class _Interval(BaseTrigger):  # type: ignore[misc]  # APScheduler ships no types
    """Comes due when an interval has passed since it rang; asked in wall time, it answers by the steady clock."""

    def __init__(self, every: timedelta) -> None:
        self._every = every
        self._rang = elapsed() - every

    def left(self) -> timedelta:
        """Return how long it still takes, nothing or less when it is due."""
        return self._rang + self._every - elapsed()

    def rang(self) -> None:
        self._rang = elapsed()

    def is_early(self) -> bool:
        """Tell whether a ring now would be too early, because the wall clock stepped ahead."""
        return self.left() > min(_EARLY, self._every / 2)

    def get_next_fire_time(self, _: datetime | None, now: datetime) -> datetime:
        """Return when it comes due next, after now: what came due meanwhile counts as one."""
        return now + (self.left() % self._every or self._every)


class Scheduler(AbstractAsyncContextManager["Scheduler"]):
    def __init__(self) -> None:
        # The default grace of a second drops a run when the loop is late by more: late is better than never.
        # A job only rings, so that many may be under way: a late loop must not have a ring skipped, and warn of it.
        defaults = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1000}
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=defaults)
        self._alarms: set[Alarm] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._clocks = _read_clocks()

    async def __aenter__(self) -> Self:
        self._scheduler.start()
        self._clocks = _read_clocks()
        self._look_again()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; no alarm rings any more."""
        assert self._watch is not None
        self._watch.cancel()
        for alarm in tuple(self._alarms):
            alarm.close()
        self._scheduler.shutdown(wait=False)

    def alarm(self) -> Alarm:
        return Alarm(self._alarms)

    def repeat(self, name: str, every: timedelta) -> Alarm:
        """Return an alarm that rings now and then at an interval."""
        alarm = self.alarm()
        interval = _Interval(every)

        async def ring() -> None:
            if not interval.is_early():
                interval.rang()
                alarm.ring()

        alarm.ring_by(self._scheduler.add_job(ring, interval, name=name, next_run_time=datetime.now(UTC)))
        return alarm

    def _look_again(self) -> None:
        self._watch = asyncio.get_running_loop().call_later(_LOOK_EVERY.total_seconds(), self._look)

    def _look(self) -> None:
        """Work out anew when everything is due, if the wall clock has parted from the others since the last look."""
        before, self._clocks = self._clocks, _read_clocks()
        wall, steady, loop = (now - then for now, then in zip(self._clocks, before, strict=True))
        if max(wall, steady, loop) - min(wall, steady, loop) > _PARTED:
            self._reckon()
        self._look_again()

    def _reckon(self) -> None:
        for alarm in self._alarms:
            alarm.look()
        now = datetime.now(UTC)
        for job in self._scheduler.get_jobs():
            if isinstance(job.trigger, _Interval):
                job.modify(next_run_time=now + max(job.trigger.left(), _ZERO))


def _read_clocks() -> tuple[timedelta, timedelta, timedelta]:
    """Return the wall clock, the steady one and the loop's, each as the time since its origin."""
    return timedelta(seconds=time.time()), elapsed(), timedelta(seconds=time.monotonic())
