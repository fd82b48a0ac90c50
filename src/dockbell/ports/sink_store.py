"""What a relay stores of one sink, and reads for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

from dockbell.core.model import Feed
from dockbell.core.publishing.settlement import Blocked, Replay, Settlement, StartOffset
from dockbell.ports.delivery import BackfillRecord, Controls


class SinkStore(Protocol):
    """One sink in the store; every method is one transaction."""

    async def enroll(self, start: Literal["now", "beginning", "state"]) -> Sequence[Feed]:
        """Give the sink a position in each feed where it has none: at ``start`` when the sink is new, else at 0.

        A sink that was away while events were pruned that it had not settled begins again, with the stored records.

        Returns:
            The feeds in which it has lost events.
        """
        ...

    async def overrun(self, before: datetime) -> Mapping[Feed, datetime]:
        """Drop what the sink owes in each feed where the oldest owed event was recorded before then.

        The sink begins again at the end of these feeds, with the stored records; its relay must restart.

        Returns:
            When the first lost event was recorded, by feed.
        """
        ...

    async def load_queue(self) -> tuple[Mapping[Feed, int], Sequence[Blocked]]:
        """Return the positions and blocked keys."""
        ...

    async def load_starts(self) -> Mapping[Feed, StartOffset]:
        """Return where the sink began in each feed, and how far it is backfilled."""
        ...

    async def load_controls(self) -> Controls:
        """Return what an operator, in another process, or the janitor has decided about the sink."""
        ...

    async def pause(self, reason: str) -> None:
        """Pause the sink until an operator resumes it."""
        ...

    async def load_replays(self, now: datetime, limit: int) -> Sequence[Replay]:
        """Return replays that are due, in the order of the requests."""
        ...

    async def settle(self, settlement: Settlement) -> None:
        """Save what the sink has settled."""
        ...

    async def read_backfill(
        self, feed: Feed, start: StartOffset, after: int, limit: int
    ) -> tuple[Sequence[BackfillRecord], int, bool] | None:
        """Return records as they were when the sink began, by row, after a row.

        Where the sink has lost events, records that are gone since are among them.

        Returns:
            The records, the last row that was read, and whether it was the last of all; None until a pass has read
            the whole feed: records are missing in the store.
        """
        ...

    async def find_backfilled(self, feed: Feed, start: StartOffset, key: str) -> BackfillRecord | None:
        """Return one record as it was when the sink began; None where there was none."""
        ...
