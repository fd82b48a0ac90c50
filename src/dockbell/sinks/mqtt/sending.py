"""One publication on its way, what it belongs to, and the outcome that its PUBACK means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from dockbell.core.model import DELIVERED, Outcome, OutcomeKind
from dockbell.sinks.mqtt.connection import Ack
from dockbell.sinks.mqtt.publication import Publication

_FAILURES_FROM: Final = 0x80
# Not authorized, topic name invalid, packet too large, payload format invalid: so it will be whenever it is sent.
_REFUSALS: Final = frozenset({0x87, 0x90, 0x95, 0x99})
_SEVERITY: Final = (OutcomeKind.DELIVERED, OutcomeKind.FAILED, OutcomeKind.UNFIT, OutcomeKind.REFUSED)


def judge(ack: Ack) -> Outcome:
    """Return the outcome that a PUBACK means, or that it did not come."""
    if ack.code is None:
        return Outcome(OutcomeKind.FAILED, ack.reason)
    if ack.code < _FAILURES_FROM:
        return DELIVERED
    return Outcome(OutcomeKind.REFUSED if ack.code in _REFUSALS else OutcomeKind.FAILED, ack.reason)


class Owner(Protocol):
    """What a publication belongs to."""

    def note(self, outcome: Outcome) -> None:
        """Take the outcome of one publication."""


@dataclass(slots=True, eq=False)
class Parcel:
    """The publications of one delivery, which is settled when the last is acknowledged."""

    unacknowledged: int
    settle: Callable[[Outcome], None]
    outcome: Outcome = DELIVERED

    def note(self, outcome: Outcome) -> None:
        """Keep the worst outcome, and settle with it when it was the last."""
        self.outcome = max(self.outcome, outcome, key=lambda each: _SEVERITY.index(each.kind))
        self.unacknowledged -= 1
        if not self.unacknowledged:
            self.settle(self.outcome)


@dataclass(slots=True, eq=False)
class StatusMessage:
    """A publication about ourselves."""

    note: Callable[[Outcome], None]


@dataclass(slots=True, eq=False)
class Sending:
    """One publication on its way.

    Attributes:
        publication: What is sent.
        owner: What it belongs to.
        is_suspect: It was in flight when the broker dropped a connection.
        guilt: How much the drops of connections speak against it; see :mod:`~dockbell.sinks.mqtt.flow`.
        silences: On how many connections it was not acknowledged in time.
        number: Its number among those that were sent on one connection.
    """

    publication: Publication
    owner: Owner
    is_suspect: bool = False
    guilt: int = 0
    silences: int = 0
    number: int = 0
