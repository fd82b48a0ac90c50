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
_USUAL: Final = frozenset({20, 24, 27})  # whole seconds, milliseconds, microseconds
# An integer is an epoch: below the first in seconds (until the year 5138), above it in ms, above the second in µs.
_MILLISECONDS_FROM: Final = 100_000_000_000
_MICROSECONDS_FROM: Final = _MILLISECONDS_FROM * 1000


def parse_moment(value: JSON) -> datetime | None:
    """Return the UTC time that a JSON value states, or None when it states none.

    Accepts ISO 8601 with ``Z``, an offset or neither (then UTC), kept to µs, and integer epochs in s, ms or µs.
    """
    if isinstance(value, str):
        return _parse_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 < value < _MICROSECONDS_FROM * 1000:
            return None
        if value < _MILLISECONDS_FROM:
            return EPOCH + timedelta(seconds=value)
        return EPOCH + (timedelta(milliseconds=value) if value < _MICROSECONDS_FROM else timedelta(microseconds=value))
    return None


def _parse_text(text: str) -> datetime | None:
    try:
        if len(text) in _USUAL and text[-1] == "Z" and text[4:11:3] == "--T":  # five times as fast as what follows
            return datetime.fromisoformat(text)
        match = _ISO.fullmatch(text)
        if match is None:
            return None
        fraction = f".{match['fraction']}" if match["fraction"] else ""
        written = f"{match['date']}T{match['time']}{fraction}{match['zone'] or 'Z'}"
        return datetime.fromisoformat(written.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def format_moment(moment: datetime) -> str:
    """Return ISO 8601 in UTC with milliseconds and ``Z``, as in every event; finer digits are cut, never rounded up."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def write_moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_moment(moment)


def to_micros(moment: datetime) -> int:
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)
