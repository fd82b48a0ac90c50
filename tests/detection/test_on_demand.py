"""Work that has a task only while there is something to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from dockbell.detection.on_demand import OnDemand


class Counted:
    """Work that goes on until it is let go, and counts how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_once = 0
        self.may_end = anyio.Event()
        self.task = OnDemand(self.work)

    async def work(self) -> None:
        self.begun += 1
        self.at_once += 1
        assert self.at_once == 1
        try:
            await self.may_end.wait()
        finally:
            self.at_once -= 1


@asynccontextmanager
async def at_work(counted: Counted) -> AsyncIterator[TaskGroup]:
    """Let it work in a group while the block lasts, and until there is nothing that could go on by itself."""
    async with anyio.create_task_group() as group:
        with counted.task.working_in(group):
            yield group
            await anyio.wait_all_tasks_blocked()


async def test_it_has_no_task_until_it_is_asked_and_none_afterwards() -> None:
    counted = Counted()
    counted.may_end.set()
    async with at_work(counted):
        for begun in range(3):
            await anyio.wait_all_tasks_blocked()
            assert counted.begun == begun
            assert not counted.task.is_working
            counted.task.ask()
            assert counted.task.is_working


async def test_what_is_asked_for_while_it_works_is_done_afterwards_and_once() -> None:
    counted = Counted()
    async with at_work(counted):
        counted.task.ask()
        await anyio.wait_all_tasks_blocked()
        counted.task.ask()
        counted.task.ask()
        await anyio.wait_all_tasks_blocked()
        assert counted.begun == 1
        counted.may_end.set()
    assert counted.begun == 2


async def test_what_was_asked_for_before_it_works_is_done_then_and_not_after_its_end() -> None:
    counted = Counted()
    counted.may_end.set()
    counted.task.ask()
    await anyio.wait_all_tasks_blocked()
    assert counted.begun == 0
    async with at_work(counted):
        pass
    counted.task.ask()
    await anyio.wait_all_tasks_blocked()
    assert counted.begun == 1


async def test_it_works_again_in_another_group_after_it_was_cancelled() -> None:
    counted = Counted()
    counted.task.ask()
    async with at_work(counted) as group:
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    counted.may_end.set()
    counted.task.ask()
    async with at_work(counted):
        pass
    assert counted.begun == 2
