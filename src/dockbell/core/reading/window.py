"""The watermark: from where a poll asks, and what a run that ended has proven.

The service shows ``updated_at`` stamps that it set before the records became visible, pages that shift while they are
read, and a clock that is not ours. So the watermark W is never taken from a record: it is S(r), the service's own time
when a request was made, and it moves only on proof (docs/guarantees.md):

- A run of *one page* is one answer: everything modified before S(its request) and visible then was in it. W = S.
- A run of *several pages* may have lost records at page edges: with offset cursors, a record that is modified while
  the run goes on moves to the end of the list, and its successors slip one place towards pages already read. Its S is
  only a *candidate*. The next run asks for the same window again (W has not moved), and when it met nothing unseen that
  the following window would leave out, the candidate becomes W. Each run is at the same time a repeat of the one before
  and a candidate itself, so under steady load W trails by one run.

"Unseen that the following window would leave out" means: dated before candidate minus lookback. A record dated later is
read again by the next window anyway; counting it, as a stricter reading of the rule would, lets commits that become
visible a few seconds late keep W in place for ever while the window grows without bound.

Whatever happens, W never goes back, never moves on an error, and re-reading costs requests, never a second event.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal

from dockbell.core.model import ClockSource

AUTO_LOOKBACK: Final = timedelta(seconds=60)
"""How far back a poll starts by default: commits may become visible this late and are still met by polls."""
BLIND_LOOKBACK: Final = timedelta(minutes=2)
"""The least lookback where the service's clock is not known and ours stands in for it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the polls of one feed have proven.

    Attributes:
        watermark: Everything that was visible and modified before this is committed; None before the first request.
        candidate: S of the last complete run of several pages, until a repeat confirms it.
    """

    watermark: datetime | None = None
    candidate: datetime | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """What one poll found, as far as the watermark is concerned.

    Attributes:
        asked_at: S of the run's first request.
        pages: How many pages it had.
        complete: Every page was read, parsed and committed, without an anomaly.
        oldest_unseen: The oldest timestamp among the records that no earlier reading had shown in this state.
    """

    asked_at: datetime
    pages: int
    complete: bool
    oldest_unseen: datetime | None = None


class Advance(StrEnum):
    """Why the watermark moved, or did not."""

    ONE_PAGE = "one page read whole"
    CONFIRMED = "confirmed by a repeated run"
    CANDIDATE = "several pages: to be confirmed by the next run"
    CONTRADICTED = "the repeated run met records that the first had missed"
    INCOMPLETE = "the run ended incomplete"


def choose_lookback(setting: timedelta | Literal["auto"], clock: ClockSource | None) -> timedelta:
    """Return how far before the watermark a poll starts; ``clock`` tells the service's time, None while unknown."""
    lookback = AUTO_LOOKBACK if setting == "auto" else setting
    return max(lookback, BLIND_LOOKBACK) if clock in (None, ClockSource.LOCAL) else lookback


def open_window(watermark: datetime, lookback: timedelta) -> datetime:
    """Return the ``updated_since`` of the next poll, rounded down to whole seconds, the coarsest precision in use."""
    return (watermark - lookback).replace(microsecond=0)


def advance(progress: Progress, proof: Proof, lookback: timedelta) -> tuple[Progress, Advance]:
    """Return what is proven after a poll, and why."""
    oldest, candidate = proof.oldest_unseen, progress.candidate
    contradicted = oldest is not None and candidate is not None and oldest < candidate - lookback
    if not proof.complete:
        # What it met is stored now, so that no later run will meet it unseen: the candidate must not outlive it.
        return Progress(progress.watermark, None if contradicted else candidate), Advance.INCOMPLETE
    if proof.pages <= 1:
        return Progress(_latest(progress.watermark, proof.asked_at)), Advance.ONE_PAGE
    if candidate is None:
        return Progress(progress.watermark, proof.asked_at), Advance.CANDIDATE
    if contradicted:
        return Progress(progress.watermark, proof.asked_at), Advance.CONTRADICTED
    return Progress(_latest(progress.watermark, candidate), proof.asked_at), Advance.CONFIRMED


def _latest(watermark: datetime | None, moment: datetime) -> datetime:
    return moment if watermark is None else max(watermark, moment)
