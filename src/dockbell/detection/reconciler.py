"""Passes over one feed: reads it whole, finds what polls cannot see, and what is not there any more.

For feeds without ``updated_since`` passes are the only reading there is; for polled feeds they are rare.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio

from dockbell.core.comparing.deletion import Census, allowance, assess_absences, choose_sample
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import ChangeKind, DeletionReason, RunKind, Statement
from dockbell.core.publishing.statement import Certificate, HoldReason, PassVerdict, held, rebaselined, reconciled
from dockbell.core.reading.window import Progress, anchor
from dockbell.detection.absence_check import AbsenceCheck, Suspects
from dockbell.detection.guarded import run_guarded
from dockbell.detection.reader import Reader, RunReport
from dockbell.detection.run import Walk
from dockbell.detection.scrub import scrub
from dockbell.errors import DockbellError
from dockbell.ports import REWRITE_MOST, Absentees, Alarm, Checkpoint, FeedState, RunRecord
from dockbell.telemetry import ChangesStored

_DAY: Final = timedelta(hours=24)
_EMITTED_AT_ONCE: Final = 500
_SUSPECTED_AT_ONCE: Final = 20_000
_LOOK_AGAIN: Final = timedelta(minutes=1)
_RETRY_FIRST: Final = timedelta(seconds=5)
_RETRY_MOST: Final = timedelta(hours=1)
_CHECKPOINT_KEPT: Final = timedelta(hours=1)
"""A pass that was interrupted longer ago begins anew: too much has moved meanwhile."""
_ABSENCES_UNSTEADY: Final = 4
"""So many passes must have missed a record before one that showed as many twice confirms its absence."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """What becomes of the records that a complete pass did not show, and what else is not decided at its end.

    Attributes:
        held: Too many to be believed: an operator decides.
        waiting: Still to be confirmed.
        deleted: Deleted.
        goes_forward: Some of those that waited before do no more, and others of them still do.
        suspects: What is to be asked for beside the next runs.
        holds: How many readings are held, whichever run held them.
    """

    held: int = 0
    waiting: int = 0
    deleted: int = 0
    goes_forward: bool = False
    suspects: Suspects | None = None
    holds: int = 0


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
        self._due_anyway: timedelta | None = None  # the same, were nothing left to be done
        self._failures = 0  # passes in a row that read something and failed
        self._doubts = 0  # complete passes in a row that left something to confirm, and settled nothing
        self._goes_forward = False
        self.absence_check = AbsenceCheck(reader, self._wait_for_nothing)
        """Asks for what passes did not show; runs beside them."""

    async def run(self, alarm: Alarm) -> None:
        """Pass whenever a pass is due, until cancelled."""
        self._alarm = alarm
        self._reader.call_for_pass = lambda: alarm.ring_in(timedelta(0))
        try:
            while True:
                await self.look()
                await alarm.wait()
                if await self.delay() <= timedelta(0):
                    await run_guarded(self._reader, self._run_due)
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
        await scrub(reader, rewrite_most=self.rewrite_most)
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
        # Records that share a key are in quarantine: what else came twice with other content may be these.
        if reader.is_provisional and not report.walk.is_unambiguous and not run.tally.bad:
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
        self._due_anyway = min(dues, default=None)
        if state.confirm_at is not None or state.cleaning or reader.is_provisional:
            dues.append(reader.steady() + reader.settings.confirm_after * (1 << min(self._doubts, 20)))
            if not self._goes_forward:
                self._doubts += state.shape is not None  # an empty list costs next to nothing, and may fill at any time
        else:
            self._doubts = 0
        self._due = min(dues, default=None)
        self._due_at = reader.next_pass(reader.now()) if isinstance(every, str) else None

    def _wait_for_nothing(self) -> None:
        """Pass when it is due by the configuration: nothing is left to be confirmed."""
        self._due, self._doubts = self._due_anyway, 0

    # Absence ----------------------------------------------------------------------------------------------------------

    async def _close(self, state: FeedState, report: RunReport, seen: SeenRows, *, approve: bool) -> RunRecord:
        """Judge what a complete pass did not show, and store and state its end."""
        reader, run, walk = self._reader, report.run, report.walk
        absentees = await reader.store.find_absent(state.id, seen)
        if absentees.rows:  # after a crash another listing must show that they are absent, not this one again
            await reader.store.drop_checkpoint(state.id)
        for some in _portions([row for row, _, _ in absentees.rows]):
            await reader.store.suspect(state.id, some, run.ended_at)
        settled = await self._settle(state, absentees, report, approve=approve)
        run = replace(run, tally=replace(run.tally, deleted=settled.deleted), events=run.events + settled.deleted)
        run, is_first = await self._decide(state, run, walk, absentees.stored)
        proven = await self._prove(state, walk)
        settled = replace(settled, holds=await reader.store.count_holds(state.id, run.asked_at))
        async with reader.ending(report) as gaps:
            statements = [*gaps, *self._find_statements(state, run, walk, absentees, settled)]
            if is_first:
                statements.insert(0, rebaselined(reader.feed, reader.now(), ["first_pass"]))
            await reader.store.close_pass(
                state.id,
                run,
                held=settled.held,
                confirm_at=run.ended_at + reader.settings.confirm_after if settled.waiting or run.tally.held else None,
                proven=proven,
                newest=self._find_newest(walk),
                boundary=_find_boundary(state, walk),
                is_first=is_first,
                lateness=reader.learn_lateness(walk),
                statements=statements,
                compose=reader.compose,
                drift_before=walk.began_at,
            )
        reader.tell(*statements)
        self._goes_forward = settled.goes_forward
        self.absence_check.take(settled.suspects)
        return run

    async def _decide(self, state: FeedState, run: RunRecord, walk: Walk, stored: int) -> tuple[RunRecord, bool]:
        """End the doubt about undated records that the second pass met first; return whether it counts as the first.

        A first pass may have been cut short, or empty, and nothing said so. Where the next one meets more unknown
        records, which no date proves new, than a day may delete, all of them are taken for baseline. That is stated.
        """
        reader, skipped = self._reader, run.tally.skipped
        if state.passes != 1 or state.shape is None:
            return replace(run, tally=replace(run.tally, skipped=0)), False
        is_first = skipped > allowance(stored)
        emits = reader.settings.first_pass == "emit"
        kind = ChangeKind.CREATED if not is_first else ChangeKind.SNAPSHOT if emits else None
        detector = None
        if kind is not None:
            detector = partial(
                reader.detector.decide,
                kind=kind,
                since=None if state.full is None else state.full.asked_at,
                until=walk.answered_at or run.asked_at,
                now=reader.now(),
            )
        decided = 0
        while count := await reader.store.decide(state.id, detector, reader.compose, _EMITTED_AT_ONCE):
            decided += count
        created = decided if kind is ChangeKind.CREATED else 0
        if created:
            reader.telemetry.emit(ChangesStored(reader.feed, {ChangeKind.CREATED: created}))
        tally = replace(run.tally, created=run.tally.created + created, skipped=skipped if is_first else 0)
        return replace(run, tally=tally, events=run.events + (0 if kind is None else decided)), is_first

    async def _settle(self, state: FeedState, absentees: Absentees, report: RunReport, *, approve: bool) -> _Settled:
        """Delete what is confirmed to be gone; return what becomes of the other absent records.

        A sample of absent shipments is asked for first. Where one of them is there, the list shows only some of the
        records, and each must be asked for; so must each under a ``query``, where those that are there have left it.
        Else a second pass confirms by itself; but each record that a pass showed twice may have pushed another one past
        a page edge, and the same in the next pass.
        """
        reader, walk = self._reader, report.walk
        self.absence_check.take(None)  # what an earlier pass left is judged anew
        rows = [row for row, _, _ in absentees.rows]
        confirmed = self._confirm(state, absentees, report, approve=approve)
        if walk.tally.keyless and not approve:
            # A record that an absent one may have become: it has no key any more that would tell.
            confirmed = {*await self._tell_apart(state, confirmed, walk)}
        suspects = Suspects(
            state.id,
            rows,
            confirmed=confirmed,
            may_delete=True,
            control=walk.last_record or b"",
            until=walk.answered_at or report.run.asked_at,
            is_all=not report.run.tally.held,
        )
        can_ask = reader.resource.addressable and walk.last_record is not None and not reader.is_provisional
        answers = await self._sample(suspects, absentees) if can_ask else {}
        there = 0 if reader.settings.query else sum(answer is True for answer in answers.values())
        census = Census(
            stored=absentees.stored - there,
            absent=len(rows) - there,
            shown=report.run.records,
            deleted_lately=await reader.store.count_deleted(state.id, reader.now() - _DAY),
        )
        suspects.may_delete = approve or not assess_absences(census).is_suspended
        if reader.is_provisional:
            return _Settled(waiting=len(rows)) if suspects.may_delete else _Settled(held=len(rows))
        deleted = await self.absence_check.settle(suspects, answers)
        if not suspects.may_delete and not there:
            return _Settled(held=len(rows))
        if suspects.may_delete:
            each = there > 0 or absentees.is_partial or bool(reader.settings.query and answers)
            deleted += await self._delete_confirmed(suspects, absentees, each=can_ask and each, approve=approve)
        before = {row for row, since, _ in absentees.rows if since is not None}
        unlisted = 0 if reader.settings.query else sum(answers.get(row) is True for row in confirmed)
        return _Settled(
            waiting=len(rows) - unlisted - deleted,
            deleted=deleted,
            goes_forward=there + deleted > 0 and not before.isdisjoint(suspects.rows),
            suspects=suspects if can_ask else None,
        )

    async def _tell_apart(self, state: FeedState, rows: Collection[int], walk: Walk) -> Sequence[int]:
        """Return those of absent rows that are none of the bad records which a pass has met."""
        if walk.began_at is None:
            return ()
        return await self._reader.store.find_told_apart(
            state.id, [*rows], keyless=walk.tally.keyless, met_since=walk.began_at, offset=walk.offset
        )

    async def _sample(self, suspects: Suspects, absentees: Absentees) -> dict[int, bool | None]:
        """Ask for some of the absent records; not for those that were not found a moment ago."""
        reader, since = self._reader, absentees.missing
        window = reader.settings.stale_window
        unknown = [
            row
            for row in suspects.rows
            if row not in since or reader.age(since[row]) >= window or row in suspects.confirmed
        ]
        return await self.absence_check.ask(choose_sample(unknown), suspects.control)

    async def _delete_confirmed(self, suspects: Suspects, absentees: Absentees, *, each: bool, approve: bool) -> int:
        """Delete what passes alone confirm to be gone; where each must be asked for, only an operator waits for it."""
        rows = [row for row in suspects.rows if row in suspects.confirmed]
        if each:
            return (
                await self.absence_check.settle(suspects, await self.absence_check.ask(rows, suspects.control))
                if approve
                else 0
            )
        not_found = [row for row in rows if row in absentees.missing]
        absent = [row for row in rows if row not in absentees.missing]
        return await self.absence_check.delete_records(
            suspects, not_found, DeletionReason.NOT_FOUND
        ) + await self.absence_check.delete_records(suspects, absent, DeletionReason.ABSENT)

    def _confirm(self, state: FeedState, absentees: Absentees, report: RunReport, *, approve: bool) -> set[int]:
        """Return the rows whose absence this pass confirms by itself, or that an operator calls deleted.

        How long ago they were suspected before a restart, the service's clock bounds: not after the last pass.
        """
        reader, walk, settings = self._reader, report.walk, self._reader.settings
        # A replica that lags may have answered both passes where they are not further apart than that.
        pause = max(settings.confirm_after, settings.stale_window)
        began_at = walk.began_at or report.run.ended_at
        age = reader.age(began_at)
        lapse = timedelta(0) if state.full is None else report.run.asked_at - state.full.read_until
        if approve:
            return {row for row, since, _ in absentees.rows if since is not None}
        if walk.is_unsteady:
            return set()
        least = 1 if walk.tally.repeated < len(absentees.rows) else _ABSENCES_UNSTEADY
        return {
            row
            for row, since, absences in absentees.rows
            if since is not None
            and absences >= least
            and pause + walk.age <= (reader.age_of_suspicion(since) - age if reader.knows(began_at) else lapse)
        }

    async def _prove(self, state: FeedState, walk: Walk) -> bool:
        """Return whether a pass that came to the end of the list proves that the key tells all records apart."""
        reader = self._reader
        proven = reader.is_provisional and walk.is_unambiguous and walk.records > 0
        is_due = reader.is_withholding or state.emitted is not None
        if proven and is_due and reader.settings.first_pass == "emit" and not state.rebaselining:
            await self._emit(state)
        return proven

    async def _emit(self, state: FeedState) -> None:
        """Publish a snapshot of each record, now that the key is proven; polls begin after it."""
        reader = self._reader
        await reader.store.begin_emitting(state.id)
        detector = partial(reader.detector.snapshot, now=reader.now())
        while await reader.store.emit_snapshots(state.id, detector, reader.compose, _EMITTED_AT_ONCE):
            pass

    def _find_newest(self, walk: Walk) -> datetime | None:
        """Return where the records' clock stood when the pass began: polls look back over all of it."""
        assert walk.asked_at is not None  # it has come to the end of the list
        assert walk.answered_at is not None
        return anchor(Progress(), walk.newest, walk.answered_at - walk.asked_at).newest

    def _find_statements(
        self, state: FeedState, run: RunRecord, walk: Walk, absentees: Absentees, settled: _Settled
    ) -> list[Statement]:
        """Return what the end of a pass is to state beside a gap: deletions that are held, its certificate."""
        reader, tally, now = self._reader, run.tally, self._reader.now()
        statements: list[Statement] = []
        if settled.held and not state.held:
            statements.append(held(reader.feed, now, reason=HoldReason.DELETIONS, count=settled.held, since=now))
        found = {
            ChangeKind.CREATED: tally.created,
            ChangeKind.UPDATED: tally.updated,
            ChangeKind.DELETED: tally.deleted,
            ChangeKind.RESTORED: tally.restored,
        }
        if settled.held or settled.waiting or tally.drifted or tally.held or tally.bad or settled.holds:
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
            held=settled.holds + tally.drifted,
            quarantined=tally.bad,
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
