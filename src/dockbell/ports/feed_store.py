"""What detection stores of one feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.known_pages import KnownPages
from dockbell.core.comparing.page_diff import Finding, PageDiff, Pending, Snapshots
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import JSON, Change, Event, Statement, Via
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.ports.runs import Absentees, Awaited, Checkpoint, Committed, FeedState, RunRecord

Compose: TypeAlias = Callable[[Change | Statement, int], Sequence[Event]]
"""Returns the events of a change or a statement, the first of which has the given sequence."""


class FeedStore(Protocol):
    """One feed in the store, open for writing; every method is one transaction, and only :meth:`open` comes before.

    Raises:
        LeaseLost: By every method that has something to write, and then has written nothing: another process has
            opened the feed since. The operator must stop one of the two; the handle stays of no use.
    """

    @property
    def known_pages(self) -> KnownPages:
        """The records that need not be compared again; a method that writes to records forgets these."""

    async def open(self) -> FeedState:
        """Return the feed's state; the first time take the feed for this process, making it if it is new."""

    async def begin_feed(self, first_asked_at: datetime, boundary: datetime | None = None) -> None:
        """Store when a feed was first asked for; polls begin there.

        Args:
            first_asked_at: When the first request was sent, by the service's clock.
            boundary: The same moment on the records' own clock; None while that is not known.
        """

    async def save_read_settings(
        self, read_settings: Mapping[str, JSON], *, rebaseline: Statement | None = None, compose: Compose | None = None
    ) -> None:
        """Store the read settings; with a statement, publish that stored records were read by others."""

    async def save_shape(self, shape: Shape, *, proven: bool) -> None:
        """Store what was learned from the first page with records, and whether its key needs no proof."""

    async def save_listing_profile(self, listing_profile: str) -> None:
        """Store what was learned of a feed's listing."""

    async def save_plan(self, plan: str) -> None:
        """Store what was learned of a feed's changes and requests, and its interval."""

    async def save_signal(self, signal: str) -> None:
        """Store what is known of another feed's polls as a signal for this feed."""

    async def save_problem(self, problem: str) -> None:
        """Store what stops the feed; empty: nothing."""

    async def last_row(self) -> int:
        """Return the last row that was given: rows above it are newer than now. None is given twice."""

    async def commit_page(
        self,
        detect: Callable[[Snapshots], PageDiff],
        compose: Compose,
        *,
        via: Via,
        find_statement: Callable[[PageDiff], Statement | None] | None = None,
    ) -> Committed:
        """Compare one page with the stored records; store its snapshots and events in one transaction.

        Args:
            detect: Compares the page; called in the store's own thread, like the other two.
            compose: Gives a change or a statement its number.
            via: Which kind of reading showed the page.
            find_statement: Returns a statement to publish after the changes of a page; not called for an idle one.
        """

    async def close_run(
        self,
        run: RunRecord,
        progress: Progress | None = None,
        *,
        lateness: Lateness | None = None,
        statements: Sequence[Statement] = (),
        compose: Compose | None = None,
    ) -> FeedState | None:
        """Store how a run ended, what it proves about the watermark and about lateness, and what is to be stated.

        Returns:
            The state that this has left; None where only :meth:`open` tells.
        """

    async def publish(self, statements: Sequence[Statement], compose: Compose) -> None:
        """Publish statements; a gap that waited to be published goes with them."""

    async def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Store how far a pass has come."""

    async def load_checkpoint(self) -> Checkpoint | None:
        """Return how far an interrupted pass had come."""

    async def drop_checkpoint(self) -> None:
        """Forget how far a pass had come."""

    async def find_absent(self, seen: SeenRows) -> Absentees:
        """Return the rows that ``seen`` does not hold, but for tombstones and records that absence checks ignore."""

    async def count_deleted(self, since: datetime) -> int:
        """Return how many of a feed's records were deleted since then, but for those that no limit shall count.

        These are records that were purged, and all that were deleted before an operator last approved deletions.
        """

    async def suspect(self, rows: Sequence[int], at: datetime) -> None:
        """Note rows that a complete pass did not show, and when the first such pass ended."""

    async def close_pass(
        self,
        run: RunRecord,
        *,
        held: int,
        confirm_at: datetime | None,
        proven: bool,
        newest: datetime | None,
        boundary: datetime | None = None,
        is_first: bool = False,
        is_approved: bool = False,
        lateness: Lateness | None,
        statements: Sequence[Statement],
        compose: Compose,
        drift_before: datetime | None = None,
    ) -> None:
        """Store the end of a complete pass.

        Args:
            run: The pass.
            held: How many absent records it holds.
            confirm_at: When a pass is due that confirms suspected absences.
            proven: See :meth:`end_baseline`.
            newest: See :meth:`end_baseline`.
            boundary: See :meth:`end_baseline`.
            is_first: It met so much for the first time that none before can have been whole: it counts as the first.
            is_approved: An operator approved the deletions of the pass; see :meth:`count_deleted`.
            lateness: How late records become visible, where that is to be stored.
            statements: What is stated at its end.
            compose: Gives them their number.
            drift_before: Our time when it began, None where that is not known: drift that was found since stays, even
                if the pass held nothing for it.
        """

    async def decide(self, detect: Callable[[bytes], Change] | None, compose: Compose, limit: int) -> int:
        """End the doubt about records that the second pass met first.

        Args:
            detect: Gives the change to publish of each; None takes them for baseline, in silence.
            compose: Gives the events their number.
            limit: The most at once.

        Returns:
            How many it was; 0 when none is left.
        """

    async def end_baseline(self, *, proven: bool, newest: datetime | None, boundary: datetime | None = None) -> None:
        """Note that an incomplete pass has come to the end of the list all the same.

        Args:
            proven: The pass proves that the key tells all records apart.
            newest: Where the records' clock stood when it began; kept where no poll has shown it.
            boundary: When the feed was first asked for, by that clock; kept where it was known before.
        """

    async def keep(self, rows: Sequence[int], finding: Finding, *, ignored_until_seen: bool = False) -> None:
        """End the suspicion of rows; with ``ignored_until_seen``, absence checks ignore them until they are seen."""

    async def find_suspected(self) -> Sequence[int]:
        """Return the rows that are suspected to be gone."""

    async def find_told_apart(
        self, rows: Sequence[int], *, keyless: int, met_since: datetime, offset: timedelta
    ) -> Sequence[int]:
        """Return those of suspected rows for which no record without a key can stand that a pass has met.

        All of these were in quarantine before the last complete pass began that showed the row, and that pass met as
        many.

        Args:
            rows: Suspected rows.
            keyless: How many records without a key the pass has met.
            met_since: When the pass began, by our clock.
            offset: How far our clock is ahead of the service's.
        """

    async def count_holds(self, asked_at: datetime) -> int:
        """Return how many held readings are left when a pass ends whose S this was; its end forgets the others."""

    async def end_suspicion(self) -> bool:
        """Forget when absences are to be confirmed, unless some are still suspected; return whether none is."""

    async def delete_records(
        self, rows: Sequence[int], detect: Callable[[bytes, int, datetime | None], Change], compose: Compose
    ) -> int:
        """Turn suspected rows into tombstones with an event each, unless they were seen again; return how many.

        ``detect`` takes body, revision, and S of the last complete pass before the first that did not show the record.
        """

    async def load_awaited(self, limit: int) -> Sequence[Awaited]:
        """Return changes that wait for the details of their records, the least often postponed and oldest first."""

    async def complete(
        self,
        row: int,
        detect: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        *,
        listed: bytes | None = None,
    ) -> int:
        """Publish a change that waited, and store the record with its detail; return how many events it gave.

        Args:
            row: The record's.
            detect: Takes the change as it is now, the body that was published last, and the revision.
            compose: Makes the events.
            listed: What the list showed when the detail was asked for: the change goes on waiting where it has shown
                something else since. None: whatever it shows.
        """

    async def complete_overdue(
        self,
        since: Sequence[datetime],
        detect: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        limit: int,
    ) -> None:
        """Publish changes that wait since one of some times, as :meth:`complete` does, ``limit`` at most."""

    async def load_waits(self) -> Sequence[datetime]:
        """Return since when changes wait for details, by our clock, each time once."""

    async def begin_emitting(self) -> None:
        """Note that a snapshot of each stored record is due."""

    async def emit_snapshots(
        self, detect: Callable[[bytes, datetime | None], Change], compose: Compose, limit: int
    ) -> int:
        """Publish the next due snapshots of records that nothing was published of; 0 when all are."""

    async def decide_drift(self, decision: Decision) -> None:
        """Store what becomes of the drift that is held."""

    async def mark_dropped(self, drop: Sequence[str]) -> bool:
        """Note which members of a feed's records are never stored; return whether that has changed.

        Where something of them may be stored, :attr:`FeedState.cleaning` has them until :meth:`end_cleaning`.
        """

    async def clean(
        self, erasure: Erasure, fingerprint: Callable[[bytes], bytes] | None, limit: int
    ) -> tuple[int, int] | None:
        """Clean up to ``limit`` stored records or events of what is never stored, where an earlier call ended.

        Args:
            erasure: Takes it out.
            fingerprint: Returns the fingerprint of a record; None while that cannot be computed.
            limit: At most so many are looked at.

        Returns:
            How many records and events held something; None when there are no more.
        """

    async def end_cleaning(self) -> None:
        """Note that nothing is stored any more of what is never stored; who keeps copies of records reads all again."""

    async def read_bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        """Return the raw JSON of rows."""

    async def note_missing(self, rows: Sequence[int]) -> None:
        """Note that suspected rows were not found when they were asked for; when that was first, stays."""

    async def note_found(self, rows: Sequence[int]) -> None:
        """Note that suspected rows were found when they were asked for; they stay suspected, for a pass to confirm."""

    async def find_missing(self, rows: Sequence[int]) -> Mapping[int, datetime | None]:
        """Return those of these rows that are suspected, and since when they are not found; None: not asked for."""

    async def postpone(self, row: int) -> None:
        """Note that a detail was asked for in vain: its change lets all others go first that were less often."""
