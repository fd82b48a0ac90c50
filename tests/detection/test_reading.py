"""The turn of a feed: pages are asked for and committed one at a time, in the order of their requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.core.model import Page, Urgency
from dockbell.errors import StoreError
from tests.rig import Rig, open_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path, key="/id") as rig:
        await rig.read_whole()
        yield rig


async def test_a_poll_gets_the_turn_between_two_tries_of_a_page_that_does_not_come(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_page, problems = rig.source.read_page, []

    async def read_at_second_try(resource: str, **request: Any) -> Page:
        if request["urgency"] is Urgency.PASS:
            async with request["between_tries"]():
                rig.source.put("a", status="packed")
                with anyio.fail_after(5):
                    problems.append(await rig.poll())
        return await read_page(resource, **request)

    monkeypatch.setattr(rig.source, "read_page", read_at_second_try)
    assert await rig.read_whole() == ""
    assert problems == ["", ""]
    assert await rig.events() == ["a updated 1"]


async def test_no_page_is_asked_for_before_the_last_one_is_committed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_page, steps = rig.store.feed(rig.feed).commit_page, []

    async def commit_slowly(*args: Any, **named: Any) -> Any:
        await anyio.sleep(0.05)
        committed = await commit_page(*args, **named)
        steps.append("commit")
        return committed

    monkeypatch.setattr(rig.store.feed(rig.feed), "commit_page", commit_slowly)
    rig.source.before_page = lambda _: steps.append("ask")
    async with anyio.create_task_group() as group:
        group.start_soon(rig.reconciler.run_once)
        group.start_soon(rig.poller.run_once)
    assert steps == ["ask", "commit"] * (len(steps) // 2)
    assert len(steps) >= 6


async def test_pages_of_a_pass_that_are_due_within_a_second_are_asked_for_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str | float] = []

    async def sleep(seconds: float) -> None:
        steps.append(round(seconds, 1))

    monkeypatch.setattr("dockbell.detection.reading.anyio.sleep", sleep)
    monkeypatch.setattr(rig.tracked.clocks, "steady", lambda: timedelta(0))
    rig.source.before_page = lambda _: steps.append("ask")
    rig.source.page_size = 1
    rig.tracked.schedule.page_every = timedelta(seconds=0.4)
    assert await rig.read_whole() == ""
    assert steps == ["ask", "ask", "ask", 1.2, "ask", 1.6, "ask"]


async def test_a_page_that_cannot_be_committed_leaves_the_turn_to_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreError("store a.db: database disk image is malformed")

    with monkeypatch.context() as patch:
        patch.setattr(rig.store.feed(rig.feed), "commit_page", fail)
        with pytest.raises(StoreError):
            await rig.read_whole()
    with anyio.fail_after(5):
        assert await rig.poll() == ""


async def test_a_run_that_is_cancelled_leaves_the_turn_to_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: object, **__: object) -> None:
        await anyio.sleep_forever()

    with monkeypatch.context() as patch:
        patch.setattr(rig.store.feed(rig.feed), "commit_page", hang)
        with anyio.move_on_after(0.05):
            await rig.read_whole()
    with anyio.fail_after(5):
        assert await rig.poll() == ""
