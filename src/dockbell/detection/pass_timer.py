"""When the next pass of a feed is due: by its schedule, after a failure, or to confirm what the last one found."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from dockbell.detection.feed import TrackedFeed
from dockbell.ports import Alarm, FeedState

_LOOK_AGAIN: Final = timedelta(minutes=1)
_RETRY_FIRST: Final = timedelta(seconds=5)
_RETRY_MOST: Final = timedelta(hours=1)


class PassTimer:
    """Says when the next pass of one feed is due.

    Attributes:
        alarm: Of the agent that makes passes; None while it does not run.
    """

    def __init__(self, feed: TrackedFeed) -> None:
        self.alarm: Alarm | None = None
        self._feed = feed
        self._began: timedelta | None = None  # the last complete pass, by the steady clock: its interval counts from it
        self._due: timedelta | None = None  # what is left to be done sooner, by the steady clock
        self._due_at: datetime | None = None  # by our clock, where a crontab line says when
        self._failures = 0  # passes in a row that read something and failed
        self._doubts = 0  # complete passes in a row that left something to confirm, and settled nothing

    async def set_alarm(self) -> None:
        """Set the alarm anew, after something else than the agent has changed when the next pass is due."""
        if self.alarm is not None:
            delay = await self.delay()
            # Our clock may be set meanwhile, and crontab lines mean our clock.
            self.alarm.ring_in(delay if self._due_at is None else min(delay, _LOOK_AGAIN))

    async def delay(self) -> timedelta:
        """Return how long it is until the next pass is due; not positive when one is."""
        feed = self._feed
        if feed.schedule.is_pass_requested:
            return timedelta(0)
        now, every = feed.clocks.steady(), feed.schedule.passes
        lefts = [] if self._due is None else [self._due - now]
        if self._began is not None and not isinstance(every, str):
            lefts.append(self._began + every - now)
        if self._due_at is not None:
            lefts.append(self._due_at - feed.clocks.now())
        return min(lefts) if lefts else self._find_first_delay(await feed.state())

    def _find_first_delay(self, state: FeedState) -> timedelta:
        """Return how long it is until the first pass of this process is due.

        What an earlier process did is known by our clock only, which may have been set back since.
        """
        feed = self._feed
        if state.full is None or state.passes == 0 or state.rebaselining or feed.is_provisional:
            return timedelta(0)
        if state.cleaning:  # which is done before a pass
            return timedelta(0)
        now = feed.clocks.now()
        # An interval counts from the start of the last pass; what a crontab line says, that pass has done.
        last = state.full.ended_at if isinstance(feed.schedule.passes, str) else state.full.known_at
        due = feed.schedule.next_pass(min(last, now))
        if state.confirm_at is not None:
            due = min(due, state.confirm_at, now + feed.settings.confirm_after)
        return due - now

    def count_failure(self, pages: int) -> None:
        """Count a failure in a row that has cost pages; where nothing was answered, asking again costs little."""
        self._failures += 1 if pages > 0 else 0
        self.wait_after_failure()

    def wait_after_failure(self) -> None:
        """Pass again soon; but a list that always ends incomplete must not be read all the time."""
        pause = min(_RETRY_FIRST * (1 << min(max(self._failures - 1, 0), 10)), _RETRY_MOST)
        now = self._feed.clocks.now()
        self._due = self._feed.clocks.steady() + min(pause, max(self._feed.schedule.next_pass(now) - now, _RETRY_FIRST))
        self._began = self._due_at = None

    def wait_for_next(self, state: FeedState, began: timedelta, *, goes_forward: bool) -> None:
        """Pass when it is due by the configuration; sooner, but each time later, while something is left to be done.

        Intervals count from start to start: a pass that took longer than its interval is followed by the next at once.
        """
        feed, every = self._feed, self._feed.schedule.passes
        self._failures = 0
        self._began, self._due = began, None
        if state.confirm_at is not None or state.cleaning or feed.is_provisional:
            self._due = feed.clocks.steady() + feed.settings.confirm_after * (1 << min(self._doubts, 20))
            if not goes_forward:
                self._doubts += state.shape is not None  # an empty list costs next to nothing, and may fill at any time
        else:
            self._doubts = 0
        self._due_at = feed.schedule.next_pass(feed.clocks.now()) if isinstance(every, str) else None

    def wait_for_nothing(self) -> None:
        """Pass when it is due by the configuration: nothing is left to be confirmed."""
        self._due, self._doubts = None, 0
