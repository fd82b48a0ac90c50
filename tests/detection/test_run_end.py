"""Last pages that are as full as pages get: the list may end there, or an answer was cut."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dockbell.core.model import Page
from tests.rig import Rig, open_rig

PAGE = 20
"""What the API gives on a page at the most, though it is asked for 200."""


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with open_rig(tmp_path, key="/id") as rig:
        rig.source.page_size = 200
        yield rig


def fill(rig: Rig, count: int) -> None:
    """Let the list have so many records."""
    rig.source.records = {}
    for number in range(count):
        rig.source.put(f"r{number:04}", status="open")


def cut(rig: Rig, is_cut: Callable[[int, dict[str, Any]], bool]) -> None:
    """Let answers say that the list ends, by the number of the request and by what it asks for."""
    read_page = type(rig.source).read_page

    async def read_cut(*args: Any, **request: Any) -> Page:
        page = await read_page(rig.source, *args, **request)
        return replace(page, next_cursor=None) if is_cut(len(rig.source.asked), request) else page

    rig.source.read_page = read_cut  # type: ignore[method-assign]


async def test_a_poll_whose_full_page_was_cut_reads_on(rig: Rig) -> None:
    await rig.read_whole()
    rig.clock.pass_(100)
    fill(rig, 998)
    asked = len(rig.source.asked)
    cut(rig, lambda number, _: number == asked + 1)
    assert await rig.poll() == ""
    assert len(await rig.events()) == 998
    assert rig.source.limits[asked:] == [200, *[199] * 6]  # the cursor may be a page's number: one limit for all


async def test_a_pass_whose_last_page_was_cut_deletes_nothing(rig: Rig) -> None:
    fill(rig, 998)
    await rig.read_whole()
    asked = len(rig.source.asked)
    cut(rig, lambda number, _: number == asked + 3)
    assert await rig.read_whole() == ""
    state = await rig.tracked.state()
    assert state.full is not None
    assert (state.full.records, state.full.pages, state.full.tally.repeated, state.held) == (998, 5, 0, 0)
    assert len(rig.source.asked) == asked + 6


async def test_an_honest_list_that_ends_at_a_full_page_is_complete(rig: Rig) -> None:
    fill(rig, 200)
    assert await rig.read_whole() == ""
    assert rig.source.limits == [200, 199, 199]
    state = await rig.tracked.state()
    assert state.full is not None
    assert (state.full.records, state.full.tally.repeated) == (200, 0)
    fill(rig, 400)
    rig.source.limits.clear()
    assert await rig.read_whole() == ""
    assert rig.source.limits == [200, 200, 200]


async def test_a_page_that_is_not_full_is_not_asked_for_again(rig: Rig) -> None:
    fill(rig, 199)
    await rig.read_whole()
    fill(rig, 399)
    await rig.read_whole()
    assert rig.source.limits == [200] * 3


async def test_a_page_is_full_that_has_as_many_records_as_the_api_ever_gave(rig: Rig) -> None:
    rig.source.page_size = PAGE
    fill(rig, 2 * PAGE + 1)
    await rig.read_whole()
    rig.restart()
    rig.clock.pass_(100)
    fill(rig, 3 * PAGE)
    asked = len(rig.source.asked)
    cut(rig, lambda number, _: number == asked + 1)
    assert await rig.poll() == ""
    assert len(await rig.events()) == PAGE - 1  # the others are as they were


async def test_an_api_that_never_shows_more_than_it_is_asked_for_is_named_and_proves_nothing(rig: Rig) -> None:
    await rig.read_whole()
    before = (await rig.tracked.state()).progress.watermark
    rig.clock.pass_(100)
    fill(rig, 998)
    cut(rig, lambda *_: True)
    problem = "the API ends the list at 200 records when the limit is 200, and at 199 when it is 199"
    assert await rig.poll() == problem
    assert (await rig.tracked.state()).progress.watermark == before
    assert len(await rig.events()) == 200
    passes = (await rig.tracked.state()).passes
    assert await rig.read_whole() == problem
    assert (await rig.tracked.state()).passes == passes


async def test_an_api_that_takes_no_limit_is_believed_when_it_says_the_same_twice(rig: Rig) -> None:
    fill(rig, 200)
    read_page = type(rig.source).read_page

    async def read_all(*args: Any, **request: Any) -> Page:
        return await read_page(rig.source, *args, **request | {"limit": 200})

    rig.source.read_page = read_all  # type: ignore[method-assign]
    assert await rig.read_whole() == ""
    assert len(rig.source.asked) == 2


async def test_a_record_that_changes_before_the_check_is_read_all_the_same(rig: Rig) -> None:
    await rig.read_whole()
    rig.clock.pass_(100)
    fill(rig, 200)
    asked = len(rig.source.asked)

    def move(request: int) -> None:
        if request == asked + 2:
            rig.source.put("r0000", status="packed")

    rig.source.before_page = move
    assert await rig.poll() == ""
    assert (await rig.events())[-1] == "r0000 updated 2"
