"""``GET /delays/{source}/{resource}``: how long changes took from the API to the sinks, in the last week."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.admin.as_json import Count, Model, Time, write_seconds
from dockbell.config import Config
from dockbell.core.delays import QUARTER, begin_of_quarter, count_all, find_share_within, merge, split
from dockbell.core.model import Feed
from dockbell.core.moment import format_moment
from dockbell.ports import ReadStore
from dockbell.web import params
from dockbell.web.responses import json_response

_STEP: Final = timedelta(hours=2)
_STEPS: Final = 84


class DelayWeek(Model):
    feed: str
    step_seconds: float
    end: Time
    mean_seconds: list[float | None]
    p99_seconds: list[float | None]
    changes: list[Count]
    goal_seconds: float | None
    goal_share: float | None


class DelayWeeks(msgspec.Struct, frozen=True):
    read_store: ReadStore
    config: Callable[[], Config]
    now: Callable[[], datetime]

    async def answer(self, request: Request) -> Response:
        """Answer with the delays of a week, the running two hours last; to each sink a change counts once."""
        feed = params.read_feed(request)
        await params.find_extent(self.read_store, feed)
        config = self.config()
        last = begin_of_quarter(self.now())
        measured = [
            each
            for each in await self.read_store.read_delays(last + QUARTER - _STEPS * _STEP, feed)
            if each.sink in config.sinks
        ]
        parts = split(measured, last, _STEP, _STEPS)
        delays = [merge(part) for part in parts]
        goals = {Feed(each.source, each.resource): each.settings.freshness_goal for each in config.feeds()}
        goal = goals.get(feed)
        return json_response(
            DelayWeek(
                str(feed),
                _STEP.total_seconds(),
                format_moment(last + QUARTER),
                [None if delay is None else write_seconds(delay.mean) for delay in delays],
                [None if delay is None else write_seconds(delay.p99) for delay in delays],
                [0 if delay is None else delay.count for delay in delays],
                None if goal is None else goal.total_seconds(),
                None if goal is None else find_share_within(count_all(measured), goal),
            )
        )
