"""One publication on its way, what it belongs to, and what a broker does not take.

It belongs to a delivery, to a message about ourselves, or to the repairs of states.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import anyio

from dockbell.core.model import DELIVERED, Outcome, OutcomeKind
from dockbell.core.publishing.settlement import RecordId
from dockbell.sinks.mqtt.acknowledgements import Ack
from dockbell.sinks.mqtt.packets import FAILURES_FROM, Publication
from dockbell.telemetry import SinkOmits, Telemetry

# Not authorized, topic name invalid, packet too large, payload format invalid: so it will be whenever it is sent.
_REFUSALS: Final = frozenset({0x87, 0x90, 0x95, 0x99})
_SEVERITY: Final = (OutcomeKind.DELIVERED, OutcomeKind.FAILED, OutcomeKind.UNFIT, OutcomeKind.REFUSED)
_BLAME_MOST: Final = 2
_EACH: Final = 16
"""So many topics are reported one by one; after that, one each time their number has doubled."""
_MOST: Final = 1 << 14
"""The most topics that are remembered; further ones are not reported."""
_SHOWN: Final = 200

_FORBIDDEN: Final = "the broker closes the connection when it gets this message"
_IGNORED: Final = "the broker never acknowledges it"
CULPRIT: Final = Outcome(OutcomeKind.REFUSED, f"{_FORBIDDEN}, with nothing else in flight")

_DROPS_MOST: Final = 2
_TRY_AGAIN: Final = timedelta(hours=1)
"""How long a message is left out: the broker's rules may change."""

_clock: Final = anyio.current_time


def judge(ack: Ack) -> Outcome:
    """Return the outcome that a PUBACK means, or that it did not come."""
    if ack.code is None:
        return Outcome(OutcomeKind.FAILED, ack.reason)
    if ack.code < FAILURES_FROM:
        return DELIVERED
    return Outcome(OutcomeKind.REFUSED if ack.code in _REFUSALS else OutcomeKind.FAILED, ack.reason)


class Owner(Protocol):
    def note(self, outcome: Outcome) -> None: ...


@dataclass(slots=True, eq=False)
class Parcel:
    """The publications of one delivery, which is settled when the last is acknowledged."""

    unacknowledged: int
    settle: Callable[[Outcome], None]
    outcome: Outcome = DELIVERED

    def note(self, outcome: Outcome) -> None:
        self.outcome = max(self.outcome, outcome, key=lambda each: _SEVERITY.index(each.kind))
        self.unacknowledged -= 1
        if not self.unacknowledged:
            self.settle(self.outcome)


@dataclass(slots=True, eq=False)
class StatusMessage:
    note: Callable[[Outcome], None]


@dataclass(slots=True, eq=False)
class Sending:
    publication: Publication
    owner: Owner
    is_suspect: bool = False  # it was in flight when the broker dropped a connection
    guilt: int = 0  # how much the drops of connections speak against it; see flow
    silences: int = 0  # on how many connections it was not acknowledged in time
    number: int = 0  # among those that were sent on one connection


class Repairs:
    """States to publish again, after all live deliveries; a delivery of the same record replaces its repair."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.refused = 0
        self.has_failed = False  # one has failed, and may succeed on another connection or after a restart
        self.must_be_alone = False  # one may be why a connection was dropped: each is sent with nothing else in flight
        self._waiting: dict[RecordId, Publication] = {}
        self._overtaken: set[RecordId] | None = None
        self._blame: Counter[str] = Counter()
        self._done = asyncio.Event()

    def watch(self) -> None:
        """Remember the records that are delivered from now on, until the states are read for :meth:`offer`."""
        self._overtaken = set()

    def overtake(self, place: RecordId) -> None:
        if not self._waiting and self._overtaken is None:
            return  # mostly there is nothing to repair, and hashing the place would cost more
        if self._overtaken is not None:
            self._overtaken.add(place)
        if self._waiting.pop(place, None) is not None:
            self._look_whether_done()

    async def offer(self, states: Mapping[RecordId, Publication], wake: Callable[[], None]) -> int:
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
        if offered := len(self._waiting):
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
        self.in_flight -= 1
        self.has_failed |= outcome.kind is OutcomeKind.FAILED
        self.refused += outcome.kind is OutcomeKind.REFUSED
        self._look_whether_done()

    def interrupt(self, *, suspected: bool = False, culprit: str = "") -> None:
        """Forget all: the connection is lost, and the next begins anew.

        ``suspected``: one of those in flight may be the reason. ``culprit``: the topic of the one in flight alone.
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
        self.refused = sum(count >= _BLAME_MOST for count in self._blame.values())
        self.has_failed = self.refused > 0

    def _look_whether_done(self) -> None:
        if not self._waiting and not self.in_flight:
            self._done.set()


class Omissions:
    """Reports each topic that is left out, once; ``keys`` has the key of the settings for each of our own topics."""

    def __init__(self, name: str, telemetry: Telemetry, keys: Mapping[str, str]) -> None:
        self._name = name
        self._telemetry = telemetry
        self._keys = keys
        self._states: set[str] = set()

    def report_status(self, topic: str, reason: str) -> None:
        self._report(topic, f'{reason}; allow it at the broker, or set {self._keys[topic]} = ""')

    def report_state(self, topic: str, reason: str) -> None:
        """Report, the first time, that the state of a record is not retained."""
        if topic in self._states or len(self._states) >= _MOST:
            return
        self._states.add(topic)
        count = len(self._states)
        if count <= _EACH:
            self._report(topic, reason)
        elif count.bit_count() == 1:
            self._report(topic, f"{reason}, like {count - 1} others")

    def _report(self, topic: str, reason: str) -> None:
        self._telemetry.emit(SinkOmits(self._name, topic[:_SHOWN], reason))


class StatusMessages:
    """Which messages about ourselves have cost connections: by topic, and whether they are retained.

    ``omit`` is called with the topic of a message that is left out from now on, and the reason.
    """

    def __init__(self, omit: Callable[[str, str], None]) -> None:
        self._omit = omit
        self._suspects: set[tuple[str, bool]] = set()
        self._drops: Counter[tuple[str, bool]] = Counter()
        self._left_out: dict[tuple[str, bool], tuple[float, str]] = {}

    def is_suspect(self, message: Publication) -> bool:
        """Return whether a message must go out with nothing else in flight, to see whether it is to blame."""
        return _kind(message) in self._suspects

    def find_obstacle(self, message: Publication) -> str:
        """Return why a message must not be sent; empty where it may be."""
        until, reason = self._left_out.get(_kind(message), (float("-inf"), ""))
        return reason if _clock() < until else ""

    def note_drop(self, message: Publication, *, is_culprit: bool) -> None:
        """Note that the broker closed the connection while a message was in flight; as the culprit it was alone."""
        kind = _kind(message)
        self._suspects.add(kind)
        self._drops[kind] += is_culprit
        if is_culprit and self._drops[kind] >= _DROPS_MOST:
            self._leave_out(message, _FORBIDDEN)

    def note_silence(self, message: Publication) -> None:
        """Note that the broker has acknowledged later publications, but not this message."""
        self._leave_out(message, _IGNORED)

    def _leave_out(self, message: Publication, reason: str) -> None:
        self._left_out[_kind(message)] = _clock() + _TRY_AGAIN.total_seconds(), reason
        self._omit(message.topic, reason)

    def acquit(self, message: Publication) -> None:
        """Note that the broker has answered a message."""
        self._suspects.discard(_kind(message))
        self._drops.pop(_kind(message), None)


def _kind(message: Publication) -> tuple[str, bool]:
    return message.topic, message.retain
