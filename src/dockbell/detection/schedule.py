"""The clocks of this process, and when the runs of one feed are due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from dockbell.config import ResourceSettings
from dockbell.core.model import RunKind
from dockbell.core.running.timeline import Timeline

_UNPUNCTUAL: Final = timedelta(seconds=2)
"""The service tells its time in whole seconds: a run that seems late by less may be in time."""


class Clocks:
    """Our clock, which may be set, the steady one, which only goes forward, and the age of times noted by ours."""

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


class FeedSchedule:
    """When the runs of one feed are due: as it is configured, where that is an interval as the budget is divided.

    Attributes:
        every: When the runs are made that find changes, polls or else passes: an interval, from start to start, or a
            crontab line. The planner sets the interval.
        page_every: The time from one page of a pass to the next, at the least.
        cursor_life: The shortest time after which the API did not know the cursors of a pass any more; None where it
            always did.
        is_passing: A pass is under way.
        is_awaited: An operator waits for the end of a pass: its pages are not spread.
        is_pass_requested: A pass is to be made at once, whenever the next one is due.
        wake_poller: Wakes the agent that polls; None while it does not run.
        wake_reconciler: Wakes the agent that makes passes; None while it does not run.
    """

    def __init__(
        self, settings: ResourceSettings, next_time: Callable[[timedelta | str, datetime], datetime], *, polled: bool
    ) -> None:
        self.every = settings.schedule
        self._promised = settings.schedule
        self.page_every = timedelta(0)
        self.cursor_life: timedelta | None = None
        self.is_passing = False
        self.is_awaited = False
        self.is_pass_requested = False
        self.wake_poller: Callable[[], None] | None = None
        self.wake_reconciler: Callable[[], None] | None = None
        self._reconcile = settings.reconcile
        self._kind = RunKind.POLL if polled else RunKind.PASS
        self._next_time = next_time
        self._due_at: datetime | None = None  # when the next run should ask, by the service's clock

    @property
    def interval(self) -> timedelta | None:
        """The interval at hand; None where a crontab line says when."""
        return None if isinstance(self.every, str) else self.every

    @property
    def passes(self) -> timedelta | str:
        """When passes are made: an interval, or a crontab line."""
        return self._reconcile or self.every

    def set_interval(self, every: timedelta) -> None:
        """Read the feed at another interval from now on; it counts from the start of the last run."""
        self.every = every
        self._due_at = None  # the next run is neither in time nor late
        for wake in (self.wake_poller, self.wake_reconciler):
            if wake is not None:
                wake()

    def next_pass(self, after: datetime) -> datetime:
        return self._next_time(self.passes, after)

    def next_run(self, after: datetime, *, before: timedelta | None = None) -> datetime:
        """Return when the run after that is due; by the longer one of two intervals, of those that were promised.

        ``before``: the interval until now, where the time from the last run on is looked at.
        """
        if isinstance(self.every, str) or isinstance(self._promised, str) or before is None:
            return self._next_time(self.every, after)
        return self._next_time(min(max(self.every, before), max(self._promised, timedelta(seconds=1))), after)

    def request_pass(self) -> None:
        self.is_pass_requested = True
        if self.wake_reconciler is not None:
            self.wake_reconciler()

    def check_run(self, kind: RunKind, asked_at: datetime | None) -> bool | None:
        """Return whether a run asked later than the schedule says, or was not answered; None where it says nothing."""
        if kind is not self._kind:
            return None
        if asked_at is None:
            return True
        due_at, every = self._due_at, self._next_time(self.every, asked_at) - asked_at
        self._due_at = asked_at + every
        return None if due_at is None else asked_at > due_at + max(_UNPUNCTUAL, every / 10)
