"""When the runs of one feed are due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from dockbell.config import ResourceSettings
from dockbell.core.model import RunKind

_UNPUNCTUAL: Final = timedelta(seconds=2)
"""The service tells its time in whole seconds: a run that seems late by less may be in time."""


class FeedSchedule:
    """The schedule of one feed, as it is configured.

    Attributes:
        passes: When passes are made: an interval, or a crontab line.
        is_pass_requested: A pass is to be made at once, whenever the next one is due.
        wake: Wakes the agent that makes passes; None while it does not run.
    """

    def __init__(
        self,
        settings: ResourceSettings,
        next_time: Callable[[timedelta | str, datetime], datetime],
        *,
        polled: bool,
    ) -> None:
        self.passes = settings.reconcile or settings.schedule
        self.is_pass_requested = False
        self.wake: Callable[[], None] | None = None
        self._schedule = settings.schedule
        self._kind = RunKind.POLL if polled else RunKind.PASS
        self._next_time = next_time
        self._due_at: datetime | None = None  # when the next run should ask, by the service's clock

    def next_pass(self, after: datetime) -> datetime:
        """Return when a pass is due after one that was made at a given time."""
        return self._next_time(self.passes, after)

    def request_pass(self) -> None:
        """Let a pass be made at once."""
        self.is_pass_requested = True
        if self.wake is not None:
            self.wake()

    def check_run(self, kind: RunKind, asked_at: datetime | None) -> bool | None:
        """Return whether a run asked later than the schedule says; None where it says nothing of it."""
        if asked_at is None or kind is not self._kind:
            return None
        due_at, every = self._due_at, self._next_time(self._schedule, asked_at) - asked_at
        self._due_at = asked_at + every
        return None if due_at is None else asked_at > due_at + max(_UNPUNCTUAL, every / 10)
