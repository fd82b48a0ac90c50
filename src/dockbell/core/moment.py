"""Points in time as the API writes them: Z, offsets or none, s to µs, epochs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from dockbell.core.model import JSON

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_ISO: Final = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[Tt ](?P<time>\d{2}:\d{2}(?::\d{2})?)(?:[.,](?P<fraction>\d{1,12}))?"
    r"\s?(?P<zone>[Zz]|[+-]\d{2}(?::?\d{2})?)?"
)
# An integer is an epoch: below this in seconds (until the year 5138), above it in milliseconds.
_MILLISECONDS_FROM: Final = 100_000_000_000


def parse_moment(value: JSON) -> datetime | None:
    """Return the UTC time that a JSON value states, or None when it states none.

    Accepts ISO 8601 with ``Z``, an offset or neither (then UTC), up to any precision (kept to µs), and integer epochs
    in seconds or milliseconds.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 < value < _MILLISECONDS_FROM * 1000:
            return None
        return EPOCH + (timedelta(seconds=value) if value < _MILLISECONDS_FROM else timedelta(milliseconds=value))
    if not isinstance(value, str):
        return None
    match = _ISO.fullmatch(value)
    if match is None:
        return None
    fraction = f".{match['fraction']}" if match["fraction"] else ""
    try:
        text = f"{match['date']}T{match['time']}{fraction}{match['zone'] or 'Z'}"
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def format_moment(moment: datetime) -> str:
    """Return ISO 8601 in UTC with milliseconds and ``Z``, as in every event; finer digits are cut, never rounded up."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def to_micros(moment: datetime) -> int:
    """Return whole microseconds since 1970, as stored."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    """Return the time of a stored number of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)
