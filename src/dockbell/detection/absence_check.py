"""Asks for shipments that a complete pass did not show, one by one, beside the polls and passes of their feed.

A listing may be answered by a replica that lags by seconds, and so may a request for one record. So "not found" is
believed when it is repeated at least ``stale_window`` later, or when a second pass does not show the record either. A
record that is found although two passes did not show it is there: the list shows only some of the records, and it is
not missed until it is listed again.

The store holds which records are suspected, and when they were not found. Which of them may be deleted is decided at
the end of each complete pass, and is forgotten with the process: the next pass decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio

from dockbell.core.comparing.deletion_rules import NotDeleted, decide_deletion
from dockbell.core.comparing.page_diff import Finding
from dockbell.core.model import ChangeKind, DeletionReason, Urgency
from dockbell.detection.feed import TrackedFeed
from dockbell.detection.on_demand import OnDemand
from dockbell.errors import SourceError
from dockbell.ports import Bell
from dockbell.telemetry import ChangesStored

_DELETED_AT_ONCE: Final = 500
_ASKED_AT_ONCE: Final = 50
_CONTROL_HOLDS: Final = timedelta(minutes=1)
_RETRY_SECONDS: Final = 30
"""The pause after a round in which a usable answer was lacking."""
_LOOK_SECONDS: Final = 5
"""The pause otherwise: our clock may be set meanwhile, so it is looked at often."""


@dataclass(eq=False)
class Suspects:
    """The absent records that a complete pass leaves to be asked for."""

    rows: list[int]  # absent records that are to be asked for; each leaves when its answers are in
    confirmed: Collection[int]  # those whose absence a second pass has confirmed already: one answer decides
    may_delete: bool
    """They may be deleted; otherwise they are too many, and the answers only tell whether they are there."""
    control: bytes  # a record that the pass showed: it must be found in the same way
    until: datetime  # the service's time of the pass's last answer
    is_all: bool = True  # nothing else but these is to be confirmed by another pass


class AbsenceCheck:
    """Asks for the absent records of one feed.

    Attributes:
        task: Works while there are records to ask for.
    """

    def __init__(self, feed: TrackedFeed, decided: Callable[[], None]) -> None:
        """Set for which feed; ``decided`` is called when nothing is left to be confirmed by another pass."""
        self._feed = feed
        self._decided = decided
        self._suspects: Suspects | None = None
        self._news = Bell()
        self.task = OnDemand(self._ask_for_all)
        self._controlled: float | None = None

    async def _ask_for_all(self) -> None:
        """Ask for what the last pass has left, until nothing is left."""
        while self._suspects is not None:
            seen = self._news.rings
            await self._feed.health.recovered()
            pause = _RETRY_SECONDS
            try:
                if not await self.run_once():
                    pause = _LOOK_SECONDS
            except Exception as error:  # noqa: BLE001  # whatever it is, the next pass finds out the same
                self._feed.telemetry.emit_failure(f"{self._feed.feed} absence check", error)
            if self._suspects is not None:
                with anyio.move_on_after(pause):
                    await self._news.wait(seen)

    def take(self, suspects: Suspects | None) -> None:
        """Ask from now on for what a pass leaves, and no longer for what an earlier one left."""
        self._suspects = suspects if suspects is not None and suspects.rows else None
        self._news.ring()
        if self._suspects is not None:
            self.task.ask()

    async def run_once(self) -> bool:
        """Ask once for all whose time has come; return whether usable answers were lacking."""
        suspects, store, failed = self._suspects, self._feed.store, False
        if suspects is None:
            return False
        due = await self._find_due(suspects)
        for start in range(0, len(due), _ASKED_AT_ONCE):
            some = due[start : start + _ASKED_AT_ONCE]
            answers = await self.ask(some, suspects.control, Urgency.TRAILING)
            if suspects is not self._suspects:
                return False  # another pass has ended meanwhile, and decided on all of them anew
            await self.decide(suspects, answers)
            if failed := len(answers) < len(some):
                break
        suspected = await store.find_missing(suspects.rows)
        suspects.rows = [row for row in suspects.rows if row in suspected]
        if not suspects.rows and suspects is self._suspects:
            self._suspects = None
            if suspects.is_all and await store.end_suspicion():
                await self._feed.reload()
                self._decided()
        return failed

    async def _find_due(self, suspects: Suspects) -> list[int]:
        """Return what may be asked for now; what was not found is asked for again when its time has come."""
        feed = self._feed
        window = feed.settings.stale_window
        missing = await self._feed.store.find_missing(suspects.rows)
        return [
            row
            for row, since in missing.items()
            if since is None or row in suspects.confirmed or feed.clocks.age(since) >= window
        ]

    async def ask(
        self, rows: Sequence[int], control: bytes, urgency: Urgency = Urgency.DETAIL
    ) -> dict[int, bool | None]:
        """Ask for records one by one; return which of them are there, None where the answer does not tell.

        An answer of "not found" is believed only while a record that the list has just shown is found in the same way.
        """
        feed = self._feed
        bodies = await feed.store.read_bodies(rows)
        there: dict[int, bool | None] = {}
        with suppress(SourceError):  # the next round, or the next pass, will tell
            for row in rows:
                if row not in bodies:
                    there[row] = None  # purged since: there is nothing to delete
                    continue
                if self._controlled is None or anyio.current_time() - self._controlled > _CONTROL_HOLDS.total_seconds():
                    if not await feed.fetcher.is_there(feed.detector, control, urgency):
                        break
                    self._controlled = anyio.current_time()
                there[row] = await feed.fetcher.is_there(feed.detector, bodies[row], urgency)
        return there

    async def decide(self, suspects: Suspects, answers: dict[int, bool | None]) -> int:
        """Store what answers came to; return how many records were deleted."""
        feed = self._feed
        missing = await feed.store.find_missing([*answers])
        window = feed.settings.stale_window
        under_query = bool(feed.settings.query)
        gone: dict[DeletionReason, list[int]] = {reason: [] for reason in DeletionReason}
        there, found, not_found, decided = [], [], [], set(answers)
        for row, answer in answers.items():
            since = missing.get(row)
            verdict = decide_deletion(
                answer,
                confirmed=row in suspects.confirmed,
                repeated=since is not None and feed.clocks.age(since) >= window,
                under_query=under_query,
            )
            if verdict is NotDeleted.THERE:
                there.append(row)
            elif isinstance(verdict, DeletionReason) and suspects.may_delete:
                gone[verdict].append(row)
            elif answer is False:
                not_found.append(row)
            elif answer and not under_query:
                found.append(row)
        await feed.store.keep(there, Finding.THERE, ignored_until_seen=True)
        if found:
            await feed.store.note_found(found)
        await feed.store.note_missing(not_found)
        if suspects.may_delete:
            decided.difference_update(not_found)  # they are asked for again; the next pass decides on the others
        suspects.rows = [row for row in suspects.rows if row not in decided]
        return sum([await self.delete_records(suspects, rows, reason) for reason, rows in gone.items()])

    async def delete_records(self, suspects: Suspects, rows: Sequence[int], reason: DeletionReason) -> int:
        """Delete rows; return how many were not seen again meanwhile."""
        feed, deleted = self._feed, 0
        for start in range(0, len(rows), _DELETED_AT_ONCE):
            some = rows[start : start + _DELETED_AT_ONCE]
            detector = partial(feed.detector.deletion, until=suspects.until, now=feed.clocks.now(), reason=reason)
            deleted += await feed.store.delete_records(some, detector, feed.compose)
        left = {*rows}
        suspects.rows = [row for row in suspects.rows if row not in left]
        if deleted:
            feed.telemetry.emit(ChangesStored(feed.feed, {ChangeKind.DELETED: deleted}))
        return deleted
