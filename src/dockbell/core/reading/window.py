"""The watermark: from where a poll asks, and what a run that ended has proven.

The service shows ``updated_at`` stamps that it set before the records became visible, pages that shift while they are
read, and clocks that are not ours. So the watermark is never taken from a record: it is the service's own time when a
request was made, and it moves only on proof (docs/guarantees.md):

- A run of *one page* is one answer: everything modified before its request, and visible then, was in it. The watermark
  becomes the service's time of that request.
- A run of *several pages* may have lost records at page edges: with offset cursors, a record that is modified while the
  run goes on moves to the end of the list, and its successors slip one place towards pages already read. The service's
  time of its first request is only a *candidate*. The next run asks for the same window again, and when it met nothing
  unseen that the following window would leave out, the candidate becomes the watermark. Each run is at the same time a
  repeat of the one before and a candidate itself, so under steady load the watermark trails by one run.

"Unseen that the following window would leave out" means: dated before the start of that window. A record dated later is
read again by the next window anyway; counting it, as a stricter reading of the rule would, lets commits that become
visible a few seconds late keep the watermark in place for ever while the window grows without bound.

The watermark is a time of the service's clock; the stamps may come from another. A database that runs behind, or local
times written without a zone, date a change made now before the watermark, by seconds or by hours, and a window that
starts at the watermark would never show it. So a poll asks from the *newest* timestamp met, where that is older, less
the lookback. This may only make a window larger: a clock that runs ahead, or one record dated 2099, moves nothing.
``newest`` says where the records' clock stood when the service's stood at the watermark, so both move together: while a
candidate waits for its repeat, both stay, or the repeat would start later than the run that it repeats. And of a run
that met news it is taken less the time from the watermark to its last answer, because what is dated within that time
may have slipped past the run.

Where nothing changes for long, ``newest`` stays while the watermark goes on, and each poll reads the same last records
again. That is a page at most, unless the last thing that happened was a bulk update. A *tick*, one timestamp that
thousands of records carry, would cost hundreds of pages a poll until it is out of the window: once two clean runs in a
row have read it whole, polls start after it. The same ends the reading of a bulk that was spread over many timestamps,
once the feed is quiet and ``newest`` itself is out of the lookback. What becomes visible in there later still is met by
the *trailing* poll, which looks back much further, knows of no tick, is made seldom and proves nothing.

Whatever happens, the watermark never goes back, never moves on an error, and re-reading costs requests, never a second
event.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from dockbell.core.model import ClockSource
from dockbell.core.moment import EPOCH

AUTO_LOOKBACK: Final = timedelta(seconds=60)
"""How far back a poll starts by default: commits may become visible this late and are still met by polls."""
BLIND_LOOKBACK: Final = timedelta(minutes=2)
"""The least lookback where the service's clock is not known and ours stands in for it."""
TRAILING_FACTOR: Final = 15
"""How many lookbacks a trailing poll looks back."""
TRAILING_LOOKBACK: Final = timedelta(minutes=15)
"""How far a trailing poll looks back at the least."""
TRAILING_INTERVALS: Final = 20
TRAILING_EVERY: Final = timedelta(minutes=5)
"""A trailing poll follows after so many polls, and not sooner than this."""
HEAVY_TICK_RECORDS: Final = 600
"""More records than this on one timestamp make a tick: they cost more than three pages."""
TICK_READS: Final = 2
"""So many clean runs in a row must have read a tick whole before polls leave it out."""
NARROW: Final = 0.7
"""A lookback is about to be too small when records become visible later than this part of it."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_SECOND: Final = timedelta(seconds=1)
_HEAVY_PAGES: Final = 3


class Progress(msgspec.Struct, frozen=True):
    """What the polls of one feed have proven."""

    watermark: datetime | None = None
    """Everything that was visible and modified before this is committed; None before the first request."""
    candidate: datetime | None = None
    """The service's time of the first request of the last complete run of several pages, until a repeat confirms it."""
    newest: datetime | None = None
    """Where the records' own clock stood at the watermark, going by the newest timestamp met; None until one was."""
    tick: datetime | None = None  # the timestamp of a bulk update that polls have met
    tick_reads: int = 0  # how many clean complete runs in a row have read the tick whole, at most ``TICK_READS``


class Proof(msgspec.Struct, frozen=True):
    """What one poll found, as far as the watermark is concerned."""

    asked_at: datetime  # the service's time of the run's first request
    pages: int  # how many pages it had
    complete: bool  # every page was read, parsed and committed, without an anomaly
    oldest_unseen: datetime | None = None
    """The oldest timestamp among the records that no earlier reading had shown in this state."""
    newest: datetime | None = None
    """The newest timestamp among all its records, seen before or not, that was not in the service's future when it was
    read."""
    tick: datetime | None = None
    """The latest timestamp, at the feed's precision, that more than ``HEAVY_TICK_RECORDS`` of its records carry."""
    answered_at: datetime | None = None
    """The service's time of its last answer; None says the time of its first request."""


