"""Where snapshots, events and progress are kept: the store, and its handles beside those of a feed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, Protocol

from dockbell.core.delays import MeasuredDelays
from dockbell.core.model import Change, Event, Feed, Key
from dockbell.core.publishing.settlement import Blocked, RecordId, Replay, Settlement, StartOffset
from dockbell.errors import StoreUnavailable
from dockbell.ports.bell import Bell, OutboxBell
from dockbell.ports.command_store import Command, CommandOutcome
from dockbell.ports.delivery import BackfillRecord, Controls, Extent, Footprint, Found, StoredState
from dockbell.ports.feed_store import Compose, FeedStore
from dockbell.ports.fleet import Fleet
from dockbell.ports.runs import Purged

REWRITE_MOST: Final = 1 << 30
"""A larger store, in bytes, is not written anew while the daemon works on it: that could stop it for minutes."""


class SinkStore(Protocol):
    """One sink in the store; every method is one transaction.

    Attributes:
        starts: How often :meth:`enroll` and :meth:`overrun` have changed where the sink begins.
    """

    starts: int

    async def enroll(self, start: Literal["now", "beginning", "state"]) -> Sequence[Feed]:
        """Give the sink a position in each feed where it has none: at ``start`` when the sink is new, else at 0.

        A sink that was away while events were pruned that it had not settled begins again, with the stored records.

        Returns:
            The feeds in which it has lost events.
        """

    async def overrun(self, before: datetime) -> Mapping[Feed, datetime]:
        """Drop what the sink owes in each feed where the oldest owed event was recorded before then.

        The sink begins again at the end of these feeds, with the stored records; its relay must restart.

        Returns:
            When the first lost event was recorded, by feed.
        """

    async def load_queue(self) -> tuple[Mapping[Feed, int], Sequence[Blocked]]:
        """Return the positions and blocked keys."""

    async def load_starts(self) -> Mapping[Feed, StartOffset]:
        """Return where the sink began in each feed, and how far it is backfilled."""

    async def load_controls(self) -> Controls:
        """Return what an operator, in another process, or the janitor has decided about the sink."""

    async def pause(self, reason: str) -> None:
        """Pause the sink until an operator resumes it."""

    async def load_replays(self, now: datetime, limit: int) -> Sequence[Replay]:
        """Return replays that are due, in the order of the requests."""

    async def settle(self, settlement: Settlement) -> None:
        """Save what the sink has settled."""

    async def trim_attempts(self, keep: int) -> None:
        """Delete all attempts but the last, those of other sinks too."""

    async def read_backfill(
        self, feed: Feed, start: StartOffset, after: int, limit: int
    ) -> tuple[Sequence[BackfillRecord], int, bool] | None:
        """Return records as they were when the sink began, by row, after a row.

        Where the sink has lost events, records that are gone since are among them.

        Returns:
            The records, the last row that was read, and whether it was the last of all; None until a pass has read
            the whole feed: records are missing in the store.
        """

    async def find_backfilled(self, feed: Feed, start: StartOffset, key: str) -> BackfillRecord | None:
        """Return one record as it was when the sink began; None where there was none."""


class Retention(Protocol):
    """Keeps the store bounded; every method is one transaction."""

    async def find_owing(self, sinks: Sequence[str], before: datetime) -> Sequence[str]:
        """Return the sinks that owe events recorded before then, the one with the oldest first."""

    async def find_left(self, sinks: Collection[str]) -> Mapping[str, int]:
        """Return how many events are undelivered for each sink with a position that is not among these."""

    async def measure(self) -> Footprint:
        """Return how much of its disk the store uses."""

    async def prune_events(self, before: datetime, sinks: Sequence[str], limit: int | None = None) -> int:
        """Delete events recorded before then that every sink has settled, in portions; return how many.

        Dead letters and replays keep their event.
        """

    async def prune_history(self, before: datetime, limit: int) -> int:
        """Delete up to ``limit`` runs, notes, attempts, and bodies of tombstones from before then; return how many."""

    async def thin_runs(self, before: datetime, limit: int) -> int:
        """Delete up to ``limit`` complete runs from before then that found nothing; return how many.

        Of each feed and kind the last complete run of each minute stays.
        """

    async def prune_delays(self, before: datetime, limit: int) -> int:
        """Delete up to ``limit`` measurements of delays from before then; return how many."""

    async def forget_letters(self, before: datetime) -> Mapping[str, int]:
        """Delete dead letters that died before then and release the keys behind them; count by sink."""


class Privacy(Protocol):
    """Erases the content of records."""

    async def purge(
        self, feed: Feed, key: str, detect: Callable[[Key, int, datetime], Change], compose: Compose
    ) -> Purged:
        """Erase what is stored of a record but for key, revision and timestamp; it is gone then.

        Its kept events are emptied under their ids and numbers.

        Args:
            feed: Its feed, configured or not.
            key: Its key string.
            detect: Returns what is published of it, by key, revision and our time; not called where it was purged
                before, or where nothing was published of it because the feed's key is not proven.
            compose: Makes the event.
        """

    async def wipe(self, *, rewrite_most: int | None = None) -> str:
        """Remove erased content from the store's files; return why traces may be left, empty where none are.

        The store takes no other writes meanwhile, for some seconds per GB.

        Args:
            rewrite_most: A larger file, in bytes, is not written anew, though unused parts of it may hold traces.
        """


class Health(Protocol):
    """Whether the store can be written; how the sinks' receivers are, and how long changes take to reach them."""

    @property
    def trouble(self) -> StoreUnavailable | None:
        """Why it cannot be written; None while it can."""

    @property
    def stalled(self) -> Bell:
        """Rings when it cannot be written any more."""

    async def recovered(self) -> None:
        """Return once the store can be written: at once, or when a trial write succeeds."""

    async def check(self) -> None:
        """Wait for the writer thread; return at once during a :meth:`Privacy.wipe`."""

    async def note_conditions(self, found: Mapping[str, Found]) -> None:
        """Note how relays found their receivers, by the names of their sinks."""

    async def note_delays(self, measured: Sequence[MeasuredDelays]) -> None:
        """Add measured delays to those that are stored of their quarters."""


