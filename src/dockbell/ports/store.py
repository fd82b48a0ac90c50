"""Where snapshots, events and progress are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol, TypeAlias

from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.page_diff import Finding, PageDiff, Pending, Snapshots
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.core.model import (
    JSON,
    Change,
    Event,
    Feed,
    Key,
    Statement,
    Via,
)
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.publishing.settlement import Blocked, Place, Replay, Settlement, StartOffset
from dockbell.core.reading.lateness import Lateness
from dockbell.core.reading.shape import Shape
from dockbell.core.reading.window import Progress
from dockbell.errors import StoreUnavailable
from dockbell.ports.bell import Bell
from dockbell.ports.command_store import Command, CommandOutcome
from dockbell.ports.delivery import BackfillRecord, Controls, Extent, Footprint, Found, StoredState
from dockbell.ports.runs import Absentees, Awaited, Checkpoint, Committed, FeedState, Purged, RunRecord

Compose: TypeAlias = Callable[[Change | Statement, int], Sequence[Event]]
"""Returns the events of a change or a statement, the first of which has the given sequence."""

REWRITE_MOST: Final = 1 << 30
"""A larger store, in bytes, is not written anew while the daemon works on it: that may take longer than it may rest."""


class Store(Protocol):
    """Where snapshots, events and progress are kept; every method is one transaction."""

    epoch: str
    """Random mark of one life of this store; part of every event's id."""
    outbox: Bell
    """Rings when events were added."""
    purges: int
    """How often a record was purged since it was opened: what was read of events before may hold more than they do."""

    @property
    def trouble(self) -> StoreUnavailable | None:
        """Why it cannot be written; None while it can."""
        ...

    @property
    def stalled(self) -> Bell:
        """Rings when it cannot be written any more."""
        ...

    async def open_feed(self, feed: Feed) -> FeedState:
        """Return a feed's state, making the feed if it is new."""
        ...

    async def begin_feed(self, feed_id: int, first_asked_at: datetime, boundary: datetime | None = None) -> None:
        """Store when a feed was first asked for; polls begin there.

        Args:
            feed_id: The feed.
            first_asked_at: S0, by the service's clock.
            boundary: The same moment on the records' own clock; None while that is not known.
        """
        ...

    async def save_read_settings(
        self,
        feed_id: int,
        read_settings: Mapping[str, JSON],
        *,
        rebaseline: Statement | None = None,
        compose: Compose | None = None,
    ) -> None:
        """Store how a feed is read; with a statement, what is stored was read differently, and that is stated."""
        ...

    async def save_shape(self, feed_id: int, shape: Shape, *, proven: bool) -> None:
        """Store what was learned from the first page with records, and whether its key needs no proof."""
        ...

    async def save_listing_profile(self, feed_id: int, listing_profile: str) -> None:
        """Store what was learned of a feed's listing."""
        ...

    async def save_problem(self, feed_id: int, problem: str) -> None:
        """Store what stops a feed, or the empty string when nothing does any more."""
        ...

    async def last_row(self, feed_id: int) -> int:
        """Return the highest row in use: rows above it are newer than now."""
        ...

    async def commit_page(
        self,
        feed_id: int,
        detect: Callable[[Snapshots], PageDiff],
        compose: Compose,
        *,
        via: Via,
        announce: Callable[[PageDiff], Statement | None] | None = None,
    ) -> Committed:
        """Judge one page against what is stored, and store its snapshots and events together, in one transaction.

        Args:
            feed_id: The feed.
            detect: Judges the page; in the store's own thread, like the other two.
            compose: Gives a change or a statement its number.
            via: Which kind of reading showed the page.
            announce: Returns what is to be stated, after its changes, of a judgement that is not idle.
        """
        ...

    async def close_run(
        self,
        feed_id: int,
        run: RunRecord,
        progress: Progress | None = None,
        *,
        lateness: Lateness | None = None,
        statements: Sequence[Statement] = (),
        compose: Compose | None = None,
    ) -> None:
        """Store how a run ended, what it proves about the watermark and about lateness, and what is to be stated."""
        ...

    async def publish(self, feed_id: int, statements: Sequence[Statement], compose: Compose) -> None:
        """Publish statements; a gap that waited to be stated is so then."""
        ...

    async def save_checkpoint(self, feed_id: int, checkpoint: Checkpoint) -> None:
        """Store how far a pass has come."""
        ...

    async def load_checkpoint(self, feed_id: int) -> Checkpoint | None:
        """Return how far an interrupted pass had come."""
        ...

    async def drop_checkpoint(self, feed_id: int) -> None:
        """Forget how far a pass had come."""
        ...

    async def find_absent(self, feed_id: int, seen: SeenRows) -> Absentees:
        """Return the rows that ``seen`` does not hold, tombstones and those that nobody misses left out."""
        ...

    async def count_deleted(self, feed_id: int, since: datetime) -> int:
        """Return how many of a feed's records were deleted since then."""
        ...

    async def suspect(self, feed_id: int, rows: Sequence[int], at: datetime) -> None:
        """Note that a complete pass did not show rows, and when the first did not."""
        ...

    async def close_pass(
        self,
        feed_id: int,
        run: RunRecord,
        *,
        held: int,
        confirm_at: datetime | None,
        proven: bool,
        newest: datetime | None,
        boundary: datetime | None = None,
        is_first: bool = False,
        lateness: Lateness | None,
        statements: Sequence[Statement],
        compose: Compose,
        drift_before: datetime | None = None,
    ) -> None:
        """Store the end of a complete pass.

        Args:
            feed_id: The feed.
            run: The pass.
            held: How many absent records it holds.
            confirm_at: When a pass is due that confirms suspected absences.
            proven: See :meth:`end_baseline`.
            newest: See :meth:`end_baseline`.
            boundary: See :meth:`end_baseline`.
            is_first: It met so much for the first time that none before can have been whole: it counts as the first.
            lateness: How late records become visible, where that is to be stored.
            statements: What is stated at its end.
            compose: Gives them their number.
            drift_before: Our time when it began, None where that is not known: drift that was found since stays, even
                if the pass held nothing for it.
        """
        ...

    async def decide(self, feed_id: int, detect: Callable[[bytes], Change] | None, compose: Compose, limit: int) -> int:
        """End the doubt about records that the second pass met first.

        Args:
            feed_id: The feed.
            detect: Gives the change to publish of each; None takes them for baseline, in silence.
            compose: Gives the events their number.
            limit: The most at once.

        Returns:
            How many it was; 0 when none is left.
        """
        ...

    async def end_baseline(
        self, feed_id: int, *, proven: bool, newest: datetime | None, boundary: datetime | None = None
    ) -> None:
        """Note that an incomplete pass has come to the end of the list all the same.

        Args:
            feed_id: The feed.
            proven: The pass proves that the key tells all records apart.
            newest: Where the records' clock stood when it began; kept where no poll has told it.
            boundary: When the feed was first asked for, by that clock; kept where nothing has told it before.
        """
        ...

    async def read_bodies(self, rows: Sequence[int]) -> Mapping[int, bytes]:
        """Return the raw JSON of rows."""
        ...

    async def keep(
        self, feed_id: int, rows: Sequence[int], finding: Finding, *, ignored_until_seen: bool = False
    ) -> None:
        """End the suspicion of rows; dormant ones are not missed until they are seen again."""
        ...

    async def find_suspected(self, feed_id: int) -> Sequence[int]:
        """Return the rows that are suspected to be gone."""
        ...

    async def find_told_apart(
        self, feed_id: int, rows: Sequence[int], *, keyless: int, met_since: datetime, offset: timedelta
    ) -> Sequence[int]:
        """Return those of suspected rows for which no record without a key can stand that a pass has met.

        All of these were in quarantine before the last complete pass began that showed the row, and that pass met as
        many.

        Args:
            feed_id: The feed.
            rows: Suspected rows.
            keyless: How many records without a key the pass has met.
            met_since: When the pass began, by our clock.
            offset: How far our clock is ahead of the service's.
        """
        ...

    async def count_holds(self, feed_id: int, asked_at: datetime) -> int:
        """Return how many held readings are left when a pass ends whose S this was; its end forgets the others."""
        ...

    async def note_missing(self, rows: Sequence[int]) -> None:
        """Note that suspected rows were not found when they were asked for; when that was first, stays."""
        ...

    async def note_found(self, rows: Sequence[int]) -> None:
        """Note that suspected rows were found when they were asked for; they stay suspected, for a pass to confirm."""
        ...

    async def find_missing(self, rows: Sequence[int]) -> Mapping[int, datetime | None]:
        """Return those of these rows that are suspected, and since when they are not found; None: not asked for."""
        ...

    async def end_suspicion(self, feed_id: int) -> bool:
        """Forget when absences are to be confirmed, unless some are still suspected; return whether none is."""
        ...

    async def delete_records(
        self,
        feed_id: int,
        rows: Sequence[int],
        detect: Callable[[bytes, int, datetime | None], Change],
        compose: Compose,
    ) -> int:
        """Turn suspected rows into tombstones with an event each; return how many.

        ``detect`` takes body, revision, and S of the last complete pass before the first that did not show the record.
        """
        ...

    async def load_awaited(self, feed_id: int, limit: int) -> Sequence[Awaited]:
        """Return changes that wait for the details of their records, the least often postponed and oldest first."""
        ...

    async def postpone(self, row: int) -> None:
        """Note that a detail was asked for in vain: its change lets all others go first that were less often."""
        ...

    async def complete(
        self,
        feed_id: int,
        row: int,
        detect: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        *,
        listed: bytes | None = None,
    ) -> int:
        """Publish a change that waited, and store the record with its detail; return how many events it gave.

        Args:
            feed_id: The feed.
            row: The record's.
            detect: Takes the change as it is now, the body that was published last, and the revision.
            compose: Makes the events.
            listed: What the list showed when the detail was asked for: the change goes on waiting where it has shown
                something else since. None: whatever it shows.
        """
        ...

    async def complete_overdue(
        self,
        feed_id: int,
        since: Sequence[datetime],
        detect: Callable[[Pending, bytes | None, int], Change | None],
        compose: Compose,
        limit: int,
    ) -> None:
        """Publish changes that wait since one of some times, as :meth:`complete` does, ``limit`` at most."""
        ...

    async def load_waits(self, feed_id: int) -> Sequence[datetime]:
        """Return since when changes wait for details, by our clock, each time once."""
        ...

    async def begin_emitting(self, feed_id: int) -> None:
        """Note that a snapshot of each stored record is due."""
        ...

    async def emit_snapshots(
        self, feed_id: int, detect: Callable[[bytes, datetime | None], Change], compose: Compose, limit: int
    ) -> int:
        """Publish the next due snapshots of records that nothing was published of; 0 when all are."""
        ...

    async def decide_drift(self, feed_id: int, decision: Decision) -> None:
        """Store what becomes of the drift that is held."""
        ...

    async def recovered(self) -> None:
        """Return once the store can be written: at once while nothing is wrong, else when it was tried and works."""
        ...

    async def check(self) -> None:
        """Return when whoever writes has an ear: those before us are done; at once during a :meth:`wipe`."""
        ...

    async def take_commands(self) -> Sequence[Command]:
        """Return the wishes that wait; cheap to ask again and again."""
        ...

    async def finish_command(self, command: Command, outcome: CommandOutcome) -> None:
        """Store the outcome of a command."""
        ...

    async def enroll(self, sink: str, start: Literal["now", "beginning", "state"]) -> Sequence[Feed]:
        """Give a sink a position in every feed that it has none in: at ``start`` when the sink is new, else at 0.

        One that was away while events were pruned that it had not settled begins again, with the stored records.

        Returns:
            The feeds in which it has lost events.
        """
        ...

    async def load_queue(self, sink: str) -> tuple[Mapping[Feed, int], Sequence[Blocked]]:
        """Return a sink's positions and blocked keys."""
        ...

    async def find_left(self, sinks: Collection[str]) -> Mapping[str, int]:
        """Return the sinks that have a position, are owed events, and are not among these; each with how many."""
        ...

    async def load_starts(self, sink: str) -> Mapping[Feed, StartOffset]:
        """Return where a sink began in each feed; ``told`` is None where it knows of all that was stored then."""
        ...

    async def load_controls(self, sink: str) -> Controls:
        """Return what was decided of a sink beside its relay: by an operator, in another process, or by the janitor."""
        ...

    async def note_conditions(self, found: Mapping[str, Found]) -> None:
        """Note how relays found their receivers, by the names of their sinks."""
        ...

    async def pause(self, sink: str, reason: str) -> None:
        """Note that a sink takes nothing until an operator resumes it."""
        ...

    async def load_replays(self, sink: str, now: datetime, limit: int) -> Sequence[Replay]:
        """Return replays that are due by a time, in the order in which they were asked for."""
        ...

    async def read_backfill(
        self, feed: Feed, start: StartOffset, after: int, limit: int
    ) -> tuple[Sequence[BackfillRecord], int, bool] | None:
        """Return records as they were at a sink's beginning, by row, after a row.

        Where the sink has lost events, those that are gone since are among them.

        Returns:
            The records, the last row that was looked at, and whether it was the last of all; None while the feed was
            never read whole: what is stored of it is not all that there is.
        """
        ...

    async def find_backfilled(self, feed: Feed, start: StartOffset, key: str) -> BackfillRecord | None:
        """Return one record as it was at a sink's beginning; None where there was none."""
        ...

    async def read_stored(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        """Return up to ``limit`` records by row, after a row, those that are gone included, and the last row.

        Keys that the feed's records had while they were identified otherwise count as gone.
        """
        ...

    async def read_changed(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        """Return the records of up to ``limit`` events after a sequence, as they are now, and the last sequence."""
        ...

    async def find_extents(self) -> Mapping[Feed, Extent]:
        """Return which events of every feed there are."""
        ...

    async def read_events(
        self, feed: Feed, after: int, limit: int, *, key: str | None = None, until: int | None = None
    ) -> Sequence[Event]:
        """Return events of a feed after a sequence, in order; of one key only, and up to a sequence, where given."""
        ...

    async def last_sequences(self) -> Mapping[Feed, int]:
        """Return the number of the last event of every feed."""
        ...

    async def read_states(self, places: Sequence[Place]) -> Mapping[Place, bytes]:
        """Return the latest committed raw JSON of these keys; those that are gone or unknown are left out."""
        ...

    async def settle(self, sink: str, settlement: Settlement) -> None:
        """Save what a sink has settled."""
        ...

    async def prune_events(self, before: datetime, sinks: Sequence[str], limit: int | None = None) -> int:
        """Delete events recorded before then that none of the sinks owes, in portions; return how many.

        Dead letters and replays keep their event.
        """
        ...

    async def forget_letters(self, before: datetime) -> Mapping[str, int]:
        """Delete dead letters that died before then, and let keys go on that were held behind one; count by sink."""
        ...

    async def overrun(self, sink: str, before: datetime) -> Mapping[Feed, datetime]:
        """Let a sink lose what it owes in each feed where the oldest of it was recorded before then.

        It begins again at the end of these feeds, with the stored records; its relay must begin anew.

        Returns:
            When the first event was recorded that it lost, by feed.
        """
        ...

    async def find_owing(self, sinks: Sequence[str], before: datetime) -> Sequence[str]:
        """Return which of the sinks owe events recorded before then; the one that owes the oldest first."""
        ...

    async def measure(self) -> Footprint:
        """Return how much of its disk the store uses."""
        ...

    async def prune_history(self, before: datetime, limit: int) -> int:
        """Delete up to ``limit`` runs, notes, and bodies of tombstones from before then; return how many."""
        ...

    async def mark_dropped(self, feed_id: int, drop: Sequence[str]) -> bool:
        """Note which members of a feed's records are never stored; return whether that is another word than before.

        Where something of them may be stored, :attr:`FeedState.cleaning` has them until :meth:`end_cleaning`.
        """
        ...

    async def clean(
        self, feed_id: int, erasure: Erasure, fingerprint: Callable[[bytes], bytes] | None, limit: int
    ) -> tuple[int, int] | None:
        """Clean up to ``limit`` stored records or events of what is never stored, where an earlier call ended.

        Args:
            feed_id: The feed.
            erasure: Takes it out.
            fingerprint: Returns the fingerprint of a record; None while nobody can tell.
            limit: At most so many are looked at.

        Returns:
            How many records and events held something; None when there are no more.
        """
        ...

    async def end_cleaning(self, feed_id: int) -> None:
        """Note that nothing is stored any more of what is never stored; who keeps copies of records reads all again."""
        ...

    async def purge(
        self, feed: Feed, key: str, detect: Callable[[Key, int, datetime], Change], compose: Compose
    ) -> Purged:
        """Erase what is stored of a record but for key, revision and timestamp; it is gone then.

        Its kept events are emptied under their ids and numbers.

        Args:
            feed: Its feed, configured or not.
            key: Its key string.
            detect: Returns what is published of it, by key, revision and our time; not asked where it was purged
                before, or nothing was ever published of it because the feed's key is not proven.
            compose: Makes the event.
        """
        ...

    async def wipe(self, *, rewrite_most: int | None = None) -> str:
        """Leave nothing in the store's files of what was erased; return why something may be left, empty if nothing is.

        Nothing else can be written meanwhile, for some seconds a GB.

        Args:
            rewrite_most: A larger file, in bytes, is not written anew, though unused parts of it may hold traces.
        """
        ...

    async def aclose(self) -> None:
        """Close it and let it go."""
        ...
