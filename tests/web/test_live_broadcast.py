from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from dockbell.ports import Bell
from dockbell.web.live import EVENTS_MOST, Broadcast, News, Subscriber
from tests.fakes import Ear
from tests.virtual_time import SkippingLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


@dataclass
class Scene:
    """What is looked at."""

    parts: dict[str, Any] = field(default_factory=lambda: {"a": 1, "b": 1})
    events: list[int] = field(default_factory=list)
    skipped: int = 0
    reads: list[float] = field(default_factory=list)
    takes: float = 0
    error: Exception | None = None
    outbox: Bell = field(default_factory=Bell)
    ear: Ear = field(default_factory=Ear)

    async def read_parts(self) -> dict[str, Any]:
        self.reads.append(anyio.current_time())
        await anyio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        return dict(self.parts)

    async def read_news(self) -> News:
        events, self.events = self.events, []
        skipped, self.skipped = self.skipped, 0
        return News([{"place": number} for number in events], skipped)

    def reset(self) -> None:
        pass


@pytest.fixture
def scene() -> Scene:
    return Scene()


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[Broadcast]:
    broadcast = Broadcast(scene, scene.outbox, scene.ear.telemetry)
    async with anyio.create_task_group() as group:
        group.start_soon(broadcast.run)
        yield broadcast
        group.cancel_scope.cancel()


