"""What a purge leaves in the files of a store, and what it reads of them."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio import to_thread

from dockbell.core.comparing.deletion_rules import purge
from dockbell.core.reading.shape import Shape
from dockbell.ports import FeedState, Purged
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.wiping import wipe
from tests.fakes import NOON
from tests.stores.pages import COMPOSE, FEED, OTHER, commit

CANARY: Final = "canary@example.com"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=lambda: NOON, epoch="epoch")
    yield store
    await store.aclose()


@pytest.fixture
async def state(store: SqliteStore) -> FeedState:
    state = await store.feed(FEED).open()
    await store.feed(state.feed).save_shape(Shape(("/id",), "/at", None), proven=True)
    return state


async def erase(store: SqliteStore, key: str = "a") -> Purged:
    return await store.privacy.purge(FEED, key, partial(purge, FEED), COMPOSE)


def is_found(store: SqliteStore, canary: str = CANARY) -> bool:
    """Return whether the canary is in a file of the store."""
    return any(canary.encode() in path.read_bytes() for path in store.path.parent.glob("dockbell.db*"))


async def test_while_somebody_reads_the_log_is_not_emptied_and_that_is_told(
    store: SqliteStore, state: FeedState
) -> None:
    await commit(store, state, {"id": "a", "mail": CANARY})
    store.engine.writer.execute("PRAGMA busy_timeout = 20")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM records").fetchall()
        await erase(store)
        assert "cannot be emptied while a process reads it" in await store.privacy.wipe()
        other.execute("COMMIT")
    assert await store.privacy.wipe() == ""
    assert not is_found(store)


async def test_while_it_is_written_anew_the_store_says_that_it_is_well(
    store: SqliteStore, state: FeedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog kills a daemon whose store does not answer."""
    await commit(store, state, {"id": "a"})
    began, goes_on = threading.Event(), threading.Event()

    def wipe_slowly(*args: Any) -> str:
        began.set()
        assert goes_on.wait(20)
        return wipe(*args)

    monkeypatch.setattr("dockbell.stores.sqlite.engine.wipe", wipe_slowly)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(store.privacy.wipe)
            await to_thread.run_sync(began.wait)
            with anyio.move_on_after(5) as waiting:
                await store.health.check()
            goes_on.set()
    finally:
        goes_on.set()
    assert not waiting.cancelled_caught
    with anyio.fail_after(5):
        await store.health.check()


async def test_a_large_store_is_not_written_anew_while_a_daemon_works_on_it(
    store: SqliteStore, state: FeedState
) -> None:
    await commit(store, state, {"id": "a"})
    await erase(store)
    assert "too much to rewrite unless the daemon is stopped" in await store.privacy.wipe(rewrite_most=4096)


@pytest.mark.parametrize("seed", range(3))
async def test_no_trace_is_left_wherever_its_texts_have_been(store: SqliteStore, state: FeedState, seed: int) -> None:
    """Pages of the file are divided and joined as records grow and shrink, and leave copies of what they held."""
    chance = random.Random(seed)
    keys = [f"k{number}" for number in range(60)]
    for number in range(12):
        some = [
            {"id": key, "mail": f"canary-{key}-", "n": number, "text": "x" * chance.choice((5, 300, 900, 6000))}
            for key in chance.sample(keys, 30)
        ]
        await commit(store, state, *some)
    chosen = chance.sample(keys, 10)
    for key in chosen:
        await erase(store, key)
    await store.privacy.wipe()
    assert [key for key in chosen if is_found(store, f"canary-{key}-")] == []
    assert store.outbox.ends == {FEED: 12 * 30 + 10}
    assert (await store.feed(OTHER).open()).sequence == 0


async def test_only_the_rows_of_the_record_are_read(store: SqliteStore, state: FeedState) -> None:
    await commit(store, state, *[{"id": f"k{number}"} for number in range(3000)])
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    store.engine.writer.set_progress_handler(count, 100)
    assert (await erase(store, "k1234")).is_known
    store.engine.writer.set_progress_handler(None, 0)
    assert steps < 30, "hundreds of instructions, where reading all rows is tens of thousands"
