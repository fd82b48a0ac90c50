"""Keeps in the store how long changes take from the API to each sink: other processes show it, after a restart too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import anyio

from dockbell.core.delays import MeasuredDelays, begin_of_quarter, find_bucket
from dockbell.core.model import Feed, OutcomeKind
from dockbell.errors import StoreError
from dockbell.ports import Alarm, Health
from dockbell.telemetry import DeliverySettled, Fact, Telemetry

_LAST: Final = timedelta(seconds=2)
"""How long the end of the process waits for what was measured last."""


@dataclass(slots=True)
class _Delays:
    buckets: Counter[int] = field(default_factory=Counter)
    waited: float = 0.0  # seconds


class DelayLog:
    """Listens to deliveries.

    ``predict`` returns how long changes of a feed wait for its next reading in the mean; None where no plan says.
    """

    def __init__(
        self,
        health: Health,
        telemetry: Telemetry,
        *,
        predict: Callable[[Feed], timedelta | None],
        now: Callable[[], datetime],
    ) -> None:
        self._health = health
        self._telemetry = telemetry
        self._predict = predict
        self._now = now
        self._unsaved: dict[tuple[Feed, str], _Delays] = {}
        telemetry.listen(self.hear)

    def hear(self, fact: Fact) -> None:
        if not isinstance(fact, DeliverySettled) or fact.age is None:
            return
        if fact.outcome.kind is not OutcomeKind.DELIVERED or fact.delivery.state_only:
            return
        pair = fact.delivery.event.feed, fact.sink
        delays = self._unsaved.get(pair) or self._unsaved.setdefault(pair, _Delays())
        delays.buckets[find_bucket(fact.age.total_seconds())] += 1
        if fact.waited is not None:
            delays.waited += fact.waited.total_seconds()

    async def run(self, alarm: Alarm) -> None:
        """Save what was measured whenever the alarm rings, until cancelled."""
        while True:
            await alarm.wait()
            try:
                await self.run_once()
            except Exception as error:  # noqa: BLE001  # deliveries go on, and the next ring saves what could not be
                self._telemetry.emit_failure("delays", error)

    async def run_once(self) -> None:
        """Save what was measured since the last time; nothing where nothing was.

        Raises:
            StoreError: It cannot be saved now, and is kept for the next time.
        """
        unsaved, self._unsaved = self._unsaved, {}
        if not unsaved:
            return
        quarter = begin_of_quarter(self._now())
        try:
            await self._health.note_delays([self._measure(*pair, each, quarter) for pair, each in unsaved.items()])
        except BaseException:
            for pair, each in unsaved.items():
                later = self._unsaved.setdefault(pair, _Delays())
                later.buckets.update(each.buckets)
                later.waited += each.waited
            raise

    async def finish(self) -> None:
        """Save what was measured last, if the store takes it."""
        with anyio.move_on_after(_LAST.total_seconds(), shield=True):
            try:
                await self.run_once()
            except StoreError as error:
                self._telemetry.emit_failure("delays", error)

    def _measure(self, feed: Feed, sink: str, delays: _Delays, quarter: datetime) -> MeasuredDelays:
        mean, count = self._predict(feed), delays.buckets.total()
        return MeasuredDelays(
            feed,
            sink,
            quarter,
            dict(delays.buckets),
            timedelta(seconds=delays.waited),
            None if mean is None else mean * count,
        )