class Advance(StrEnum):
    """Why the watermark moved, or did not."""

    ONE_PAGE = "one page read whole"
    CONFIRMED = "confirmed by a repeated run"
    CANDIDATE = "several pages: to be confirmed by the next run"
    CONTRADICTED = "the repeated run found records that the first had missed"
    INCOMPLETE = "the run ended incomplete"


def choose_lookback(
    setting: timedelta | Literal["auto"], clock: ClockSource | None, learned: timedelta = AUTO_LOOKBACK
) -> timedelta:
    """Return how far before the watermark a poll starts; ``learned``: what the lateness of the records asks for."""
    lookback = learned if setting == "auto" else setting
    return max(lookback, BLIND_LOOKBACK) if clock in (None, ClockSource.LOCAL) else lookback


def is_narrow(lookback: timedelta, lateness: timedelta) -> bool:
    """Return whether a fixed lookback is about to be too small, going by how late records become visible."""
    return lateness > lookback * NARROW


def open_window(progress: Progress, lookback: timedelta, precision: timedelta = _SECOND) -> datetime:
    """Return the ``updated_since`` of the next poll.

    It is whole in seconds, or in the unit of the timestamps where that is coarser, unless it follows a tick, which is
    left out to the millisecond, the finest that can be asked for. There must be a watermark.
    """
    start = _start(progress, lookback, precision)
    if progress.tick is None or progress.tick_reads < TICK_READS or progress.watermark is None:
        return start
    after_tick = _following(progress.tick)
    return max(start, after_tick) if after_tick <= progress.watermark else start


def open_trailing_window(progress: Progress, lookback: timedelta, precision: timedelta = _SECOND) -> datetime:
    """Return the ``updated_since`` of the next trailing poll, which leaves out no tick; there must be a watermark."""
    return _start(progress, trailing_lookback(lookback), precision)


def trailing_lookback(lookback: timedelta) -> timedelta:
    """Return how far a trailing poll looks back where polls look back so far."""
    return max(lookback * TRAILING_FACTOR, TRAILING_LOOKBACK)


def trailing_every(every: timedelta | None) -> timedelta:
    """Return the interval of trailing polls of a feed that is polled at this one; None: by a crontab line."""
    return max((every or timedelta(0)) * TRAILING_INTERVALS, TRAILING_EVERY)


def _start(progress: Progress, lookback: timedelta, precision: timedelta) -> datetime:
    return _round_down(covered_until(progress) - lookback, max(precision, _SECOND))


def covered_until(progress: Progress) -> datetime:
    """Return up to which timestamp the polls have covered the feed; there must be a watermark.

    The runs that brought the watermark to where it is cover all dates since the feed's first request without a break.
    So a record dated before, whose timestamp had advanced and which no run had shown, was late: visible only after its
    date by the difference at least. Runs that are not proven, and time when nothing was read, say nothing of that.
    """
    assert progress.watermark is not None, "nothing is polled before the feed's first request"
    return progress.watermark if progress.newest is None else min(progress.watermark, progress.newest)


def _following(tick: datetime) -> datetime:
    """Return the next time that can be asked for: what is dated later in the same second must not be left out."""
    return _round_down(tick, _MILLISECOND) + _MILLISECOND


def _round_down(moment: datetime, unit: timedelta) -> datetime:
    return moment - (moment - EPOCH) % unit


def anchor(progress: Progress, newest: datetime | None, read_in: timedelta) -> Progress:
    """Return the progress after the first pass, which alone can tell the records' clock before a poll has shown any.

    ``newest`` is the newest timestamp of the pass that was not in the service's future when it was read. The next poll
    looks back over ``read_in``, from the pass's first request to its last answer, because records may have changed
    after the pass had read them.
    """
    if newest is None or progress.newest is not None:
        return progress
    return replace(progress, newest=newest - read_in)


