"""How long changes took from the API to the sinks in the last hour, as an operator asks for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Self

import msgspec

from dockbell.core.delays import HOUR, Delay, MeasuredDelays, Reading, begin_of_quarter, count_all, find_slow, merge
from dockbell.core.model import Feed
from dockbell.core.planning.forecast import in_words
from dockbell.ports import ReadStore


class FeedDelays(msgspec.Struct, frozen=True):
    """The delays of the changes of one feed."""

    whole: Delay | None = None  # to whatever sink; None where there were none
    sinks: Mapping[str, Delay] = msgspec.field(default_factory=dict)  # by sink, those without any left out
    predicted: timedelta | None = None
    """How long changes waited for their reading by the plan, in the mean; None where a crontab line says when."""
    slow: Reading | None = None  # how they were read, where that was slower than planned for the whole hour
    buckets: Mapping[int, int] = msgspec.field(default_factory=dict)  # all of them, counted

    @classmethod
    def of(cls, measured: Collection[MeasuredDelays], at: datetime) -> Self:
        reading, by_sink = Reading.of(measured), {each.sink: 0 for each in measured}
        found = {sink: merge(each for each in measured if each.sink == sink) for sink in by_sink}
        return cls(
            merge(measured),
            {sink: delay for sink, delay in found.items() if delay is not None},
            None if reading is None else reading.predicted,
            find_slow(measured, at),
            count_all(measured),
        )


class Delays(msgspec.Struct, frozen=True):
    """The delays of the last whole hour and of the quarter that goes on."""

    whole: Delay | None = None  # of all feeds to all sinks; None where there were none
    feeds: Mapping[Feed, FeedDelays] = msgspec.field(default_factory=dict)
    sinks: Mapping[str, Delay] = msgspec.field(default_factory=dict)  # of whatever feed; those without any are left out


async def load_delays(read_store: ReadStore, sinks: Collection[str], at: datetime) -> Delays:
    """Return what the store has of the last hour; of these sinks alone."""
    measured = await read_store.read_delays(begin_of_quarter(at) - HOUR)
    told: dict[Feed, list[MeasuredDelays]] = {}
    for each in measured:
        if each.sink in sinks:
            told.setdefault(each.feed, []).append(each)
    found = {sink: merge(each for each in measured if each.sink == sink) for sink in sinks}
    return Delays(
        merge(each for feed in told.values() for each in feed),
        {feed: FeedDelays.of(each, at) for feed, each in told.items()},
        {sink: delay for sink, delay in found.items() if delay is not None},
    )


def write_delay(delay: timedelta, *, is_estimated: bool = False) -> str:
    """Return a delay in words: ``1.2s``; ``≈6.1s`` where no timestamps of the records say when changes were made."""
    return f"{'≈' if is_estimated else ''}{in_words(delay)}"
