"""Schedules by the calendar: the five fields of cron, in UTC, with names for the days of the week."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator

from dockbell.config.values import show


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    _Field("day of the week", 0, 6, ("mon", "tue", "wed", "thu", "fri", "sat", "sun")),
)
_, _, _MONTH_DAYS, _MONTHS, _DAYS = _FIELDS
_LAST_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ITEM: Final = re.compile(r"(?P<first>\*|[a-z]+|[0-9]{1,2})(?:-(?P<last>[a-z]+|[0-9]{1,2}))?(?:/(?P<step>[0-9]{1,2}))?")


def check_cron(text: str) -> str:
    """Return a schedule in lower case, one space between its fields.

    Raises:
        ValueError: It is none, or one that not every library reads alike.
    """
    fields = text.lower().split()
    if len(fields) != len(_FIELDS):
        wanted = 'five fields (minute, hour, day, month, day of the week) such as "30 6 * * mon-fri"'
        raise ValueError(f"must have {wanted}, got {show(text)}")
    for field, given in zip(_FIELDS, fields, strict=True):
        for item in given.split(","):
            _check_item(field, item)
    _, _, days, months, _ = fields
    if min(_values(_MONTH_DAYS, days)) > max(_LAST_DAYS[month - 1] for month in _values(_MONTHS, months)):
        raise ValueError(f"must come some day, got {show(text)}: no such month has such a day")
    return " ".join(fields)


def _values(field: _Field, given: str) -> list[int]:
    """Return the values that a checked field allows."""
    values: list[int] = []
    for match in map(_ITEM.fullmatch, given.split(",")):
        assert match is not None
        first, last, step = match["first"], match["last"], int(match["step"] or 1)
        if first == "*":
            first, last = str(field.low), str(field.high)
        elif match["step"] and last is None:
            last = str(field.high)
        low, high = (_number(field, value) for value in (first, last or first))
        values.extend(range(low, high + 1, step))
    return values


def _number(field: _Field, value: str) -> int:
    return int(value) if value.isdigit() else field.names.index(value) + field.low


def _check_item(field: _Field, item: str) -> None:
    if field is _DAYS and re.search("[0-9]", item):
        raise ValueError(
            f"day of the week must be a name, got {show(item)}: libraries disagree whether 0 is Sunday or Monday; "
            f"use {', '.join(field.names)}"
        )
    match = _ITEM.fullmatch(item)
    if match is None or not _is_possible(field, match["first"], match["last"], match["step"]):
        names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
        wanted = names.removeprefix(" or ") if field is _DAYS else f"{field.low} to {field.high}{names}"
        raise ValueError(f"{field.name} must be *, {wanted}, a range or a list of them, got {show(item)}")


def _is_possible(field: _Field, first: str, last: str | None, step: str | None) -> bool:
    if first == "*":
        return last is None and _fits(step, field.high - field.low)
    if first in field.names:
        forward = last is None or (last in field.names and field.names.index(first) <= field.names.index(last))
        return forward and step is None
    if not first.isdigit() or not (last or first).isdigit():
        return False
    low, high = int(first), int(last) if last else field.high
    return field.low <= low <= high <= field.high and _fits(step, high - low)


def _fits(step: str | None, width: int) -> bool:
    return step is None or 1 <= int(step) <= width


Cron = Annotated[str, AfterValidator(check_cron)]
