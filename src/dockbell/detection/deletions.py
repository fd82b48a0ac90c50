"""Decides at the end of a complete pass which absent records are deleted, and which are still to be confirmed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from dockbell.core.comparing.deletion_rules import Census, assess_absences, choose_sample, passes_needed
from dockbell.core.model import DeletionReason
from dockbell.detection.absence_check import AbsenceCheck, Suspects
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.run_summary import RunSummary
from dockbell.ports import Absentees, FeedState, RunRecord

_DAY: Final = timedelta(hours=24)


class AbsenceDecision(msgspec.Struct, frozen=True):
    """What becomes of the records that a complete pass did not show."""

    suspended: int = 0  # too many to be believed: an operator decides
    waiting: int = 0  # still to be confirmed
    deleted: int = 0  # deleted
    goes_forward: bool = False  # some of those that waited before do no more, and others of them still do
    suspects: Suspects | None = None  # what is to be asked for beside the next runs


class DeletionDecider:
    def __init__(self, feed: TrackedFeed, absence_check: AbsenceCheck) -> None:
        self._feed = feed
        self._check = absence_check

    async def decide(
        self, state: FeedState, absentees: Absentees, found: RunSummary, run: RunRecord, *, approve: bool
    ) -> AbsenceDecision:
        """Delete what is confirmed to be gone; return what becomes of the other absent records.

        A sample of absent shipments is asked for first. Where one of them is there, the list shows only some of the
        records, and each must be asked for; so must each under a ``query``, where those that are there have left it.
        Else a second pass confirms by itself; but each record that a pass showed twice may have pushed another one past
        a page edge, and the same in the next pass. With ``approve`` an operator calls what is absent again deleted,
        however much it is.
        """
        feed = self._feed
        self._check.take(None)  # what an earlier pass left is decided anew
        rows = [row for row, _, _ in absentees.rows]
        confirmed: Collection[int] = self._confirm(state, absentees, found, run, approve=approve)
        if found.tally.keyless and not approve:
            # A bad record without a key may be an absent one, which has lost its key.
            confirmed = {*await self._tell_apart(confirmed, found)}
        suspects = Suspects(
            rows,
            confirmed=confirmed,
            may_delete=True,
            control=found.last_record or b"",
            until=found.answered_at or run.asked_at,
            is_all=not run.tally.held,
        )
        can_ask = feed.resource.addressable and found.last_record is not None and not feed.is_provisional
        answers = await self._sample(suspects, absentees) if can_ask else {}
        there = 0 if feed.settings.query else sum(answer is True for answer in answers.values())
        census = Census(
            stored=absentees.stored - there,
            absent=len(rows) - there,
            shown=run.records,
            deleted_lately=await feed.store.count_deleted(feed.clocks.now() - _DAY),
        )
        suspects.may_delete = approve or not assess_absences(census).is_suspended
        if feed.is_provisional:
            return AbsenceDecision(waiting=len(rows)) if suspects.may_delete else AbsenceDecision(suspended=len(rows))
        deleted = await self._check.decide(suspects, answers)
        if not suspects.may_delete and not there:
            return AbsenceDecision(suspended=len(rows))
        if suspects.may_delete:
            each = there > 0 or absentees.is_partial or bool(feed.settings.query and answers)
            deleted += await self._delete_confirmed(suspects, absentees, each=can_ask and each, approve=approve)
        before = {row for row, since, _ in absentees.rows if since is not None}
        unlisted = 0 if feed.settings.query else sum(answers.get(row) is True for row in confirmed)
        return AbsenceDecision(
            waiting=len(rows) - unlisted - deleted,
            deleted=deleted,
            goes_forward=there + deleted > 0 and not before.isdisjoint(suspects.rows),
            suspects=suspects if can_ask else None,
        )

    def _confirm(
        self, state: FeedState, absentees: Absentees, found: RunSummary, run: RunRecord, *, approve: bool
    ) -> set[int]:
        """Return the rows whose absence this pass confirms by itself, or that an operator calls deleted.

        Where they were suspected before a restart, the service's clock tells how long ago that was at the least.
        """
        feed, settings = self._feed, self._feed.settings
        # A replica that lags may have answered both passes where they are not further apart than that.
        pause = max(settings.confirm_after, settings.stale_window)
        began_at = found.began_at or run.ended_at
        age = feed.clocks.age(began_at)
        lapse = timedelta(0) if state.full is None else run.asked_at - state.full.read_until
        if approve:
            return {row for row, since, _ in absentees.rows if since is not None}
        if found.is_unsteady:
            return set()
        least = passes_needed(len(absentees.rows), repeated=found.tally.repeated)
        is_known = feed.clocks.knows(began_at)
        return {
            row
            for row, since, absences in absentees.rows
            if since is not None
            and absences >= least
            and pause + found.age <= (feed.gaps.age_of_suspicion(since) - age if is_known else lapse)
        }

    async def _tell_apart(self, rows: Collection[int], found: RunSummary) -> Sequence[int]:
        """Return those of absent rows that are none of the bad records which a pass has met."""
        if found.began_at is None:
            return ()
        return await self._feed.store.find_told_apart(
            [*rows], keyless=found.tally.keyless, met_since=found.began_at, offset=found.offset
        )

    async def _sample(self, suspects: Suspects, absentees: Absentees) -> dict[int, bool | None]:
        """Ask for some of the absent records; not for those that were not found a moment ago."""
        since, window = absentees.missing, self._feed.settings.stale_window
        unknown = [
            row
            for row in suspects.rows
            if row not in since or self._feed.clocks.age(since[row]) >= window or row in suspects.confirmed
        ]
        return await self._check.ask(choose_sample(unknown), suspects.control)

    async def _delete_confirmed(self, suspects: Suspects, absentees: Absentees, *, each: bool, approve: bool) -> int:
        """Delete what passes alone confirm to be gone; where each must be asked for, only an operator waits for it."""
        check, rows = self._check, [row for row in suspects.rows if row in suspects.confirmed]
        if each:
            return await check.decide(suspects, await check.ask(rows, suspects.control)) if approve else 0
        not_found = [row for row in rows if row in absentees.missing]
        absent = [row for row in rows if row not in absentees.missing]
        deleted = await check.delete_records(suspects, not_found, DeletionReason.NOT_FOUND)
        return deleted + await check.delete_records(suspects, absent, DeletionReason.ABSENT)
