"""What the daemon does with its store beside detection and delivery."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from dockbell.core.model import (
    Change,
    Feed,
    Key,
)
from dockbell.errors import StoreUnavailable
from dockbell.ports.bell import Bell
from dockbell.ports.command_store import Command, CommandOutcome
from dockbell.ports.delivery import Footprint, Found
from dockbell.ports.feed_store import Compose
from dockbell.ports.runs import Purged

REWRITE_MOST: Final = 1 << 30
"""A larger store, in bytes, is not written anew while the daemon works on it: that could stop it for minutes."""


class Retention(Protocol):
    """Keeps the store bounded; every method is one transaction."""

    async def find_owing(self, sinks: Sequence[str], before: datetime) -> Sequence[str]:
        """Return the sinks that owe events recorded before then, the one with the oldest first."""
        ...

    async def find_left(self, sinks: Collection[str]) -> Mapping[str, int]:
        """Return how many events are undelivered for each sink with a position that is not among these."""
        ...

    async def measure(self) -> Footprint:
        """Return how much of its disk the store uses."""
        ...

    async def prune_events(self, before: datetime, sinks: Sequence[str], limit: int | None = None) -> int:
        """Delete events recorded before then that every sink has settled, in portions; return how many.

        Dead letters and replays keep their event.
        """
        ...

    async def prune_history(self, before: datetime, limit: int) -> int:
        """Delete up to ``limit`` runs, notes, and bodies of tombstones from before then; return how many."""
        ...

    async def forget_letters(self, before: datetime) -> Mapping[str, int]:
        """Delete dead letters that died before then and release the keys behind them; count by sink."""
        ...


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
        ...

    async def wipe(self, *, rewrite_most: int | None = None) -> str:
        """Remove erased content from the store's files; return why traces may be left, empty where none are.

        The store takes no other writes meanwhile, for some seconds per GB.

        Args:
            rewrite_most: A larger file, in bytes, is not written anew, though unused parts of it may hold traces.
        """
        ...


class Health(Protocol):
    """Whether the store can be written; how the sinks' receivers are."""

    @property
    def trouble(self) -> StoreUnavailable | None:
        """Why it cannot be written; None while it can."""
        ...

    @property
    def stalled(self) -> Bell:
        """Rings when it cannot be written any more."""
        ...

    async def recovered(self) -> None:
        """Return once the store can be written: at once, or when a trial write succeeds."""
        ...

    async def check(self) -> None:
        """Wait for the writer thread; return at once during a :meth:`Privacy.wipe`."""
        ...

    async def note_conditions(self, found: Mapping[str, Found]) -> None:
        """Note how relays found their receivers, by the names of their sinks."""
        ...


class CommandInbox(Protocol):
    """The commands that operators have left for the daemon."""

    async def take(self) -> Sequence[Command]:
        """Return the commands that wait; cheap to call often: nothing is read until another process has written."""
        ...

    async def finish(self, command: Command, outcome: CommandOutcome) -> None:
        """Store the outcome of a command."""
        ...
