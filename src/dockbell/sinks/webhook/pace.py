"""How often a receiver is asked."""

from __future__ import annotations

from math import inf

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from dockbell.core.model import Delivery


class Pace:
    """Hands deliveries to lanes, evenly spaced; a lane that waits has taken nothing and holds nothing up.

    Args:
        per_minute: How many at most in any minute; None: as many as come.
    """

    def __init__(self, per_minute: int | None) -> None:
        self._interval = 60 / per_minute if per_minute else 0.0
        self._next_at = -inf
        self._turn = anyio.Lock()

    async def take(self, deliveries: MemoryObjectReceiveStream[Delivery]) -> Delivery:
        """Return the next delivery as soon as it may be attempted.

        Raises:
            anyio.EndOfStream: There is none any more.
        """
        if not self._interval:
            return await deliveries.receive()
        async with self._turn:
            await anyio.sleep_until(self._next_at)
            delivery = await deliveries.receive()
            # From the moment it was taken: a pause before it must not be made up for by a burst.
            self._next_at = anyio.current_time() + self._interval
            return delivery
