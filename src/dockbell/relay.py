"""Delivers the events of the outbox to one sink: reads ahead, hands over, notes what came of it, saves where it is.

What is owed, in which order and when, is decided by :mod:`dockbell.core.publishing.ledger`; how an event travels, by
the sink. The relay stands between them and the store.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from dockbell.config import SinkSettings
from dockbell.core.model import Delivery, Event, Feed, Outcome
from dockbell.core.publishing.ledger import Blocked, Ledger
from dockbell.ports import Bell, Sink, Store
from dockbell.telemetry import AgentFails, DeliverySettled, EventDied, SinkConnected, SinkFails, Telemetry

_CHECKPOINT_EVERY: Final = timedelta(seconds=1)
"""How much a crash may repeat: what was settled since the last checkpoint."""
_TAIL_AT_ONCE: Final = 10
_GOODBYE: Final = timedelta(seconds=5)
_RESTART_PAUSE: Final = timedelta(seconds=5)


class Relay:
    """Delivers to one sink."""

    def __init__(
        self,
        sink: Sink,
        settings: SinkSettings,
        *,
        store: Store,
        telemetry: Telemetry,
        now: Callable[[], datetime],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._sink = sink
        self._settings = settings
        self._store = store
        self._telemetry = telemetry
        self._now = now
        self._jitter = jitter
        self._bell = Bell()
        self._turns = Bell()
        self._ends: Mapping[Feed, int] = {}
        self._news_read = -1
        self._stopping = False
        self._ledger = Ledger(sink.window)
        self._saving = anyio.Lock()
        self._is_lost = False

    async def run(self) -> None:
        """Deliver until :meth:`stop`; an error that nobody foresaw begins anew from what is saved."""
        while not self._stopping:
            try:
                await self._session()
            except Exception as error:  # noqa: BLE001  # the other sinks go on, and so will this one
                self._telemetry.emit(AgentFails(f"sink {self._sink.name}", error))
                with anyio.move_on_after(_RESTART_PAUSE.total_seconds()):
                    await self._bell.wait(self._bell.rings)

    def stop(self) -> None:
        """Hand over nothing more; :meth:`run` ends when what is in flight is settled, or after a few seconds."""
        self._stopping = True
        self._bell.ring()

    async def drain(self, patience: timedelta) -> bool:
        """Deliver what can be delivered now; return whether nothing is owed after it.

        Gives up when the sink takes nothing, or settles nothing for as long as ``patience``.
        """
        turns = 0
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            while not turns or not (await self._is_drained() or self._ledger.breaker.is_open):
                with anyio.move_on_after(patience.total_seconds()) as scope:
                    turns = await self._turns.wait(turns)
                if scope.cancelled_caught:
                    break
            self.stop()
        return turns > 0 and await self._is_drained() and not self._ledger.owed

    async def _is_drained(self) -> bool:
        """Return whether everything was attempted that may be attempted now."""
        ends = await self._store.last_sequences()
        ledger, now = self._ledger, self._now()
        wake_at = ledger.wake_at(now)
        is_read = all(ledger.frontier(feed) >= ends.get(feed, 0) for feed in ledger.feeds)
        return ledger.idle and is_read and (wake_at is None or wake_at > now)

    async def _session(self) -> None:
        self._news_read = -1
        self._is_lost = False
        ledger = Ledger(self._sink.window)
        ledger.restore(*await self._store.load_ledger(self._sink.name))
        self._ledger = ledger
        send, receive = anyio.create_memory_object_stream[Delivery](self._sink.window)
        async with anyio.create_task_group() as group:
            group.start_soon(self._forward_news)
            group.start_soon(self._checkpoint_often)
            try:
                async with send, receive, anyio.create_task_group() as sending:
                    sending.start_soon(self._sink.run, receive, self._note)
                    await self._pump(send)
                    send.close()
                    sending.cancel_scope.deadline = anyio.current_time() + _GOODBYE.total_seconds()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._checkpoint()
            group.cancel_scope.cancel()

    async def _pump(self, send: MemoryObjectSendStream[Delivery]) -> None:
        ledger = self._ledger
        while not self._stopping:
            rings = self._bell.rings
            await self._read_ahead()
            await self._resume()
            if ledger.must_save:
                await self._checkpoint()
            taken = ledger.take(self._now())
            if taken:
                await self._hand_over(taken, send)
            self._turns.ring()
            wake_at = ledger.wake_at(self._now())
            pause = inf if wake_at is None else max(0.0, (wake_at - self._now()).total_seconds())
            with anyio.move_on_after(pause):
                await self._bell.wait(rings)

    async def _read_ahead(self) -> None:
        """Take new events from the outbox, judging the filters once, as they pass."""
        ledger = self._ledger
        if ledger.room < ledger.read_ahead // 2:
            return
        news = self._store.outbox.rings
        if news != self._news_read:
            self._ends = await self._store.last_sequences()
            self._news_read = news
        for feed in ledger.feeds:
            frontier, end = ledger.frontier(feed), self._ends.get(feed, 0)
            if frontier >= end or ledger.room <= 0:
                continue
            if not self._wants(feed):
                ledger.admit(feed, (), end)
                continue
            most = ledger.room
            events = await self._store.read_events(feed, frontier, most, until=end)
            through = events[-1].sequence if len(events) == most else end  # else the rest was pruned before it was owed
            ledger.admit(feed, filter(self._passes, events), through)
            if through < end and ledger.room >= ledger.read_ahead // 2:
                self._bell.ring()  # hardly any passed: nothing may be in flight whose end would call for more

    def _wants(self, feed: Feed) -> bool:
        settings = self._settings
        return (settings.sources is None or feed.source in settings.sources) and (
            settings.resources is None or feed.resource in settings.resources
        )

    def _passes(self, event: Event) -> bool:
        changes = self._settings.changes
        return changes is None or event.change in changes

    async def _resume(self) -> None:
        """Read the owed events of blocked keys whose turn has come."""
        for entry in self._ledger.due(self._now(), most=self._sink.window):
            frontier = self._ledger.frontier(entry.feed)
            event = await self._find_owed(entry, frontier)
            self._ledger.resume(entry, event, frontier, self._now())

    async def _find_owed(self, entry: Blocked, frontier: int) -> Event | None:
        after = entry.sequence - 1
        while True:
            events = await self._store.read_events(entry.feed, after, _TAIL_AT_ONCE, key=entry.key, until=frontier)
            owed = next(filter(self._passes, events), None)
            if owed is not None or len(events) < _TAIL_AT_ONCE:
                return owed
            after = events[-1].sequence

    async def _hand_over(self, taken: Sequence[tuple[Event, int]], send: MemoryObjectSendStream[Delivery]) -> None:
        states: Mapping[tuple[Feed, str], bytes] = {}
        if self._sink.keeps_state:
            states = await self._store.read_states([(event.feed, event.key) for event, _ in taken])
        for event, attempt in taken:
            send.send_nowait(Delivery(event, attempt, states.get((event.feed, event.key))))

    def _note(self, delivery: Delivery, outcome: Outcome) -> None:
        breaker = self._ledger.breaker
        probe_at = breaker.probe_at
        self._ledger.settle(delivery.event, outcome, self._now(), self._jitter())
        if breaker.probe_at is not None and breaker.probe_at != probe_at:
            self._telemetry.emit(SinkFails(self._sink.name, outcome.reason, breaker.probe_at - self._now()))
        elif breaker.probe_at is None and probe_at is not None:
            self._telemetry.emit(SinkConnected(self._sink.name, "takes events again"))
        self._telemetry.emit(DeliverySettled(self._sink.name, delivery, outcome))
        self._bell.ring()

    async def _forward_news(self) -> None:
        rings = self._store.outbox.rings
        while True:
            rings = await self._store.outbox.wait(rings)
            self._bell.ring()

    async def _checkpoint_often(self) -> None:
        while True:
            await anyio.sleep(_CHECKPOINT_EVERY.total_seconds())
            if not self._ledger.must_save:  # else the pump is about to, and must know when it is done
                await self._checkpoint()

    async def _checkpoint(self) -> None:
        async with self._saving:
            if self._is_lost:
                return
            settlement = self._ledger.checkpoint(self._now())
            if settlement:
                # Should this not be saved, no later position may pass what is in it: the session begins anew.
                self._is_lost = True
                await self._store.settle(self._sink.name, settlement)
                self._is_lost = False
        for letter in settlement.dead:
            self._telemetry.emit(EventDied(self._sink.name, letter.feed, letter.key, letter.sequence, letter.error))
