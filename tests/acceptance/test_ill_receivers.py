"""Receivers over real HTTP that are ill for some seconds, or ill-disposed towards one record."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import anyio

from dockbell.delivery.relay import Relay
from dockbell.sinks.webhook import WebhookSettings, WebhookSink
from dockbell.stores.sqlite import SqliteStore
from tests.fakes import Ear
from tests.relaying import FEED, change, change_keys, opened
from tests.sinks.receiver import OK, SECRET, Request, receiving, respond
from tests.stores.standings import read


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Receiver:
    """Answers by the seconds since its first request, and by the key."""

    answer_at: Callable[[float, str], bytes]
    began: float = 0.0
    asked: list[tuple[float, str, int]] = field(default_factory=list)
    taken: list[tuple[float, str, int]] = field(default_factory=list)

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        event = json.loads(request.body)
        self.began = self.began or time.monotonic()
        at = time.monotonic() - self.began
        said = self.answer_at(at, event["data"]["key"])
        self.asked.append((at, event["data"]["key"], int(event["sequence"])))
        if said == OK:
            self.taken.append(self.asked[-1])
        writer.write(said)

    def orders(self) -> dict[str, list[int]]:
        """Return the sequences that were taken, by key."""
        orders: dict[str, list[int]] = {}
        for _, key, sequence in self.taken:
            orders.setdefault(key, []).append(sequence)
        return orders

    async def until_taken(self, count: int, seconds: float) -> None:
        """Wait until so many events were taken."""
        with anyio.fail_after(seconds):
            while len({sequence for _, _, sequence in self.taken}) < count:  # noqa: ASYNC110  # it has no bell
                await anyio.sleep(0.05)


@asynccontextmanager
async def delivering(folder: Path, receiver: Receiver) -> AsyncIterator[tuple[SqliteStore, Relay]]:
    """Deliver what is in a store to a receiver."""
    async with opened(folder) as store, receiving(receiver.answer) as server, anyio.create_task_group() as tasks:
        table = {"type": "webhook", "url": server.url, "secret": SECRET, "start": "beginning"}
        settings = WebhookSettings.model_validate(table)
        sink = WebhookSink("screen", settings, Ear().telemetry)
        relay = Relay(sink, settings, store=store, telemetry=Ear().telemetry, now=now)
        tasks.start_soon(relay.run)
        try:
            yield store, relay
        finally:
            relay.stop()


async def test_a_bad_deploy_of_five_seconds_kills_no_event_of_three_records(tmp_path: Path) -> None:
    receiver = Receiver(lambda at, _key: respond("422 No") if at < 5 else OK)
    async with delivering(tmp_path, receiver) as (store, _):
        await change_keys(store, "abc" * 13)
        await receiver.until_taken(39, seconds=20)
        with anyio.fail_after(5):
            while read(store.path, "SELECT count(*) FROM dead_letters") != [(0,)]:  # noqa: ASYNC110
                await anyio.sleep(0.05)
    assert receiver.taken[-1][0] < 5 + 8
    assert all(order == sorted(order) for order in receiver.orders().values())


async def test_four_records_are_delivered_within_seconds_after_an_outage_of_eight(tmp_path: Path) -> None:
    receiver = Receiver(lambda at, _key: respond("502 Bad") if at < 8 else OK)
    async with delivering(tmp_path, receiver) as (store, _):
        await change_keys(store, "abcd")
        await receiver.until_taken(4, seconds=25)
    assert receiver.taken[-1][0] < 8 + 6
    assert len(receiver.asked) < 4 * 10


async def test_a_record_whose_events_are_always_answered_with_retry_after_delays_no_other(tmp_path: Path) -> None:
    busy = respond("503 Busy", retry_after="2")
    receiver = Receiver(lambda _at, key: busy if key == "k" else OK)
    made: dict[int, float] = {}
    async with delivering(tmp_path, receiver) as (store, relay):
        await change(store, {"id": "k"})
        for number in range(60):
            made[number + 2] = time.monotonic()
            await change(store, {"id": f"other_{number}"})
            await anyio.sleep(0.1)
        await receiver.until_taken(60, seconds=10)
        entry = relay._queue.owed[FEED, "k"]
    delays = [receiver.began + at - made[sequence] for at, _, sequence in receiver.taken if sequence > 30]
    assert max(delays) < 1
    assert entry.attempts >= 1
    assert 2 <= sum(key == "k" for _, key, _ in receiver.asked) <= 5
