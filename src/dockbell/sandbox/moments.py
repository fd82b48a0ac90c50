"""Points in time as the sandbox writes them, and as whole microseconds since 1970 inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from dockbell.sandbox.options import SandboxOptions

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
TICKS: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000}
"""Microseconds of each precision that timestamps can have."""
_DIGITS: Final = {"us": "microseconds", "ms": "milliseconds", "s": "seconds", "min": "seconds"}
_OFFSETS: Final = {"Z": 0, "none": 0, "+00:00": 0, "+02:00": 7_200_000_000, "-09:30": -34_200_000_000}
_PLAIN: Final = ("iso", "us", "Z")
_DAY_LENGTH: Final = len("2026-11-21")


def to_micros(moment: datetime) -> int:
    """Return the microseconds since 1970 of an aware time."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the UTC time of a number of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def format_micros(micros: int) -> str:
    """Return ISO 8601 in UTC with all six digits of the second and ``Z``."""
    return from_micros(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")


def write_stamp(micros: int, options: SandboxOptions) -> str | int | None:
    """Return a record's timestamp in the chosen form; it is already cut to its precision."""
    form, precision, offset = options.timestamp_form, options.timestamp_precision, options.timestamp_offset
    if (form, precision, offset) == _PLAIN:
        return format_micros(micros)
    if form == "epoch":
        return micros // min(TICKS[precision], TICKS["s"])
    if form == "null":
        return None
    if form == "ctime":
        return from_micros(micros).ctime()
    local = from_micros(micros + _OFFSETS[offset]).replace(tzinfo=None).isoformat(timespec=_DIGITS[precision])
    if form == "date":
        return local[:_DAY_LENGTH]
    return local if offset == "none" else local + offset
