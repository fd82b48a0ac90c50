"""Where snapshots, events and progress are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dockbell.core.model import (
    Event,
    Feed,
)
from dockbell.core.publishing.settlement import Place
from dockbell.ports.bell import Bell
from dockbell.ports.delivery import Extent, StoredState
from dockbell.ports.feed_calls import FeedCalls
from dockbell.ports.feed_store import FeedStore
from dockbell.ports.sink_store import SinkStore
from dockbell.ports.upkeep import CommandInbox, Health, Privacy, Retention


class Store(FeedCalls, Protocol):
    """Where snapshots, events and progress are kept.

    A handle is bound to its feed or its sink; the store itself reads events and records of any feed.
    """

    epoch: str
    """Random mark of one life of this store; part of every event's id."""
    outbox: Bell
    """Rings when events were added."""

    @property
    def purges(self) -> int:
        """How often a record was purged since it was opened: events that were read before may hold more than now."""
        ...

    @property
    def retention(self) -> Retention:
        """What the janitor needs."""
        ...

    @property
    def privacy(self) -> Privacy:
        """What erases."""
        ...

    @property
    def health(self) -> Health:
        """Whether it can be written."""
        ...

    @property
    def commands(self) -> CommandInbox:
        """What operators have asked for."""
        ...

    def feed(self, feed: Feed) -> FeedStore:
        """Return the handle of a feed."""
        ...

    def sink(self, name: str) -> SinkStore:
        """Return the handle of a sink."""
        ...

    async def read_events(
        self, feed: Feed, after: int, limit: int, *, key: str | None = None, until: int | None = None
    ) -> Sequence[Event]:
        """Return events of a feed after a sequence, in order; of one key only, and up to a sequence, where given."""
        ...

    async def last_sequences(self) -> Mapping[Feed, int]:
        """Return the number of the last event of every feed."""
        ...

    async def find_extents(self) -> Mapping[Feed, Extent]:
        """Return which events of every feed there are."""
        ...

    async def read_states(self, places: Sequence[Place]) -> Mapping[Place, bytes]:
        """Return the latest committed raw JSON of these keys; those that are gone or unknown are left out."""
        ...

    async def read_stored(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        """Return up to ``limit`` records by row, after a row, those that are gone included, and the last row.

        Keys that the feed's records had while they were identified otherwise count as gone.
        """
        ...

    async def read_changed(self, feed: Feed, after: int, limit: int) -> tuple[Sequence[StoredState], int]:
        """Return the records of up to ``limit`` events after a sequence, as they are now, and the last sequence."""
        ...

    async def aclose(self) -> None:
        """Close it and let it go."""
        ...
