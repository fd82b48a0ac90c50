"""Passes over one feed: reads it whole, finds what polls cannot see, and what is not there any more.

For feeds without ``updated_since`` passes are the only reading there is; for polled feeds they are rare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from dockbell.core.comparing.absence import Census, SeenRows, judge_absence
from dockbell.core.model import RunKind
from dockbell.ports import Alarm, FeedState, RunRecord
from dockbell.reading import Reader, tend
from dockbell.telemetry import DeletionsHeld, Telemetry

_DAY: Final = timedelta(hours=24)
_BURIED_AT_ONCE: Final = 500
_RETRY_FIRST: Final = timedelta(seconds=5)
_RETRY_MOST: Final = timedelta(hours=1)


class Reconciler:
    """Reads one feed whole from time to time."""

    def __init__(self, reader: Reader, telemetry: Telemetry, next_pass: Callable[[datetime], datetime]) -> None:
        """Read by ``reader``; ``next_pass`` tells when a pass is due after one that ended at a given time."""
        self._reader = reader
        self._next_pass = next_pass
        self._telemetry = telemetry
        self._failed_at: datetime | None = None
        self._failures = 0  # passes in a row that read something and ended incomplete

    async def run(self, alarm: Alarm) -> None:
        """Pass whenever a pass is due, until cancelled."""
        while True:
            alarm.ring_at(await self.due())
            await alarm.wait()
            if await self.due() <= self._reader.now():
                await tend(self._reader, self.run_once)

    async def due(self) -> datetime:
        """Return when the next pass is due; a time in the past where it is overdue."""
        state = await self._reader.state()
        if state.full is None or state.passes == 0:
            due = self._reader.now()
        else:
            due = self._next_pass(state.full.ended_at)
            if state.confirm_at is not None:
                due = min(due, state.confirm_at)
        return due if self._failed_at is None else max(due, self._retry_at(self._failed_at))

    def _retry_at(self, failed_at: datetime) -> datetime:
        """Return when to pass again: soon, but a list that always ends incomplete must not be read all the time."""
        pause = min(_RETRY_FIRST * (1 << min(max(self._failures - 1, 0), 10)), _RETRY_MOST)
        return min(failed_at + pause, self._next_pass(failed_at))

    async def run_once(self) -> RunRecord:
        """Pass once; when the pass is complete, judge what it did not show."""
        reader = self._reader
        began_at = reader.now()
        self._failed_at = began_at
        seen = await reader.watch()
        try:
            report = await reader.read_run(RunKind.PASS)
            state = await reader.state()
            if report.run.problem:
                await reader.store.close_run(state.id, report.run)
                self._failures += 1 if report.run.pages else 0
                self._failed_at = reader.now()
            else:
                await self._close(state, report.run, seen, began_at)
                self._failed_at, self._failures = None, 0
        finally:
            reader.unwatch(seen)
        await reader.reload()
        return report.run

    async def _close(self, state: FeedState, run: RunRecord, seen: SeenRows, began_at: datetime) -> None:
        reader = self._reader
        absent = await reader.store.find_absent(state.id, seen)
        verdict = judge_absence(
            Census(
                stored=len(absent) + seen.count,
                absent=len(absent),
                shown=run.records,
                deleted_lately=await reader.store.count_deleted(state.id, reader.now() - _DAY),
            )
        )
        suspected = [row for row, since in absent if since is None]
        if verdict.held:
            self._telemetry.emit(DeletionsHeld(reader.feed, len(absent), str(verdict)))
            await reader.store.close_pass(state.id, run, suspected=suspected, held=len(absent), confirm_at=None)
            return
        pause = reader.settings.confirm_after
        confirmed = [row for row, since in absent if since is not None and since + pause <= began_at]
        await self._bury(state, confirmed, run)
        waiting = len(confirmed) < len(absent)
        await reader.store.close_pass(
            state.id, run, suspected=suspected, held=0, confirm_at=run.ended_at + pause if waiting else None
        )

    async def _bury(self, state: FeedState, rows: Sequence[int], run: RunRecord) -> None:
        reader = self._reader
        for start in range(0, len(rows), _BURIED_AT_ONCE):
            judge = partial(reader.judge.bury, until=run.asked_at, now=reader.now())
            await reader.store.bury(state.id, rows[start : start + _BURIED_AT_ONCE], judge, reader.number)
