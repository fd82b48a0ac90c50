from __future__ import annotations

from collections import Counter

import anyio
import pytest

from dockbell.core.model import Feed
from dockbell.ports import Bell, Extent
from dockbell.stores.sqlite import SqliteReadStore
from dockbell.web.long_poll import LongPolls
from dockbell.web.problem import Problem
from tests.web.sites import Served


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[Feed]:
    """Count how often the store is asked how far a feed goes."""
    counted: Counter[Feed] = Counter()
    find_extent = SqliteReadStore.find_extent

    async def find_and_count(read_store: SqliteReadStore, feed: Feed) -> Extent | None:
        counted[feed] += 1
        return await find_extent(read_store, feed)

    monkeypatch.setattr(SqliteReadStore, "find_extent", find_and_count)
    return counted


async def _listen_for_ever() -> dict[str, str]:
    await anyio.sleep_forever()
    return {}


async def test_however_many_wait_the_store_is_asked_once_per_commit(served: Served, reads: Counter[Feed]) -> None:
    filled, other = await served.fill("a"), await served.fill("a")
    long_polls = LongPolls(served.read_store, served.store.outbox)
    woken = []

    async def wait() -> None:
        async with long_polls.admit(_listen_for_ever):
            await long_polls.wait(filled.feed, 1)
            woken.append(True)

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(wait)
        with anyio.fail_after(5):
            for commits in range(1, 4):
                while reads[filled.feed] < commits:  # noqa: ASYNC110  # nobody rings when it was asked
                    await anyio.sleep(0.001)
                assert not woken
                await (other if commits < 3 else filled).put(f"k{commits}")
    assert len(woken) == 100
    assert reads[filled.feed] == 4


async def test_a_closed_room_sends_everybody_away_at_once(served: Served) -> None:
    filled = await served.fill("a")
    long_polls = LongPolls(served.read_store, served.store.outbox)

    async def wait() -> None:
        async with long_polls.admit(_listen_for_ever):
            await long_polls.wait(filled.feed, 1)
            pytest.fail("there was nothing to hear of")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(wait)
            while long_polls.readers < 10:  # noqa: ASYNC110  # nobody rings when one sits down
                await anyio.sleep(0.001)
            long_polls.close()
        await wait()
    assert long_polls.readers == 0


async def test_a_full_room_takes_the_next_when_one_leaves(served: Served) -> None:
    long_polls = LongPolls(served.read_store, Bell(), most=1)
    for _ in range(2):
        async with long_polls.admit(_listen_for_ever):
            with pytest.raises(Problem, match="1 wait already"):
                async with long_polls.admit(_listen_for_ever):
                    pass
