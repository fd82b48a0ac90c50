"""Passes over one feed: reads its whole list, and finds what polls cannot see and which records are gone.

Feeds without ``updated_since`` are read by passes only; for polled feeds passes are rare.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio
from msgspec.structs import replace

from dockbell.core.comparing.deletion_rules import allowance
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import ChangeKind, RunKind, Statement
from dockbell.core.publishing.statement import Certificate, HoldReason, PassVerdict, held, rebaselined, reconciled
from dockbell.core.reading.window import Progress, anchor
from dockbell.detection.absence_check import AbsenceCheck
from dockbell.detection.deletions import AbsenceDecision, DeletionDecider
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.guarded import run_guarded
from dockbell.detection.pass_timer import PassTimer
from dockbell.detection.reading import begin_run, read_run
from dockbell.detection.run import Run
from dockbell.detection.run_checkpoint import make_checkpoint, resume
from dockbell.detection.run_summary import RunSummary
from dockbell.detection.scrub import scrub
from dockbell.errors import DockbellError
from dockbell.ports import REWRITE_MOST, Absentees, Alarm, Checkpoint, FeedState, RunRecord
from dockbell.telemetry import ChangesStored, StoreWrittenAside

_EMITTED_AT_ONCE: Final = 500
_SUSPECTED_AT_ONCE: Final = 20_000
_CHECKPOINT_KEPT: Final = timedelta(hours=1)
"""A pass that was interrupted longer ago begins anew: too much has moved meanwhile."""
_CERTIFIED_FOR: Final = timedelta(minutes=1)
"""So long a pass that changes nothing and finds what the last found is not certified anew: small lists are read every
few seconds, and a deletion may wait for hours."""


class Reconciler:
    """Reads one feed whole from time to time.

    Attributes:
        rewrite_most: A larger store is not written anew to remove traces of what is no longer stored; None: any is.
        absence_check: Asks for what passes did not show; runs beside them.
    """

    def __init__(self, feed: TrackedFeed) -> None:
        self.rewrite_most: int | None = REWRITE_MOST
        self._feed = feed
        self._timer = PassTimer(feed)
        self._certified: tuple[Hashable, timedelta] | None = None  # what the last certificate said, by the steady clock
        self._turn = anyio.Lock()  # of passes: an operator may ask for one while another goes on
        self.absence_check = AbsenceCheck(feed, self._timer.wait_for_nothing)
        self._deletions = DeletionDecider(feed, self.absence_check)

    async def run(self, alarm: Alarm) -> None:
        self._timer.alarm = alarm
        self._feed.schedule.wake_reconciler = lambda: alarm.ring_in(timedelta(0))
        try:
            while True:
                await self.look()
                await alarm.wait()
                if await self.delay() <= timedelta(0):
                    await run_guarded(self._feed, self._run_due)
        finally:
            self._timer.alarm = self._feed.schedule.wake_reconciler = None

    async def look(self) -> None:
        """Set the alarm anew, after something else than the agent has changed when the next pass is due."""
        await self._timer.set_alarm()

    async def delay(self) -> timedelta:
        """Return how long it is until the next pass is due; not positive when one is."""
        return await self._timer.delay()

    async def reconcile(self, *, approve: bool = False) -> RunRecord:
        """Pass once now, on the operator's word; with ``approve`` what is absent again is deleted, however much."""
        self._certified = None  # who asks for a pass is told how it went
        self._feed.schedule.is_awaited = True
        try:
            return await self.run_once(approve=approve)
        finally:
            self._feed.schedule.is_awaited = False
            await self.look()  # the pass that is to confirm it, or to repeat it, may be due long before the alarm rings

    async def run_once(self, *, approve: bool = False) -> RunRecord:
        """Pass once; when the pass is complete, decide on the records that it did not show."""
        async with self._turn:
            return await self._run(approve=approve)

    async def _run_due(self) -> RunRecord | None:
        """Pass once, unless a pass that an operator asked for was made while this waited for its end."""
        async with self._turn:
            return await self._run(approve=False) if await self.delay() <= timedelta(0) else None

    async def _run(self, *, approve: bool) -> RunRecord:
        self._timer.wait_after_failure()  # unless it goes well
        feed = self._feed
        feed.schedule.is_pass_requested = False
        began = feed.clocks.steady()
        await scrub(feed, rewrite_most=self.rewrite_most)
        checkpoint = await self._load_checkpoint()
        seen = SeenRows(await feed.store.last_row()) if checkpoint is None else checkpoint.seen
        with feed.sightings.watch(seen):
            run = await begin_run(feed, RunKind.PASS) if checkpoint is None else resume(checkpoint)
            came_from = run.summary.pages
            feed.schedule.is_passing = True
            try:
                record = await self._read(run, seen)
            finally:
                feed.schedule.is_passing = False
            if record.problem:
                came_further = checkpoint is None or run.summary.pages > came_from
                await self._give_up(run, record, came_further=came_further)
                return record
            record, decision = await self._close(await feed.state(), run, record, seen, approve=approve)
        self._timer.wait_for_next(await feed.state(), began, goes_forward=decision.goes_forward)
        # Records that share a key are in quarantine: what else came twice with other content may be these.
        if feed.is_provisional and not run.summary.is_unambiguous and not record.tally.bad:
            raise feed.doubt_key(run.summary)
        return record

    # Reading ----------------------------------------------------------------------------------------------------------

    async def _load_checkpoint(self) -> Checkpoint | None:
        """Return where an interrupted pass goes on; None where there is none, or it is too old to be continued."""
        checkpoint = await self._feed.store.load_checkpoint()
        age = None if checkpoint is None else self._feed.clocks.now() - checkpoint.saved_at
        if checkpoint is None or age is None or not timedelta(0) <= age <= _CHECKPOINT_KEPT:
            return None
        with suppress(ValueError):  # it is another version's
            resume(checkpoint)
            return checkpoint
        return None

    async def _read(self, run: Run, seen: SeenRows) -> RunRecord:
        """Read the list to its end, and save now and then how far the pass has come."""

        async def save(now: datetime) -> None:
            await self._feed.store.save_checkpoint(replace(make_checkpoint(run, now), seen=seen))

        pages = run.summary.pages
        try:
            record = await read_run(self._feed, run, save)
        except DockbellError:
            self._timer.count_failure(run.summary.pages - pages)
            raise
        if record.problem:
            self._timer.count_failure(record.pages - pages)
        return record

    async def _give_up(self, run: Run, record: RunRecord, *, came_further: bool) -> None:
        """Store an incomplete pass; one that only found no answer goes on later where it was safe."""
        feed = self._feed
        if run.cause is None or not came_further or run.is_uneven:
            await feed.store.drop_checkpoint()
        await feed.store.close_run(record, lateness=feed.profile.learn_lateness(run))
        self._timer.wait_after_failure()
        await feed.reload()

    # The end of a pass ------------------------------------------------------------------------------------------------

    async def _close(
        self, state: FeedState, run: Run, record: RunRecord, seen: SeenRows, *, approve: bool
    ) -> tuple[RunRecord, AbsenceDecision]:
        """Decide on the records that a complete pass did not show, and store and state its end."""
        feed, found = self._feed, run.summary
        absentees = await feed.store.find_absent(seen)
        if absentees.is_contradiction:
            feed.telemetry.emit(StoreWrittenAside(feed.feed))
        if absentees.rows:  # after a crash another listing must show that they are absent, not this one again
            await feed.store.drop_checkpoint()
        for some in _portions([row for row, _, _ in absentees.rows]):
            await feed.store.suspect(some, record.ended_at)
        decision = await self._deletions.decide(state, absentees, found, record, approve=approve)
        tally = replace(record.tally, deleted=decision.deleted)
        record = replace(record, tally=tally, events=record.events + decision.deleted)
        record, is_first = await self._decide(state, record, found, absentees.stored)
        proven = await self._prove(state, found)
        holds = await feed.store.count_holds(record.asked_at)
        is_waiting = decision.waiting or record.tally.held
        async with feed.ending(run) as end:
            statements = [*end.gaps, *self._find_statements(state, record, found, absentees, decision, holds=holds)]
            if is_first:
                statements.insert(0, rebaselined(feed.feed, feed.clocks.now(), ["first_pass"]))
            await feed.store.close_pass(
                record,
                held=decision.suspended,
                confirm_at=record.ended_at + feed.settings.confirm_after if is_waiting else None,
                proven=proven,
                newest=_find_newest(found),
                boundary=_find_boundary(state, found),
                is_first=is_first,
                is_approved=approve,
                lateness=feed.profile.learn_lateness(run),
                statements=statements,
                compose=feed.compose,
                drift_before=found.began_at,
            )
            feed.report(*statements)
        self.absence_check.take(decision.suspects)
        return record, decision

    async def _decide(
        self, state: FeedState, record: RunRecord, found: RunSummary, stored: int
    ) -> tuple[RunRecord, bool]:
        """End the doubt about undated records that the second pass met first; return whether it counts as the first.

        A first pass may have been cut short, or empty, and nothing said so. Where the next pass meets more unknown
        records that no date proves new than a day may delete, all of them are taken for baseline, and that is stated.
        """
        feed, skipped = self._feed, record.tally.skipped
        if state.passes != 1 or state.shape is None:
            return replace(record, tally=replace(record.tally, skipped=0)), False
        is_first = skipped > allowance(stored)
        emits = feed.settings.first_pass == "emit"
        kind = ChangeKind.CREATED if not is_first else ChangeKind.SNAPSHOT if emits else None
        detector = None
        if kind is not None:
            detector = partial(
                feed.detector.decide,
                kind=kind,
                since=None if state.full is None else state.full.asked_at,
                until=found.answered_at or record.asked_at,
                now=feed.clocks.now(),
            )
        decided = 0
        while count := await feed.store.decide(detector, feed.compose, _EMITTED_AT_ONCE):
            decided += count
        created = decided if kind is ChangeKind.CREATED else 0
        if created:
            feed.telemetry.emit(ChangesStored(feed.feed, {ChangeKind.CREATED: created}))
        tally = replace(record.tally, created=record.tally.created + created, skipped=skipped if is_first else 0)
        return replace(record, tally=tally, events=record.events + (0 if kind is None else decided)), is_first

    async def _prove(self, state: FeedState, found: RunSummary) -> bool:
        """Return whether a pass that came to the end of the list proves that the key tells all records apart."""
        feed = self._feed
        proven = feed.is_provisional and found.is_unambiguous and found.records > 0
        is_due = feed.is_withholding or state.emitted is not None
        if proven and is_due and feed.settings.first_pass == "emit" and not state.rebaselining:
            await self._emit()
        return proven

    async def _emit(self) -> None:
        """Publish a snapshot of each record, now that the key is proven; polls begin after it."""
        feed = self._feed
        await feed.store.begin_emitting()
        detector = partial(feed.detector.snapshot, now=feed.clocks.now())
        while await feed.store.emit_snapshots(detector, feed.compose, _EMITTED_AT_ONCE):
            pass

    def _find_statements(
        self,
        state: FeedState,
        run: RunRecord,
        found: RunSummary,
        absentees: Absentees,
        decision: AbsenceDecision,
        *,
        holds: int,
    ) -> list[Statement]:
        """Return what the end of a pass states beside a gap: deletions that wait for an operator, its certificate."""
        feed, tally, now = self._feed, run.tally, self._feed.clocks.now()
        statements: list[Statement] = []
        if decision.suspended and not state.held:
            statements.append(held(feed.feed, now, reason=HoldReason.DELETIONS, count=decision.suspended, since=now))
        changes = {
            ChangeKind.CREATED: tally.created,
            ChangeKind.UPDATED: tally.updated,
            ChangeKind.DELETED: tally.deleted,
            ChangeKind.RESTORED: tally.restored,
        }
        doubts = (decision.suspended, decision.waiting, holds + tally.drifted, tally.bad)
        if any(doubts) or tally.held:
            verdict = PassVerdict.DOUBTFUL
        else:
            verdict = PassVerdict.REPAIRED if any(changes.values()) else PassVerdict.EQUAL
        certificate = Certificate(
            began_at=run.asked_at,
            ended_at=found.answered_at or run.asked_at,
            pages=run.pages,
            records=run.records,
            found=changes,
            missed=tally.missed,
            held=holds + tally.drifted,
            quarantined=tally.bad,
            digest=absentees.digest,
            verdict=verdict,
        )
        is_quiet = not any(changes.values()) and not tally.missed
        if is_quiet and self._is_certified(doubts):
            return statements
        self._certified = doubts, feed.clocks.steady()
        return [*statements, reconciled(feed.feed, now, certificate)]

    def _is_certified(self, doubts: Hashable) -> bool:
        """Return whether a certificate with the same doubts is so new that another may wait."""
        if self._certified is None:
            return False
        said, at = self._certified
        return said == doubts and self._feed.clocks.steady() - at < _CERTIFIED_FOR


def _find_newest(found: RunSummary) -> datetime | None:
    """Return where the records' clock stood when a complete pass began: polls look back over all of it."""
    assert found.asked_at is not None  # it has come to the end of the list
    assert found.answered_at is not None
    return anchor(Progress(), found.newest, found.answered_at - found.asked_at).newest


def _find_boundary(state: FeedState, found: RunSummary) -> datetime | None:
    """Return when the feed was first asked for by its records' clock, as far as the newest dates of a pass tell."""
    if state.first_asked_at is None or found.lag is None:
        return None
    return state.first_asked_at - found.lag


def _portions(rows: Sequence[int]) -> Iterator[Sequence[int]]:
    """Return rows in parts that keep the store busy for moments only."""
    return (rows[start : start + _SUSPECTED_AT_ONCE] for start in range(0, len(rows), _SUSPECTED_AT_ONCE))
