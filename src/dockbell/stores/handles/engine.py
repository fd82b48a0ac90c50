"""What the handles of a store need of its database: each provides an engine, and sessions that look beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import ClassVar, Concatenate, ParamSpec, TypeAlias, TypeVar

from dockbell.core.model import NOTICES, Feed
from dockbell.errors import StoreUnavailable
from dockbell.ports import Fleet, Footprint, OutboxBell
from dockbell.stores.handles.joined_writes import JoinedWrites
from dockbell.stores.handles.outage import Outage
from dockbell.stores.sql import feeds, outbox
from dockbell.stores.sql.connection import Connection
from dockbell.stores.sql.lease import Lease, find_lease
from dockbell.stores.sql.snapshots import StoredPage
from dockbell.telemetry import Telemetry

Clock: TypeAlias = Callable[[], datetime]
_T = TypeVar("_T")
_P = ParamSpec("_P")


class Engine(ABC):
    """What the handles of a store share.

    Attributes:
        epoch: Random mark of one life of the store.
        outbox: Tells which feeds have new events.
        outage: Whether the store can be written now.
        now: The clock of the program.
        leases: The feeds that this process holds.
        purges: How often a record was purged.
        wipes: How many wipes are under way, or next.
        scope: A condition on ``feeds``, ``AND …``, that those meet whose events this process delivers; empty: all do.
        commanded: The same, of those whose commands it executes; commands without a feed meet it, or do not.
        fleet: The processes that share the store; None where this one works on it alone.
        joined: Writes that may share a transaction.
        abandoned_by: The process that worked on it last, where that ended without closing it; else empty.
        is_lazy: Whether the answers to the statements of a transaction come together, at its end.
        held: The same, of those whose deliveries it may still settle: it hands some of them over.
    """

    is_lazy: ClassVar[bool]

    def __init__(self, epoch: str, outbox_bell: OutboxBell, *, now: Clock, telemetry: Telemetry) -> None:
        self.epoch = epoch
        self.outbox = outbox_bell
        self.outage = Outage(self._try_to_write, telemetry)
        self.now = now
        self.leases: dict[Feed, Lease] = {}
        self.purges = 0
        self.wipes = 0
        self.scope = self.held = self.commanded = ""
        self.fleet: Fleet | None = None
        self.abandoned_by = ""
        ask = partial(feeds.ask_for_states, is_lazy=self.is_lazy)
        # The statements of a page go to PostgreSQL in one batch: no transaction rests there while pages are compared.
        self.joined = JoinedWrites(self.write, ask, self.save_end, joins_pages=not self.is_lazy)

    @abstractmethod
    async def write(
        self, function: Callable[Concatenate[Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call a function with the connection that writes.

        Raises:
            StoreUnavailable: It cannot be written now; an outage has begun.
        """

    @abstractmethod
    async def read(
        self, function: Callable[Concatenate[Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call a function with the connection that does not write."""

    @abstractmethod
    def look(self, connection: Connection, feed_id: int) -> StoredPage:
        """Return how the commit of a page looks at what is stored of a feed."""

    @abstractmethod
    async def measure(self) -> Footprint:
        """Return how much of its disk the store uses."""

    @abstractmethod
    async def drop_events(self, before: datetime, sinks: Sequence[str]) -> tuple[int, datetime | None]:
        """Delete events recorded before then that none of the sinks owes, where many go at once.

        Returns:
            How many went, and before when those are recorded that may be deleted one by one; None where there are none.
        """

    @abstractmethod
    async def wipe(self, rewrite_most: int | None) -> str:
        """Leave nothing of what was deleted; return why something may be left, empty when nothing is."""

    @abstractmethod
    def find_version(self, reader: Connection) -> int | None:
        """Return what moves whenever another process has written; None where nothing tells."""

    @abstractmethod
    def is_refusal(self, error: Exception) -> bool:
        """Return whether the database could not be written, though perhaps it can be read."""

    @abstractmethod
    def save_end(self, writer: Connection) -> None:
        """Note beside the store how far it is, with the connection that has written."""

    @abstractmethod
    async def note_end(self) -> None:
        """Note beside the store how far it is, where the database has a place for that."""

    @abstractmethod
    async def check_writing(self) -> None:
        """Commit something that changes nothing.

        Raises:
            StoreUnavailable: It cannot be written, or has no room to spare.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close it and let it go."""

    async def announce(self, feed: Feed, end: int) -> None:
        """Wake those who wait for events of a feed where it has new ones, and write beside the store how far it is."""
        if self.ring(feed, end):
            with suppress(StoreUnavailable):  # what was committed is committed; the next commit writes it again
                await self.note_end()

    def ring(self, feed: Feed, end: int) -> bool:
        """Wake those who wait for events of a feed; return whether it has new ones."""
        is_new = end > self.outbox.ends.get(feed, 0)
        if is_new:
            self.outbox.announce(feed, end)
        return is_new

    async def take(self, feed: Feed) -> Lease:
        """Return the lease of a feed, which this process takes once; a feed that is new is made."""
        lease = self.leases.get(feed)
        return lease if lease is not None and lease.is_taken else await self.write(self._take, feed)

    def _take(self, writer: Connection, feed: Feed) -> Lease:
        lease = self.leases.get(feed)
        if lease is None or not lease.is_taken:  # decided in the writer's turn: a second taking would end the first
            try:
                is_shared = self.fleet is not None and feed == NOTICES  # every process publishes its own
                lease = (feeds.join_feed if is_shared else feeds.open_feed)(writer, feed)
            except Exception as error:
                # The disk is full, say: the daemon starts, and takes it at its next look.
                lease = find_lease(writer, feed) if self.is_refusal(error) else None
                if lease is None:
                    raise
            self.leases[feed] = lease
        return lease

    async def _try_to_write(self) -> None:
        await self.check_writing()
        for feed, end in (await self.read(outbox.last_sequences)).items():
            self.outbox.announce(feed, end)  # a commit may have succeeded that seemed to fail


def call_and_find_end(
    writer: Connection,
    feed: Feed,
    function: Callable[Concatenate[Connection, _P], _T],
    /,
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> tuple[_T, int]:
    return function(writer, *args, **kwargs), outbox.find_end(writer, feed)
