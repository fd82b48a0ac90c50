"""Reports what becomes of the deliveries of one sink, and whether its receiver takes events."""

from __future__ import annotations

from datetime import datetime, timedelta

from dockbell.core.model import Delivery, Outcome, OutcomeKind
from dockbell.core.publishing.settlement import Settlement
from dockbell.telemetry import DeliverySettled, EventDied, EventsTakenBack, SinkConnected, SinkFails, Telemetry


class DeliveryReport:
    """Emits the facts of one sink's deliveries."""

    def __init__(self, sink: str, telemetry: Telemetry) -> None:
        self._sink = sink
        self._telemetry = telemetry
        self._is_down = False

    def report_down(self, reason: str, pause: timedelta) -> None:
        self._telemetry.emit(SinkFails(self._sink, reason, pause))
        self._is_down = True

    def report_up(self) -> None:
        self._telemetry.emit(SinkConnected(self._sink, "accepts events again"))
        self._is_down = False

    def report_outcome(
        self, delivery: Delivery, outcome: Outcome, now: datetime, before: datetime | None, probe_at: datetime | None
    ) -> None:
        """Report an outcome, and the breaker's next probe before and after it (None: closed)."""
        if probe_at is not None and probe_at != before:
            self.report_down(outcome.reason, probe_at - now)
        elif probe_at is None and (
            before is not None
            or (self._is_down and outcome.kind is OutcomeKind.DELIVERED)  # or the breaker was reset meanwhile
        ):
            self.report_up()
        event = delivery.event
        times = (None, None) if delivery.replayed else (_since(event.recorded_at, now), _since(event.visible_at, now))
        self._telemetry.emit(DeliverySettled(self._sink, delivery, outcome, *times))

    def report_saved(self, settlement: Settlement) -> None:
        for letter in settlement.dead:
            self._telemetry.emit(EventDied(self._sink, letter.feed, letter.key, letter.sequence, letter.error))
        if settlement.revived:
            self._telemetry.emit(EventsTakenBack(self._sink, len(settlement.revived)))


def _since(at: datetime | None, now: datetime) -> timedelta | None:
    return None if at is None else max(now - at, timedelta(0))
