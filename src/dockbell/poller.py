"""Polls one feed: asks what was modified since the watermark, commits it, and judges the watermark."""

from __future__ import annotations

from dockbell.core.model import RunKind
from dockbell.core.reading.window import advance, choose_lookback, open_window
from dockbell.ports import Alarm, RunRecord
from dockbell.reading import Reader, tend


class Poller:
    """Keeps one polled feed fresh."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def run(self, alarm: Alarm) -> None:
        """Poll whenever the alarm rings, until cancelled."""
        while True:
            await alarm.wait()
            await tend(self._reader, self.run_once)

    async def run_once(self) -> RunRecord | None:
        """Poll once; None while the feed's first request, which the first pass makes, has not been answered."""
        reader = self._reader
        state = await reader.state()
        if state.progress.watermark is None:
            return None
        lookback = choose_lookback(reader.settings.lookback, reader.clock)
        report = await reader.read_run(RunKind.POLL, since=open_window(state.progress.watermark, lookback))
        progress, _ = advance(state.progress, report.proof, lookback)
        await reader.store.close_run(state.id, report.run, progress)
        await reader.reload()
        return report.run
