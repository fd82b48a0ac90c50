"""Polls of a feed whose records are dated eight hours ahead of the service's clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.rig import Rig, open_rig

AHEAD = timedelta(hours=8)
POLLS_IN_AN_HOUR = 240


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """Yield a rig after its first pass, over a list of which 450 records were modified since, hours ahead."""
    async with open_rig(tmp_path, key="/id") as rig:
        rig.source.page_size = 200
        await rig.read_whole()
        rig.source.offset = AHEAD
        rig.clock.pass_(60)
        for number in range(450):
            rig.source.put(f"r{number:04}", status="open")
        for _ in range(4):
            assert await rig.poll() == ""
        yield rig


async def poll_until(rig: Rig, event: str, polls: int) -> int:
    """Poll until an event is there; return how many polls that took, more than allowed where it did not come."""
    for number in range(1, polls + 1):
        await rig.poll()
        if event in await rig.events():
            return number
    return polls + 1


async def test_polls_cost_about_one_request_where_little_happens(rig: Rig) -> None:
    asked = len(rig.source.asked)
    for number in range(POLLS_IN_AN_HOUR):
        if number % 20 == 0:
            rig.source.put("r0001", number=number)
        assert await rig.poll() == ""
    assert len(rig.source.asked) - asked < POLLS_IN_AN_HOUR * 1.3
    assert f"r0001 updated {POLLS_IN_AN_HOUR // 20 + 1}" in await rig.events()


async def test_a_change_that_is_dated_ahead_is_seen_by_the_next_poll(rig: Rig) -> None:
    for number in range(1, 30):
        rig.source.put("r0007", number=number)
        assert await poll_until(rig, f"r0007 updated {number + 1}", 1) == 1


async def test_whole_polls_go_on_and_move_the_watermark(rig: Rig) -> None:
    for _ in range(POLLS_IN_AN_HOUR):
        await rig.poll()
    watermark = (await rig.tracked.state()).progress.watermark
    assert watermark is not None
    assert rig.clock() - watermark < timedelta(minutes=25)


@pytest.mark.parametrize("hours", [0, 7, 9])
async def test_no_change_is_missed_when_the_clock_is_mended_or_set(rig: Rig, hours: int) -> None:
    """Summer time begins or ends, or the zone is written at last: the first change waits for a whole poll at most."""
    rig.source.put("r0003", status="packed")
    await rig.poll()
    rig.source.offset = timedelta(hours=hours)
    rig.clock.pass_(300)
    rig.source.put("r0005", status="packed")
    assert await poll_until(rig, "r0005 updated 2", 40) <= 40
    rig.source.put("r0006", status="packed")
    assert await poll_until(rig, "r0006 updated 2", 1) == 1


async def test_what_a_trailing_poll_meets_that_is_not_dated_ahead_makes_polls_whole_again(rig: Rig) -> None:
    rig.source.offset = timedelta(0)
    rig.source.put("r0005", status="packed")
    rig.clock.pass_(15)
    await rig.poller.trail_once()
    rig.source.put("r0006", status="packed")
    assert await poll_until(rig, "r0006 updated 2", 1) == 1
    rig.source.offset = AHEAD
    rig.source.put("r0007", status="packed")
    assert await poll_until(rig, "r0007 updated 2", 1) == 1


async def test_after_a_restart_the_first_poll_is_whole(rig: Rig) -> None:
    rig.source.offset = timedelta(0)
    rig.clock.pass_(15)
    rig.source.put("r0005", status="packed")
    rig.clock.pass_(7200)
    rig.restart()
    assert await poll_until(rig, "r0005 updated 2", 1) == 1
