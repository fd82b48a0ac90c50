"""What stops the agents of a feed, and for how long each rests then."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Final

from dockbell.detection.schedule import FeedSchedule
from dockbell.errors import DockbellError, RequestRefused, SourceRefused

PROBE_PAUSE: Final = timedelta(minutes=1)
"""A feed that waits for the operator is tried again once a minute at the least."""
_REST_FIRST: Final = timedelta(seconds=5)
_REST_INTERVALS: Final = 3
"""After a failed run the next one follows after so many intervals of the feed at most, if that is not very short."""
_REST_SHORT: Final = timedelta(seconds=15)


class Problems:
    """The problem of each agent of one feed."""

    def __init__(self, schedule: FeedSchedule) -> None:
        self._schedule = schedule
        self._problems: dict[str, DockbellError] = {}
        self._failures = Counter[str]()  # in a row
        self._reported_at: dict[str, timedelta] = {}  # by the words of the problem

    def note(self, problem: DockbellError, agent: str, now: timedelta) -> tuple[timedelta, bool]:
        """Take in what stops an agent; return for how long it rests, and whether the problem is to be reported.

        One odd answer costs little more than the run that met it: the rest begins short, and doubles with each failure
        in a row up to a few of the feed's own intervals. A refused key costs no requests, because the client probes it;
        the rest stays short, so that a replaced key is used soon.
        """
        self._problems[agent] = problem
        self._failures[agent] += 1
        words = str(problem)
        is_due = words not in self._reported_at or now - self._reported_at[words] >= PROBE_PAUSE
        if is_due:
            self._reported_at[words] = now
        if isinstance(problem, SourceRefused) and problem.retry_after is not None:
            return _REST_FIRST, is_due
        return choose_rest(self._failures[agent], self._schedule.interval), is_due

    def mend(self, agent: str) -> str:
        """Take in that an agent goes on; return the problem that is left, empty for none.

        A refusal of the key ends for all agents. A refused request says nothing of others: an accepted pass does not
        show that polls are accepted.
        """
        del self._failures[agent]
        self._problems = {
            each: problem
            for each, problem in self._problems.items()
            if each != agent and (isinstance(problem, RequestRefused) or not isinstance(problem, SourceRefused))
        }
        return next(map(str, self._problems.values()), "")

    def report_all_again(self) -> None:
        """Report each problem when it is met next, however lately it was reported."""
        self._reported_at.clear()


def choose_rest(failures: int, every: timedelta | None) -> timedelta:
    """Return for how long an agent rests after so many failures in a row."""
    most = PROBE_PAUSE if every is None else min(PROBE_PAUSE, max(every * _REST_INTERVALS, _REST_SHORT))
    return min(_REST_FIRST * (1 << min(failures - 1, 10)), most)
