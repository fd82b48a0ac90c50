"""States that wait to be published again, after all live deliveries."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.core.publishing.settlement import Place
from dockbell.sinks.mqtt.publication import Publication

_BLAME_MOST: Final = 2


class Repairs:
    """States to publish again; a delivery of the same record meanwhile replaces its repair.

    Attributes:
        in_flight: How many are in flight.
        refused: How many the broker has refused.
        has_failed: One has failed, and may succeed on another connection or after a restart.
        must_be_alone: One of them may be why a connection was dropped: each is sent with nothing else in flight.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self.refused = 0
        self.has_failed = False
        self.must_be_alone = False
        self._waiting: dict[Place, Publication] = {}
        self._overtaken: set[Place] | None = None
        self._blame: Counter[str] = Counter()
        self._done = asyncio.Event()

    def watch(self) -> None:
        """Remember the records that are delivered from now on, until the states are read for :meth:`offer`."""
        self._overtaken = set()

    def overtake(self, place: Place) -> None:
        """Note that a delivery with the state of this record was queued."""
        if not self._waiting and self._overtaken is None:
            return  # mostly there is nothing to repair, and hashing the place would cost more
        if self._overtaken is not None:
            self._overtaken.add(place)
        if self._waiting.pop(place, None) is not None:
            self._look_whether_done()

    async def offer(self, states: Mapping[Place, Publication], wake: Callable[[], None]) -> int:
        """Publish states that were read since :meth:`watch`, and wait until all are settled; return their number.

        No older state overwrites a newer one. A delivery that was queued before these were read has a state as old or
        older, and goes out before them, as all deliveries do. A delivery that is queued while they are read, or while
        they wait, may have a newer one, and replaces the repair. Publications on one connection stay in order, and no
        repair outlives its connection.
        """
        overtaken, self._overtaken = self._overtaken or set(), None
        self._waiting = {
            place: publication
            for place, publication in states.items()
            if place not in overtaken and self._blame[publication.topic] < _BLAME_MOST
        }
        offered = len(self._waiting)
        if offered:
            self._done.clear()
            wake()
            await self._done.wait()
        return offered

    def take(self) -> Publication | None:
        """Return the next state to publish, which counts as in flight; None where none waits."""
        place = next(iter(self._waiting), None)
        if place is None:
            return None
        self.in_flight += 1
        return self._waiting.pop(place)

    def note(self, outcome: Outcome) -> None:
        """Note the outcome of one that was in flight."""
        self.in_flight -= 1
        self.has_failed |= outcome.kind is OutcomeKind.FAILED
        self.refused += outcome.kind is OutcomeKind.REFUSED
        self._look_whether_done()

    def interrupt(self, *, suspected: bool = False, culprit: str = "") -> None:
        """Forget all: the connection is lost, and the next begins anew.

        Args:
            suspected: One of those in flight may be the reason.
            culprit: The topic of the one that was in flight alone when the broker closed the connection.
        """
        if culprit:
            self._blame[culprit] += 1
        self.must_be_alone |= suspected
        self.in_flight = 0
        self._waiting.clear()
        self._overtaken = None

    def leave_out(self, topic: str) -> None:
        """Note that the broker does not acknowledge a state: it is not published again."""
        self._blame[topic] = _BLAME_MOST

    def reset(self) -> None:
        """Begin to count the outcomes anew."""
        self.refused = sum(count >= _BLAME_MOST for count in self._blame.values())
        self.has_failed = self.refused > 0

    def _look_whether_done(self) -> None:
        if not self._waiting and not self.in_flight:
            self._done.set()
