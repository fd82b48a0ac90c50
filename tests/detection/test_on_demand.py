"""Work that has a task only while there is something to do."""

from __future__ import annotations

import anyio

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


async def test_it_has_no_task_until_it_is_asked_and_none_afterwards() -> None:
    counted = Counted()
    counted.may_end.set()
    async with anyio.create_task_group() as group:
        with counted.task.working_in(group):
            for begun in range(3):
                await anyio.wait_all_tasks_blocked()
                assert counted.begun == begun
                assert not counted.task.is_working
                counted.task.ask()
                assert counted.task.is_working


async def test_what_is_asked_for_while_it_works_is_done_afterwards_and_once() -> None:
    counted = Counted()
    async with anyio.create_task_group() as group:
        with counted.task.working_in(group):
            counted.task.ask()
            await anyio.wait_all_tasks_blocked()
            counted.task.ask()
            counted.task.ask()
            await anyio.wait_all_tasks_blocked()
            assert counted.begun == 1
            counted.may_end.set()
            await anyio.wait_all_tasks_blocked()
    assert counted.begun == 2


async def test_what_was_asked_for_before_it_works_is_done_then_and_not_after_its_end() -> None:
    counted = Counted()
    counted.task.ask()
    counted.may_end.set()
    async with anyio.create_task_group() as group:
        await anyio.wait_all_tasks_blocked()
        assert counted.begun == 0
        with counted.task.working_in(group):
            await anyio.wait_all_tasks_blocked()
        counted.task.ask()
        await anyio.wait_all_tasks_blocked()
    assert counted.begun == 1


async def test_it_works_again_in_another_group_after_it_was_cancelled() -> None:
    counted = Counted()
    counted.task.ask()
    async with anyio.create_task_group() as group:
        with counted.task.working_in(group):
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    counted.may_end.set()
    counted.task.ask()
    async with anyio.create_task_group() as group:
        with counted.task.working_in(group):
            await anyio.wait_all_tasks_blocked()
    assert counted.begun == 2
