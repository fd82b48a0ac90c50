"""The pull feeds that others play in the tests of ``repair``, once for real."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
import pytest

from dockbell.subscriber import PositionLost, PullRefused, State
from dockbell.subscriber.repair import PullFeeds
from tests.stores import pages
from tests.subscriber.stories import FEED, same
from tests.web.sites import Filled, serve

TOKEN = "canary-web-token-1b2c"


def names(state: State) -> list[str]:
    return sorted(place.rpartition("/")[2] for place in state)


async def test_a_copy_is_loaded_followed_mended_and_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.subscriber.repair.LIMIT", 2)
    state = State()
    async with serve(tmp_path, token=TOKEN) as site, PullFeeds(str(site.client.base_url), token=TOKEN) as feeds:
        filled = Filled(site.store, await site.store.feed(FEED).open(), site.client)
        await filled.put("a", "b", "c/d +", "e", "f")
        await pages.close_pass(filled.store, filled.state)
        feed = str(FEED)
        position = await feeds.load(state, feed)
        assert names(state) == ["a", "b", "c%2Fd%20%2B", "e", "f"]

        batches = feeds.follow(feed, position, wait=timedelta(seconds=5))
        async with anyio.create_task_group() as group:
            group.start_soon(partial(filled.put, "c/d +", n=1))
            batch = await anext(batches)
        assert [(event.feed, event.type) for event in batch.events] == [(feed, "dockbell.shipment.updated")]

        await filled.delete(2)
        position = await feeds.catch_up(state, feed, position)
        assert names(state) == ["a", "c%2Fd%20%2B", "e", "f"]
        assert same(state[f"{feed}/c%2Fd%20%2B"], {"id": "c/d +", "n": 1})
        assert await feeds.catch_up(state, feed, position) == position

        copies = dict(state.copies)
        for place in (*copies, f"{feed}/never"):
            state.put(place, revision=0, sequence=0, record={})
            await feeds.refetch(state, place)
        assert {place: (copy.revision, copy.record) for place, copy in state.copies.items()} == {
            place: (copy.revision, copy.record) for place, copy in copies.items()
        }

        with pytest.raises(PositionLost):
            await feeds.read(feed, f"other.{position.rpartition('.')[2]}")
        assert await feeds.catch_up(state, feed, "other.3") == position
        with pytest.raises(PullRefused, match="is not known"):
            await feeds.read("main/boats")
    async with serve(tmp_path, token=TOKEN) as site, PullFeeds(str(site.client.base_url), token="wrong") as feeds:
        with pytest.raises(PullRefused, match="HTTP 401"):
            await feeds.load(state, feed)
