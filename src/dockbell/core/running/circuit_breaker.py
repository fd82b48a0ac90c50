"""Whether requests to an API may be sent while it answers none: single probes, until one is answered."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

FAILURES_MOST: Final = 5
"""So many requests in a row without an answer open the breaker."""
PROBE_FIRST: Final = timedelta(seconds=1)
PROBE_MOST: Final = timedelta(seconds=15)
"""The longest pause between two probes: a feed that is read often has the same interval after a failure."""


class CircuitBreaker:
    """The circuit breaker of a source.

    It opens when :data:`FAILURES_MOST` requests in a row were not answered: the API did not take the connection, sent
    nothing in time, or failed itself (HTTP 5xx). While it is open, one request goes after 1, 2, 4, 8 and then each 15
    seconds (:data:`PROBE_MOST`), whatever becomes of it. The first answer closes the breaker for all requests.

    A *collection* is where a request goes, whatever its id and query: ``/v1/shipments``, ``/v1/shipments/{id}``. Where
    only one of them fails, the others must not wait: the first request to each goes at once. If that is answered, the
    failing collection is known to fail *alone*, and its failures do not count until it is answered again.

    Attributes:
        opened_at: When it opened; None while it is closed.
        failing_since: When the first request failed of those that opened it, or may; None where the last was answered.
        reason: The last failure.
    """

    def __init__(self) -> None:
        self.opened_at: timedelta | None = None
        self.failing_since: timedelta | None = None
        self.reason = ""
        self._failures = 0  # in a row
        self._tried: set[str] = set()  # the collections that were asked for since the last answer
        self._alone: set[str] = set()
        self._probe_at = self._pause = timedelta(0)

    def admit(self, collection: str, now: timedelta) -> bool:
        """Return whether a request may be sent now; one that may counts as a probe while the breaker is open."""
        if self.opened_at is None:
            return True
        if collection not in self._tried:
            self._tried.add(collection)
            return True
        if now < self._probe_at:
            return False
        self._pause = min(2 * self._pause, PROBE_MOST)
        self._probe_at = now + self._pause
        return True

    def wait(self, now: timedelta) -> timedelta:
        """Return how long it is until the next probe."""
        return max(self._probe_at - now, timedelta(0))

    def failed(self, collection: str, reason: str, now: timedelta) -> bool:
        """Record a request that was not answered; return whether this opens the breaker."""
        self.reason = reason
        self._tried.add(collection)
        if self.opened_at is not None or collection in self._alone:
            return False
        self._failures += 1
        if self.failing_since is None:
            self.failing_since = now
        if self._failures < FAILURES_MOST:
            return False
        self.opened_at = now
        self._pause = PROBE_FIRST
        self._probe_at = now + PROBE_FIRST
        return True

    def answered(self, collection: str) -> timedelta | None:
        """Record an answer; return since when requests had failed where this closes the breaker, None otherwise."""
        failed_since = self.failing_since if self.opened_at is not None else None
        if self.opened_at is not None:
            self._alone |= self._tried
        self.opened_at = self.failing_since = None
        self._alone.discard(collection)
        self._tried.clear()
        self._failures = 0
        return failed_since
