from __future__ import annotations

import anyio

from dockbell.app.agent_task import AgentTask


async def test_one_post_ends_and_the_others_go_on() -> None:
    ended: list[str] = []

    async def work(name: str, until: anyio.Event) -> None:
        try:
            await until.wait()
        finally:
            ended.append(name)

    event = anyio.Event()
    async with anyio.create_task_group() as group:
        first = AgentTask(group, lambda: work("first", event))
        second = AgentTask(group, lambda: work("second", event))
        await anyio.wait_all_tasks_blocked()
        await first.end()
        assert ended == ["first"]
        event.set()
        await second.wait()
    assert ended == ["first", "second"]


async def test_work_that_is_ended_before_it_began_still_tidies_up() -> None:
    tidied = anyio.Event()

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            tidied.set()

    async with anyio.create_task_group() as group:
        await AgentTask(group, work).end()
    assert tidied.is_set()
