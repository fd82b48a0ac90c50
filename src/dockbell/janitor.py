"""Keeps the store bounded: deletes what is old enough, and of events only those that no sink owes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from dockbell.ports import Alarm, Store
from dockbell.telemetry import AgentFails, Telemetry

_AT_ONCE: Final = 1000
"""Rows per transaction: a commit of a page never waits long."""


class Janitor:
    """Prunes the outbox and the history."""

    def __init__(
        self,
        store: Store,
        *,
        keep: timedelta,
        sinks: Sequence[str],
        telemetry: Telemetry,
        now: Callable[[], datetime],
    ) -> None:
        """Keep events for ``keep``; ``sinks`` are those of the configuration: only they may owe something."""
        self._store = store
        self._keep = keep
        self._sinks = sinks
        self._telemetry = telemetry
        self._now = now

    async def run(self, alarm: Alarm) -> None:
        """Prune whenever the alarm rings, until cancelled."""
        while True:
            await alarm.wait()
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001  # detection and delivery go on, and so will this one
                self._telemetry.emit(AgentFails("janitor", error))

    async def run_once(self) -> int:
        """Prune what may go now; return how many events went."""
        pruned, before = 0, self._now() - self._keep
        while count := await self._store.prune_events(before, self._sinks, _AT_ONCE):
            pruned += count
        while await self._store.prune_history(before, _AT_ONCE):
            pass
        return pruned