class CommandInbox(Protocol):
    """The commands that operators have left for the daemon."""

    async def take(self) -> Sequence[Command]:
        """Return the commands that wait; cheap to call often: nothing is read until another process has written."""

    async def finish(self, command: Command, outcome: CommandOutcome) -> None:
        """Store the outcome of a command."""


class Store(Protocol):
    """Where snapshots, events and progress are kept.

    A handle is bound to its feed or its sink; the store itself reads events and records of any feed.
    """

    epoch: str
    """Random mark of one life of this store; part of every event's id."""
    outbox: OutboxBell
    """Tells which feeds have new events."""

    @property
    def fleet(self) -> Fleet | None:
        """The processes that share the store; None where this one works on it alone."""

    @property
    def abandoned_by(self) -> str:
        """The process that worked on it last, ``process 4711``, where that ended without closing it; else empty."""

    @property
    def purges(self) -> int:
        """How often a record was purged since it was opened: events that were read before may hold more than now."""

    @property
    def retention(self) -> Retention:
        """What the janitor needs."""

    @property
    def privacy(self) -> Privacy:
        """What erases."""

    @property
    def health(self) -> Health:
        """Whether it can be written."""

    @property
    def commands(self) -> CommandInbox:
        """What operators have asked for."""

    async def add_feeds(self, added: Sequence[Feed]) -> None:
        """Make the feeds among these that are new, all of them or none; :meth:`FeedStore.open` takes them."""

    def feed(self, feed: Feed) -> FeedStore:
        """Return the handle of a feed, the same each time."""

    def sink(self, name: str) -> SinkStore:
        """Return the handle of a sink."""

    async def read_events(
        self, feed: Feed, after: int, limit: int, *, key: str | None = None, until: int | None = None
    ) -> Sequence[Event]:
        """Return events of a feed after a sequence, in order; of one key only, and up to a sequence, where given."""

    async def find_extents(self) -> Mapping[Feed, Extent]:
        """Return which events of every feed there are."""

    async def read_states(self, places: Sequence[RecordId]) -> Mapping[RecordId, bytes]:
        """Return the latest committed raw JSON of these keys; those that are gone or unknown are left out."""

    async def read_stored(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        """Return up to ``limit`` records by row, after a row, those that are gone included, and the last row.

        Keys that the feed's records had while they were identified otherwise count as gone.
        """

    async def read_changed(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        """Return the records of up to ``limit`` events after a sequence, as they are now, and the last sequence."""

    async def aclose(self) -> None:
        """Close it and let it go."""
