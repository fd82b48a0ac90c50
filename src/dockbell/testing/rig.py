"""The real relay and the real store around a sink, with what must hold whatever happens."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from dockbell.config import SinkSettings
from dockbell.core.model import Delivery, Event, Outcome
from dockbell.delivery.relay import Relay
from dockbell.ports import RetainedState, Sink, SinkStore, StateKeeper, Store
from dockbell.sinks import SinkType
from dockbell.telemetry import AgentFails, EventDied, Fact, SinkFails, Telemetry
from dockbell.testing.outbox import Outbox, open_outbox
from dockbell.testing.receiver import Arrival, Receiver

SINK: Final = "tried"  # the sink's name
_PATIENCE: Final = 20.0
_LOOK_EVERY: Final = 0.005


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something holds; fail after a while, saying what did not come about."""
    deadline = monotonic() + _PATIENCE
    while not condition():
        assert monotonic() < deadline, f"waited in vain: {what}"
        await anyio.sleep(_LOOK_EVERY)


class Clock:
    """The time, and how far it was put forward."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def pass_(self, time: timedelta) -> None:
        self._ahead += time


class _Killed(Exception):
    """A process that is dead does nothing more."""


class Life:
    """One run of the relay, from start to end: a process, as far as sink and store can tell."""

    relay: Relay

    def __init__(self, dies_at: int | None = None) -> None:
        self.handed: list[Delivery] = []  # to the sink, in order
        self.problems: list[str] = []  # that no sink may cause
        self.is_ended = False  # the sink returned by itself when its stream ended
        self.is_dead = False
        self.saves: list[float] = []  # when each successful saving of what was settled began, monotonic seconds
        self._settled: dict[int, Delivery] = {}  # by identity: one event may be delivered again
        self._scope: anyio.CancelScope | None = None
        self._steps = 0
        self._dies_at = dies_at

    def dies_with(self, scope: anyio.CancelScope) -> None:
        self._scope = scope

    def kill(self) -> None:
        """End it at once, as SIGKILL would: it says and saves nothing more."""
        self.is_dead = True
        if self._scope is not None:
            self._scope.cancel()

    def step(self) -> None:
        """Count something begun or done that a crash could fall upon; it may be the last."""
        if not self.is_dead:
            self._steps += 1
            if self._steps == self._dies_at:
                self.kill()

    @property
    def unsettled(self) -> int:
        """How many deliveries the sink has and has not settled."""
        return len(self.handed) - len(self._settled)

    def note(self, settle: Callable[[Delivery, Outcome], None], delivery: Delivery, outcome: Outcome) -> None:
        """Pass on what the sink says came of a delivery, unless the process is dead."""
        self.step()
        if self.is_dead:
            return
        if id(delivery) in self._settled:
            self.problems.append(f"{delivery.event.id} was settled twice")
            return
        if not any(delivery is handed for handed in self.handed[::-1]):
            self.problems.append(f"{delivery.event.id} was settled as another object than was handed over")
        self._settled[id(delivery)] = delivery
        settle(delivery, outcome)
        self.step()


class _MortalStore:
    """The store as one process sees it: dead, it neither reads nor writes any more."""

    def __init__(self, store: Store | SinkStore, life: Life) -> None:
        self._store = store
        self._life = life

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name == "sink":
            return lambda sink: _MortalStore(attribute(sink), self._life)
        return partial(self._call, attribute, name) if inspect.iscoroutinefunction(attribute) else attribute

    async def _call(self, function: Callable[..., Any], name: str, *args: Any, **more: Any) -> Any:
        self._life.step()
        if self._life.is_dead:
            await anyio.lowlevel.checkpoint()  # ends here, unless it shields itself
            raise _Killed
        since = monotonic()
        answer = await function(*args, **more)
        if name == "settle":
            self._life.saves.append(since)
            self._life.step()
        return answer


class _Tap:
    """Stands between relay and sink: tells the life what is handed over and settled, and how the sink ends."""

    def __init__(self, sink: Sink, life: Life) -> None:
        self.name = sink.name
        self.window = sink.window
        self.keeps_state = sink.keeps_state
        self._sink = sink
        self._life = life
        self._must_end = False

    def attach(self, retained_state: RetainedState) -> None:
        cast("StateKeeper", self._sink).attach(retained_state)

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        life = self._life
        life.is_ended = self._must_end = False
        before = life.unsettled
        send, receive = anyio.create_memory_object_stream[Delivery](self.window)
        async with receive, anyio.create_task_group() as forwarding:
            forwarding.start_soon(self._forward, deliveries, send)
            await self._sink.run(receive, partial(life.note, settle))
            life.is_ended = True
            if not self._must_end:
                life.problems.append("the sink ended before its stream did")
            forwarding.cancel_scope.cancel()
        if unsettled := life.unsettled - before:
            life.problems.append(f"the sink ended without having settled {unsettled} deliveries")

    async def _forward(
        self, deliveries: MemoryObjectReceiveStream[Delivery], send: MemoryObjectSendStream[Delivery]
    ) -> None:
        async with send:
            async for delivery in deliveries:
                self._life.step()
                self._life.handed.append(delivery)
                await send.send(delivery)
            self._must_end = True

    async def probe(self) -> str:
        return await self._sink.probe()


class Rig:
    """A sink between a real store and a real receiver; ``facts`` are those of the relay and the sink."""

    def __init__(self, outbox: Outbox, receiver: Receiver, sink_type: SinkType, clock: Clock) -> None:
        self.outbox = outbox
        self.receiver = receiver
        self.clock = clock
        self.facts: list[Fact] = []
        self._sink_type = sink_type
        self._lives: list[Life] = []

    def read_settings(self, **others: Any) -> SinkSettings:
        return self._sink_type.Settings.model_validate({**self.receiver.settings, **others})

    def make_sink(self) -> Sink:
        """Return a sink for the receiver, not connected."""
        return self._sink_type(SINK, self.read_settings(), Telemetry(self.facts.append))

    @asynccontextmanager
    async def living(self) -> AsyncIterator[Life]:
        """Relay while inside, then end cleanly unless it was killed."""
        life = self._begin()
        async with anyio.create_task_group() as group:
            life.dies_with(group.cancel_scope)
            group.start_soon(life.relay.run)
            with anyio.CancelScope(shield=True):  # a kill ends the relay, not what the test does meanwhile
                try:
                    yield life
                finally:
                    assert life.problems == []  # they explain whatever else went wrong
            life.relay.stop()
            group.cancel_scope.deadline = anyio.current_time() + _PATIENCE
        assert life.problems == []
        assert life.is_dead or not group.cancel_scope.cancelled_caught, "the sink cannot be cut off"

    async def drain(self, *, dies_at: int | None = None) -> Life:
        """Relay until all is delivered, or it is killed at a step, the first being 1."""
        life = self._begin(dies_at)
        async with anyio.create_task_group() as group:
            life.dies_with(group.cancel_scope)
            group.start_soon(life.relay.drain, timedelta(seconds=_PATIENCE))
            group.cancel_scope.deadline = anyio.current_time() + _PATIENCE
        assert life.is_dead or not group.cancel_scope.cancelled_caught, "waited in vain: all is delivered"
        return life

    def _begin(self, dies_at: int | None = None) -> Life:
        life = Life(dies_at)
        self._lives.append(life)
        life.relay = Relay(
            _Tap(self.make_sink(), life),
            self.read_settings(),
            store=cast("Store", _MortalStore(self.outbox.store, life)),
            telemetry=Telemetry(self.facts.append),
            now=self.clock,
        )
        return life

    async def until_all_arrived(self, *, but: int = 0) -> None:
        """Wait until all events but so many have arrived, while the clock runs an hour or so in a second."""
        expected = len({event.id for event in await self.outbox.events()}) - but
        deadline = monotonic() + _PATIENCE
        while len(arrived := {each.id for each in self.arrivals}) < expected:
            assert monotonic() < deadline, f"waited in vain: {len(arrived)} of {expected} events have arrived"
            await anyio.sleep(2 * _LOOK_EVERY)
            self.clock.pass_(timedelta(seconds=20))
            self.outbox.store.outbox.ring()  # so that the relay looks at the clock

    @property
    def arrivals(self) -> list[Arrival]:
        """What the receiver took, in order, repeats included."""
        return self.receiver.arrivals.took

    @property
    def firsts(self) -> list[Arrival]:
        """What the receiver took, without the repeats."""
        firsts: dict[str, Arrival] = {}
        for arrival in list(self.arrivals):
            firsts.setdefault(arrival.id, arrival)
        return list(firsts.values())

    @property
    def repeats(self) -> int:
        return len(self.arrivals) - len({each.id for each in self.arrivals})

    def sequences(self, key: str) -> list[int]:
        """Return the sequences of one key's events in the order in which they first arrived."""
        return [each.sequence for each in self.firsts if each.key == key]

    @property
    def dead(self) -> list[EventDied]:
        return [fact for fact in self.facts if isinstance(fact, EventDied)]

    @property
    def troubles(self) -> list[SinkFails]:
        """What was reported of a receiver that does not answer, or refuses the sink."""
        return [fact for fact in self.facts if isinstance(fact, SinkFails)]

    @property
    def crashes(self) -> list[BaseException]:
        errors: list[BaseException] = [fact.error for fact in self.facts if isinstance(fact, AgentFails)]
        for error in errors:
            if isinstance(error, BaseExceptionGroup):
                errors += error.exceptions  # the loop goes on with them
        return [error for error in errors if not isinstance(error, BaseExceptionGroup | _Killed)]

    async def assert_sound(self) -> None:
        """Check what must hold at any time."""
        events = {event.id: event for event in await self.outbox.events()}
        assert self.crashes == [], "an error left the sink"
        assert [problem for life in self._lives for problem in life.problems] == []
        assert self.receiver.arrivals.overlaps == [], "two deliveries of one key were in flight at once"
        for arrival in list(self.arrivals):
            assert arrival.id in events, f"{arrival} is no event of the outbox"
            assert_same(arrival, events[arrival.id])
        heard: dict[tuple[str, str], list[int]] = {}
        for arrival in self.firsts:
            heard.setdefault((arrival.feed, arrival.key), []).append(arrival.sequence)
        for place, sequences in heard.items():
            assert sequences == sorted(sequences), f"{place} came out of order"


def assert_same(arrival: Arrival, event: Event) -> None:
    """Check that an event arrived as it is in the outbox."""
    expected = json.loads(event.body)
    assert (arrival.feed, arrival.key, arrival.sequence) == (str(event.feed), event.key, event.sequence)
    assert arrival.revision == expected["data"].get("revision", 0)
    assert arrival.event is None or arrival.event == expected


@asynccontextmanager
async def open_rig(folder: Path, sink_type: SinkType, receiver: Receiver) -> AsyncIterator[Rig]:
    """Yield a rig with an empty store in a folder; the receiver is the caller's to start and stop."""
    clock = Clock()
    async with open_outbox(folder, SINK, now=clock) as outbox:
        yield Rig(outbox, receiver, sink_type, clock)
