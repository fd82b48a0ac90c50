"""Whether a record is deleted, and the change that says so (docs/guarantees.md, Deletions).

A complete pass shows which records are absent. :func:`assess_absences` decides whether the pass may delete anything,
:func:`decide_deletion` what becomes of each absent record that was requested by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum, StrEnum
from typing import Final

import msgspec

from dockbell.core.model import Change, ChangeKind, DeletionReason, Feed, Key, Via

SAMPLE: Final = 20
"""So many absent records are requested one by one before a complete pass deletes anything."""


_PASSES_UNSTEADY: Final = 4


class Absence(StrEnum):
    """What a complete pass says about the records that it did not show."""

    NONE = "nothing is absent"
    SUSPECTED = "suspected until a second pass confirms it"
    SUSPENDED_EMPTY = "the pass showed no records, although some are stored"
    SUSPENDED_MANY = "more deletions than are believed in a day"

    @property
    def is_suspended(self) -> bool:
        """Whether deletions are suspended until the records are seen again or an operator decides."""
        return self in (Absence.SUSPENDED_EMPTY, Absence.SUSPENDED_MANY)


class Census(msgspec.Struct, frozen=True):
    """What is known when a complete pass ends."""

    stored: int  # records that were stored when the pass began and are not tombstones
    absent: int  # how many of them no request has shown since
    shown: int  # records that the pass showed
    deleted_lately: int  # deletions of the last 24 hours


def allowance(stored: int) -> int:
    """Return how many deletions a day are believed for ``stored`` records: min(max(20, 10 %), max(2, 50 %))."""
    return min(max(20, stored // 10), max(2, stored // 2))


def assess_absences(census: Census) -> Absence:
    if census.absent == 0:
        return Absence.NONE
    if census.shown == 0:
        return Absence.SUSPENDED_EMPTY
    if census.absent + census.deleted_lately > allowance(census.stored + census.deleted_lately):
        return Absence.SUSPENDED_MANY
    return Absence.SUSPECTED


def passes_needed(absent: int, *, repeated: int) -> int:
    """Return how many earlier passes must have missed a record for this one to confirm that it is absent.

    Each record that a pass showed twice may have pushed another past a page edge, and the same in the next pass.
    """
    return 1 if repeated < absent else _PASSES_UNSTEADY


class NotDeleted(Enum):
    """Why an absent record is not deleted after a request for it alone."""

    WAITS = "another response or another pass decides"
    THERE = "the record exists, although the list does not show it"


def decide_deletion(
    answer: bool | None, *, confirmed: bool, repeated: bool, under_query: bool
) -> DeletionReason | NotDeleted:
    """Return why an absent record is deleted, or why it is not, after a request for it alone.

    ``answer``: whether it is there; None where the answer does not tell. ``confirmed``: a second pass confirms its
    absence from the list. ``repeated``: an earlier answer, by ``stale_window`` at least, was that it is not there.
    ``under_query``: the list shows only the records that match a query, and a record may have stopped matching.
    """
    if answer is False:
        # One answer alone may come from a replica that does not know the record yet.
        return DeletionReason.NOT_FOUND if confirmed or repeated else NotDeleted.WAITS
    if answer and confirmed and not under_query:
        return NotDeleted.THERE  # an unconfirmed one may come from a replica that has not deleted it yet
    if not confirmed:
        return NotDeleted.WAITS
    return DeletionReason.LEFT if answer else DeletionReason.ABSENT


def choose_sample(rows: Sequence[int]) -> Sequence[int]:
    """Return ``SAMPLE`` rows, spread evenly over the given ones; all of them where they are not more."""
    count = min(len(rows), SAMPLE)
    return [rows[len(rows) * place // count] for place in range(count)]


def delete(
    feed: Feed,
    key: Key,
    revision: int,
    between: tuple[datetime | None, datetime],
    reason: DeletionReason,
    *,
    before: bytes | None,
    now: datetime,
) -> Change:
    """Return the ``deleted`` of a record; ``revision`` is the one before, ``before`` None where that is erased."""
    return Change(
        feed=feed,
        key=key,
        kind=ChangeKind.DELETED,
        revision=revision + 1,
        before=before,
        changed_between=between,
        detected_at=now,
        via=Via.OPERATOR if reason is DeletionReason.PURGED else Via.PASS,
        reason=reason,
    )


def purge(feed: Feed, key: Key, revision: int, now: datetime) -> Change:
    """Return the ``deleted`` of a record that an operator purges: it tells receivers to erase the content too."""
    return delete(feed, key, revision, (None, now), DeletionReason.PURGED, before=None, now=now)
