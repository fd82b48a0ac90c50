"""Where the first pass begins on the records' own clock, which may stand elsewhere than the service's.

Records may be dated by a clock that is behind ``Date``, or in local time without an offset. So the service's time of
the first request does not tell old records from new ones. What does is a short listing, asked for before the first
pass: a listing of all that was modified since some time, read whole, holds every record that is dated later. Once these
are stored, an unknown record that is dated no earlier than the newest of them became visible after the first request.

The search asks for what was modified in the last minute, looks further back while that shows nothing, and halves the
span while a listing takes more than one page. Most feeds need one to four requests, once in their life.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from dockbell.core.moment import EPOCH

_SPANS: Final = (
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(hours=15),  # local time may be 12 hours behind UTC, and summer time moves it
    timedelta(days=10),
    timedelta(days=366),
    timedelta(days=366 * 30),
)
_REQUESTS_MOST: Final = 24
_CLOSE: Final = timedelta(seconds=1)
"""Stamps are often whole seconds: a shorter span tells no more."""


class Short(NamedTuple):
    """The answer to one request; ``is_whole``: all that was modified since ``since`` stands on its one page."""

    since: datetime
    is_whole: bool
    dates: Sequence[datetime]

    def newest(self, began_at: datetime) -> datetime | None:
        return max((date for date in self.dates if date <= began_at), default=None)


def next_since(began_at: datetime, answers: Sequence[Short]) -> datetime | None:
    """Return what to ask next; None when the search is over, which began at this time of the service."""
    if len(answers) >= _REQUESTS_MOST or any(_settles(each, began_at) for each in answers):
        return None
    shown, empty = _narrow(began_at, answers)
    if shown is None:
        span = _SPANS[len(answers)] if len(answers) < len(_SPANS) else None
        return None if span is None else _whole_seconds(began_at - span)
    if empty - shown <= _CLOSE:
        return None
    return _whole_seconds(shown + (empty - shown) / 2 + _CLOSE / 2)


def find_boundary(began_at: datetime, answers: Sequence[Short]) -> tuple[datetime | None, int | None]:
    """Return the boundary, and which answer holds the records that are dated later; they are to be stored.

    The boundary is None where nothing was found; the service's time of the first request stands in for it then. The
    answer is None where no record is dated later.
    """
    for number, each in enumerate(answers):
        if _settles(each, began_at):
            return each.newest(began_at), number
    shown, empty = _narrow(began_at, answers)
    if shown is not None:
        return (empty, None) if any(each.since == empty and not each.dates for each in answers) else (None, None)
    for number, each in enumerate(answers):  # all dates are in the future: the records' clock is ahead
        if each.is_whole and each.dates:
            return each.since, number
    return None, None


def _settles(answer: Short, began_at: datetime) -> bool:
    return answer.is_whole and answer.newest(began_at) is not None


def _narrow(began_at: datetime, answers: Sequence[Short]) -> tuple[datetime | None, datetime]:
    """Return two times: records are dated after the first, none after the second; the first is None while unknown."""
    shown = None
    for each in answers:
        if each.dates and not each.is_whole:
            found = max(each.newest(began_at) or each.since, each.since)
            shown = found if shown is None else max(shown, found)
    empties = [each.since for each in answers if not each.dates and (shown is None or each.since > shown)]
    return shown, min([*empties, began_at])


def _whole_seconds(moment: datetime) -> datetime:
    return moment - (moment - EPOCH) % timedelta(seconds=1)
