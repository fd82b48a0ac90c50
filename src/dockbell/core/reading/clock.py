"""The service's time, which one wrong answer must not set; and the clock of its limiter.

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

from datetime import datetime, timedelta
from typing import Final

import msgspec

from dockbell.core.model import Allowance, ClockSource
from dockbell.core.reading.response import (
    WINDOW,
    Response,
    ServiceTime,
    read_allowance,
    read_date,
    read_reset,
    service_time,
)

TOLERANCE: Final = timedelta(seconds=5)
"""Clocks of one service may differ by this much and still be one clock."""
ABSURD: Final = timedelta(days=1)
"""One answer alone does not prove a clock that is this far from ours."""
UNCONTRADICTED: Final = timedelta(minutes=1)
"""Every answer must agree for so long before a time ahead of the known one is believed."""
KEPT: Final = timedelta(hours=1)
"""What a better kind of answer told counts for so long after the last one."""


_LIMITER_TOLERANCE: Final = timedelta(seconds=2)
"""Both headers are whole seconds, and the limiter and the server that writes ``Date`` may be a little apart."""
_BOUNDS_KEPT: Final = timedelta(hours=1)
"""Two clocks drift apart by a fraction of a second in this time: older bounds are dropped."""
_RANKS: Final = {clock: rank for rank, clock in enumerate(ClockSource)}


class _Offset(msgspec.Struct, frozen=True):
    """What the service's clock showed when our monotonic one began, as told from ``since`` until ``until``."""

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

    def estimate(self, response: Response, time: ServiceTime) -> datetime:
        """Return the service's time when an answer came, as nearly as all answers tell; ``time`` is what bounds it.

        ``Date`` tells whole seconds: the bounds of one answer are a second apart, those of many meet.
        """
        took = response.answered_at - response.sent_at
        least, most = time.asked_at - response.ticks, time.answered_at - response.ticks
        if self._known is not None:
            least, most = self._known.least, self._known.most
        begin = least + max(most - took - least, timedelta(0)) / 2
        return min(max(begin + response.ticks + took, time.asked_at), time.answered_at)

    def _is_first(self, offset: _Offset) -> bool:
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


class _Bounds(msgspec.Struct, frozen=True):
    """What the limiter's clock showed when our monotonic clock began, at least and at most."""

    least: datetime
    most: datetime
    since: timedelta

    def hold(self, origin: datetime) -> bool:
        """Return whether another clock, by what it showed at that time, may be the limiter's."""
        return self.least - _LIMITER_TOLERANCE <= origin <= self.most + _LIMITER_TOLERANCE

    def joined_by(self, other: _Bounds) -> _Bounds:
        """Return the bounds that both state; those of the other where both contradict each other or this is too old."""
        least, most = max(self.least, other.least), min(self.most, other.most)
        if least > most + _LIMITER_TOLERANCE or other.since - self.since > _BOUNDS_KEPT:
            return other
        return _Bounds(least, most, self.since)


class WindowClock:
    """Finds how long the window of one API account still lasts, from its answers in the order in which they come.

    The limiter often runs on another machine than the one that writes ``Date``, and both may be days or years off from
    our clock. So ``x-ratelimit-reset`` is read against itself. A request is counted in a window that ends at the reset
    and began at most :data:`WINDOW` before it. Each answer therefore bounds the limiter's clock from below and from
    above, and the bounds of many answers meet. ``Date`` says it exactly, and is used as long as it lies between them.

    What is not known is decided so that the window ends too late for us rather than too early: a window that is
    believed to be over while it goes on costs a 429, one that is believed to go on costs a wait of less than a minute.
    """

    def __init__(self) -> None:
        self._bounds: _Bounds | None = None

    def read(self, response: Response) -> Allowance | None:
        allowance, reset = read_allowance(response), read_reset(response)
        if allowance is None or not isinstance(reset, datetime):
            return allowance
        answered = response.ticks + (response.answered_at - response.sent_at)
        told = _Bounds(reset - WINDOW - answered, reset - response.ticks, answered)
        bounds = self._bounds = told if self._bounds is None else self._bounds.joined_by(told)
        date = read_date(response)
        if date is None or date >= reset or not bounds.hold(date - answered):
            date = bounds.least + answered
        return Allowance(allowance.limit, allowance.remaining, min(max(reset - date, timedelta(0)), WINDOW))
