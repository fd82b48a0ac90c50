"""Points in time as the sandbox writes them, and as whole microseconds since 1970 inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Return the microseconds since 1970 of an aware time."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the UTC time of a number of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def format_micros(micros: int) -> str:
    """Return ISO 8601 in UTC with all six digits of the second and ``Z``."""
    return from_micros(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")
