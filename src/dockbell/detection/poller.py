"""Polls one feed: asks what was modified since the watermark, commits it, and judges the watermark."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import anyio

from dockbell.config import ResourceSettings
from dockbell.core.model import RunKind
from dockbell.core.reading.ahead import ShortPolls
from dockbell.core.reading.reach import BoundWindow
from dockbell.core.reading.window import Progress, advance, open_trailing_window, open_window
from dockbell.detection.guarded import run_guarded
from dockbell.detection.reader import Reader, RunReport
from dockbell.errors import RequestRefused
from dockbell.ports import Alarm, RunRecord

TRAILING_INTERVALS: Final = 20
TRAILING_EVERY: Final = timedelta(minutes=5)
"""A trailing poll follows after so many polls, and not sooner than this."""
_TRAILING_PACE: Final = timedelta(seconds=2)
"""So long a trailing poll rests for each of its pages: at most a tenth of the budget goes to those of a feed."""


def trailing_every(settings: ResourceSettings) -> timedelta:
    """Return the interval of trailing polls of a feed."""
    every = settings.every or timedelta(0)
    return max(every * TRAILING_INTERVALS, TRAILING_EVERY)


class Poller:
    """Keeps one polled feed fresh."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._is_new = True
        self._trailing_pages = 0
        self._short = ShortPolls()
        self._anchor: tuple[str, datetime] | None = None  # the record that the last poll showed as newest, and its date
        self._is_cut_off = False  # the API refuses to show what was not read yet; a pass was asked for

    async def run(self, alarm: Alarm) -> None:
        """Poll whenever the alarm rings, until cancelled."""
        while True:
            await alarm.wait()
            await run_guarded(self._reader, self.run_once)

    async def run_trailing(self, alarm: Alarm) -> None:
        """Poll from long before whenever the alarm rings, until cancelled."""
        while True:
            await alarm.wait()
            await run_guarded(self._reader, self.trail_once)
            await anyio.sleep((self._trailing_pages * _TRAILING_PACE).total_seconds())

    async def run_once(self) -> RunRecord | None:
        """Poll once; None while there is nothing to begin at, or nothing may be published under the learned key."""
        reader = self._reader
        state = await reader.state()
        progress = state.progress
        if self._is_new:  # what other runs met before a restart is not known: the candidate must be proven anew
            progress = replace(progress, candidate=None)
        if progress.watermark is None or reader.is_withholding:
            return None
        lookback, precision = reader.lookback, reader.precision
        short = self._short.start(lookback + precision, reader.steady())
        if short is not None and not self._short.is_contradicted(reader.found_aside, lookback + precision):
            return await self._poll_shortly(short)
        # A watermark of a clock that was wrong, and is corrected since, must not blind the polls until it is reached.
        base = replace(progress, watermark=min(progress.watermark, reader.asked_at or progress.watermark))
        anchor, self._anchor = self._anchor, None
        report, window = await self._read(
            RunKind.POLL, open_window(base, lookback, precision), "" if anchor is None else anchor[0]
        )
        state = await reader.reload()
        # A pass that ended meanwhile may have told where the records' clock stands; all else only polls move.
        progress = replace(progress, newest=progress.newest or state.progress.newest)
        if (proof := report.walk.proof) is not None:
            # What another run stored meanwhile, this one would have met.
            unseen = [moment for moment in (proof.oldest_unseen, reader.take_found_aside()) if moment is not None]
            proof = replace(
                proof, oldest_unseen=min(unseen, default=None), complete=proof.complete and window.is_covered
            )
            if self._is_doubtful(report, anchor, progress):
                proof = replace(proof, pages=max(proof.pages, 2))
            progress, _ = advance(progress, proof, lookback, precision)
            self._plan_short(report, min(unseen, default=None))
        async with reader.ending(report) as gaps:
            await reader.store.close_run(
                state.id,
                report.run,
                progress,
                lateness=reader.learn_lateness(report.walk),
                statements=gaps,
                compose=reader.compose,
            )
        self._is_new = False
        reader.tell(*gaps)
        await reader.reload()
        if not window.is_covered and not self._is_cut_off:
            reader.request_pass()
        self._is_cut_off = not window.is_covered
        return report.run

    def _is_doubtful(self, report: RunReport, anchor: tuple[str, datetime] | None, progress: Progress) -> bool:
        """Return whether a poll did not show the record that was dated newest, though its window covers that date.

        The answer may have been empty, or cut; or the record is gone. Another poll has to confirm what this one proves.
        """
        walk, since = report.walk, report.run.since
        assert since is not None
        is_missing = anchor is not None and anchor[1] >= since and not walk.has_anchor
        if is_missing or not walk.records:
            is_missing = is_missing or (progress.newest is not None and progress.newest >= since)
        elif not report.run.problem and walk.newest is not None:
            self._anchor = (walk.newest_key, walk.newest)
        return is_missing

    async def _poll_shortly(self, since: datetime) -> RunRecord:
        """Poll for what is dated ahead of the service's clock; it proves nothing."""
        reader = self._reader
        report, _ = await self._read(RunKind.POLL, since)
        state = await reader.reload()
        if not report.run.problem:
            walk = report.walk
            is_quiet = walk.oldest_unseen is None
            self._short = self._short.after_short(walk.latest_ahead, pages=walk.pages, is_quiet=is_quiet)
        async with reader.ending(report) as gaps:
            await reader.store.close_run(
                state.id,
                report.run,
                lateness=reader.learn_lateness(report.walk),
                statements=gaps,
                compose=reader.compose,
            )
        reader.tell(*gaps)
        await reader.reload()
        return report.run

    def _plan_short(self, report: RunReport, oldest_unseen: datetime | None) -> None:
        """Decide after a whole poll whether the next ones may be short."""
        reader, walk = self._reader, report.walk
        every = reader.settings.every
        if report.run.problem or every is None:
            self._short = ShortPolls(allowed_at=self._short.allowed_at)
            return
        self._short = self._short.after_whole(
            pages=walk.pages,
            others=walk.records - walk.ahead,
            newest=walk.latest_ahead,
            oldest_unseen=oldest_unseen,
            lookback=reader.lookback + reader.precision,
            every=every,
            now=reader.steady(),
        )

    async def _read(self, kind: RunKind, since: datetime, anchor: str = "") -> tuple[RunReport, BoundWindow]:
        """Read a run that would start at ``since``; where the API calls that too old, as far back as it allows."""
        reader = self._reader
        window = await reader.bound(since)
        try:
            return await reader.read_run(kind, since=window.since, anchor=anchor), window
        except RequestRefused:
            if not await reader.learn_reach(window.since):
                raise
        window = await reader.bound(since)
        return await reader.read_run(kind, since=window.since, anchor=anchor), window

    async def trail_once(self) -> RunRecord | None:
        """Poll once from long before the watermark, for what became visible late; it proves nothing."""
        reader = self._reader
        state = await reader.state()
        if state.progress.watermark is None or reader.is_withholding:
            return None
        since = open_trailing_window(state.progress, reader.lookback, reader.precision)
        report, _ = await self._read(RunKind.TRAILING, since)
        self._trailing_pages = report.run.pages
        await reader.store.close_run(state.id, report.run, lateness=reader.learn_lateness(report.walk))
        await reader.reload()
        return report.run
