from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from dockbell.core.comparing.deletion_rules import purge
from dockbell.core.model import Feed
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.publishing.settlement import Attempt, DeadLetter, Settlement, Verdict
from tests.fakes import NOON
from tests.stores.pages import COMPOSE, FEED, OTHER, commit
from tests.stores.places import Place, open_read_store, open_store

FAILED = Attempt(
    FEED,
    "a",
    1,
    1,
    NOON,
    timedelta(milliseconds=34),
    Verdict.RETRY,
    "HTTP 503",
    503,
    "busy",
    NOON + timedelta(seconds=5),
    is_replay=True,
)


def make_attempt(sequence: int, key: str = "a", feed: Feed = FEED, answer: str = "") -> Attempt:
    return Attempt(feed, key, sequence, 2, NOON, timedelta(seconds=1), Verdict.SETTLED, answer=answer)


async def read(place: Place, key: str = "a", limit: int = 10, feed: Feed = FEED) -> Mapping[str, Sequence[Attempt]]:
    async with aclosing(await open_read_store(place)) as read_store:
        return await read_store.read_attempts(feed, key, limit)


async def test_attempts_are_kept_by_sink_and_record(place: Place) -> None:
    async with aclosing(await open_store(place, now=lambda: NOON)) as store:
        await store.add_feeds([FEED, OTHER])
        told = [FAILED, make_attempt(1), make_attempt(3)]
        await store.sink("erp").settle(Settlement(attempts=[*told, make_attempt(2, "b"), make_attempt(1, "a", OTHER)]))
        await store.sink("shop").settle(Settlement(attempts=[make_attempt(1)]))
        assert await read(place) == {"erp": told, "shop": [make_attempt(1)]}
        assert await read(place, limit=2) == {"erp": told[2:], "shop": [make_attempt(1)]}
        assert await read(place, "b") == {"erp": [make_attempt(2, "b")]}
        assert await read(place, feed=OTHER) == {"erp": [make_attempt(1, "a", OTHER)]}
        assert await read(place, feed=Feed("main", "nothing")) == {}


async def test_the_last_attempts_are_kept_of_all_sinks_together(place: Place) -> None:
    async with aclosing(await open_store(place, now=lambda: NOON)) as store:
        await store.add_feeds([FEED])
        for sink in ("erp", "shop"):
            await store.sink(sink).settle(Settlement(attempts=[make_attempt(1), make_attempt(2)]))
        await store.sink("shop").trim_attempts(3)
        assert await read(place) == {"erp": [make_attempt(2)], "shop": [make_attempt(1), make_attempt(2)]}
        await store.sink("shop").trim_attempts(0)
        assert await read(place) == {}
        await store.sink("erp").settle(Settlement(attempts=[FAILED]))
        assert await read(place) == {"erp": [FAILED]}


async def answers(place: Place) -> list[Any]:
    """Return what is kept of answers, to attempts and of dead letters."""
    async with aclosing(await open_read_store(place)) as read_store:
        (state,) = await read_store.load_feeds()
        (status,) = await read_store.load_key_statuses(state.id, "a")
        attempts = await read_store.read_attempts(FEED, "a", 10)
        return [*(each.answer for each in status.dead), *(each.answer for each in attempts["erp"])]


async def test_answers_are_erased_with_what_they_may_quote(place: Place) -> None:
    async with aclosing(await open_store(place, now=lambda: NOON)) as store:
        state = await store.feed(FEED).open()
        await commit(store, state, {"id": "a"}, {"id": "b"})
        await store.sink("erp").enroll("now")
        letter = DeadLetter(FEED, "a", 1, 1, NOON, "HTTP 422", "no such order: o-17")
        told = Settlement(dead=[letter], attempts=[make_attempt(1, answer="no such order: o-17")])
        await store.sink("erp").settle(told)
        assert await answers(place) == ["no such order: o-17"] * 2
        await store.privacy.purge(FEED, "a", partial(purge, FEED), COMPOSE)
        assert await answers(place) == ["", ""]
        await store.sink("erp").trim_attempts(0)
        await store.sink("erp").settle(told)
        drop = ["/recipient"]
        feed = store.feed(FEED)
        await feed.mark_dropped(drop)
        while await feed.clean(Erasure(drop, "epoch"), None, 10) is not None:
            pass
        assert await answers(place) == ["", ""]


async def test_attempts_are_kept_no_longer_than_events(place: Place) -> None:
    async with aclosing(await open_store(place, now=lambda: NOON)) as store:
        await store.add_feeds([FEED])
        told = [replace(FAILED, began_at=NOON + number * timedelta(hours=1)) for number in range(3)]
        await store.sink("erp").settle(Settlement(attempts=told))
        assert [await store.retention.prune_history(told[2].began_at, 1) for _ in range(3)] == [1, 1, 0]
        assert await read(place) == {"erp": told[2:]}
