"""When the API's window ends, by ``x-ratelimit-reset``, whichever clock that header follows.

A limiter often runs on another machine than the one that writes ``Date``, and both may be days or years off from ours.
So the reset is read against itself. A request is counted in a window that ends at the reset and began at most
:data:`WINDOW` before it. Each answer therefore bounds the limiter's clock from below and from above, and the bounds of
many answers meet. ``Date`` says it exactly, and is used as long as it lies between the bounds.

What is not known is decided so that the window ends too late for us rather than too early: a window that is believed to
be over while it goes on costs a 429, one that is believed to go on costs a wait of less than a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dockbell.core.model import Allowance
from dockbell.core.reading.response import Response
from dockbell.core.reading.response_headers import WINDOW, read_allowance, read_date, read_reset

_ZERO: Final = timedelta(0)
_TOLERANCE: Final = timedelta(seconds=2)
"""Both headers are whole seconds, and the limiter and the server that writes ``Date`` may be a little apart."""
_KEPT: Final = timedelta(hours=1)
"""Two clocks drift apart by a fraction of a second in this time: older bounds are dropped."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What the limiter's clock showed when our monotonic clock began, at least and at most."""

    least: datetime
    most: datetime
    since: timedelta

    def hold(self, origin: datetime) -> bool:
        """Return whether another clock, by what it showed at that time, may be the limiter's."""
        return self.least - _TOLERANCE <= origin <= self.most + _TOLERANCE

    def joined_by(self, other: _Bounds) -> _Bounds:
        """Return the bounds that both state; those of the other where both contradict each other or this is too old."""
        least, most = max(self.least, other.least), min(self.most, other.most)
        if least > most + _TOLERANCE or other.since - self.since > _KEPT:
            return other
        return _Bounds(least, most, self.since)


class WindowClock:
    """Finds how long the window of one API account still lasts, from its answers in the order in which they come."""

    def __init__(self) -> None:
        self._bounds: _Bounds | None = None

    def read(self, response: Response) -> Allowance | None:
        """Return what an answer says is left of the budget, None where it does not."""
        allowance, reset = read_allowance(response), read_reset(response)
        if allowance is None or not isinstance(reset, datetime):
            return allowance
        answered = response.ticks + (response.answered_at - response.sent_at)
        told = _Bounds(reset - WINDOW - answered, reset - response.ticks, answered)
        bounds = self._bounds = told if self._bounds is None else self._bounds.joined_by(told)
        date = read_date(response)
        if date is None or date >= reset or not bounds.hold(date - answered):
            date = bounds.least + answered
        return Allowance(allowance.limit, allowance.remaining, min(max(reset - date, _ZERO), WINDOW))
