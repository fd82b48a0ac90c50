"""The real relay and the real store around a sink, with what must hold whatever happens."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
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

SINK: Final = "tried"
"""The sink's name."""
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
        """Return it."""
        return datetime.now(UTC) + self._ahead

    def pass_(self, time: timedelta) -> None:
        """Put it forward."""
        self._ahead += time


class _Killed(Exception):
    """A process that is dead does nothing more."""


class _Process:
    """What is dead at once when it is killed, and what counts its steps.

    Attributes:
        is_dead: Whether it was killed.
        steps: How often something was begun or done that a crash could fall upon.
        saves: When each saving began that succeeded, by the monotonic clock.
    """

    def __init__(self, dies_at: int | None) -> None:
        self.is_dead = False
        self.steps = 0
        self.saves: list[float] = []
        self.scope: anyio.CancelScope | None = None
        self._dies_at = dies_at

    def kill(self) -> None:
        """Do nothing any more from now on."""
        self.is_dead = True
        if self.scope is not None:
            self.scope.cancel()

    def step(self) -> None:
        """Count a step; it may be the last."""
        if not self.is_dead:
            self.steps += 1
            if self.steps == self._dies_at:
                self.kill()


class _MortalStore:
    """The store as one process sees it: dead, it neither reads nor writes any more."""

    def __init__(self, store: Store | SinkStore, process: _Process) -> None:
        self._store = store
        self._process = process

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name == "sink":
            return lambda sink: _MortalStore(attribute(sink), self._process)
        return partial(self._call, attribute, name) if inspect.iscoroutinefunction(attribute) else attribute

    async def _call(self, function: Callable[..., Any], name: str, *args: Any, **more: Any) -> Any:
        self._process.step()
        if self._process.is_dead:
            await anyio.lowlevel.checkpoint()  # ends here, unless it shields itself
            raise _Killed
        since = monotonic()
        answer = await function(*args, **more)
        if name == "settle":
            self._process.saves.append(since)
            self._process.step()
        return answer


class _Tap:
    """Stands between relay and sink: sees what is handed over and what is settled, and how the sink ends."""

    def __init__(self, sink: Sink, process: _Process) -> None:
        self.name = sink.name
        self.window = sink.window
        self.keeps_state = sink.keeps_state
        self.handed: list[Delivery] = []
        self.settled: dict[int, Delivery] = {}  # by identity: one event may be delivered again
        self.problems: list[str] = []
        self.is_ended = False
        self._sink = sink
        self._process = process
        self._must_end = False

    def attach(self, retained_state: RetainedState) -> None:
        cast("StateKeeper", self._sink).attach(retained_state)

    async def run(
        self, deliveries: MemoryObjectReceiveStream[Delivery], settle: Callable[[Delivery, Outcome], None]
    ) -> None:
        self.is_ended = self._must_end = False
        handed, settled = len(self.handed), len(self.settled)
        send, receive = anyio.create_memory_object_stream[Delivery](self.window)
        async with receive, anyio.create_task_group() as forwarding:
            forwarding.start_soon(self._forward, deliveries, send)
            await self._sink.run(receive, partial(self._note, settle))
            self.is_ended = True
            if not self._must_end:
                self.problems.append("the sink ended before its stream did")
            forwarding.cancel_scope.cancel()
        unsettled = len(self.handed) - handed - (len(self.settled) - settled)
        if unsettled:
            self.problems.append(f"the sink ended without having settled {unsettled} deliveries")

    async def _forward(
        self, deliveries: MemoryObjectReceiveStream[Delivery], send: MemoryObjectSendStream[Delivery]
    ) -> None:
        async with send:
            async for delivery in deliveries:
                self._process.step()
                self.handed.append(delivery)
                await send.send(delivery)
            self._must_end = True

    def _note(self, settle: Callable[[Delivery, Outcome], None], delivery: Delivery, outcome: Outcome) -> None:
        self._process.step()
        if self._process.is_dead:
            return
        if id(delivery) in self.settled:
            self.problems.append(f"{delivery.event.id} was settled twice")
            return
        if not any(delivery is handed for handed in self.handed[::-1]):
            self.problems.append(f"{delivery.event.id} was settled as another object than was handed over")
        self.settled[id(delivery)] = delivery
        settle(delivery, outcome)
        self._process.step()

    async def probe(self) -> str:
        return await self._sink.probe()