def advance(
    progress: Progress, proof: Proof, lookback: timedelta, precision: timedelta = _SECOND
) -> tuple[Progress, Advance]:
    """Return what is proven after a poll, and why; ``lookback`` and ``precision`` as its window was opened with."""
    oldest, candidate = proof.oldest_unseen, progress.candidate
    if not proof.complete:
        # What it met is stored now, so that no later run will meet it unseen: the candidate must not outlive it.
        contradicted = oldest is not None and candidate is not None and oldest < candidate - lookback
        kept = progress if progress.tick_reads >= TICK_READS else replace(progress, tick=None, tick_reads=0)
        return replace(kept, candidate=None if contradicted else candidate), Advance.INCOMPLETE
    tick, tick_reads = _watch_tick(progress, proof, lookback)
    watched = replace(progress, tick=tick, tick_reads=tick_reads)
    if proof.pages <= 1:
        return _move(watched, proof, proof.asked_at, candidate=None), Advance.ONE_PAGE
    if candidate is None:
        return replace(watched, candidate=proof.asked_at), Advance.CANDIDATE
    confirmed = _move(watched, proof, candidate, candidate=proof.asked_at)
    if oldest is not None and oldest < _start(confirmed, lookback, precision):
        return replace(watched, candidate=proof.asked_at), Advance.CONTRADICTED
    return confirmed, Advance.CONFIRMED


def _move(progress: Progress, proof: Proof, proven: datetime, *, candidate: datetime | None) -> Progress:
    watermark = _latest(progress.watermark, proven)
    newest = proof.newest
    if newest is not None:
        if proof.oldest_unseen is not None:
            newest -= max((proof.answered_at or proof.asked_at) - watermark, timedelta(0))
        newest = _latest(progress.newest, newest)
    return replace(progress, watermark=watermark, candidate=candidate, newest=newest or progress.newest)


def _watch_tick(progress: Progress, proof: Proof, lookback: timedelta) -> tuple[datetime | None, int]:
    """Return the tick to watch after a complete run, and how many runs in a row have read it whole."""
    oldest, newest = proof.oldest_unseen, proof.newest
    quiet = oldest is None and newest is not None and newest < proof.asked_at - lookback
    tick = newest if quiet and proof.pages > _HEAVY_PAGES else proof.tick
    if tick is None:
        # The polls that leave a tick out do not meet it; one that should have met it and did not shows that it is gone.
        return (progress.tick, progress.tick_reads) if progress.tick_reads >= TICK_READS else (None, 0)
    if tick != progress.tick or (oldest is not None and oldest < _following(tick)):
        return tick, 1
    return tick, min(progress.tick_reads + 1, TICK_READS)


def _latest(known: datetime | None, moment: datetime) -> datetime:
    return moment if known is None else max(known, moment)


BEHIND_MOST: Final = timedelta(days=1)
"""The records' clock is assumed to be behind by no more than this: local time is at most 14 h off."""

_MARGIN: Final = 0.99
"""An API that accepts a week refuses a start that is a week old when the request arrives."""
_AGES: Final = tuple(
    each * _MARGIN
    for each in (
        *(timedelta(days=days) for days in (365, 180, 90, 60, 30, 14, 7, 3, 2, 1)),
        *(timedelta(hours=hours) for hours in (12, 6, 3, 1)),
        *(timedelta(minutes=minutes) for minutes in (30, 10, 2)),
    )
)


class BoundWindow(NamedTuple):
    """From when a poll asks."""

    since: datetime  # its ``updated_since``
    is_covered: bool  # all that it leaves out was read before


def ages_to_try(refused: timedelta) -> Sequence[timedelta]:
    """Return the ages that an API may accept which refused a start of this age, the longest first."""
    return tuple(age for age in _AGES if age < refused * _MARGIN)


def bound_window(
    since: datetime,
    reach: timedelta | None,
    *,
    now: datetime,
    read_until: datetime,
    behind: timedelta,
    lookback: timedelta,
) -> BoundWindow:
    """Return from when a poll asks that would start at ``since`` if the API took any start.

    Some APIs refuse an ``updated_since`` that is older than a week, or a day. A poll asks for more than that after a
    long outage, or on a feed where nothing changes for long: its window starts at the newest timestamp met. ``reach``
    is the age of the oldest start that the API accepts, found by asking once; None where no bound is known.

    A window that is cut at the reach covers everything if what it leaves out was read before: everything that was
    visible before ``read_until`` (a service time), by the polls that brought the watermark to where it is, or by a
    complete pass. Records may be dated before that and become visible after it, by ``behind``, as far as their clock is
    behind the service's, and by ``lookback``. Where the cut window does not cover everything, the poll still reports
    what it shows, but it proves nothing, and a pass has to read what lies between.
    """
    if reach is None or now - since <= reach:
        return BoundWindow(since, is_covered=True)
    oldest = now - reach
    # A bound shorter than the allowance would never be covered, and no pass would help.
    allowance = min(behind, BEHIND_MOST, reach / 2) + min(lookback, reach / 4)
    return BoundWindow(oldest, is_covered=oldest <= read_until - allowance)
