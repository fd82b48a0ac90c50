"""What a page shows of its listing: cheap looks into its records, and their keys and dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from dockbell.core import pointer
from dockbell.core.key import head_decoder
from dockbell.core.model import JSON, Page
from dockbell.core.moment import EPOCH, parse_moment, to_micros

RECORDS_LEAST: Final = 10
"""So many records of a page, or different values of them, teach something; fewer may agree by chance."""
LONGEST: Final = 80
"""No stored word of a listing is longer."""
UNITS: Final = {
    "days": timedelta(days=1),
    "minutes": timedelta(minutes=1),
    "seconds": timedelta(seconds=1),
    "milliseconds": timedelta(milliseconds=1),
    "microseconds": timedelta(microseconds=1),
}
"""The units of timestamps, the coarsest first."""
MICROS: Final = {name: unit // timedelta(microseconds=1) for name, unit in UNITS.items()}
"""The same in microseconds."""

_OFFSET: Final = re.compile(r"[+-]\d{2}(?::?\d{2})?\Z")


class Sampler:
    """Looks into raw records of one feed for what their comparison does not tell; built once per shape."""

    def __init__(self, *, key: Sequence[str], updated_at: str | None, created_at: str | None = None) -> None:
        self._key = [pointer.parse(part) for part in key]
        self._updated_at = None if updated_at is None else pointer.parse(updated_at)
        self._created_at = None if created_at is None else pointer.parse(created_at)
        self._head = head_decoder(*self._key, self._updated_at, self._created_at)

    @property
    def is_dated(self) -> bool:
        return self._updated_at is not None

    @property
    def knows_created(self) -> bool:
        return self._created_at is not None

    def head(self, raw: bytes) -> JSON:
        try:
            return self._head.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return None

    def key_kind(self, head: JSON) -> str:
        """Return what the parts of a key are, ``text`` or ``integer``; empty where one is neither."""
        kinds = []
        for tokens in self._key:
            value = pointer.resolve(head, tokens)
            if type(value) is str:
                kinds.append("text")
            elif type(value) is int:
                kinds.append("integer")
            else:
                return ""
        return ", ".join(kinds)[:LONGEST]

    def time_form(self, head: JSON, expected: str) -> str:
        """Return how a timestamp is written, empty for none; what looks as ``expected`` is not read any further."""
        if self._updated_at is None:
            return ""
        value = pointer.resolve(head, self._updated_at)
        form = ""
        if type(value) is str:
            form = "Z" if value.endswith(("Z", "z")) else "offset" if _OFFSET.search(value, 10) else "naive"
            if form == expected:
                return form
        moment = parse_moment(value)
        if moment is None:
            return ""
        if form:
            return form
        elapsed = (moment - EPOCH) // UNITS["microseconds"]
        return next(name for name, micros in MICROS.items() if value * micros == elapsed)

    def created(self, records: Sequence[bytes]) -> list[int]:
        """Return the creation times of those records that have one, in µs since 1970."""
        return self._times(records, self._created_at)

    def updated(self, records: Sequence[bytes]) -> list[int]:
        """Return the timestamps of those records that have one, in µs since 1970."""
        return self._times(records, self._updated_at)

    def _times(self, records: Sequence[bytes], tokens: pointer.Tokens | None) -> list[int]:
        if tokens is None:
            return []
        times = [parse_moment(pointer.resolve(self.head(raw), tokens)) for raw in records]
        return [to_micros(time) for time in times if time is not None]


class Head(NamedTuple):
    """How a page begins: the key string and the date of its first record; None where it has none."""

    key: str | None
    date: int | None


class Sighting(NamedTuple):
    """What the comparison of a page tells of its records, in their order."""

    sampler: Sampler
    keys: Sequence[str]  # their key strings; those of bad records may be left out
    dates: Sequence[int | None]
    """Their own timestamps as this page shows them, in µs since 1970; None for one that has none."""
    polled: bool = False  # the page is of a poll, which may be ordered otherwise than the whole list
    before: Head | None = None
    """How the page before it in the same run began; None for the first, or where that is not known."""

    @property
    def head(self) -> Head:
        return Head(next(iter(self.keys), None), next((date for date in self.dates if date is not None), None))


class PageView(NamedTuple):
    """One page, as the observations look at it."""

    page: Page
    sighting: Sighting
    stamps: list[int]  # the dates that there are; ``newest`` is the latest of them
    newest: int
    ends: tuple[JSON, JSON]  # the first and the last record, in part
    teaches: bool  # whether it is long enough to learn from


def view_page(page: Page, sighting: Sighting) -> PageView:
    stamps, head = [date for date in sighting.dates if date is not None], sighting.sampler.head
    return PageView(
        page=page,
        sighting=sighting,
        stamps=stamps,
        newest=max(stamps, default=0),
        ends=(head(page.records[0]), head(page.records[-1])),
        teaches=len(page.records) >= RECORDS_LEAST,
    )
