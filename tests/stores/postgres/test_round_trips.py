"""How often a process waits for the server while it works on a feed, counted between the two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from dockbell.core.model import Feed, RunKind
from dockbell.ports import FeedState
from dockbell.stores.postgres import PostgresStore
from tests.fakes import NOON
from tests.postgres import Server
from tests.stores.pages import FEED, a_run, commit
from tests.wires import Wire, wired


@pytest.fixture
def wire(postgres_server: Server) -> Iterator[Wire]:
    with wired(postgres_server.folder) as wire:
        yield wire


@pytest.fixture
async def store(wire: Wire, postgres_url: str) -> AsyncIterator[PostgresStore]:
    """Return a store that renews its row no more: that is counted too."""
    store = await PostgresStore.open(wire.lead(postgres_url), now=lambda: NOON)
    store.engine.holder._ending.set()
    store.engine.holder._thread.join()
    yield store
    await store.aclose()


@pytest.fixture
async def state(store: PostgresStore) -> FeedState:
    """Return the state of a feed of which a page is stored, one record of it in quarantine."""
    state = await store.feed(FEED).open()
    await commit(store, state, *({"id": str(number), "v": 0} for number in range(20)), b"[]")
    return state


async def test_a_page_of_new_records_takes_two_trips(store: PostgresStore, state: FeedState, wire: Wire) -> None:
    before = wire.trips
    committed = await commit(store, state, *({"id": f"new {number}"} for number in range(20)))
    assert (len(committed.inserted), wire.trips - before) == (20, 2)


async def test_a_page_with_changes_takes_two_trips(store: PostgresStore, state: FeedState, wire: Wire) -> None:
    before = wire.trips
    committed = await commit(store, state, *({"id": str(number), "v": 1} for number in range(20)), b"[]", b"7")
    assert (committed.events, wire.trips - before) == (20, 2)


async def test_a_page_without_changes_takes_one_trip(store: PostgresStore, state: FeedState, wire: Wire) -> None:
    before = wire.trips
    await commit(store, state, *({"id": str(number), "v": 0} for number in range(20)))
    assert wire.trips - before == 1


async def test_the_end_of_a_quiet_run_takes_one_trip_which_tells_the_state(
    store: PostgresStore, state: FeedState, wire: Wire
) -> None:
    before = wire.trips
    left = await store.feed(state.feed).close_run(a_run(RunKind.POLL))
    assert wire.trips - before == 1
    assert left == await store.feed(state.feed).open()


async def test_the_ends_of_quiet_runs_share_a_transaction(store: PostgresStore, wire: Wire) -> None:
    feeds = [Feed(f"s{number}", "shipments") for number in range(50)]
    await store.add_feeds(feeds)
    for feed in feeds:
        await store.feed(feed).open()
    before = wire.trips
    async with anyio.create_task_group() as group:
        for feed in feeds:
            group.start_soon(store.feed(feed).close_run, a_run(RunKind.POLL))
    assert wire.trips - before <= 2, "of the first, and of all that came meanwhile"
