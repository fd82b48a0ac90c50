"""kill -9 at any moment: each event arrives, under one id, in order, and little of it twice."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import pytest

from dockbell.core.model import Event
from dockbell.testing import Arrival, Receiver, open_outbox, until
from tests.acceptance.killed import Life, Nursery, make_sink, open_nursery, read_safe_at
from tests.brokers import Subscriber
from tests.sinks.conforming import BrokerReceiver, WebhookReceiver

pytestmark = pytest.mark.acceptance


class Ordeal:
    """A store whose processes are killed, one after the other, and a receiver that goes on.

    Attributes:
        repeats: How often something came again.
    """

    def __init__(self, folder: Path, nursery: Nursery, receiver: Receiver, dice: random.Random) -> None:
        self.repeats = 0
        self._folder = folder
        self._nursery = nursery
        self._receiver = receiver
        self._dice = dice
        self._lives = 0
        self._began_at = 0.0
        self._heard: set[str] = set()
        self._at_risk: set[str] = set()
        self._settings = dict(receiver.settings)
        self._window = make_sink(self._settings)[0].window

    async def kill(self) -> None:
        """Let a process work, kill it after some time or some deliveries, and count what it repeated."""
        took, dice = self._receiver.arrivals.took, self._dice
        start = len(took)
        pid = await self._begin()
        if dice.random() < 0.5:
            await anyio.sleep(dice.uniform(0, 0.12))
        else:
            enough, backoff = start + dice.randrange(1, 60), monotonic() + 2
            while len(took) < enough and monotonic() < backoff:  # noqa: ASYNC110  # another process delivers
                await anyio.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
        assert await self._nursery.end() == -signal.SIGKILL
        self._judge_repeats(took[start:])

    async def finish(self) -> None:
        """Let a last process deliver what is owed."""
        took = self._receiver.arrivals.took
        start = len(took)
        await self._begin(finishes=True)
        assert await self._nursery.end() == 0
        self._judge_repeats(took[start:])

    async def _begin(self, *, finishes: bool = False) -> int:
        self._lives += 1
        self._began_at = monotonic()
        return await self._nursery.begin(Life(str(self._folder), self._settings, self._lives, finishes))

    def _judge_repeats(self, arrivals: Sequence[Arrival]) -> None:
        """Check that a process repeats only what its predecessor had just delivered, or was to repeat itself.

        That is what came since the last saving but one, and what was in flight then.
        """
        repeated = {each.id for each in arrivals} & self._heard
        stale = repeated - self._at_risk
        assert len(stale) <= 2 * self._window, f"life {self._lives} repeats what had been settled for long: {stale}"
        self.repeats += len(arrivals) - len({each.id for each in arrivals} - self._heard)
        safe_at = read_safe_at(self._folder, self._began_at)
        self._at_risk -= {each.id for each in arrivals}
        self._at_risk |= {each.id for each in arrivals if each.at >= safe_at}
        self._heard |= {each.id for each in arrivals}


def judge(events: Sequence[Event], arrivals: Sequence[Arrival]) -> None:
    """Check all that arrived against all that there is."""
    heard: dict[str, Arrival] = {}
    for arrival in arrivals:
        known = heard.setdefault(arrival.id, arrival)
        assert known.event == arrival.event, f"{arrival.id} has two contents"
    assert heard.keys() == {event.id for event in events}
    assert len({(event.feed, event.key, event.revision, event.type) for event in events}) == len(events)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    orders: dict[str, list[int]] = defaultdict(list)
    for arrival in heard.values():
        orders[arrival.key].append(arrival.sequence)
    assert all(order == sorted(order) for order in orders.values())
    chains: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        told = heard[event.id].event
        assert told == json.loads(event.body)
        if "name" not in told["data"]:
            chains[event.key].append(told["data"])
    for chain in chains.values():
        assert [data["revision"] for data in chain] == list(range(1, len(chain) + 1))
        assert all(later["before"] == earlier["after"] for earlier, later in pairwise(chain))


async def endure(folder: Path, receiver: Receiver, kills: int) -> Sequence[Event]:
    """Kill so many processes, let the last finish, and judge; return all events."""
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    began_at = monotonic()
    async with open_nursery() as nursery:
        ordeal = Ordeal(folder, nursery, receiver, random.Random(seed))
        for _ in range(kills):
            await ordeal.kill()
        await ordeal.finish()
    async with open_outbox(folder) as outbox:
        events = await outbox.events()
    arrivals = receiver.arrivals.took
    judge(events, arrivals)
    print(f"{kills} kills, {monotonic() - began_at:.0f} s, {len(events)} events, {ordeal.repeats} repeats")
    assert len(events) > 3 * kills
    assert len(arrivals) == len(events) + ordeal.repeats
    return events


async def test_webhooks_lose_nothing_and_repeat_little_at_two_hundred_kills(tmp_path: Path) -> None:
    dice = random.Random(7)
    receiver = WebhookReceiver(pause=lambda: dice.uniform(0, 0.003))
    await receiver.start()
    try:
        await endure(tmp_path, receiver, 200)
    finally:
        await receiver.stop()
    assert receiver.arrivals.overlaps == []


async def test_publications_lose_nothing_and_the_retained_state_is_that_of_the_store(tmp_path: Path) -> None:
    receiver = BrokerReceiver(tmp_path)
    await receiver.start()
    try:
        with Subscriber(receiver.broker, "dockbell/event/#") as subscriber:
            events = await endure(tmp_path, receiver, 40)
            ids = {event.id for event in events}
            await until(
                lambda: ids <= {json.loads(each.payload)["id"] for each in subscriber.received}, "all passed on"
            )
        with Subscriber(receiver.broker, "dockbell/state/#") as subscriber:
            latest = {event.key: json.loads(event.body)["data"]["after"] for event in events}
            await until(lambda: len(subscriber.retained()) >= len(latest), "a state for each record")
            states = {topic.split("/")[-1]: json.loads(state) for topic, state in subscriber.retained().items()}
            assert states == latest
    finally:
        await receiver.stop()
