from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest

from dockbell.core.model import Urgency
from dockbell.core.running.budget import Budget
from dockbell.sources.request_queue import RequestQueue, now

SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def anyio_backend(skipping_backend: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    return skipping_backend


def use_up(budget: Budget) -> None:
    for _ in range(budget.allowed):
        budget.spent(now())
        budget.answered(now())


async def test_a_turn_is_given_at_once_while_there_is_room() -> None:
    queue, budget = RequestQueue(8), Budget(2)
    began = now()

    for _ in range(2):
        async with queue.turn(Urgency.POLL, budget):
            assert budget.usage(now()).used > 0

    assert now() - began < SECOND


async def test_the_most_urgent_goes_first_and_equals_in_the_order_they_came() -> None:
    queue, budget = RequestQueue(1), Budget(60_000)
    order: list[str] = []

    async def ask(urgency: Urgency, name: str) -> None:
        async with queue.turn(urgency, budget):
            order.append(name)

    async with anyio.create_task_group() as group, queue.turn(Urgency.POLL, budget):
        for urgency in reversed(Urgency):
            for number in (1, 2):
                group.start_soon(ask, urgency, f"{urgency}{number}")
                await anyio.wait_all_tasks_blocked()

    assert order == [f"{urgency}{number}" for urgency in Urgency for number in (1, 2)]


async def test_a_pass_page_that_waited_longer_than_a_minute_is_overtaken_no_more() -> None:
    queue, budget = RequestQueue(1), Budget(60_000)
    order: list[Urgency] = []

    async def ask(urgency: Urgency) -> None:
        async with queue.turn(urgency, budget):
            order.append(urgency)

    async with anyio.create_task_group() as group, queue.turn(Urgency.POLL, budget):
        group.start_soon(ask, Urgency.PASS)
        await anyio.sleep(61)
        group.start_soon(ask, Urgency.OPERATOR)
        await anyio.wait_all_tasks_blocked()

    assert order == [Urgency.PASS, Urgency.OPERATOR]


async def test_a_pass_page_that_waits_for_its_pace_holds_up_no_poll() -> None:
    queue, budget = RequestQueue(8), Budget(60)
    turns: dict[str, timedelta] = {}

    async def ask(urgency: Urgency, name: str) -> None:
        async with queue.turn(urgency, budget):
            turns[name] = now() - began

    began = now()
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(ask, Urgency.PASS, f"pass{number}")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(ask, Urgency.POLL, "poll")

    assert turns["poll"] < 0.5 * SECOND
    assert 0.9 * SECOND < turns["pass1"] < 1.2 * SECOND
    assert 1.9 * SECOND < turns["pass2"] < 2.4 * SECOND


async def test_a_request_charged_to_two_budgets_waits_for_both_and_holds_up_nobody() -> None:
    queue, standard, orders = RequestQueue(8), Budget(60), Budget(1)
    await anyio.sleep(1 - now().total_seconds() % 1)  # all that follows is counted in one grain of time
    use_up(orders)
    turns: dict[str, timedelta] = {}

    async def ask(name: str, *budgets: Budget) -> None:
        async with queue.turn(Urgency.OPERATOR, *budgets):
            turns[name] = now() - began

    began = now()
    async with anyio.create_task_group() as group:
        group.start_soon(ask, "order", standard, orders)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(ask, "reading", standard)

    assert turns["reading"] < SECOND
    assert turns["order"] > 60 * SECOND
    assert standard.usage(now()).used == 1
    assert orders.usage(now()).used == 1


async def test_who_is_cancelled_while_waiting_spends_nothing_and_holds_up_nobody() -> None:
    queue, budget = RequestQueue(8), Budget(1)
    use_up(budget)
    turns: list[timedelta] = []
    began = now()

    async def ask() -> None:
        async with queue.turn(Urgency.POLL, budget):
            turns.append(now() - began)

    async with anyio.create_task_group() as group:
        with anyio.move_on_after(30):
            group.start_soon(ask)  # behind the one that is cancelled
            async with queue.turn(Urgency.OPERATOR, budget):
                pytest.fail("there was no room")

    assert len(turns) == 1
    assert turns[0] < 62 * SECOND


async def test_no_more_turns_than_places_go_on_at_once() -> None:
    queue, budget = RequestQueue(3), Budget(60_000)
    at_once, most = 0, 0

    async def ask() -> None:
        nonlocal at_once, most
        async with queue.turn(Urgency.POLL, budget):
            at_once += 1
            most = max(most, at_once)
            await anyio.sleep(1)
            at_once -= 1

    began = now()
    async with anyio.create_task_group() as group:
        for _ in range(9):
            group.start_soon(ask)

    assert most == 3
    assert 3 * SECOND <= now() - began < 4 * SECOND


async def test_a_turn_that_fails_gives_its_place_back() -> None:
    queue, budget = RequestQueue(1), Budget(60_000)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with queue.turn(Urgency.POLL, budget):
                raise ZeroDivisionError

    assert budget.usage(now()).used == 3


async def test_an_answer_that_tells_of_room_wakes_who_waits_for_it() -> None:
    queue, budget = RequestQueue(8), Budget(1)
    began = now()

    async def hold() -> None:
        async with queue.turn(Urgency.POLL, budget):
            await anyio.sleep(200)

    async with anyio.create_task_group() as group:
        group.start_soon(hold)
        await anyio.wait_all_tasks_blocked()
        async with queue.turn(Urgency.POLL, budget):
            waited = now() - began

    assert 260 * SECOND < waited < 262 * SECOND


async def test_a_thousand_that_come_at_once_are_served_at_the_pace_of_the_budget() -> None:
    queue, budget = RequestQueue(8), Budget(300)
    began = now()

    async def ask(urgency: Urgency) -> None:
        async with queue.turn(urgency, budget):
            await anyio.sleep(0.02)

    async with anyio.create_task_group() as group:
        for number in range(1000):
            group.start_soon(ask, list(Urgency)[number % 5])

    assert 183 * SECOND < now() - began < 290 * SECOND
