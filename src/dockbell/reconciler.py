"""Passes over one feed: reads it whole, finds what polls cannot see, and what is not there any more.

For feeds without ``updated_since`` passes are the only reading there is; for polled feeds they are rare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio

from dockbell.cleaning import clean_stored
from dockbell.core.comparing.absence import Census, SeenRows, judge_absence
from dockbell.core.comparing.judgement import Finding
from dockbell.core.model import ChangeKind, DeletionReason, RunKind, Statement
from dockbell.core.publishing.statement import Certificate, HoldReason, PassVerdict, held, reconciled
from dockbell.core.reading.window import Progress, anchor
from dockbell.errors import DockbellError, SourceError
from dockbell.operations.purging import REWRITE_MOST
from dockbell.ports import Absentees, Alarm, Checkpoint, FeedState, RunRecord
from dockbell.reader import Reader, RunReport
from dockbell.telemetry import ChangesStored
from dockbell.tending import tend
from dockbell.walk import Walk

_DAY: Final = timedelta(hours=24)
_BURIED_AT_ONCE: Final = 500
_EMITTED_AT_ONCE: Final = 500
_SUSPECTED_AT_ONCE: Final = 20_000
_LOOK_AGAIN: Final = timedelta(minutes=1)
_RETRY_FIRST: Final = timedelta(seconds=5)
_RETRY_MOST: Final = timedelta(hours=1)
_CHECKPOINT_KEPT: Final = timedelta(hours=1)
"""A pass that was interrupted longer ago begins anew: too much has moved meanwhile."""
_ASKED_MOST: Final = 100
"""Absent shipments that one pass asks for; the others wait for the next pass to confirm them."""
_ABSENCES_UNSTEADY: Final = 4
"""So many passes must have missed a record before one that showed as many twice confirms its absence."""
_CONTROL_HOLDS: Final = timedelta(minutes=1)


class Reconciler:
    """Reads one feed whole from time to time."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.rewrite_most: int | None = REWRITE_MOST
        """A larger store is not written anew to remove traces of what is no longer stored; None: any is."""
        self._turn = anyio.Lock()
        self._alarm: Alarm | None = None  # of the agent that runs
        self._due: timedelta | None = None  # by the steady clock
        self._due_at: datetime | None = None  # by our clock, where a crontab line says when
        self._failures = 0  # passes in a row that read something and failed
        self._doubts = 0  # complete passes in a row that left something to confirm

    async def run(self, alarm: Alarm) -> None:
        """Pass whenever a pass is due, until cancelled."""
        self._alarm = alarm
        self._reader.call_for_pass = lambda: alarm.ring_in(timedelta(0))
        try:
            while True:
                await self.look()
                await alarm.wait()
                if await self.delay() <= timedelta(0):
                    await tend(self._reader, self._run_due)
        finally:
            self._alarm = self._reader.call_for_pass = None

    async def look(self) -> None:
        """Set the alarm anew, after something else than the agent has changed when the next pass is due."""
        if self._alarm is not None:
            delay = await self.delay()
            # Our clock may be set meanwhile, and crontab lines mean our clock.
            self._alarm.ring_in(delay if self._due_at is None else min(delay, _LOOK_AGAIN))

    async def delay(self) -> timedelta:
        """Return how long it is until the next pass is due; not positive when one is."""
        reader = self._reader
        if reader.wants_pass:
            return timedelta(0)
        lefts = [] if self._due is None else [self._due - reader.steady()]
        if self._due_at is not None:
            lefts.append(self._due_at - reader.now())
        if lefts:
            return min(lefts)
        state = await reader.state()
        if state.full is None or state.passes == 0 or state.rebaselining or reader.is_provisional:
            return timedelta(0)
        if state.cleaning:  # which is done before a pass
            return timedelta(0)
        # What an earlier process did is known by our clock only, which may have gone back since.
        now = reader.now()
        # An interval counts from the start of the last pass; what a crontab line says, that pass has done.
        last = state.full.ended_at if isinstance(reader.pass_schedule, str) else state.full.known_at
        due = reader.next_pass(min(last, now))
        if state.confirm_at is not None:
            due = min(due, state.confirm_at, now + reader.settings.confirm_after)
        return due - now

    async def reconcile(self, *, approve: bool = False) -> RunRecord:
        """Pass once now, on the operator's word; with ``approve`` what is absent again is deleted, however much."""
        try:
            return await self.run_once(approve=approve)
        finally:
            await self.look()  # the pass that is to confirm it, or to repeat it, may be due long before the alarm rings

    async def run_once(self, *, approve: bool = False) -> RunRecord:
        """Pass once; when the pass is complete, judge what it did not show."""
        async with self._turn:
            return await self._run(approve=approve)

    async def _run_due(self) -> RunRecord | None:
        """Pass once, unless a pass that an operator asked for was made while this waited for its end."""
        async with self._turn:
            return await self._run(approve=False) if await self.delay() <= timedelta(0) else None

    async def _run(self, *, approve: bool) -> RunRecord:
        self._wait_after_failure()  # unless it goes well
        reader = self._reader
        reader.wants_pass = False
        began = reader.steady()
        await clean_stored(reader, rewrite_most=self.rewrite_most)
        state = await reader.state()
        checkpoint = await self._load_checkpoint(state)
        seen = await reader.watch(None if checkpoint is None else checkpoint.seen)
        try:
            report = await self._read(state, seen, checkpoint)
            if report.run.problem:
                await self._give_up(state, report, checkpoint)
                return report.run
            run = await self._close(await reader.state(), report, seen, approve=approve)
        finally:
            reader.unwatch(seen)
        state = await reader.reload()
        self._failures = 0
        self._wait_for_next(state, began)
        if reader.is_provisional and not report.walk.is_unambiguous:
            raise reader.doubt_key(report.walk)
        return run

    # Reading ----------------------------------------------------------------------------------------------------------

    async def _load_checkpoint(self, state: FeedState) -> Checkpoint | None:
        checkpoint = await self._reader.store.load_checkpoint(state.id)
        if checkpoint is None or not timedelta(0) <= self._reader.now() - checkpoint.saved_at <= _CHECKPOINT_KEPT:
            return None
        with suppress(ValueError):  # it is another version's
            Walk.resume(checkpoint)
            return checkpoint
        return None

    async def _read(self, state: FeedState, seen: SeenRows, checkpoint: Checkpoint | None) -> RunReport:
        reader = self._reader

        async def save(reached: Checkpoint) -> None:
            await reader.store.save_checkpoint(state.id, replace(reached, seen=seen))

        walk = await reader.begin(RunKind.PASS) if checkpoint is None else Walk.resume(checkpoint)
        pages = walk.pages
        try:
            report = await reader.read_run(RunKind.PASS, walk=walk, save=save)
        except DockbellError:
            self._count_failure(walk.pages - pages)
            raise
        if report.run.problem:
            self._count_failure(walk.pages - pages)
        return report

    def _count_failure(self, pages: int) -> None:
        """Count a failure in a row that has cost pages; where nothing was answered, asking again costs little."""
        self._failures += 1 if pages > 0 else 0
        self._wait_after_failure()

    async def _give_up(self, state: FeedState, report: RunReport, checkpoint: Checkpoint | None) -> None:
        """Store an incomplete pass; one that only found no answer goes on later where it was safe."""
        reader, walk = self._reader, report.walk
        came_further = checkpoint is None or walk.pages > Walk.resume(checkpoint).pages
        if walk.cause is None or not came_further or walk.is_uneven:
            await reader.store.drop_checkpoint(state.id)
        await reader.store.close_run(state.id, report.run, lateness=reader.learn_lateness(walk))
        if walk.is_whole:  # bad records certify nothing, but the others need not wait for them
            state = await reader.state()
            proven = await self._prove(state, walk)
            await reader.store.end_baseline(
                state.id, proven=proven, newest=self._find_newest(walk), boundary=_find_boundary(state, walk)
            )
        self._wait_after_failure()
        await reader.reload()

    def _wait_after_failure(self) -> None:
        """Pass again soon; but a list that always ends incomplete must not be read all the time."""
        pause = min(_RETRY_FIRST * (1 << min(max(self._failures - 1, 0), 10)), _RETRY_MOST)
        now = self._reader.now()
        self._due = self._reader.steady() + min(pause, self._reader.next_pass(now) - now)
        self._due_at = None

    def _wait_for_next(self, state: FeedState, began: timedelta) -> None:
        """Pass when it is due by the configuration; sooner, but each time later, while something is left to be done.

        Intervals count from start to start: a pass that took longer than its interval is followed by the next at once.

        Args:
            state: Of the feed, after the pass.
            began: When the pass began, by the steady clock.
        """
        reader, every = self._reader, self._reader.pass_schedule
        dues = [] if isinstance(every, str) else [began + every]
        if state.confirm_at is not None or state.cleaning or reader.is_provisional:
            dues.append(reader.steady() + reader.settings.confirm_after * (1 << min(self._doubts, 20)))
            self._doubts += state.shape is not None  # an empty list costs next to nothing, and may fill at any time
        else:
            self._doubts = 0
        self._due = min(dues, default=None)
        self._due_at = reader.next_pass(reader.now()) if isinstance(every, str) else None

    # Absence ----------------------------------------------------------------------------------------------------------

    async def _close(self, state: FeedState, report: RunReport, seen: SeenRows, *, approve: bool) -> RunRecord:
        """Judge what a complete pass did not show, and store and state its end."""
        reader, run, walk = self._reader, report.run, report.walk
        absentees = await reader.store.find_absent(state.id, seen)
        verdict = judge_absence(
            Census(
                stored=absentees.stored,
                absent=len(absentees.rows),
                shown=run.records,
                deleted_lately=await reader.store.count_deleted(state.id, reader.now() - _DAY),
            )
        )
        is_held = verdict.held and not approve
        for some in _portions([row for row, _, _ in absentees.rows]):
            await reader.store.suspect(state.id, some, run.ended_at)
        left, deleted = 0 if is_held else len(absentees.rows), 0
        if left and not reader.is_provisional:
            left, deleted = await self._settle(state, absentees, report, approve=approve)
        run = replace(run, tally=replace(run.tally, deleted=deleted), events=run.events + deleted)
        proven = await self._prove(state, walk)
        statements = self._find_statements(state, run, walk, absentees, is_held=is_held, waiting=left)
        await reader.store.close_pass(
            state.id,
            run,
            held=len(absentees.rows) if is_held else 0,
            confirm_at=run.ended_at + reader.settings.confirm_after if left or run.tally.held else None,
            proven=proven,
            newest=self._find_newest(walk),
            boundary=_find_boundary(state, walk),
            lateness=reader.learn_lateness(walk),
            statements=statements,
            compose=reader.compose,
            drift_before=walk.began_at,
        )
        reader.tell(*statements)
        return run

    async def _settle(
        self, state: FeedState, absentees: Absentees, report: RunReport, *, approve: bool
    ) -> tuple[int, int]:
        """Bury what is confirmed to be gone; return how many absent records wait to be confirmed, how many are buried.

        A shipment that is not found when it is asked for is gone at once. One that is there, and yet not listed, may
        have slipped past the pass at a page edge: under a ``query`` it has left only when a second pass does not show
        it either. Where nothing can be asked for, a second pass confirms; but each record that a pass showed twice may
        have pushed another one past a page edge, and the same in the next pass.
        """
        reader = self._reader
        confirmed = {row for row, *since in absentees.rows if approve and since[0]} | self._confirm(absentees, report)
        under_query = bool(reader.settings.query)
        asked = sorted((row for row, _, _ in absentees.rows), key=lambda row: row not in confirmed)
        there = await self._ask_for(asked[:_ASKED_MOST], report)
        gone: dict[DeletionReason, list[int]] = {reason: [] for reason in DeletionReason}
        spared = []
        for row in asked:
            if there.get(row) is False:
                gone[DeletionReason.NOT_FOUND].append(row)
            elif there.get(row) and not under_query:
                spared.append(row)
            elif row in confirmed and (row in there or not there or approve):
                gone[DeletionReason.LEFT if there.get(row) else DeletionReason.ABSENT].append(row)
        await reader.store.spare(state.id, spared, Finding.THERE)
        buried = sum([await self._bury(state, rows, report, reason) for reason, rows in gone.items()])
        return len(asked) - len(spared) - buried, buried

    def _confirm(self, absentees: Absentees, report: RunReport) -> set[int]:
        """Return the rows whose absence this pass confirms by itself."""
        walk, pause = report.walk, self._reader.settings.confirm_after
        began_at = walk.began_at or report.run.ended_at
        if walk.is_unsteady:
            return set()
        least = 1 if walk.tally.repeated < len(absentees.rows) else _ABSENCES_UNSTEADY
        return {
            row
            for row, since, absences in absentees.rows
            if since is not None and since + pause <= began_at and absences >= least
        }

    async def _ask_for(self, rows: Sequence[int], report: RunReport) -> dict[int, bool | None]:
        """Ask for absent shipments one by one; return which of them are there, None where the answer does not tell.

        An answer of "not found" is believed only while a record that the list has just shown is found in the same way.
        """
        reader = self._reader
        there: dict[int, bool | None] = {}
        if not rows or not reader.resource.addressable or report.walk.last_record is None:
            return there
        bodies = await reader.store.read_bodies(rows)
        controlled: float | None = None
        with suppress(SourceError):  # the next pass will tell
            for row in rows:
                if row not in bodies:
                    continue  # purged since: there is nothing to ask for, and nothing to bury
                if controlled is None or anyio.current_time() - controlled > _CONTROL_HOLDS.total_seconds():
                    if not await reader.look_up(report.walk.last_record):
                        break
                    controlled = anyio.current_time()
                there[row] = await reader.look_up(bodies[row])
        return there

    async def _bury(self, state: FeedState, rows: Sequence[int], report: RunReport, reason: DeletionReason) -> int:
        """Bury rows; return how many were not seen again meanwhile."""
        reader = self._reader
        until = report.walk.answered_at or report.run.asked_at
        buried = 0
        for start in range(0, len(rows), _BURIED_AT_ONCE):
            judge = partial(reader.judge.bury, until=until, now=reader.now(), reason=reason)
            buried += await reader.store.bury(state.id, rows[start : start + _BURIED_AT_ONCE], judge, reader.compose)
        if buried:
            reader.telemetry.emit(ChangesStored(reader.feed, {ChangeKind.DELETED: buried}))
        return buried

    async def _prove(self, state: FeedState, walk: Walk) -> bool:
        """Return whether a pass that came to the end of the list proves that the key tells all records apart."""
        reader = self._reader
        proven = reader.is_provisional and walk.is_unambiguous and walk.records > 0
        if proven and reader.settings.first_pass == "emit" and not state.rebaselining:
            await self._emit(state)
        return proven

    async def _emit(self, state: FeedState) -> None:
        """Publish a snapshot of each record, now that the key is proven; polls begin after it."""
        reader = self._reader
        await reader.store.begin_emitting(state.id)
        judge = partial(reader.judge.snapshot, now=reader.now())
        while await reader.store.emit_snapshots(state.id, judge, reader.compose, _EMITTED_AT_ONCE):
            pass

    def _find_newest(self, walk: Walk) -> datetime | None:
        """Return where the records' clock stood when the pass began: polls look back over all of it."""
        assert walk.asked_at is not None  # it has come to the end of the list
        assert walk.answered_at is not None
        return anchor(Progress(), walk.newest, walk.answered_at - walk.asked_at).newest

    def _find_statements(
        self, state: FeedState, run: RunRecord, walk: Walk, absentees: Absentees, *, is_held: bool, waiting: int
    ) -> list[Statement]:
        """Return what the end of a pass is to state: a gap, deletions that are held, its certificate."""
        reader, tally, now = self._reader, run.tally, self._reader.now()
        statements: list[Statement] = []
        last = max((each for each in (state.poll, state.full) if each), key=lambda each: each.ended_at, default=None)
        statements += reader.find_gap(run, walk.began_at or now, last)
        if is_held and not state.held:
            count = len(absentees.rows)
            statements.append(held(reader.feed, now, reason=HoldReason.DELETIONS, count=count, since=now))
        found = {
            ChangeKind.CREATED: tally.created,
            ChangeKind.UPDATED: tally.updated,
            ChangeKind.DELETED: tally.deleted,
            ChangeKind.RESTORED: tally.restored,
        }
        if is_held or waiting or tally.drifted or tally.held:
            verdict = PassVerdict.DOUBTFUL
        else:
            verdict = PassVerdict.REPAIRED if any(found.values()) else PassVerdict.EQUAL
        certificate = Certificate(
            began_at=run.asked_at,
            ended_at=walk.answered_at or run.asked_at,
            pages=run.pages,
            records=run.records,
            found=found,
            missed=tally.missed,
            digest=absentees.digest,
            verdict=verdict,
        )
        return [*statements, reconciled(reader.feed, now, certificate)]


def _find_boundary(state: FeedState, walk: Walk) -> datetime | None:
    """Return when the feed was first asked for by its records' clock, as far as the newest dates of a pass tell."""
    if state.first_asked_at is None or walk.lag is None:
        return None
    return state.first_asked_at - walk.lag


def _portions(rows: Sequence[int]) -> Iterator[Sequence[int]]:
    """Return rows in parts that keep the store busy for moments only."""
    return (rows[start : start + _SUSPECTED_AT_ONCE] for start in range(0, len(rows), _SUSPECTED_AT_ONCE))


async def describe(reconciler: Reconciler, *, approve: bool = False) -> str:
    """Pass once now and return what came of it, for the operator."""
    try:
        run = await reconciler.reconcile(approve=approve)
    except DockbellError as error:
        return f"failed: {error}"
    if run.problem:
        return f"incomplete: {run.problem}"
    tally = run.tally
    return (
        f"complete: {run.pages} pages, {run.records} records, {tally.created} created, {tally.updated} updated,"
        f" {tally.deleted} deleted, {tally.restored} restored"
    )
