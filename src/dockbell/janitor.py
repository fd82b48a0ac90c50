"""Keeps the store bounded: deletes events that are old enough and that no sink owes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from dockbell.ports import Alarm, Store
from dockbell.telemetry import AgentFails, Telemetry

_AT_ONCE: Final = 1000
"""Events per transaction: a commit of a page never waits long."""


class Janitor:
    """Prunes the outbox."""

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
        pruned = 0
        while count := await self._store.prune_events(self._now() - self._keep, self._sinks, _AT_ONCE):
            pruned += count
        return pruned
