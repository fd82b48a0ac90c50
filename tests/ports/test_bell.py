from __future__ import annotations

import anyio

from dockbell.core.model import Feed
from dockbell.ports import OutboxBell

SHIPMENTS, STOCK, ITEMS = (Feed("main", resource) for resource in ("shipments", "stock", "items"))


async def test_it_says_which_feeds_moved_since_a_ring_and_how_far() -> None:
    bell = OutboxBell({SHIPMENTS: 7})
    assert (bell.ends, list(bell.find_moved(0))) == ({SHIPMENTS: 7}, [])
    bell.announce(STOCK, 2)
    before = bell.rings
    bell.announce(ITEMS, 1)
    bell.announce(STOCK, 3)
    assert bell.ends == {SHIPMENTS: 7, STOCK: 3, ITEMS: 1}
    assert set(bell.find_moved(before)) == {STOCK, ITEMS}
    assert list(bell.find_moved(before + 1)) == [STOCK]
    assert list(bell.find_moved(bell.rings)) == []


async def test_it_rings_only_for_events_that_are_new() -> None:
    bell = OutboxBell({SHIPMENTS: 7})
    bell.announce(SHIPMENTS, 7)
    bell.announce(STOCK, 0)
    bell.announce(SHIPMENTS, 6)
    assert (bell.rings, bell.ends[SHIPMENTS]) == (0, 7)


async def test_a_ring_for_another_reason_moves_no_feed() -> None:
    bell = OutboxBell({SHIPMENTS: 7})
    bell.ring()
    assert list(bell.find_moved(0)) == []


async def test_who_waits_for_a_feed_is_woken_by_that_feed_alone() -> None:
    bell, woken = OutboxBell({SHIPMENTS: 7}), []

    async def wait() -> None:
        await bell.wait_beyond(SHIPMENTS, 8)
        woken.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        for feed, end in ((STOCK, 9), (SHIPMENTS, 8)):
            bell.announce(feed, end)
            await anyio.wait_all_tasks_blocked()
            assert not woken
        bell.announce(SHIPMENTS, 9)
    assert woken
    with anyio.fail_after(0):
        await bell.wait_beyond(SHIPMENTS, 8)
