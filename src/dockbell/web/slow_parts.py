"""The parts of the status page that change once a minute: the plan of each source, the delays of the last day."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec
from anyio import to_thread

from dockbell.admin.as_json import write_seconds
from dockbell.admin.plan_as_json import describe_plan
from dockbell.admin.plan_options import Setup
from dockbell.admin.planning import load_facts, make_plan
from dockbell.config import Config
from dockbell.core.delays import QUARTER, MeasuredDelays, Reading, begin_of_quarter, merge, split
from dockbell.core.model import JSON, Feed
from dockbell.core.moment import write_moment
from dockbell.ports import ReadStore

_EVERY: Final = timedelta(minutes=1)
_DAY: Final = 96
"""Quarters of an hour that are drawn."""


class SlowParts:
    """Keeps the parts for a minute, or until the configuration is another one."""

    def __init__(self, read_store: ReadStore, next_time: Callable[[timedelta | str, datetime], datetime]) -> None:
        self._read_store = read_store
        self._next_time = next_time
        self._parts: Mapping[str, JSON] = {}
        self._config: Config | None = None
        self._at: datetime | None = None

    async def read(self, config: Config, at: datetime) -> Mapping[str, JSON]:
        """Return the parts by name: ``plan:main``, ``course:main/stock``."""
        is_known = self._at is not None and self._at <= at < self._at + _EVERY and config is self._config
        if not is_known:
            self._parts = {**await self._plan(config, at), **await self._draw(config, at)}
            self._config, self._at = config, at
        return self._parts

    async def _plan(self, config: Config, at: datetime) -> Mapping[str, JSON]:
        setup = Setup.of(config)
        facts = await load_facts(self._read_store, setup.feeds, at, sinks=config.sinks)
        # In a thread: with hundreds of sources it takes a second.
        plans = await to_thread.run_sync(partial(make_plan, setup, facts, at=at, next_time=self._next_time))
        described = describe_plan(plans, None, [])
        return {f"plan:{each.source}": msgspec.to_builtins(each) for each in described.sources}

    async def _draw(self, config: Config, at: datetime) -> Mapping[str, JSON]:
        last = begin_of_quarter(at)
        told: dict[Feed, list[MeasuredDelays]] = {Feed(each.source, each.resource): [] for each in config.feeds()}
        for each in await self._read_store.read_delays(last - (_DAY - 1) * QUARTER):
            if each.sink in config.sinks and each.feed in told:
                told[each.feed].append(each)
        return {f"course:{feed}": _describe_course(measured, last) for feed, measured in told.items() if measured}


def _describe_course(measured: Sequence[MeasuredDelays], last: datetime) -> JSON:
    """Return the delays of one feed by quarters of an hour: the running one is the last; None where there were none."""
    quarters = split(measured, last, QUARTER, _DAY)
    delays, readings = [merge(each) for each in quarters], [Reading.of(each) for each in quarters]
    return {
        "step": QUARTER.total_seconds(),
        "end": write_moment(last + QUARTER),
        "mean": [None if delay is None else write_seconds(delay.mean) for delay in delays],
        "p99": [None if delay is None else write_seconds(delay.p99) for delay in delays],
        "planned": [
            None if reading is None or reading.predicted is None else write_seconds(reading.predicted)
            for reading in readings
        ],
    }
