"""Our clock, which may be set while dockbell runs, and the steady clock, which only goes forward."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from dockbell.core.running.timeline import Timeline


class Clocks:
    """Both clocks of this process, and the age of times that were noted by ours.

    Attributes:
        now: Returns our time.
        steady: Returns the time since some origin.
    """

    def __init__(self, now: Callable[[], datetime], steady: Callable[[], timedelta]) -> None:
        self.now = now
        self.steady = steady
        self._timeline = Timeline.begin(now(), steady())

    def compare(self) -> None:
        """Notice whether our clock was set; the timeline needs this often, so each page does it."""
        self._timeline.look(self.now(), self.steady())

    def age(self, noted: datetime) -> timedelta:
        """Return how long ago our clock showed a time, whatever it was set to meanwhile."""
        self.compare()
        return self._timeline.age(noted)

    def knows(self, noted: datetime) -> bool:
        """Return whether a time of our clock is of this process, so that :meth:`age` is right."""
        return self._timeline.knows(noted)
