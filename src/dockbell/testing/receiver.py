"""What a receiver must be able to do so that a sink can be tried against it, and what it remembers."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import Any, Final

import msgspec

_REMEDY: Final = "implement it, or say in SinkConformance.lacks why the receiver cannot"


class Ability(StrEnum):
    """What not every kind of receiver can do; each is the method of :class:`Receiver` that has its name."""

    REFUSE = "refuse"
    FAIL = "fail"
    HANG = "hang"
    DROP = "drop"
    REJECT = "reject"


class Arrival(msgspec.Struct, frozen=True):
    """One event as a receiver took it."""

    id: str
    feed: str  # its feed, as ``main/shipments``
    key: str  # the record's key string; empty for a statement about a feed
    sequence: int  # its number in the feed
    revision: int  # the record's change count; 0 for a statement
    event: Any = None  # all of the CloudEvent, where the receiver gets it whole; compared with the outbox then
    at: float = msgspec.field(default_factory=monotonic)  # when it came, by the monotonic clock, in seconds

    @classmethod
    def read(cls, body: bytes | str) -> Arrival:
        """Return the arrival of a structured CloudEvent, the form in which sinks are given events."""
        event = json.loads(body)
        feed = event["source"].split("/", 3)[3]
        revision = event["data"].get("revision", 0)
        return cls(event["id"], feed, event.get("subject", ""), int(event["sequence"]), revision, event)


@dataclass(slots=True, eq=False)
class Flight:
    """A delivery that the receiver has and has not answered yet; it ends by one of the two methods."""

    place: tuple[str, str]
    overlapped: bool = False
    _arrivals: Arrivals | None = None

    def answer(self) -> None:
        """Note that the receiver answers, whatever it says. Call it before the answer is written."""
        self._end(answered=True)

    def lose(self) -> None:
        """Note that the sender has hung up: what it sends next is another attempt."""
        self._end(answered=False)

    def _end(self, *, answered: bool) -> None:
        if self._arrivals is not None:
            self._arrivals.end(self, answered=answered)
            self._arrivals = None


class Arrivals:
    """What a receiver took; kept while it is stopped and started. Other threads may add to it."""

    def __init__(self) -> None:
        self.took: list[Arrival] = []  # in order, repeats included
        # The feeds and keys of which two deliveries were in flight: one came while another was unanswered, and that one
        # was answered all the same.
        self.overlaps: list[tuple[str, str]] = []
        self._flights: dict[tuple[str, str], list[Flight]] = {}

    def take(self, arrival: Arrival) -> None:
        """Note what the receiver takes: as soon as it will not ask for it again, so before it says so."""
        self.took.append(arrival)

    def begin(self, feed: str, key: str) -> Flight:
        """Note that a delivery has come.

        Only for receivers that can have several at once: one that reads the next when it has answered the last cannot
        see any overlap.
        """
        flights = self._flights.setdefault((feed, key), [])
        for other in flights:
            other.overlapped = True
        flights.append(flight := Flight((feed, key), _arrivals=self))
        return flight

    def end(self, flight: Flight, *, answered: bool) -> None:
        """Note the end of a flight; called by its own methods."""
        self._flights[flight.place].remove(flight)
        if flight.overlapped and answered:
            self.overlaps.append(flight.place)


class Receiver(ABC):
    """A real receiver of a sink's kind, on this machine, that can be told to misbehave.

    Everything that it takes it notes in ``arrivals``. What it cannot do it leaves out, and the subclass of the suite
    says why (:attr:`SinkConformance.lacks`).
    """

    def __init__(self) -> None:
        self.arrivals = Arrivals()

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """The table ``[sinks.NAME]`` for this receiver, with ``type``; the same after a restart.

        All times that the sink waits for something should be a second or less, so that the suite is quick.
        """

    @abstractmethod
    async def start(self) -> None:
        """Be there, in the same place as before; return when the next connection will be accepted."""

    @abstractmethod
    async def stop(self) -> None:
        """Be gone, connections and all: nothing is taken from now on. Harmless when it is gone already."""

    async def refuse(self, key: str) -> None:
        """Refuse every delivery of a key from now on, as an event that will never be taken."""
        raise NotImplementedError(_REMEDY)

    async def fail(self, key: str) -> None:
        """Fail every delivery of a key from now on, as an attempt that may succeed another time."""
        raise NotImplementedError(_REMEDY)

    async def accept(self, key: str) -> None:
        """Take the deliveries of a key again, after :meth:`refuse` or :meth:`fail`."""
        raise NotImplementedError(_REMEDY)

    async def hang(self) -> None:
        """Answer nothing any more, neither what is connected nor what will be, but keep connections open."""
        raise NotImplementedError(_REMEDY)

    async def resume(self) -> None:
        """Go on after :meth:`hang`."""
        raise NotImplementedError(_REMEDY)

    async def drop(self) -> None:
        """Break all connections, as they are, and accept new ones. Harmless when there are none."""
        raise NotImplementedError(_REMEDY)

    async def reject(self) -> None:
        """Refuse the sink itself from now on, its credentials or its certificate: an operator must act."""
        raise NotImplementedError(_REMEDY)
