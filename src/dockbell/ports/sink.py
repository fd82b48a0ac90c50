"""Where events go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol, TypeAlias

from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.core.model import Delivery, Feed, Outcome
from dockbell.core.publishing.settlement import RecordId
from dockbell.ports.delivery import StoredState

Deliveries: TypeAlias = MemoryObjectReceiveStream[Delivery]
Settle: TypeAlias = Callable[[Delivery, Outcome], None]


class RetainedState(Protocol):
    """The stored records, for a sink that keeps a copy of each of them with its receiver."""

    @property
    def epoch(self) -> str:
        """The life of the store: marks of another life mean nothing."""

    async def feeds(self) -> Sequence[Feed]:
        """Return the feeds that the sink takes now."""

    async def count_stored(self, feed: Feed) -> int | None:
        """Return how many records of a feed there are for the sink; None while it is being read whole."""

    async def find_stored(self, record_ids: Sequence[RecordId]) -> AbstractSet[RecordId]:
        """Return those among some keys that have a record, in feeds that the sink takes."""

    async def mark(self, since: str) -> tuple[str, bool]:
        """Return how far the sink has settled, as is saved: a line to be left with the receiver.

        Args:
            since: The mark at which the receiver was left last; empty where it was left at none.

        Returns:
            The mark, and whether the receiver must be given what :meth:`read_since` yields before it is left at it:
            records have been stored since without events that would tell of them.
        """

    def read_since(self, mark: str) -> AsyncIterator[Sequence[StoredState]]:
        """Yield in portions the records that changed since a mark, each as it is stored when it is yielded.

        Yield every record of a feed, those that are gone included, if the mark does not cover the feed, cannot be read,
        is from another epoch, or is older than the kept events or a change of how the feed is read. A feed that is
        being read whole for the first time comes later. A record may come more than once.
        """


class StateKeeper(Protocol):
    """What a sink is besides, whose ``keeps_state`` is true."""

    def attach(self, retained_state: RetainedState) -> None:
        """Take the stored records, before :meth:`Sink.run`."""


class Sink(Protocol):
    """Where events go; one instance serves one ``[sinks.NAME]``."""

    name: str
    window: int
    """The most deliveries that may be in flight; each has another key."""
    keeps_state: bool
    """Whether deliveries must carry the latest committed record; such a sink is a :class:`StateKeeper` too."""

    async def run(self, deliveries: Deliveries, settle: Settle) -> None:
        """Attempt each delivery once and settle it exactly once, in any order, until the stream ends.

        A sink with a connection goes on trying to connect while its receiver is away, and keeps what it has taken. A
        failure of a delivery is an outcome, never an exception. At the end of the stream it settles what it has taken,
        says goodbye where the protocol has a word for it, and returns.
        """

    async def probe(self) -> str:
        """Connect without delivering; say in a few words what was found.

        Raises:
            SinkUnavailable: The receiver does not answer, or not in the protocol.
            SinkRejected: The other side refuses us: credentials, certificate, client id.
        """
