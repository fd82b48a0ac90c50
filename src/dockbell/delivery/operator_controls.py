"""Applies to a sink's deliveries what operators decide: to pause a sink, to send at once, to release a held key.

Their decisions are rows of the store, which are read twice a second: a decision reaches the process that delivers,
whichever process of the fleet took it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from datetime import datetime

from dockbell.core.publishing.delivery_queue import DeliveryQueue
from dockbell.core.publishing.settlement import Pause, RecordId
from dockbell.delivery.outbox_reader import OutboxReader
from dockbell.ports import SinkStore
from dockbell.telemetry import SinkPaused, SinkResumed, Telemetry


class OperatorControls:
    """What operators have decided of one sink, as far as its relay knows.

    Args:
        ring: Tells the relay that there may be something to send.
        checkpoint: Saves what is settled.

    Attributes:
        paused: Why the sink is paused; None where it is not.
    """

    def __init__(
        self,
        sink: str,
        sink_store: SinkStore,
        telemetry: Telemetry,
        *,
        now: Callable[[], datetime],
        ring: Callable[[], None],
        checkpoint: Callable[[], Awaitable[None]],
    ) -> None:
        self.paused: str | None = None
        self._sink = sink
        self._sink_store = sink_store
        self._telemetry = telemetry
        self._now = now
        self._ring = ring
        self._checkpoint = checkpoint
        self._hurried = self._decided = 0

    async def begin(self) -> Pause | None:
        """Note what was decided so far; return the last pause that the receiver has asked for."""
        controls = await self._sink_store.load_controls()
        self._hurried, self._decided = controls.hurried, controls.decided
        return controls.pause

    async def pause(self, reason: str) -> None:
        """Pause the sink until an operator resumes it: its receiver wants no more events."""
        if self.paused is None:
            await self._sink_store.pause(reason)
            self._set_paused(reason)

    async def look(self, queue: DeliveryQueue, outbox_reader: OutboxReader) -> None:
        """Apply what was decided since the last look."""
        paused, held = self.paused, set(queue.held)
        controls = await self._sink_store.load_controls()
        if controls.paused != paused and self.paused == paused and not queue.closed:  # else it was just paused
            self._set_paused(controls.paused)
            self._ring()
        if controls.decided != self._decided:
            self._decided = controls.decided
            queue.forget_refusals()
        if controls.hurried != self._hurried:
            self._hurried = controls.hurried
            queue.retry_now(self._now())  # the receiver may be well again
            self._ring()
        if controls.replay_at != outbox_reader.replay_at and not (outbox_reader.replays or queue.is_replaying):
            outbox_reader.replay_at = controls.replay_at
            self._ring()
        if controls.held < len(held):
            await self._release(queue, held)

    def _set_paused(self, reason: str | None) -> None:
        self.paused = reason
        self._telemetry.emit(SinkResumed(self._sink) if reason is None else SinkPaused(self._sink, reason))

    async def _release(self, queue: DeliveryQueue, held: AbstractSet[RecordId]) -> None:
        """Let keys go on that an operator has released."""
        await self._checkpoint()  # else their stored entries may be from before they were held
        _, blocked = await self._sink_store.load_queue()
        for entry in blocked:
            if (entry.feed, entry.key) in held and not entry.held:
                queue.release(entry)
        self._ring()
