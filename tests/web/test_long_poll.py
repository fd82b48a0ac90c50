from __future__ import annotations

import anyio
import pytest

from dockbell.ports import OutboxBell
from dockbell.stores.sqlite import SqliteReadStore
from dockbell.web.long_poll import LongPolls
from dockbell.web.responses import Problem
from tests.web.sites import Served


async def _listen_for_ever() -> dict[str, str]:
    await anyio.sleep_forever()
    return {}


async def test_a_request_waits_for_events_of_its_own_feed_and_the_store_is_not_asked(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled, other = await served.fill("a"), await served.fill("a")
    long_polls = LongPolls(served.store.outbox)
    monkeypatch.setattr(SqliteReadStore, "_read", None)
    woken = []

    async def wait() -> None:
        async with long_polls.admit(_listen_for_ever):
            await long_polls.wait(filled.feed, 1)
            woken.append(True)

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(wait)
        with anyio.fail_after(5):
            while long_polls.readers < 100:  # noqa: ASYNC110  # nothing rings when a request begins to wait
                await anyio.sleep(0.001)
            for key in "bc":
                await other.put(key)
                await anyio.wait_all_tasks_blocked()
                assert not woken
            await filled.put("b")
    assert len(woken) == 100


async def test_a_closed_room_sends_everybody_away_at_once(served: Served) -> None:
    filled = await served.fill("a")
    long_polls = LongPolls(served.store.outbox)

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
    long_polls = LongPolls(OutboxBell({}), most=1)
    for _ in range(2):
        async with long_polls.admit(_listen_for_ever):
            with pytest.raises(Problem, match="1 are waiting"):
                async with long_polls.admit(_listen_for_ever):
                    pass
