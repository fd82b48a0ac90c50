"""How long to wait before a request or a connection is tried again; deliveries have their own schedule."""

from __future__ import annotations

from datetime import timedelta


def delay(attempt: int, *, base: timedelta, cap: timedelta, jitter: float) -> timedelta:
    """Return the wait after the ``attempt``-th failure in a row (1 for the first).

    Anywhere between ``base`` and ``base`` doubled ``attempt`` times, never more than ``cap``: the spread ("full
    jitter", a random number from 0 to 1) keeps many that failed together from coming back together.
    """
    # The quotient bounds the power before it is multiplied: 2**attempt grows beyond any timedelta.
    growth = min(2.0 ** min(attempt, 1000), cap / base)
    return min(base + (base * growth - base) * jitter, cap)
