"""Delivers the events of the outbox to one sink: reads ahead, hands over, notes the outcomes, saves the positions.

:mod:`dockbell.core.publishing.delivery_queue` decides what is owed, in which order and when;
:mod:`dockbell.delivery.outbox_reader` reads it, and evaluates the sink's filters;
:mod:`dockbell.delivery.operator_controls` applies what operators decide.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Final, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from dockbell.config import SinkSettings
from dockbell.core.model import Delivery, Event, Feed, Outcome, OutcomeKind
from dockbell.core.publishing.delivery_queue import DeliveryQueue
from dockbell.core.publishing.filters import Filter
from dockbell.core.publishing.rendering import Rendering
from dockbell.core.publishing.settlement import Settlement, StartOffset
from dockbell.delivery.checkpoints import Checkpoints
from dockbell.delivery.clock_watch import ClockWatch
from dockbell.delivery.delivery_report import DeliveryReport
from dockbell.delivery.operator_controls import OperatorControls
from dockbell.delivery.outbox_reader import OutboxReader
from dockbell.delivery.retained_state import StoredRetainedState
from dockbell.host.evaluator import SHARED, LimitedEvaluator
from dockbell.ports import Bell, Sink, StateKeeper, Store
from dockbell.telemetry import Telemetry

_CHECKPOINT_EVERY: Final = timedelta(seconds=1)
"""How much a crash may repeat: what was settled since the last checkpoint but one."""
_LOOK_EVERY: Final = timedelta(seconds=0.5)
_TRUST_EVERY: Final = timedelta(seconds=0.1)
_GOODBYE: Final = timedelta(seconds=5)
_RESTART_PAUSE: Final = timedelta(seconds=5)
_FAILURES_MOST: Final = 3
_FREE: Final = timedelta(milliseconds=100)
"""A filter that takes no longer costs no ration: it delays the sink no more than a delivery does."""


class Relay:
    """Delivers to one sink.

    Args:
        jitter: Returns a number from 0 to 1, which spreads attempts.
        state_url: Where stored records can be read; empty where they cannot.
        unordered: Feeds whose records have arrays without an order.
        max_owed: How old an event may be that is attempted again; None: as old as it comes.
        keep_attempts: How many attempts are kept, of all sinks.
        steady: The time since some origin, whatever the clock is set to; None: the clock is never set forward.
        feeds: Returns the configured feeds whose sources this process has; None: every feed in the store.
        known: Returns all configured feeds; None: the same.
        processes: Returns how many processes deliver to the receiver.
    """

    def __init__(
        self,
        sink: Sink,
        settings: SinkSettings,
        *,
        store: Store,
        telemetry: Telemetry,
        now: Callable[[], datetime],
        jitter: Callable[[], float] = random.random,
        name: str = "dockbell",
        state_url: str = "",
        unordered: Collection[Feed] = (),
        max_owed: timedelta | None = None,
        keep_attempts: int = 0,
        steady: Callable[[], timedelta] | None = None,
        feeds: Callable[[], Collection[Feed]] | None = None,
        known: Callable[[], Collection[Feed]] | None = None,
        processes: Callable[[], int] = lambda: 1,
    ) -> None:
        self._sink = sink
        self._settings = settings
        self._max_owed = max_owed
        self._keep_attempts = keep_attempts
        self._store = store
        self._sink_store = store.sink(sink.name)
        self._telemetry = telemetry
        self._now = now
        self._jitter = jitter
        self._name = name
        self._filter = Filter(settings)
        self._feeds = feeds
        self._known = feeds if known is None else known
        self._processes = processes
        self._begun = Bell()
        self._evaluator = LimitedEvaluator(SHARED, free=_FREE)
        self._rendering = Rendering(settings, state_url, unordered)
        self._bell = Bell()
        self._turns = Bell()
        self._stopping = False
        self._failures = 0
        self._has_turned = False
        self._report = DeliveryReport(sink.name, telemetry)
        self._checkpoints = Checkpoints(self._sink_store, now, self._note_saved, keep_attempts=keep_attempts)
        self._controls = OperatorControls(
            sink.name, self._sink_store, telemetry, now=now, ring=self._bell.ring, checkpoint=self._checkpoint
        )
        self._must_begin_again = False
        self._clock = ClockWatch(now, steady)
        self._purges = store.purges
        self._starts: Mapping[Feed, StartOffset] = {}
        self._starts_seen = 0
        self._queue = self._make_queue()
        self._outbox_reader = self._make_outbox_reader()
        if sink.keeps_state:
            retained_state = StoredRetainedState(
                sink.name, store, wants=self._has_states, knows=self._knows_states, render=self._rendering.state
            )
            cast("StateKeeper", sink).attach(retained_state)

    async def run(self) -> None:
        """Deliver until :meth:`stop`; after an unexpected error, begin again from what is saved."""
        while not self._stopping:
            try:
                await self._session()
            except Exception as error:  # noqa: BLE001  # this sink begins again, and the others go on
                self._telemetry.emit_failure(f"sink {self._sink.name}", error)
                self._failures += 1
                self._has_turned = False
                self._turns.ring()
                if not self._stopping:  # else nothing would end the pause
                    with anyio.move_on_after(_RESTART_PAUSE.total_seconds()):
                        await self._bell.wait(self._bell.rings)

    def stop(self) -> None:
        """Hand over nothing more; :meth:`run` ends when all in flight is settled, or after a few seconds."""
        self._stopping = True
        self._bell.ring()

    async def begin_again(self) -> None:
        """Settle what is in flight and begin again from what is saved: some feeds are to be another process's.

        Returns when nothing is in flight any more, or after a few seconds.
        """
        begun = self._begun.rings
        self._begin_again()
        with anyio.move_on_after(2 * _GOODBYE.total_seconds()):
            await self._begun.wait(begun)

    async def drain(self, patience: timedelta) -> bool:
        """Deliver all that can be delivered now; return whether nothing is owed afterwards.

        It gives up when the sink takes nothing, settles nothing for as long as ``patience``, or fails again and again.
        """
        turns, failures_most = 0, self._failures + _FAILURES_MOST
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            while not self._is_done():
                with anyio.move_on_after(patience.total_seconds()) as scope:
                    turns = await self._turns.wait(turns)
                if scope.cancelled_caught or self._failures >= failures_most:
                    break
            self.stop()
        is_settled = self._has_turned and self._outbox_reader.is_empty()
        return is_settled and not self._queue.owed and self._outbox_reader.replay_at is None

    def _is_done(self) -> bool:
        if not self._has_turned:
            return False
        return self._queue.breaker.is_open or self.paused is not None or self._outbox_reader.is_empty()

    @property
    def paused(self) -> str | None:
        """Why the sink is paused; None where it is not."""
        return self._controls.paused

    @property
    def _is_outdated(self) -> bool:
        """Whether records were purged since the session began: what it has read may hold them."""
        return self._store.purges != self._purges

    def _has_states(self, feed: Feed) -> bool:
        """Return whether the sink keeps the states of a feed: not once the feed has left the configuration."""
        return self._filter.wants(feed) and (self._feeds is None or feed in self._feeds())

    def _knows_states(self, feed: Feed) -> bool:
        """Return whether this process or another keeps the states of a feed."""
        return self._filter.wants(feed) and (self._known is None or feed in self._known())

    # One session, from what is saved --------------------------------------------------------------------------------

    async def _session(self) -> None:
        await self._begin()
        await self._look()
        send, receive = anyio.create_memory_object_stream[Delivery](self._sink.window)
        async with anyio.create_task_group() as group:
            group.start_soon(self._forward_rings, self._store.outbox.rings)
            group.start_soon(self._checkpoint_often)
            group.start_soon(self._look_often)
            try:
                async with send, receive, anyio.create_task_group() as sending:
                    sending.start_soon(self._run_sink, send, receive)
                    await self._pump(send)
                    send.close()
                    sending.cancel_scope.deadline = anyio.current_time() + _GOODBYE.total_seconds()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._checkpoint()
            group.cancel_scope.cancel()

    async def _begin(self) -> None:
        self._begun.ring()
        await self._checkpoints.retry()
        knows_receiver = self._is_outdated and not self._must_begin_again
        before, self._must_begin_again = self._queue, False
        self._purges = self._store.purges
        self._starts_seen = self._sink_store.starts
        starts = self._starts = await self._sink_store.load_starts()
        pause = await self._controls.begin()  # first: a later change is noticed by _look()
        positions, blocked = await self._sink_store.load_queue()
        self._queue = self._make_queue()
        if knows_receiver:
            self._queue.inherit_blame(before)
        now = self._now()
        self._queue.inherit_spacing(before, now)
        self._queue.restore(positions, blocked, starts, now, None if knows_receiver else pause)
        self._outbox_reader = self._make_outbox_reader(starts)
        probe_at = self._queue.breaker.probe_at
        if probe_at is not None and not knows_receiver:
            self._report.report_down("its receiver asked for a pause", probe_at - now)

    def _make_queue(self) -> DeliveryQueue:
        return DeliveryQueue(
            self._sink.window,
            holds=self._settings.on_dead == "hold",
            schedule=self._settings.retry,
            max_owed=self._max_owed,
            spacing=self._find_spacing(),
            keep_attempts=self._keep_attempts,
        )

    def _find_spacing(self) -> timedelta:
        """Return the least time between deliveries: the processes that deliver to a receiver divide what it allows."""
        per_minute = self._settings.requests_per_minute
        return timedelta(minutes=self._processes()) / per_minute if per_minute else timedelta(0)

    def _make_outbox_reader(self, starts: Mapping[Feed, StartOffset] | None = None) -> OutboxReader:
        return OutboxReader(
            self._sink.name,
            self._queue,
            starts or {},
            self._filter,
            evaluator=self._evaluator,
            keeps_state=self._sink.keeps_state,
            coalesce=self._settings.coalesce,
            store=self._store,
            telemetry=self._telemetry,
            now=self._now,
            name=self._name,
        )

    async def _run_sink(
        self, send: MemoryObjectSendStream[Delivery], receive: MemoryObjectReceiveStream[Delivery]
    ) -> None:
        await self._sink.run(receive, self._note)
        if send.statistics().open_send_streams:
            raise RuntimeError("its run() returned before its deliveries ended")

    async def _pump(self, send: MemoryObjectSendStream[Delivery]) -> None:
        queue = self._queue
        while not (self._stopping or self._must_begin_again):
            rings = self._bell.rings
            if await self._outbox_reader.read_ahead():
                self._bell.ring()
            if queue.closed:
                await self._controls.pause(queue.closed)
                queue.closed = ""
            if (fleet := self._store.fleet) is not None and not fleet.is_trusted:
                await anyio.sleep(_TRUST_EVERY.total_seconds())  # perhaps another process delivers these events now
                continue
            if self.paused is None:
                await self._resume()
            if queue.must_save:
                await self._checkpoint()
            if self._is_outdated:
                break  # begin again
            if self.paused is None:
                taken = queue.take(self._now())
                if taken:
                    await self._hand_over(taken, send)
                await self._replay(send)
            self._has_turned = True
            self._turns.ring()
            wake_at = None if self.paused is not None else self._outbox_reader.wake_at()
            pause = inf if wake_at is None else max(0.0, (wake_at - self._now()).total_seconds())
            with anyio.move_on_after(pause):
                await self._bell.wait(rings)

    async def _resume(self) -> None:
        """Read the next events of the blocked keys that are due."""
        for entry in self._queue.due(self._now(), most=self._sink.window):
            frontier = self._queue.frontier(entry.feed)
            event = await self._outbox_reader.find_owed(entry, frontier)
            self._queue.resume(entry, event, frontier, self._now())

    async def _hand_over(self, taken: Sequence[tuple[Event, int]], send: MemoryObjectSendStream[Delivery]) -> None:
        states: Mapping[tuple[Feed, str], bytes] = {}
        are_state_only = [await self._outbox_reader.is_state_only(event) for event, _ in taken]
        if self._sink.keeps_state:
            places = [(event.feed, event.key) for event, _ in taken if self._has_states(event.feed)]
            states = await self._store.read_states(places)
            if self._is_outdated:
                return  # the next session reads them again
        for (event, attempt), is_held_back in zip(taken, are_state_only, strict=True):
            state_only = is_held_back
            state = states.get((event.feed, event.key))
            shown_state = None if state is None else self._rendering.state(state)
            shown = dataclasses.replace(event, body=b"")  # the sink must not see an event that its filters hold back
            try:
                shown = shown if state_only else self._rendering.event(event)
            except ValueError as error:
                if not (self._sink.keeps_state and event.is_of_record):
                    self._note(Delivery(event, attempt), Outcome(OutcomeKind.UNFIT, str(error)))
                    continue
                self._queue.dead_letter(event, self._now(), str(error))
                state_only = True  # else the receiver would keep an older state
            send.send_nowait(Delivery(shown, attempt, shown_state, state_only=state_only))

    async def _replay(self, send: MemoryObjectSendStream[Delivery]) -> None:
        """Send replays while nothing else is to be sent."""
        queue, outbox_reader = self._queue, self._outbox_reader
        is_due = outbox_reader.replay_at is not None and outbox_reader.replay_at <= self._now()
        if is_due and not (outbox_reader.replays or queue.is_replaying) and outbox_reader.can_replay:
            await self._checkpoint()
            await outbox_reader.read_replays()
            self._bell.ring()  # if none can be sent, read the next
        for _ in range(len(outbox_reader.replays)):
            if self._is_outdated or not outbox_reader.can_replay:
                break
            replay, event = outbox_reader.replays.popleft()
            if not queue.admit_replay(replay, event, self._now()):
                outbox_reader.replays.append((replay, event))
                continue
            try:
                shown = self._rendering.event(event)
            except ValueError as error:
                self._note(Delivery(event, replay.attempts + 1, replayed=True), Outcome(OutcomeKind.UNFIT, str(error)))
            else:
                send.send_nowait(Delivery(shown, replay.attempts + 1, replayed=True))

    def _note(self, delivery: Delivery, outcome: Outcome) -> None:
        breaker, now = self._queue.breaker, self._now()
        before = breaker.probe_at
        self._queue.settle(delivery.event, outcome, now, self._jitter(), state_only=delivery.state_only)
        self._report.report_outcome(delivery, outcome, now, before, breaker.probe_at)
        self._bell.ring()

    async def _forward_rings(self, rings: int) -> None:
        while True:
            rings = await self._store.outbox.wait(rings)
            self._bell.ring()

    # What changes meanwhile -----------------------------------------------------------------------------------------

    async def _look_often(self) -> None:
        while True:
            await anyio.sleep(_LOOK_EVERY.total_seconds())
            self._check_clock()
            await self._look()

    def _check_clock(self) -> None:
        step = self._clock.look()
        if step < timedelta(0):
            self._begin_again()  # by the new clock: all that was planned is too late
        elif step:
            self._queue.shift_pause(step)  # else it would end the pause that the receiver has asked for

    async def _look(self) -> None:
        self._queue.space(self._find_spacing())
        if self._sink_store.starts != self._starts_seen:
            await self._take_in()
        await self._controls.look(self._queue, self._outbox_reader)

    async def _take_in(self) -> None:
        """Begin with the feeds that are new since the session began.

        Begin all again if the sink was overrun in one, or if one is being handed over to another process.
        """
        self._starts_seen = self._sink_store.starts
        starts = await self._sink_store.load_starts()
        if any(feed not in starts or starts[feed].origin != known.origin for feed, known in self._starts.items()):
            self._begin_again()
            return
        positions, blocked = await self._sink_store.load_queue()
        self._queue.add_feeds(positions, blocked, starts, self._now())
        self._outbox_reader.add_feeds(starts)
        self._starts = starts
        self._bell.ring()

    def _begin_again(self) -> None:
        self._must_begin_again = True
        self._bell.ring()

    # What is saved --------------------------------------------------------------------------------------------------

    async def _checkpoint_often(self) -> None:
        while True:
            await anyio.sleep(_CHECKPOINT_EVERY.total_seconds())
            if not self._queue.must_save:  # else the pump is about to save, and waits for it
                await self._checkpoint()

    async def _checkpoint(self) -> None:
        await self._checkpoints.save(self._queue)

    def _note_saved(self, settlement: Settlement) -> None:
        self._bell.ring()  # blocked keys have made room, or are due
        self._report.report_saved(settlement)
