from __future__ import annotations

import asyncio
from itertools import pairwise

import anyio

from dockbell.core.model import Delivery, Fate, Outcome
from dockbell.sinks.webhook.pace import Pace
from tests.sinks.conftest import make_delivery, running
from tests.sinks.receiver import OK, Receiver, Request, make_sink, receiving

PER_MINUTE = 1200
INTERVAL = 0.05
EARLY = 0.015  # what the clocks and the network may take away from an interval; never a burst


def timing(receiver: Receiver) -> list[float]:
    """Answer with success, and return a list of when each request came."""
    times: list[float] = []

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        times.append(anyio.current_time())
        writer.write(OK)

    receiver.answer = answer
    return times


async def test_requests_are_spaced_evenly_over_all_lanes() -> None:
    async with receiving(OK) as receiver:
        times = timing(receiver)
        async with running(make_sink(receiver.url, lanes=4, requests_per_minute=PER_MINUTE)) as run:
            run.deliver(*map(make_delivery, range(6)))
            await run.until_settled(6)
    assert run.fates == [Fate.DELIVERED] * 6
    assert all(later - earlier >= INTERVAL - EARLY for earlier, later in pairwise(times))


async def test_a_pause_is_not_made_up_for_by_a_burst() -> None:
    async with receiving(OK) as receiver:
        times = timing(receiver)
        async with running(make_sink(receiver.url, requests_per_minute=PER_MINUTE)) as run:
            await anyio.sleep(3 * INTERVAL)
            run.deliver(*map(make_delivery, range(3)))
            await run.until_settled(3)
    assert times[2] - times[0] >= 2 * INTERVAL - EARLY


async def test_a_slow_answer_holds_up_no_other_lane_s_turn() -> None:
    release = anyio.Event()

    async def answer_first_late(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.headers["webhook-id"] == "evt_0":
            await release.wait()
        writer.write(OK)

    async with (
        receiving(answer_first_late) as receiver,
        running(make_sink(receiver.url, lanes=2, requests_per_minute=PER_MINUTE)) as run,
    ):
        run.deliver(*map(make_delivery, range(4)))
        await run.until_settled(3)
        release.set()
        await run.until_settled(4)


async def test_what_waits_for_its_turn_is_taken_by_nobody_yet() -> None:
    settled: list[Delivery] = []
    one_settled = anyio.Event()

    def settle(delivery: Delivery, _outcome: Outcome) -> None:
        settled.append(delivery)
        one_settled.set()

    send, receive = anyio.create_memory_object_stream[Delivery](4)
    async with receiving(OK) as receiver, send, receive, anyio.create_task_group() as tasks:
        tasks.start_soon(make_sink(receiver.url, lanes=4, requests_per_minute=1).run, receive, settle)
        for number in range(4):
            send.send_nowait(make_delivery(number))
        await one_settled.wait()
        await anyio.wait_all_tasks_blocked()
        assert len(settled) == 1
        assert send.statistics().current_buffer_used == 3
        tasks.cancel_scope.cancel()


async def test_a_pace_outlasts_the_run_it_was_kept_in() -> None:
    pace = Pace(PER_MINUTE)
    times = []
    for _ in range(3):
        send, receive = anyio.create_memory_object_stream[Delivery](1)
        with send, receive:
            send.send_nowait(make_delivery())
            await pace.take(receive)
            times.append(anyio.current_time())
    assert times[2] - times[0] >= 2 * INTERVAL - EARLY