@dataclass(frozen=True, slots=True)
class Life:
    """One run of the relay, from start to end; a process, as far as sink and store can tell."""

    relay: Relay
    _tap: _Tap
    _process: _Process

    def dies_with(self, scope: anyio.CancelScope) -> None:
        """Take what it runs in."""
        self._process.scope = scope

    def kill(self) -> None:
        """End it at once, as SIGKILL would: nothing is said, nothing is saved."""
        self._process.kill()

    @property
    def is_dead(self) -> bool:
        """Whether it was killed."""
        return self._process.is_dead

    @property
    def problems(self) -> list[str]:
        """What the sink did that no sink may do."""
        return self._tap.problems

    @property
    def handed(self) -> list[Delivery]:
        """What the sink was given, in order."""
        return self._tap.handed

    @property
    def unsettled(self) -> int:
        """How many deliveries the sink has and has not settled."""
        return len(self._tap.handed) - len(self._tap.settled)

    @property
    def is_ended(self) -> bool:
        """Whether the sink returned by itself when its stream ended."""
        return self._tap.is_ended

    @property
    def saves(self) -> list[float]:
        """When each saving of what was settled began that succeeded, by the monotonic clock in seconds."""
        return self._process.saves


class Rig:
    """A sink between a real store and a real receiver.

    Attributes:
        outbox: Where changes are made.
        receiver: The receiver.
        clock: The relay's clock.
        facts: What the relay and the sink told.
    """

    def __init__(self, outbox: Outbox, receiver: Receiver, sink_type: SinkType, clock: Clock) -> None:
        self.outbox = outbox
        self.receiver = receiver
        self.clock = clock
        self.facts: list[Fact] = []
        self._sink_type = sink_type
        self._taps: list[_Tap] = []

    def read_settings(self, **others: Any) -> SinkSettings:
        """Return the receiver's settings, with some others."""
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
        """Relay until all is delivered.

        Args:
            dies_at: Killed at this step, the first being 1.
        """
        life = self._begin(dies_at)
        async with anyio.create_task_group() as group:
            life.dies_with(group.cancel_scope)
            group.start_soon(life.relay.drain, timedelta(seconds=_PATIENCE))
            group.cancel_scope.deadline = anyio.current_time() + _PATIENCE
        assert life.is_dead or not group.cancel_scope.cancelled_caught, "waited in vain: all is delivered"
        return life

    def _begin(self, dies_at: int | None = None) -> Life:
        process = _Process(dies_at)
        tap = _Tap(self.make_sink(), process)
        self._taps.append(tap)
        relay = Relay(
            tap,
            self.read_settings(),
            store=cast("Store", _MortalStore(self.outbox.store, process)),
            telemetry=Telemetry(self.facts.append),
            now=self.clock,
        )
        return Life(relay, tap, process)

    async def until_all_arrived(self, *, but: int = 0) -> None:
        """Wait until all events have arrived, while time flies: an hour or so in a second.

        Args:
            but: How many will not come.
        """
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
        """How many repeats the receiver took."""
        return len(self.arrivals) - len({each.id for each in self.arrivals})

    def sequences(self, key: str) -> list[int]:
        """Return the sequences of one key's events in the order in which they first arrived."""
        return [each.sequence for each in self.firsts if each.key == key]

    @property
    def dead(self) -> list[EventDied]:
        """The dead letters."""
        return [fact for fact in self.facts if isinstance(fact, EventDied)]

    @property
    def troubles(self) -> list[SinkFails]:
        """What was told of a receiver that does not answer, or refuses the sink."""
        return [fact for fact in self.facts if isinstance(fact, SinkFails)]

    @property
    def crashes(self) -> list[BaseException]:
        """The unforeseen errors."""
        failures = [fact.error for fact in self.facts if isinstance(fact, AgentFails)]
        return [error for failure in failures for error in _leaves(failure) if not isinstance(error, _Killed)]

    async def assert_sound(self) -> None:
        """Check what must hold at any time, whatever happened."""
        events = {event.id: event for event in await self.outbox.events()}
        assert self.crashes == [], "an error left the sink"
        assert [problem for tap in self._taps for problem in tap.problems] == []
        assert self.receiver.arrivals.overlaps == [], "two deliveries of one key were in flight at once"
        for arrival in list(self.arrivals):
            assert arrival.id in events, f"{arrival} is no event of the outbox"
            assert_same(arrival, events[arrival.id])
        heard: dict[tuple[str, str], list[int]] = {}
        for arrival in self.firsts:
            heard.setdefault((arrival.feed, arrival.key), []).append(arrival.sequence)
        for place, sequences in heard.items():
            assert sequences == sorted(sequences), f"{place} came out of order"


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def assert_same(arrival: Arrival, event: Event) -> None:
    """Check that an event arrived as it is in the outbox."""
    expected: Mapping[str, Any] = json.loads(event.body)
    assert (arrival.feed, arrival.key, arrival.sequence) == (str(event.feed), event.key, event.sequence)
    assert arrival.revision == expected["data"].get("revision", 0)
    assert arrival.event is None or arrival.event == expected


@asynccontextmanager
async def open_rig(folder: Path, sink_type: SinkType, receiver: Receiver) -> AsyncIterator[Rig]:
    """Yield a rig with an empty store in a folder; the receiver is the caller's to start and stop."""
    clock = Clock()
    async with open_outbox(folder, SINK, now=clock) as outbox:
        yield Rig(outbox, receiver, sink_type, clock)
