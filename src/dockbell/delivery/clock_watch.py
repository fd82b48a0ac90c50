"""Notices when this machine's clock is set: plans that were made by it must follow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

_STEP_MOST: Final = timedelta(seconds=1)
_ORIGIN: Final = datetime.fromtimestamp(0, UTC)


class ClockWatch:
    """Compares the clock with a time that is never set.

    ``steady`` returns that time, since some origin; None: the clock is never set forward.
    """

    def __init__(self, now: Callable[[], datetime], steady: Callable[[], timedelta] | None) -> None:
        self._now = now
        self._steady = steady or (lambda: now() - _ORIGIN)
        self.looked_at, self._steady_at = now(), self._steady()

    def look(self) -> timedelta:
        """Return by how much the clock was set since the last look.

        Negative where the clock is earlier than at the last look; zero for steps of up to a second.
        """
        now, steady_at = self._now(), self._steady()
        passed = now - self.looked_at
        step = passed - (steady_at - self._steady_at)
        self.looked_at, self._steady_at = now, steady_at
        if passed < -_STEP_MOST:
            return passed
        return step if step > _STEP_MOST else timedelta(0)
