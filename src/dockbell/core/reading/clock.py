"""The service's time, which one wrong answer must not set.

The watermark never goes back, so a ``Date`` of 2099 that was believed once would blind a feed for ever. What an answer
tells is checked against the offset between the service's clock and our monotonic one, which no step of our wall clock
moves. The rules are lopsided, because a time that is too low only costs requests, and one too high loses changes:

- A time that fits what is known is taken as told. One that is behind is taken too, and becomes what is known, unless it
  is absurd, a day or more from our own clock; then only after a minute in which nothing contradicts it.
- A time that is ahead of what is known is replaced by what is known, until for a minute nothing has contradicted it.
  Our own clock may confirm it at once (we slept, and our monotonic clock with us); an absurd one is never believed.
- The first time of all is taken as told, unless it is absurd: then a second answer must say the same.
- Where an answer tells less well than others did (no ``Date``), what is known from those goes on for an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dockbell.core.model import ClockSource
from dockbell.core.reading.response import Response
from dockbell.core.reading.response_headers import ServiceTime, service_time

TOLERANCE: Final = timedelta(seconds=5)
"""Clocks of one service may differ by this much and still be one clock."""
ABSURD: Final = timedelta(days=1)
"""One answer alone does not prove a clock that is this far from ours."""
UNCONTRADICTED: Final = timedelta(minutes=1)
"""Every answer must agree for so long before a time ahead of the known one is believed."""
KEPT: Final = timedelta(hours=1)
"""What a better kind of answer told counts for so long after the last one."""

_RANKS: Final = {clock: rank for rank, clock in enumerate(ClockSource)}


@dataclass(frozen=True, slots=True)
class _Offset:
    """What the service's clock showed when our monotonic clock began: something between two bounds.

    Attributes:
        clock: What it was taken from.
        least: The lower bound.
        most: The upper bound.
        since: When it was first told, by our monotonic clock.
        until: When it was last told.
    """

    clock: ClockSource
    least: datetime
    most: datetime
    since: timedelta
    until: timedelta

    def fits(self, other: _Offset) -> bool:
        return not self.is_ahead_of(other) and not other.is_ahead_of(self)

    def is_ahead_of(self, other: _Offset) -> bool:
        return self.least > other.most + TOLERANCE

    def ranks_below(self, other: _Offset) -> bool:
        return _RANKS[self.clock] > _RANKS[other.clock]

    def joined_by(self, other: _Offset) -> _Offset:
        """Return the bounds that both state; those of the other where drift has moved the clocks apart."""
        least, most = max(self.least, other.least), min(self.most, other.most)
        if least > most:
            least, most = other.least, other.most
        return _Offset(self.clock, least, most, self.since, other.until)


class ServiceClock:
    """Tells the service's time of each answer of one source, from the first to the last."""

    def __init__(self) -> None:
        self._known: _Offset | None = None
        self._claim: _Offset | None = None  # stated by an answer, and not believed yet

    @property
    def doubtful(self) -> bool:
        """Whether the only time that the service told is absurd, so that a second answer should be asked for."""
        return self._claim is not None and self._known is not None and self._known.ranks_below(self._claim)

    def time_of(self, response: Response) -> ServiceTime:
        """Return when the service worked on a request; call it in the order in which the answers come."""
        told = service_time(response)
        offset = _offset_of(told, response)
        absurd = abs(told.asked_at - response.sent_at) >= ABSURD
        if self._is_first(offset) and absurd and not self._claims(offset):
            told = ServiceTime(response.sent_at, response.answered_at, ClockSource.LOCAL)
            offset, absurd = _offset_of(told, response), False
        known = self._known
        if known is None or self._is_first(offset) or (offset.clock is known.clock and offset.fits(known)):
            return self._believe(offset, told)
        recalled = ServiceTime(
            known.least + response.ticks,
            known.most + (response.answered_at - response.sent_at) + response.ticks,
            known.clock,
        )
        if offset.ranks_below(known):
            return recalled
        if known.is_ahead_of(offset):
            return self._believe(offset, told) if not absurd or self._claims_long(offset) else told
        ours_agrees = told.clock is not ClockSource.LOCAL and abs(told.asked_at - response.sent_at) <= TOLERANCE
        if ours_agrees or (not absurd and self._claims_long(offset)):
            return self._believe(offset, told)
        return recalled

    def _is_first(self, offset: _Offset) -> bool:
        """Return whether nothing is known to compare an offset with."""
        known = self._known
        return (
            known is None
            or known.ranks_below(offset)
            or (offset.ranks_below(known) and offset.until - known.until > KEPT)
        )

    def _believe(self, offset: _Offset, told: ServiceTime) -> ServiceTime:
        known = self._known
        self._known = (
            known.joined_by(offset) if known and known.clock is offset.clock and known.fits(offset) else offset
        )
        if self._claim is not None and not offset.ranks_below(self._claim):
            self._claim = None
        return told

    def _claims(self, offset: _Offset) -> bool:
        """Return whether an earlier answer said the same; remember this one."""
        claim = self._claim
        agreed = claim is not None and claim.clock is offset.clock and claim.fits(offset)
        self._claim = claim.joined_by(offset) if claim is not None and agreed else offset
        return agreed

    def _claims_long(self, offset: _Offset) -> bool:
        return self._claims(offset) and self._claim is not None and offset.until - self._claim.since >= UNCONTRADICTED


def _offset_of(time: ServiceTime, response: Response) -> _Offset:
    now = response.ticks
    return _Offset(time.clock, time.asked_at - now, time.answered_at - now, now, now)
