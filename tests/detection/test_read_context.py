"""When a change was made, as events tell it: after runs that proved nothing, holds, and late visibility."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dockbell.core.moment import format_moment
from tests.rig import Rig, open_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """Yield a rig of twelve packages that polls have shown as they are, with dates that tell the records' clock."""
    async with open_rig(tmp_path, key="/id") as rig:
        rig.source.page_size = 200
        for number in range(12):
            rig.source.put(f"r{number}", status="open")
        await rig.read_whole()
        await rig.poll()
        await rig.poll()
        yield rig


async def told(rig: Rig, key: str) -> tuple[datetime | None, datetime, bool]:
    """Return the bounds of the last change of a record, and whether it was late."""
    body = [each for each in await rig.bodies() if each["key"] == key][-1]
    since, until = body["changed_between"]
    return since and datetime.fromisoformat(since), datetime.fromisoformat(until), body["late"]


async def test_empty_answers_do_not_bound_a_change_that_they_did_not_show(rig: Rig) -> None:
    rig.source.put("r3", status="packed")
    made = rig.clock()
    restore = rig.spoil(lambda page: replace(page, records=(), next_cursor=None))
    for _ in range(2):
        await rig.poll()
    restore()
    await rig.poll()
    since, until, _ = await told(rig, "r3")
    assert since is not None
    assert since <= made <= until


async def test_one_poll_that_does_not_show_the_newest_record_moves_no_watermark(rig: Rig) -> None:
    before = (await rig.tracked.state()).progress.watermark
    rig.clock.pass_(5)
    rig.source.put("r3", status="packed")
    rig.source.put("r4", status="packed")
    rig.clock.pass_(5)
    await rig.poll()
    restore = rig.spoil(lambda page: replace(page, records=page.records[:1], next_cursor=None))
    watermark = (await rig.tracked.state()).progress.watermark
    assert before is not None
    assert watermark is not None
    assert watermark > before
    await rig.poll()
    restore()
    assert (await rig.tracked.state()).progress.watermark == watermark
    for _ in range(2):
        await rig.poll()
    assert (await rig.tracked.state()).progress.watermark != watermark


async def test_a_newest_record_that_is_gone_does_not_stop_the_watermark(rig: Rig) -> None:
    rig.source.put("r3", status="packed")
    await rig.poll()
    watermark = (await rig.tracked.state()).progress.watermark
    del rig.source.records["r3"]
    for _ in range(3):
        await rig.poll()
    after = (await rig.tracked.state()).progress.watermark
    assert watermark is not None
    assert after is not None
    assert after > watermark


async def test_a_run_of_several_pages_does_not_bound_what_slipped_past_it(rig: Rig) -> None:
    rig.source.page_size = 3
    rig.clock.pass_(100)
    for number in range(6):
        rig.source.put(f"r{number}", status="packed")
    made = rig.clock()
    asked = len(rig.source.asked)

    def move(request: int) -> None:
        if request == asked + 5:
            rig.clock.pass_(0.1)
            rig.source.put("r0", status="shipped")  # r1 slips to the fourth page, which was read already

    rig.source.before_page = move
    await rig.poll()
    rig.source.before_page = lambda _: None
    assert "r1 updated 1" not in await rig.events()
    await rig.poll()
    since, until, _ = await told(rig, "r1")
    assert since is not None
    assert since <= made <= until


async def test_a_reading_that_was_held_is_bounded_by_when_it_was_first_seen(rig: Rig) -> None:
    rig.source.put("r3", status="packed")
    await rig.poll()
    rig.clock.pass_(3)
    old = rig.source.records["r3"]
    dated = rig.clock() - timedelta(seconds=30)
    rig.source.records["r3"] = old | {"status": "void", "updated_at": format_moment(dated)}
    first_seen = rig.clock() + timedelta(seconds=15)
    for _ in range(6):
        await rig.poll()
    since, until, _ = await told(rig, "r3")
    assert "r3 updated 2" in await rig.events()
    assert until >= first_seen
    assert since is None or since <= dated


async def test_a_change_is_late_that_a_complete_poll_covered_and_did_not_show(rig: Rig) -> None:
    rig.clock.pass_(30)
    dated = rig.clock()
    rig.clock.pass_(30)
    await rig.poll()
    rig.source.records["r3"] |= {"status": "packed", "updated_at": format_moment(dated)}
    await rig.poll()
    since, until, is_late = await told(rig, "r3")
    assert since is not None
    assert since <= dated <= until
    assert is_late


@pytest.mark.parametrize("years", [-2, 2])
async def test_a_date_that_is_years_off_bounds_nothing(rig: Rig, years: int) -> None:
    await rig.read_whole()
    await rig.poll()
    proven = (await rig.tracked.state()).progress.watermark
    far = rig.clock() + timedelta(days=365 * years)
    rig.source.records["z"] = {"id": "z", "status": "open", "updated_at": format_moment(far)}
    if years < 0:
        await rig.read_whole()
    else:
        await rig.poll()
    since, _, _ = await told(rig, "z")
    assert since is not None
    assert proven is not None
    assert since >= proven - timedelta(minutes=2)


async def test_a_clock_hours_behind_is_taken_into_account(tmp_path: Path) -> None:
    async with open_rig(tmp_path, key="/id") as rig:
        rig.source.page_size, rig.source.offset, rig.source.records = 200, timedelta(hours=-5), {}
        for number in range(12):
            rig.source.put(f"r{number}", status="open")
        await rig.read_whole()
        rig.source.put("r1", status="packed")
        await rig.poll()
        rig.clock.pass_(5)
        rig.source.put("r2", status="packed")
        made: Any = rig.clock()
        await rig.poll()
        since, until, is_late = await told(rig, "r2")
        assert since is not None
        assert since <= made <= until
        assert until - since < timedelta(minutes=5)
        assert not is_late
