from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from dockbell.admin.shared_read import SharedRead
from tests.virtual_time import SkippingLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


@dataclass
class Scene:
    """What is looked at; a look cannot be cut short."""

    takes: float = 0.1
    error: Exception | None = None
    looks: list[float] = field(default_factory=list)

    async def look(self) -> int:
        self.looks.append(anyio.current_time())
        with anyio.CancelScope(shield=True):
            await anyio.sleep(self.takes)
        if self.error is not None:
            raise self.error
        return len(self.looks)


@asynccontextmanager
async def looking(scene: Scene) -> AsyncIterator[SharedRead[int]]:
    shared = SharedRead(scene.look)
    async with anyio.create_task_group() as group:
        group.start_soon(shared.run)
        yield shared
        group.cancel_scope.cancel()


async def test_it_looks_once_for_all_who_ask_within_a_second_and_not_unasked() -> None:
    scene, found = Scene(), []

    async def ask() -> None:
        found.append(await shared.ask())

    async with looking(scene) as shared:
        await anyio.sleep(10)
        assert scene.looks == []
        for _ in range(2):
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(ask)
            await anyio.sleep(0.9)
        assert found == [1] * 40
        await anyio.sleep(0.2)
        assert await shared.ask() == 2
    assert len(scene.looks) == 2


async def test_whoever_asks_may_give_up_while_the_look_hangs_and_no_other_is_begun() -> None:
    scene = Scene(takes=100)
    async with looking(scene) as shared:
        for _ in range(5):
            began = anyio.current_time()
            with anyio.move_on_after(5):
                await shared.ask()
            assert anyio.current_time() - began == pytest.approx(5, abs=0.1)
        assert await shared.ask() == 1
        assert len(scene.looks) == 1


async def test_what_a_look_raises_is_raised_to_who_asked_and_the_next_one_may_do_better() -> None:
    scene = Scene(error=OSError("disk I/O error"))
    async with looking(scene) as shared:
        for _ in range(2):
            with pytest.raises(OSError, match="disk I/O error"):
                await shared.ask()
        scene.error = None
        await anyio.sleep(1.1)
        assert await shared.ask() == 2
