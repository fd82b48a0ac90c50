"""Finds the times in which dockbell was blind to a feed; the complete run that ends one states it, once, as a gap."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from dockbell.core.model import Feed, Page, Statement
from dockbell.core.publishing.statement import GapReason, gap
from dockbell.core.reading.silence import Silences
from dockbell.detection.schedule import Clocks, FeedSchedule
from dockbell.errors import DockbellError, RateLimited, SourceRefused, StoreError
from dockbell.ports import FeedState

_GRACE: Final = timedelta(minutes=1)
_INTERVALS_MOST: Final = 3
"""After so many intervals without a complete run, and a minute, dockbell was blind."""


class GapWatch:
    """Remembers when one feed was read last, and why it could not be read since."""

    def __init__(
        self,
        feed: Feed,
        schedule: FeedSchedule,
        *,
        clocks: Clocks,
    ) -> None:
        self._feed = feed
        self._schedule = schedule
        self._clocks = clocks
        self._read_at: timedelta | None = None  # the last page of the last complete run, by the steady clock
        self._passed_at: timedelta | None = None  # the last pass before the process began, by the steady clock
        self._reason: GapReason | None = None
        self._is_stated = False
        self._every = schedule.interval  # when a complete run ended last

    def blame(self, error: DockbellError) -> None:
        if isinstance(error, StoreError):
            self._reason = GapReason.STORE_UNAVAILABLE
        elif isinstance(error, RateLimited):
            self._reason = GapReason.NO_BUDGET
        else:
            self._reason = GapReason.REFUSED if isinstance(error, SourceRefused) else GapReason.UNAVAILABLE

    def take_wait(self, waited: timedelta) -> None:
        """Take in how long a page did not come: where a long wait makes a gap, dockbell was not down."""
        if waited > _GRACE and self._reason is None:
            self._reason = GapReason.UNAVAILABLE

    def take_page(self, silences: Silences, page: Page, state: FeedState) -> None:
        """Take in when a page of a run was answered.

        The first page since the process began tells, by the service's clock, when an earlier process read last.
        """
        self._clocks.compare()
        now = self._clocks.steady()
        silences.hear(now, page.asked_at, page.answered_at)
        if self._read_at is not None:
            return
        if state.full is not None:
            self._passed_at = now - max(page.answered_at - state.full.read_until, timedelta(0))
        if read := [run.read_until for run in (state.poll, state.full) if run is not None]:
            self._read_at = now - max(page.answered_at - max(read), timedelta(0))

    def state_lost_store(self, state: FeedState) -> Statement:
        """Return the gap since the last run that a lost or restored store knows of; no run states it again."""
        self._is_stated = True
        now = self._clocks.now()
        return gap(self._feed, now, began_at=_last_asked_at(state), ended_at=now, reason=GapReason.STORE_LOST)

    def find(self, state: FeedState, silences: Silences) -> tuple[Statement, ...]:
        """Return the gap that a complete run ends, if there is one."""
        last = _last_asked_at(state)
        if last is None or self._read_at is None or self._is_stated:
            return ()
        ended_at = silences.find_long(self._read_at, self._is_blind)
        if ended_at is None:
            return ()
        reason = self._reason or GapReason.DOWN
        return (gap(self._feed, self._clocks.now(), began_at=min(last, ended_at), ended_at=ended_at, reason=reason),)

    def end_run(self, silences: Silences) -> None:
        """Take in that the end of a complete run is stored, with the gap that it ended."""
        self._reason, self._is_stated = None, False
        self._every = self._schedule.interval
        self._read_at = max((at for at in (self._read_at, silences.heard) if at is not None), default=None)

    def age_of_suspicion(self, noted: datetime) -> timedelta:
        """Return how long ago a pass suspected an absence; of one of an earlier process, how long ago at the least."""
        if self._clocks.knows(noted):
            return self._clocks.age(noted)
        return timedelta(0) if self._passed_at is None else self._clocks.steady() - self._passed_at

    def _is_blind(self, since: timedelta, until: timedelta) -> bool:
        """Return whether dockbell was blind where nothing was read between two times of the steady clock."""
        began = due = self._clocks.now() - (self._clocks.steady() - since)
        for _ in range(_INTERVALS_MOST):
            due = self._schedule.next_run(due, before=self._every)
        return until - since > due - began + _GRACE


def _last_asked_at(state: FeedState) -> datetime | None:
    return max((run.asked_at for run in (state.poll, state.full) if run is not None), default=None)
