"""One complete answer of the API: what its status, its headers and its words mean.

``Date`` and ``x-ratelimit-reset`` are "not shown" in the API's description, so each may be missing or odd.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import MAXYEAR, UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

import msgspec

from dockbell.core.model import JSON, Allowance, ClockSource
from dockbell.core.moment import EPOCH, parse_moment
from dockbell.core.reading.request import Request
from dockbell.errors import CursorExpired, RateLimited, RequestRefused, SourceRefused, SourceUnavailable

NOT_FOUND: Final = frozenset({404, 410})
"""What is asked for does not exist, or no longer."""
NOT_MODIFIED: Final = 304
"""What was asked for is what was given before, under the same ``ETag``."""
WINDOW: Final = timedelta(seconds=60)
"""The service counts requests per minute (api-spec.md, "Limits")."""
MALFORMED: Final = (msgspec.DecodeError, ValueError, RecursionError)
"""What is raised for text that is no JSON, bytes that are no UTF-8, and brackets nested without end."""
WHERE_WORDS_ARE: Final = ("message", "detail", "error_description", "title", "error", "errors", "code")
"""The members in which APIs explain an error, the likeliest first."""

_DATE_RESOLUTION: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
# A reset below this is no Unix time (1971), but the seconds that are left, as many APIs write it.
_SECONDS_LEFT_MOST: Final = 31_536_000
_NUMBER: Final = re.compile(r"\s*(\d{1,15})")
_JSON: Final = msgspec.json.Decoder()
_LONGEST: Final = 200
_QUERY: Final = re.compile(r"\?\S+")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CURSOR_LOST: Final = frozenset({400, 404, 410, 422})
_PASSING: Final = frozenset({408, 425})
_PARTIAL_CONTENT: Final = 206


class Response(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]  # by name in lower case
    body: bytes  # without its content coding
    sent_at: datetime  # our time before the request was sent
    answered_at: datetime  # our time when the head of the answer came
    received_at: datetime  # our time when the answer was complete
    ticks: timedelta = timedelta(0)  # our monotonic clock before the request was sent, as the time since its origin


class ServiceTime(msgspec.Struct, frozen=True):
    """When the service worked on a request, by its own clock."""

    asked_at: datetime  # at the earliest; what was visible before is in the answer
    answered_at: datetime  # at the latest
    clock: ClockSource


def service_time(response: Response) -> ServiceTime:
    if (date := read_date(response)) is not None:
        round_trip = response.answered_at - response.sent_at
        return ServiceTime(date - round_trip, date + _DATE_RESOLUTION, ClockSource.DATE)
    reset = read_reset(response)
    if isinstance(reset, datetime) and abs(reset - response.sent_at) < _DAY:
        return ServiceTime(reset - WINDOW, reset, ClockSource.RESET)
    return ServiceTime(response.sent_at, response.answered_at, ClockSource.LOCAL)


def read_age(response: Response) -> timedelta:
    """Return for how long a cache has kept an answer, by its own word; nothing where it says nothing."""
    return timedelta(seconds=min(_number(response.headers.get("age")) or 0, _DAY.total_seconds()))


def read_allowance(response: Response) -> Allowance | None:
    """Return what the answer says is left of the budget, None where it does not.

    Where the reset lies in no window around the service's time, it is told by another clock: then a whole window may be
    left. :class:`~dockbell.core.reading.clock.WindowClock` knows more, from several answers.
    """
    limit, remaining = (_number(response.headers.get(f"x-ratelimit-{name}")) for name in ("limit", "remaining"))
    if not limit or remaining is None:
        return None
    reset = read_reset(response)
    resets_in = reset - (read_date(response) or response.answered_at) if isinstance(reset, datetime) else reset
    if resets_in is None or not -_DATE_RESOLUTION <= resets_in <= WINDOW:
        resets_in = WINDOW
    return Allowance(limit, remaining, max(resets_in, timedelta(0)))


def read_retry_after(response: Response) -> timedelta | None:
    """Return how long the API asks to wait: ``Retry-After`` in both forms, else until the reset; a day at most."""
    text = response.headers.get("retry-after")
    if (seconds := _number(text)) is not None:
        wait = timedelta(seconds=min(seconds, _DAY.total_seconds()))
    elif (date := _http_date(text)) is not None:
        wait = date - (read_date(response) or response.answered_at)
    else:
        allowance = read_allowance(response)
        return None if allowance is None else allowance.resets_in
    return min(max(wait, timedelta(0)), _DAY)


def read_date(response: Response) -> datetime | None:
    return _http_date(response.headers.get("date"))


def read_reset(response: Response) -> datetime | timedelta | None:
    """Return what ``x-ratelimit-reset`` says: when the window ends, or in how long; None where it says nothing."""
    number = _number(response.headers.get("x-ratelimit-reset"))
    if number is not None and number <= _SECONDS_LEFT_MOST:
        return timedelta(seconds=number)
    return parse_moment(number)


def _number(text: str | None) -> int | None:
    match = _NUMBER.match(text or "")
    return None if match is None else int(match[1])


@lru_cache(maxsize=16)
def _http_date(text: str | None) -> datetime | None:
    # Several ask for the date of one answer, and all answers of a second have the same.
    if not text:
        return None
    try:
        moment = parsedate_to_datetime(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if EPOCH.year <= moment.year < MAXYEAR else None


def excerpt(response: Response) -> str:
    """Return what the API itself says about an error, ready to follow a fact: ``, "no such status"``; often empty."""
    try:
        words = find_words(_JSON.decode(response.body))
    except MALFORMED:
        is_text = response.headers.get("content-type", "").lower().startswith("text/plain")
        words = response.body.decode(errors="replace") if is_text else ""
    return quote(words)


def quote(words: str) -> str:
    """Return words ready to follow a fact: ``, "no such status"``; empty for none."""
    return f', "{cleaned}"' if (cleaned := clean(words)) else ""


def find_words(value: JSON, depth: int = 3) -> str:
    """Return the first text where an error is explained, at most ``depth`` levels down; empty where there is none."""
    if isinstance(value, str):
        return value
    if depth and isinstance(value, list):
        return find_words(value[0], depth - 1) if value else ""
    if depth and isinstance(value, dict):
        return next(filter(None, (find_words(value.get(name), depth - 1) for name in WHERE_WORDS_ARE)), "")
    return ""


def clean(words: str) -> str:
    """Return foreign words fit for a log line: short, on one line, nothing unprintable, no query strings."""
    printable = "".join(letter if letter.isprintable() else " " for letter in words[: 10 * _LONGEST])
    line = " ".join(_QUERY.sub("?…", printable).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def check_status(request: Request, response: Response) -> None:
    """Raise what the status of an answer means; return when it is a success.

    Raises:
        SourceRefused: The key is not accepted (401, 403), or the API is elsewhere (3xx).
        RequestRefused: The request as such is not accepted.
        RateLimited: The key's budget is used up (429).
        CursorExpired: 400, 404, 410 or 422 on a page after the first.
        SourceUnavailable: Everything that passes by itself.
    """
    status = response.status
    fact = f"{request}: HTTP {status}"
    if status == _PARTIAL_CONTENT:
        raise SourceUnavailable(f"{fact}, a partial answer, which was not requested")
    if 200 <= status < 300:  # noqa: PLR2004  # the class of successes
        return
    if status in _REDIRECTS:
        host = re.match(r"https?://(?:[^/?#@]*@)?([^/?#]+)", response.headers.get("location", ""), re.IGNORECASE)
        where = clean(host[1]) if host else "the same host"
        raise SourceRefused(
            f"{fact}, a redirect to {where} that dockbell does not follow; set base_url to the address of the API"
        )
    said = excerpt(response)
    if status == 401:  # noqa: PLR2004  # api-spec.md, "Errors"
        raise SourceRefused(f"{fact}{said}; the API does not accept the key, check api_key")
    if status == 403:  # noqa: PLR2004  # same
        raise SourceRefused(f"{fact}{said}; the API does not allow this to the key, change its permissions or api_key")
    if status == 429:  # noqa: PLR2004  # api-spec.md, "Errors"
        raise RateLimited(f"{fact}, the key's budget is used up", read_retry_after(response))
    if request.continues and status in _CURSOR_LOST:
        is_refusal = status not in NOT_FOUND
        left = "the API rejected the cursor" if is_refusal else "the cursor has expired"
        raise CursorExpired(f"{fact}{said}; {left}", is_refusal=is_refusal)
    if 400 <= status < 500 and status not in _PASSING:  # noqa: PLR2004  # the class of the client's faults
        raise RequestRefused(f"{fact}{said}; check base_url and the query of this resource")
    raise SourceUnavailable(f"{fact}{said}")
