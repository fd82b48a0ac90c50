"""What the headers of an answer say: the service's time, what is left of the budget, and how long to wait.

``Date`` and ``x-ratelimit-reset`` are "not shown" in the API's description, so each may be missing or odd.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from dockbell.core.model import Allowance, ClockSource
from dockbell.core.moment import EPOCH, parse_moment
from dockbell.core.reading.response import Response

WINDOW: Final = timedelta(seconds=60)
"""The service counts requests per minute (api-spec.md, "Limits")."""

_DATE_RESOLUTION: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = timedelta(days=1)
_PLAUSIBLE_SKEW: Final = timedelta(days=1)
# A reset below this is no Unix time (1971), but the seconds that are left, as many APIs write it.
_SECONDS_LEFT_MOST: Final = 31_536_000
_NUMBER: Final = re.compile(r"\s*(\d{1,15})")


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """When the service worked on a request, by its own clock.

    Attributes:
        asked_at: At the earliest; what was visible before is in the answer.
        answered_at: At the latest.
        clock: What both were taken from.
    """

    asked_at: datetime
    answered_at: datetime
    clock: ClockSource


def service_time(response: Response) -> ServiceTime:
    """Return when the service worked on a request, by its own clock where it shows one."""
    if (date := read_date(response)) is not None:
        round_trip = response.answered_at - response.sent_at
        return ServiceTime(date - round_trip, date + _DATE_RESOLUTION, ClockSource.DATE)
    reset = read_reset(response)
    if isinstance(reset, datetime) and abs(reset - response.sent_at) < _PLAUSIBLE_SKEW:
        return ServiceTime(reset - WINDOW, reset, ClockSource.RESET)
    return ServiceTime(response.sent_at, response.answered_at, ClockSource.LOCAL)


def read_age(response: Response) -> timedelta:
    """Return for how long a cache has kept an answer, by its own word; nothing where it says nothing."""
    seconds = _number(response.headers.get("age"))
    return timedelta(seconds=min(seconds or 0, _LONGEST_WAIT.total_seconds()))


def read_allowance(response: Response) -> Allowance | None:
    """Return what the answer says is left of the budget, None where it does not.

    Where the reset lies in no window around the service's time, it is told by another clock: then a whole window may be
    left. :class:`~dockbell.core.reading.allowance.WindowClock` knows more, from several answers.
    """
    limit, remaining = (_number(response.headers.get(f"x-ratelimit-{name}")) for name in ("limit", "remaining"))
    if not limit or remaining is None:
        return None
    reset = read_reset(response)
    resets_in = reset - _now_of(response) if isinstance(reset, datetime) else reset
    if resets_in is None or not -_DATE_RESOLUTION <= resets_in <= WINDOW:
        resets_in = WINDOW
    return Allowance(limit, remaining, max(resets_in, timedelta(0)))


def read_retry_after(response: Response) -> timedelta | None:
    """Return how long the API asks to wait: ``Retry-After`` in both forms, else until the reset; a day at most."""
    text = response.headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None:
        wait = timedelta(seconds=min(seconds, _LONGEST_WAIT.total_seconds()))
    elif (date := _http_date(text)) is not None:
        wait = date - _now_of(response)
    else:
        allowance = read_allowance(response)
        return None if allowance is None else allowance.resets_in
    return min(max(wait, timedelta(0)), _LONGEST_WAIT)


def read_date(response: Response) -> datetime | None:
    """Return what ``Date`` says, None where it says nothing."""
    return _http_date(response.headers.get("date"))


def read_reset(response: Response) -> datetime | timedelta | None:
    """Return what ``x-ratelimit-reset`` says: when the window ends, or in how long; None where it says nothing."""
    number = _number(response.headers.get("x-ratelimit-reset"))
    if number is not None and number <= _SECONDS_LEFT_MOST:
        return timedelta(seconds=number)
    return parse_moment(number)


def _now_of(response: Response) -> datetime:
    return read_date(response) or response.answered_at


def _number(text: str | None) -> int | None:
    match = _NUMBER.match(text or "")
    return None if match is None else int(match[1])


def _http_date(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = parsedate_to_datetime(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if EPOCH.year <= moment.year < MAXYEAR else None
