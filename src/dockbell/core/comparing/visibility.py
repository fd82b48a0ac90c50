"""When a change became visible in the API: from then on its delay counts.

A reading shows a change that the last complete run before it did not show, so it became visible between the two. Where
the record has a timestamp that the change moved, it says when, to its precision. Where it has none, as those of stock,
or one that the readings contradict, as of a replica that lags, any moment between the two is as likely: the estimates
are spread evenly over them. One alone may be wrong by an interval; over many changes they have the distribution of the
true ones.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

from dockbell.core.comparing.candidate import Facts
from dockbell.core.model import Via
from dockbell.core.moment import EPOCH, from_micros

_GOLDEN: Final = 0.6180339887498949
"""Multiples of the golden ratio, without their whole parts, fill the span from 0 to 1 evenly, however many they are."""
_NONE: Final = timedelta(0)


def find_visible_at(facts: Facts, revision: int) -> datetime | None:
    """Return when a change became visible, by our clock; None where that is not measured: in a first pass.

    ``revision``: the record's change count with it.
    """
    candidate, known, context, page = facts.candidate, facts.known, facts.context, facts.page
    if context.baseline:
        return None
    offset = page.received_at - page.answered_at if page.offset is None else page.offset
    since, until = context.unseen_since(candidate.modified, known), min(page.answered_at, page.received_at - offset)
    is_dated = known is None or known.is_met or candidate.has_moved
    date = context.date(candidate.modified, page.answered_at) if is_dated else None
    if date is not None:
        date = min(date, until)
    hold = facts.hold
    if hold is not None and hold.fingerprint == candidate.fingerprint:  # it was shown before, and not believed
        until = min(until, from_micros(hold.asked_at))
        if since is None or since >= until:  # the runs since then showed it in vain
            since = None if date is not None and date <= until else until
    elif date is None and since is not None and context.via is Via.PASS and since == context.last_pass:
        since = estimate_last_look(since, context.run_asked_at or page.asked_at, page.asked_at)
    place = find_place(candidate.key.text, revision)
    visible_at = estimate_visible_at(since, until, date=date, precision=context.precision, place=place)
    return None if visible_at is None else visible_at + offset


def estimate_visible_at(
    since: datetime | None, until: datetime, *, date: datetime | None, precision: timedelta, place: float
) -> datetime | None:
    """Return when a change became visible that was not shown at ``since`` and was shown at ``until``.

    Never before ``since`` nor after ``until``; None where neither ``since`` nor a date is known.

    Args:
        since: When the last run asked that would have shown it; None where there was none.
        until: When a reading showed it first.
        date: The record's timestamp, where the change moved it.
        precision: The unit of the timestamps: one of 12:00:00 in whole seconds may be of 12:00:00.9.
        place: From 0 to 1: which of the moments that are as likely it is to be.
    """
    begin, end = since, until
    if date is not None and date <= until:
        latest = date + precision if _is_whole(date, precision) else date
        if since is None or since <= latest:  # else the run at ``since`` should have shown it: it became visible later
            begin, end = date if since is None else max(since, date), min(latest, until)
    if begin is None:
        return None
    begin = min(begin, until)
    return begin + max(end - begin, _NONE) * place


def estimate_last_look(last_asked_at: datetime, asked_at: datetime, page_asked_at: datetime) -> datetime:
    """Return when the pass before looked at the records of a page: as long after its begin as this one does.

    A pass takes as long as its interval, so most records were looked at long after its first request. It ended before
    this pass began.
    """
    return min(last_asked_at + max(page_asked_at - asked_at, _NONE), max(last_asked_at, asked_at))


def find_place(key: str, revision: int) -> float:
    """Return a number from 0 up to 1 for a change of a record; those of many changes are spread evenly."""
    start = int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) / 2**64
    return (start + revision * _GOLDEN) % 1.0


def _is_whole(date: datetime, precision: timedelta) -> bool:
    return precision > _NONE and (date - EPOCH) % precision == _NONE
