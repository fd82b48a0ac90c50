"""Times in which no page of a run was answered: they tell whether dockbell was blind.

They are measured by the monotonic clock. Across a restart only the service's clock tells how long such a time was: by
how far it went between two answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

_LEAST: Final = timedelta(minutes=1)
_NONE: Final = timedelta(0)


class Silence(msgspec.Struct, frozen=True):
    """A time without an answer; its ends are those of the monotonic clock.

    It has no ``since`` where it began with the end of the complete run before. ``ended_at`` is the service's time of
    the request whose answer ended it.
    """

    since: timedelta | None
    until: timedelta
    ended_at: datetime


@dataclass(slots=True)
class Silences:
    """The times without an answer of one run."""

    found: list[Silence] = field(default_factory=list)
    """The one before its first answer, and all that are longer than a minute."""
    heard: timedelta | None = None
    """When its last answer came, by the monotonic clock; None before the first one in this process."""
    answered_at: datetime | None = None  # the same by the service's clock

    def hear(self, now: timedelta, asked_at: datetime, answered_at: datetime) -> None:
        """Record an answer: when it came by the monotonic clock, and the service's times of request and answer."""
        if self.heard is None and self.answered_at is not None:  # the run goes on
            self.heard = now - max(answered_at - self.answered_at, _NONE)
            self.found = [_shift(each, self.heard) for each in self.found]
        if self.heard is None or now - self.heard > _LEAST:
            self.found.append(Silence(self.heard, now, asked_at))
        self.heard, self.answered_at = now, answered_at

    def find_long(self, read_at: timedelta, is_long: Callable[[timedelta, timedelta], bool]) -> datetime | None:
        """Return when the longest time ended, by the service's clock, that is too long; None where none is.

        The last complete run of the feed read its last page at ``read_at``, by the monotonic clock. ``is_long`` tells
        from both ends of a time whether it is too long.
        """
        times = [(max(each.since or read_at, read_at), each.until, each.ended_at) for each in self.found]
        long = [(until - since, ended_at) for since, until, ended_at in times if is_long(since, until)]
        return max(long)[1] if long else None

    def keep(self) -> Sequence[Silence]:
        """Return what was found, with its ends as counted from the last answer, so that it outlives the process."""
        return [] if self.heard is None else [_shift(each, -self.heard) for each in self.found]


def _shift(silence: Silence, by: timedelta) -> Silence:
    since = None if silence.since is None else silence.since + by
    return replace(silence, since=since, until=silence.until + by)
