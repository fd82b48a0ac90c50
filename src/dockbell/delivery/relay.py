"""Delivers the events of the outbox to one sink: reads ahead, hands over, notes what came of it, saves where it is.

:mod:`dockbell.core.publishing.delivery_queue` decides what is owed, in which order and when;
:mod:`dockbell.delivery.outbox_reader` reads it, and asks the sink's filters; the sink's rendering gives it its form,
and the sink carries it. An operator's decisions (to pause a sink, to replay events, to release a held key) are rows of
the store, where the relay looks for them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from dockbell.config import SinkSettings
from dockbell.core.model import Delivery, Event, Feed, Outcome, OutcomeKind
from dockbell.core.publishing.delivery_queue import DeliveryQueue
from dockbell.core.publishing.filters import Filter
from dockbell.core.publishing.rendering import Rendering
from dockbell.core.publishing.settlement import Place, Settlement, StartOffset
from dockbell.delivery.outbox_reader import OutboxReader
from dockbell.delivery.retained_state import StoredRetainedState
from dockbell.host.evaluator import SHARED, Evaluator, LimitedEvaluator
from dockbell.ports import Bell, Sink, StateKeeper, Store
from dockbell.telemetry import (
    DeliverySettled,
    EventDied,
    EventsTakenBack,
    SinkConnected,
    SinkFails,
    SinkPaused,
    SinkResumed,
    Telemetry,
)

_CHECKPOINT_EVERY: Final = timedelta(seconds=1)
"""How much a crash may repeat: what was settled since the last checkpoint but one."""
_LOOK_EVERY: Final = timedelta(seconds=0.5)
_GOODBYE: Final = timedelta(seconds=5)
_RESTART_PAUSE: Final = timedelta(seconds=5)
_FAILURES_MOST: Final = 3
_ORIGIN: Final = datetime.fromtimestamp(0, UTC)
_STEP_MOST: Final = timedelta(seconds=1)
"""A clock that is set further back makes all that was planned by it worthless; one that is set further forward would
end the pause that the receiver has asked for."""
_FREE: Final = timedelta(milliseconds=100)
"""What takes no longer to judge delays a sink as little as what it sends."""


class Relay:
    """Delivers to one sink.

    Args:
        sink: Where to.
        settings: As configured.
        store: Where the events are.
        telemetry: Is told what comes of deliveries.
        now: The time.
        jitter: From 0 to 1, spreads attempts.
        name: The name of this dockbell.
        state_url: Where stored records can be read; empty where nobody could.
        unordered: Feeds whose records have arrays without an order.
        max_owed: How old an event may be that is attempted again; None: as old as it comes.
        steady: The time since some origin, whatever the clock is set to; None: the clock is never set forward.
        feeds: Returns what is configured; without it, that is every feed in the store.
        judge: Judges the sink's filters; None for a ration of what this process has for that.
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
        steady: Callable[[], timedelta] | None = None,
        feeds: Callable[[], Collection[Feed]] | None = None,
        judge: Evaluator | None = None,
    ) -> None:
        self._sink = sink
        self._settings = settings
        self._max_owed = max_owed
        self._store = store
        self._telemetry = telemetry
        self._now = now
        self._jitter = jitter
        self._name = name
        self._filter = Filter(settings)
        self._feeds = feeds
        self._judge = judge or LimitedEvaluator(SHARED, free=_FREE)
        self._rendering = Rendering(settings, state_url, unordered)
        self._bell = Bell()
        self._turns = Bell()
        self._stopping = False
        self._paused: str | None = None
        self._is_down = False
        self._failures = 0
        self._has_turned = False
        self._saving = anyio.Lock()
        self._unsaved: Settlement | None = None
        """What could not be saved: no later position may pass what is in it."""
        self._must_begin_again = False
        self._looked_at = now()
        self._steady = steady or (lambda: now() - _ORIGIN)
        self._steady_at = self._steady()
        self._hurried = self._decided = 0
        self._purges = store.purges
        self._origins: Mapping[Feed, int] = {}
        self._queue = self._make_queue()
        self._outbox_reader = self._make_outbox_reader()
        if sink.keeps_state:
            retained_state = StoredRetainedState(sink.name, store, wants=self._mirrors, render=self._rendering.state)
            cast("StateKeeper", sink).attach(retained_state)

    async def run(self) -> None:
        """Deliver until :meth:`stop`; an error that nobody foresaw begins anew from what is saved."""
        while not self._stopping:
            try:
                await self._session()
            except Exception as error:  # noqa: BLE001  # the other sinks go on, and so will this one
                self._telemetry.emit_failure(f"sink {self._sink.name}", error)
                self._failures += 1
                self._has_turned = False
                self._turns.ring()
                if not self._stopping:  # else nobody would end the pause
                    with anyio.move_on_after(_RESTART_PAUSE.total_seconds()):
                        await self._bell.wait(self._bell.rings)

    def stop(self) -> None:
        """Hand over nothing more; :meth:`run` ends when what is in flight is settled, or after a few seconds."""
        self._stopping = True
        self._bell.ring()

    async def drain(self, patience: timedelta) -> bool:
        """Deliver what can be delivered now; return whether nothing is owed after it.

        Gives up when the sink takes nothing, settles nothing for as long as ``patience``, or breaks again and again.
        """
        turns, failures_most = 0, self._failures + _FAILURES_MOST
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            while not await self._is_done():
                with anyio.move_on_after(patience.total_seconds()) as scope:
                    turns = await self._turns.wait(turns)
                if scope.cancelled_caught or self._failures >= failures_most:
                    break
            self.stop()
        is_settled = self._has_turned and await self._outbox_reader.is_empty()
        return is_settled and not self._queue.owed and self._outbox_reader.replay_at is None

    async def _is_done(self) -> bool:
        """Return whether all was done that can be done now."""
        if not self._has_turned:
            return False
        return self._queue.breaker.is_open or self._is_paused or await self._outbox_reader.is_empty()

    @property
    def _is_paused(self) -> bool:
        return self._paused is not None

    @property
    def _is_outdated(self) -> bool:
        """Whether what the session has read may hold what is not stored any more."""
        return self._store.purges != self._purges

    def _mirrors(self, feed: Feed) -> bool:
        """Return whether a sink that keeps states has those of a feed: not once it has left the configuration."""
        return self._filter.wants(feed) and (self._feeds is None or feed in self._feeds())

    # One session, from what is saved --------------------------------------------------------------------------------

    async def _session(self) -> None:
        await self._begin()
        await self._look()
        send, receive = anyio.create_memory_object_stream[Delivery](self._sink.window)
        async with anyio.create_task_group() as group:
            group.start_soon(self._forward_news)
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
        if self._unsaved is not None:  # until the store takes it nothing is sent, else all would be sent ever again
            await self._save(self._unsaved)
        knows_receiver = self._is_outdated and not self._must_begin_again
        before, self._must_begin_again = self._queue, False
        self._purges = self._store.purges
        starts = await self._store.load_starts(self._sink.name)
        controls = await self._store.load_controls(self._sink.name)  # first: what is hurried meanwhile is noticed later
        self._hurried, self._decided = controls.hurried, controls.decided
        positions, blocked = await self._store.load_queue(self._sink.name)
        self._origins = {feed: start.origin for feed, start in starts.items()}
        self._queue = self._make_queue()
        if knows_receiver:
            self._queue.inherit_blame(before)
        now = self._now()
        self._queue.inherit_spacing(before, now)
        self._queue.restore(positions, blocked, starts, now, None if knows_receiver else controls.pause)
        self._outbox_reader = self._make_outbox_reader(starts)
        probe_at = self._queue.breaker.probe_at
        if probe_at is not None and not knows_receiver:
            self._telemetry.emit(SinkFails(self._sink.name, "its receiver has asked for a pause", probe_at - now))
            self._is_down = True

    def _make_queue(self) -> DeliveryQueue:
        settings = self._settings
        per_minute = settings.requests_per_minute
        return DeliveryQueue(
            self._sink.window,
            holds=settings.on_dead == "hold",
            schedule=settings.retry,
            max_owed=self._max_owed,
            spacing=timedelta(minutes=1) / per_minute if per_minute else timedelta(0),
        )

    def _make_outbox_reader(self, starts: Mapping[Feed, StartOffset] | None = None) -> OutboxReader:
        return OutboxReader(
            self._sink.name,
            self._queue,
            starts or {},
            self._filter,
            judge=self._judge,
            keeps_state=self._sink.keeps_state,
            store=self._store,
            telemetry=self._telemetry,
            now=self._now,
            name=self._name,
        )

    async def _run_sink(
        self, send: MemoryObjectSendStream[Delivery], receive: MemoryObjectReceiveStream[Delivery]
    ) -> None:
        await self._sink.run(receive, self._note)
        if not send.statistics().open_send_streams:
            return
        raise RuntimeError("its run() returned before its deliveries ended")

    async def _pump(self, send: MemoryObjectSendStream[Delivery]) -> None:
        queue = self._queue
        while not (self._stopping or self._must_begin_again):
            rings = self._bell.rings
            if await self._outbox_reader.read_ahead():
                self._bell.ring()
            if queue.closed:
                await self._close(queue.closed)
            if not self._is_paused:
                await self._resume()
            if queue.must_save:
                await self._checkpoint()
            if self._is_outdated:
                break  # read it again
            if not self._is_paused:
                taken = queue.take(self._now())
                if taken:
                    await self._hand_over(taken, send)
                await self._replay(send)
            self._has_turned = True
            self._turns.ring()
            wake_at = None if self._is_paused else self._outbox_reader.wake_at()
            pause = inf if wake_at is None else max(0.0, (wake_at - self._now()).total_seconds())
            with anyio.move_on_after(pause):
                await self._bell.wait(rings)

    async def _resume(self) -> None:
        """Read the owed events of blocked keys whose turn has come."""
        for entry in self._queue.due(self._now(), most=self._sink.window):
            frontier = self._queue.frontier(entry.feed)
            event = await self._outbox_reader.find_owed(entry, frontier)
            self._queue.resume(entry, event, frontier, self._now())

    async def _hand_over(self, taken: Sequence[tuple[Event, int]], send: MemoryObjectSendStream[Delivery]) -> None:
        states: Mapping[tuple[Feed, str], bytes] = {}
        are_state_only = [await self._outbox_reader.is_state_only(event) for event, _ in taken]
        if self._sink.keeps_state:
            places = [(event.feed, event.key) for event, _ in taken if self._mirrors(event.feed)]
            states = await self._store.read_states(places)
            if self._is_outdated:
                return  # they stay owed
        for (event, attempt), is_held_back in zip(taken, are_state_only, strict=True):
            state_only = is_held_back
            state = states.get((event.feed, event.key))
            shown_state = None if state is None else self._rendering.state(state)
            shown = replace(event, body=b"")  # what the filters hold back is nothing that the sink may see
            try:
                shown = shown if state_only else self._rendering.event(event)
            except ValueError as error:
                if not (self._sink.keeps_state and event.key):
                    self._note(Delivery(event, attempt), Outcome(OutcomeKind.UNFIT, str(error)))
                    continue
                self._queue.dead_letter(event, self._now(), str(error))
                state_only = True  # else the receiver would keep an older state
            send.send_nowait(Delivery(shown, attempt, shown_state, state_only=state_only))

    async def _replay(self, send: MemoryObjectSendStream[Delivery]) -> None:
        """Send again what an operator wished for, while nothing else is to be sent."""
        queue, outbox_reader = self._queue, self._outbox_reader
        is_due = outbox_reader.replay_at is not None and outbox_reader.replay_at <= self._now()
        if is_due and not (outbox_reader.replays or queue.is_replaying) and outbox_reader.can_replay:
            await self._checkpoint()
            await outbox_reader.read_replays()
            self._bell.ring()  # should none be sent, the next may be
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
        breaker = self._queue.breaker
        probe_at = breaker.probe_at
        now, event = self._now(), delivery.event
        self._queue.settle(event, outcome, now, self._jitter())
        if breaker.probe_at is not None and breaker.probe_at != probe_at:
            self._telemetry.emit(SinkFails(self._sink.name, outcome.reason, breaker.probe_at - self._now()))
            self._is_down = True
        elif breaker.probe_at is None and (
            probe_at is not None
            or (self._is_down and outcome.kind is OutcomeKind.DELIVERED)  # or the breaker was reset meanwhile
        ):
            self._telemetry.emit(SinkConnected(self._sink.name, "takes events again"))
            self._is_down = False
        times = (None, None) if delivery.replayed else (_since(event.recorded_at, now), _since(event.made_at, now))
        self._telemetry.emit(DeliverySettled(self._sink.name, delivery, outcome, *times))
        self._bell.ring()

    async def _forward_news(self) -> None:
        rings = self._store.outbox.rings
        while True:
            rings = await self._store.outbox.wait(rings)
            self._bell.ring()

    # What was decided beside the relay ------------------------------------------------------------------------------

    async def _close(self, reason: str) -> None:
        """Pause a sink whose receiver wants no more events."""
        if not self._is_paused:
            await self._store.pause(self._sink.name, reason)
            self._paused = reason
            self._telemetry.emit(SinkPaused(self._sink.name, reason))
        self._queue.closed = ""

    async def _look_often(self) -> None:
        while True:
            await anyio.sleep(_LOOK_EVERY.total_seconds())
            self._mind_the_clock()
            await self._look()

    def _mind_the_clock(self) -> None:
        now = self._now()
        if now < self._looked_at - _STEP_MOST:
            self._begin_again()
        steady_at = self._steady()
        step = (now - self._looked_at) - (steady_at - self._steady_at)
        if step > _STEP_MOST:
            self._queue.shift_pause(step)
        self._looked_at, self._steady_at = now, steady_at

    async def _look(self) -> None:
        """Look what was decided of the sink."""
        paused, held = self._paused, set(self._queue.held)
        controls = await self._store.load_controls(self._sink.name)
        if any(controls.origins.get(feed, origin) != origin for feed, origin in self._origins.items()):
            self._begin_again()
        elif controls.origins.keys() - self._origins.keys():
            await self._take_in()
        if controls.paused != paused and self._paused == paused and not self._queue.closed:  # else it was just paused
            self._paused = controls.paused
            if controls.paused is not None:
                self._telemetry.emit(SinkPaused(self._sink.name, controls.paused))
            else:
                self._telemetry.emit(SinkResumed(self._sink.name))
            self._bell.ring()
        if controls.decided != self._decided:
            self._decided = controls.decided
            self._queue.forget_refusals()
        if controls.hurried != self._hurried:
            self._hurried = controls.hurried
            self._queue.retry_now(self._now())  # the operator knows better
            self._bell.ring()
        if controls.replay_at != self._outbox_reader.replay_at and not (
            self._outbox_reader.replays or self._queue.is_replaying
        ):
            self._outbox_reader.replay_at = controls.replay_at
            self._bell.ring()
        if controls.held < len(held):
            await self._release(held)

    async def _release(self, held: AbstractSet[Place]) -> None:
        """Let those among some keys go on that are not held any more."""
        await self._checkpoint()  # else what is stored of these keys may be from before they were held
        _, blocked = await self._store.load_queue(self._sink.name)
        for entry in blocked:
            if (entry.feed, entry.key) in held and not entry.held:
                self._queue.release(entry)
        self._bell.ring()

    async def _take_in(self) -> None:
        """Begin with feeds that are new since the session began; what is under way in the others goes on."""
        starts = await self._store.load_starts(self._sink.name)
        positions, _ = await self._store.load_queue(self._sink.name)
        self._queue.add_feeds(positions, starts)
        self._outbox_reader.add_feeds(starts)
        self._origins = {feed: start.origin for feed, start in starts.items()} | dict(self._origins)
        self._bell.ring()

    def _begin_again(self) -> None:
        self._must_begin_again = True
        self._bell.ring()

    # What is saved --------------------------------------------------------------------------------------------------

    async def _checkpoint_often(self) -> None:
        while True:
            await anyio.sleep(_CHECKPOINT_EVERY.total_seconds())
            if not self._queue.must_save:  # else the pump is about to, and must know when it is done
                await self._checkpoint()

    async def _checkpoint(self) -> None:
        async with self._saving:
            if self._unsaved is not None:
                return
            settlement = self._queue.checkpoint(self._now())
            if settlement:
                self._unsaved = settlement  # should it not be saved, the session begins anew
                await self._save(settlement)

    async def _save(self, settlement: Settlement) -> None:
        await self._store.settle(self._sink.name, settlement)
        self._unsaved = None
        self._bell.ring()  # keys that went aside have made room, or are due
        for letter in settlement.dead:
            self._telemetry.emit(EventDied(self._sink.name, letter.feed, letter.key, letter.sequence, letter.error))
        if settlement.revived:
            self._telemetry.emit(EventsTakenBack(self._sink.name, len(settlement.revived)))


def _since(at: datetime | None, now: datetime) -> timedelta | None:
    return None if at is None else max(now - at, timedelta(0))
