"""Keeps the store bounded: deletes old rows, and of events only those that every sink has settled.

A sink that owes events for too long, or whose events use too much of the disk, loses them: it is *overrun*, and begins
again with the stored records. Other sinks and detection are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import anyio

from dockbell.config import StoreSettings
from dockbell.ports import Alarm, Store
from dockbell.telemetry import DiskFills, DiskHasRoom, LettersForgotten, SinkOverrun, Telemetry

_AT_ONCE: Final = 1000
"""Rows per transaction: a commit of a page never waits long."""
_RUNS_WHOLE: Final = timedelta(hours=1)
"""So long every run is kept; of those that found nothing, one a minute after that."""
_DELAYS_KEPT: Final = timedelta(days=7)
"""A week shows how each hour of a day, and each day, differs from the others."""


class Janitor:
    def __init__(
        self,
        store: Store,
        *,
        settings: StoreSettings,
        sinks: Sequence[str],
        telemetry: Telemetry,
        now: Callable[[], datetime],
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """Keep what ``settings`` says; ``sinks`` are those of the configuration: only they may owe something.

        Of several processes that share the store one ``leads``, and prunes.
        """
        self._store = store
        self._settings = settings
        self._sinks = sinks
        self._telemetry = telemetry
        self._now = now
        self._leads = leads
        self._turn = anyio.Lock()
        self._is_short = False  # of room on the disk

    async def run(self, alarm: Alarm) -> None:
        """Prune whenever the alarm rings, and when the disk is full, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._make_room)
            while True:
                await alarm.wait()
                await self._try()

    async def _make_room(self) -> None:
        """Prune when the store cannot be written: the reserve of the disk lets the janitor do it even then."""
        stalled = self._store.health.stalled
        rings = stalled.rings
        while True:
            rings = await stalled.wait(rings)
            await self._try()

    async def _try(self) -> None:
        try:
            async with self._turn:
                if self._leads():
                    await self._look_at_disk()
                    await self.run_once()
        except Exception as error:  # noqa: BLE001  # detection and delivery go on, and so will this one
            self._telemetry.emit_failure("janitor", error)

    async def _look_at_disk(self) -> None:
        footprint = await self._store.retention.measure()
        if footprint.is_short != self._is_short:
            self._is_short = footprint.is_short
            self._telemetry.emit(DiskFills(footprint.room) if footprint.is_short else DiskHasRoom())

    async def run_once(self) -> int:
        """Prune what may go now; return how many events went."""
        now = self._now()
        before = now - self._settings.keep_events
        too_old = now - self._settings.max_owed
        for sink in await self._store.retention.find_owing(self._sinks, too_old):
            await self._overrun(sink, too_old)
        for sink, count in (await self._store.retention.forget_letters(too_old)).items():
            self._telemetry.emit(LettersForgotten(sink, count))
        pruned = await self._store.retention.prune_events(before, self._sinks)
        while await self._store.retention.prune_history(before, _AT_ONCE):
            pass
        while await self._store.retention.thin_runs(now - _RUNS_WHOLE, _AT_ONCE):
            pass
        while await self._store.retention.prune_delays(now - _DELAYS_KEPT, _AT_ONCE):
            pass
        # Only settled events are gone yet; that may be enough.
        for _ in self._sinks:
            used = await self._store.retention.measure()
            if not used.disk or used.used <= used.disk * self._settings.max_disk_share:
                break
            owing = await self._store.retention.find_owing(self._sinks, before)
            if not owing:
                break
            await self._overrun(owing[0], before)
            pruned += await self._store.retention.prune_events(before, self._sinks)
        return pruned

    async def _overrun(self, sink: str, before: datetime) -> None:
        for feed, lost_since in (await self._store.sink(sink).overrun(before)).items():
            self._telemetry.emit(SinkOverrun(sink, feed, lost_since))