async def take(subscriber: Subscriber, within: float = 60) -> list[tuple[str, Any]]:
    """Return what is sent next, as pairs of event and data."""
    with anyio.fail_after(within):
        taken = await subscriber.take()
    assert taken is not None, "it was let go"
    text = taken.decode()
    blocks = [block.split("\n") for block in text.removesuffix("\n\n").split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def part(name: str, value: Any) -> tuple[str, Any]:
    return "part", {"part": name, "value": value}


async def test_a_new_reader_is_given_everything_and_then_what_changes(scene: Scene) -> None:
    scene.events = [1, 2]
    async with running(scene) as broadcast:
        with broadcast.subscribe() as subscriber:
            everything = await take(subscriber)
            scene.parts = {"a": 2, "c": 1}
            changed = await take(subscriber)
    events = ("events", {"events": [{"place": 1}, {"place": 2}]})
    assert everything == [part("a", 1), part("b", 1), events, ("ready", {})]
    assert changed == [part("a", 2), part("c", 1), part("b", None)]


async def test_where_nothing_changes_nothing_is_sent(scene: Scene) -> None:
    async with running(scene) as broadcast:
        with broadcast.subscribe() as subscriber:
            await take(subscriber)
            with pytest.raises(TimeoutError):
                await take(subscriber, within=60)
    assert len(scene.reads) == pytest.approx(30, abs=1)  # every two seconds


async def test_nobody_looks_while_nobody_is_there(scene: Scene) -> None:
    async with running(scene) as broadcast:
        await anyio.sleep(60)
        assert scene.reads == []
        with broadcast.subscribe() as subscriber:
            await take(subscriber)
        looked = len(scene.reads)
        scene.outbox.ring()
        await anyio.sleep(60)
        assert len(scene.reads) <= looked + 1
        with broadcast.subscribe() as subscriber:
            assert len(await take(subscriber)) == 3


async def test_one_look_is_for_all(scene: Scene) -> None:
    async with running(scene) as broadcast:
        with broadcast.subscribe() as first, broadcast.subscribe() as second:
            assert await take(first) == await take(second)
            assert len(scene.reads) == 1
            with broadcast.subscribe() as late:  # what is known by now is there at once
                assert await take(late, within=0.1) == [part("a", 1), part("b", 1), ("ready", {})]


async def test_a_ring_is_seen_within_a_second_and_many_rings_are_not_many_looks(scene: Scene) -> None:
    async with running(scene) as broadcast:
        with broadcast.subscribe() as subscriber:
            await take(subscriber)
            began = anyio.current_time()
            for number in range(100):
                scene.events.append(number)
                scene.outbox.ring()
                await anyio.sleep(0.1)
            assert len([at for at in scene.reads if at >= began]) < 10 / 0.69
            scene.parts["a"] = "new"
            scene.outbox.ring()
            await take(subscriber, within=0.8)


async def test_a_look_that_takes_long_is_not_taken_often(scene: Scene) -> None:
    scene.takes = 0.5
    async with running(scene) as broadcast:
        with broadcast.subscribe() as subscriber:
            await take(subscriber)
            await anyio.sleep(100)
    assert len(scene.reads) <= 20


async def test_events_do_not_wait_for_a_look_that_takes_long(scene: Scene) -> None:
    scene.takes = 0.5
    async with running(scene) as broadcast:
        with broadcast.subscribe() as subscriber:
            await take(subscriber)
            for number in range(5):
                scene.events = [number]
                scene.outbox.ring()
                assert await take(subscriber, within=0.8) == [("events", {"events": [{"place": number}]})]
    assert len(scene.reads) == 1


async def test_a_slow_reader_skips_what_is_out_of_date_and_delays_nobody(scene: Scene) -> None:
    async with running(scene) as broadcast:
        with broadcast.subscribe() as slow, broadcast.subscribe() as quick:
            await take(slow)
            await take(quick)
            for number in range(3):
                scene.parts["a"] = f"value {number}"
                scene.events = list(range(number * 80, number * 80 + 80))
                scene.outbox.ring()
                told = await take(quick, within=2.1)
                assert told[0] == part("a", f"value {number}")
                assert len(told[1][1]["events"]) == 80
            parts, events = await take(slow)
    assert parts == part("a", "value 2")
    assert [event["place"] for event in events[1]["events"]] == list(range(140, 240))
    assert events[1]["skipped"] == 140


async def test_what_a_look_left_out_is_told(scene: Scene) -> None:
    async with running(scene) as broadcast:
        with broadcast.subscribe() as subscriber:
            await take(subscriber)
            scene.events, scene.skipped = list(range(EVENTS_MOST)), 7
            scene.outbox.ring()
            ((_, told),) = await take(subscriber)
    assert (len(told["events"]), told["skipped"]) == (EVENTS_MOST, 7)


async def test_what_goes_wrong_is_told_and_the_next_look_does_better(scene: Scene) -> None:
    scene.error = RuntimeError("the disk is gone")
    async with running(scene) as broadcast:
        with broadcast.subscribe() as subscriber:
            await anyio.sleep(1)
            scene.error = None
            assert await take(subscriber, within=10) == [part("a", 1), part("b", 1), ("ready", {})]
    assert scene.ear.texts() == ["status page: RuntimeError: the disk is gone"]


@pytest.mark.parametrize("takes", [0, 1000])
async def test_nobody_is_shown_what_was_known_before_a_look_that_fails_or_hangs(scene: Scene, takes: float) -> None:
    async with running(scene) as broadcast:
        with broadcast.subscribe() as first:
            await take(first)
            scene.error, scene.takes = (RuntimeError("the disk is gone"), 0) if not takes else (None, takes)
            await anyio.sleep(15)
            with anyio.fail_after(60):
                assert await first.take() is None
            with broadcast.subscribe() as second:
                with pytest.raises(TimeoutError):
                    await take(second, within=30)
                scene.error, scene.takes, scene.parts = None, 0, {"a": 2}
                with broadcast.subscribe() as third:
                    fresh = [part("a", 2), ("ready", {})]
                    assert [await take(subscriber, within=1000) for subscriber in (second, third)] == [fresh, fresh]


async def test_events_that_cannot_be_heard_end_it_too_and_come_all_with_the_next_look(scene: Scene) -> None:
    read_news, scene.events = scene.read_news, [1]

    async def fail() -> News:
        raise RuntimeError("the disk is gone")

    async with running(scene) as broadcast:
        with broadcast.subscribe() as first:
            await take(first)
            scene.read_news = fail  # type: ignore[method-assign]
            await anyio.sleep(5)
            with anyio.fail_after(60):
                assert await first.take() is None
            scene.read_news, scene.events = read_news, [1, 2]  # type: ignore[method-assign]
            with broadcast.subscribe() as second:
                events = ("events", {"events": [{"place": 1}, {"place": 2}]})
                assert await take(second) == [part("a", 1), part("b", 1), events, ("ready", {})]
