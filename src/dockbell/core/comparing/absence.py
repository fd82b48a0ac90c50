"""Whether records that a complete pass did not show may be called deleted (docs/guarantees.md, Deletions)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from dockbell.core.model import DeletionReason

SAMPLE: Final = 20
"""So many absent records are asked for before anything is concluded from a complete pass."""


class Absence(StrEnum):
    """What a complete pass says about the records that it did not show."""

    NONE = "nothing is absent"
    SUSPECTED = "suspected until a second pass confirms it"
    HELD_EMPTY = "the pass was empty where records are stored"
    HELD_MANY = "more deletions than a day should have"

    @property
    def held(self) -> bool:
        """Whether nothing may be deleted until the records are seen again or an operator decides."""
        return self in (Absence.HELD_EMPTY, Absence.HELD_MANY)


@dataclass(frozen=True, slots=True)
class Census:
    """What is known when a complete pass ends.

    Attributes:
        stored: Records that were stored when the pass began and are not tombstones.
        absent: How many of them no request has shown since.
        shown: Records that the pass showed.
        deleted_lately: Deletions of the last 24 hours.
    """

    stored: int
    absent: int
    shown: int
    deleted_lately: int


def allowance(stored: int) -> int:
    """Return how many deletions a day are believed for ``stored`` records: min(max(20, 10 %), max(2, 50 %))."""
    return min(max(20, stored // 10), max(2, stored // 2))


def judge_absence(census: Census) -> Absence:
    """Return what the absent records of a complete pass are, as a whole."""
    if census.absent == 0:
        return Absence.NONE
    if census.shown == 0:
        return Absence.HELD_EMPTY
    if census.absent + census.deleted_lately > allowance(census.stored + census.deleted_lately):
        return Absence.HELD_MANY
    return Absence.SUSPECTED


class Verdict(Enum):
    """What is known of an absent record that was asked for, where it is no deletion yet."""

    WAITS = "another answer or another pass will tell"
    THERE = "it is there, though the list does not show it"


def judge_answer(
    answer: bool | None, *, confirmed: bool, repeated: bool, under_query: bool
) -> DeletionReason | Verdict:
    """Return what becomes of a record that a complete pass did not show, after it was asked for by itself.

    Args:
        answer: Whether it is there; None where the answer does not tell.
        confirmed: A second pass confirms its absence from the list.
        repeated: An answer from at least ``stale_window`` before was that it is not there.
        under_query: The list shows only the records that match a query: one that is there may have left it.
    """
    if answer is False:
        # One answer alone may be that of a replica which does not know the record yet.
        return DeletionReason.NOT_FOUND if confirmed or repeated else Verdict.WAITS
    if answer and confirmed and not under_query:
        return Verdict.THERE  # before, it may be that of a replica which does not know of the deletion yet
    if not confirmed:
        return Verdict.WAITS
    return DeletionReason.LEFT if answer else DeletionReason.ABSENT


def choose_sample(rows: Sequence[int]) -> Sequence[int]:
    """Return ``SAMPLE`` rows that are spread evenly over some, all where they are not more."""
    count = min(len(rows), SAMPLE)
    return [rows[len(rows) * place // count] for place in range(count)]


class SeenRows:
    """A set of stored rows, one bit each: flat in the number of records (a million rows take 125 kB)."""

    def __init__(self, last_row: int, bits: bytearray | None = None) -> None:
        """Make room for the rows 1 to ``last_row``; later rows are new and never missing, and are not kept."""
        self.last_row = last_row
        self._bits = bits or bytearray(last_row // 8 + 1)
        self.count = sum(map(int.bit_count, self._bits)) if bits else 0

    def add(self, rows: Iterable[int]) -> list[int]:
        """Add rows; return those that were there already."""
        bits, last_row = self._bits, self.last_row
        known = []
        for row in rows:
            if row <= last_row:
                if bits[row >> 3] & 1 << (row & 7):
                    known.append(row)
                else:
                    bits[row >> 3] |= 1 << (row & 7)
                    self.count += 1
        return known

    def __contains__(self, row: int) -> bool:
        """Return whether a row was added."""
        return row <= self.last_row and bool(self._bits[row >> 3] & 1 << (row & 7))

    def grow(self, last_row: int) -> None:
        """Make room for rows up to ``last_row``."""
        if last_row > self.last_row:
            self.last_row = last_row
            self._bits.extend(bytes(max(0, last_row // 8 + 1 - len(self._bits))))

    def to_bytes(self) -> bytes:
        """Return it as text that :meth:`from_bytes` reads."""
        return self.last_row.to_bytes(8) + bytes(self._bits)

    @classmethod
    def from_bytes(cls, text: bytes) -> SeenRows:
        """Return what :meth:`to_bytes` wrote."""
        return cls(int.from_bytes(text[:8]), bytearray(text[8:]))
