"""When things are due. APScheduler decides when; what is done then belongs to the agents, in the task group.

A job of APScheduler is a bare asyncio task that outlives a cancelled task group and swallows its end, so a job here
only rings an alarm, and the agent that waits for it does the work.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

import anyio
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger


class Alarm:
    """Rings for one agent; rings that come while it is busy count as one."""

    def __init__(self, scheduler: AsyncIOScheduler, name: str) -> None:
        self._scheduler = scheduler
        self._name = name
        self._send, self._receive = anyio.create_memory_object_stream[None](1)

    async def ring(self) -> None:
        """Ring now."""
        with suppress(anyio.WouldBlock):  # one ring is waiting already
            self._send.send_nowait(None)

    async def wait(self) -> None:
        """Return at the next ring, or at once when it rang since the last."""
        await self._receive.receive()

    def ring_at(self, moment: datetime) -> None:
        """Ring once at a time, now if it is past; a time set before is forgotten."""
        self._scheduler.add_job(self.ring, DateTrigger(moment, UTC), id=f"{self._name} at", replace_existing=True)

    def close(self) -> None:
        """Let go of the stream."""
        self._send.close()
        self._receive.close()


class Scheduler(AbstractAsyncContextManager["Scheduler"]):
    """Hands out alarms while it is entered."""

    def __init__(self) -> None:
        # The default grace of a second drops a run when the loop is late by more: late is better than never.
        defaults = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=defaults)
        self._alarms: list[Alarm] = []

    async def __aenter__(self) -> Self:
        """Start."""
        self._scheduler.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; no alarm rings any more."""
        self._scheduler.shutdown(wait=False)
        for alarm in self._alarms:
            alarm.close()

    def alarm(self, name: str) -> Alarm:
        """Return an alarm that rings when it is told."""
        alarm = Alarm(self._scheduler, name)
        self._alarms.append(alarm)
        return alarm

    def repeat(self, name: str, every: timedelta | str) -> Alarm:
        """Return an alarm that rings now and then at an interval, or at the times (UTC) of a crontab line."""
        alarm = self.alarm(name)
        now = datetime.now(UTC)
        if isinstance(every, str):
            self._scheduler.add_job(alarm.ring, CronTrigger.from_crontab(every, UTC), id=name)
        else:
            self._scheduler.add_job(
                alarm.ring,
                IntervalTrigger(seconds=every.total_seconds(), timezone=UTC),
                id=name,
                next_run_time=now,
            )
        return alarm


def next_time(every: timedelta | str, after: datetime) -> datetime:
    """Return when something is due that was last done at ``after``, at an interval or by a crontab line."""
    if isinstance(every, timedelta):
        return after + every
    due: datetime | None = CronTrigger.from_crontab(every, UTC).get_next_fire_time(None, after + timedelta(seconds=1))
    assert due is not None
    return due
