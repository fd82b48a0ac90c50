from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from dockbell.errors import StoreError, StoreUnavailable
from dockbell.stores.postgres import PostgresReadStore, PostgresStore
from dockbell.stores.postgres.store_errors import name_store
from dockbell.stores.sql.connection import Connection, transaction
from tests import postgres
from tests.fakes import NOON
from tests.stores.pages import FEED, commit, told


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    """Return a server that may be stopped."""
    with postgres.serving() as server:
        yield server


async def test_a_server_that_was_restarted_is_an_outage_that_ends(server: postgres.Server) -> None:
    url = server.make_database()
    store = await PostgresStore.open(url, now=lambda: NOON, epoch="epoch")
    read_store = await PostgresReadStore.open(url)
    state = await store.feed(FEED).open()
    await commit(store, state, {"id": "a"})
    server.stop()
    with pytest.raises(StoreUnavailable, match=r"store postgresql://.*; check its server"):
        await commit(store, state, {"id": "b"})
    troubles = [store.health.trouble]
    with pytest.raises(StoreError) as told_of:
        await read_store.load_feeds()
    assert not isinstance(told_of.value, StoreUnavailable)
    server.start()
    with anyio.fail_after(30):
        await store.health.recovered()
    troubles.append(store.health.trouble)
    assert [each is None for each in troubles] == [False, True]
    await commit(store, state, {"id": "b"})
    assert await told(store) == ["a created 1", "b created 1"]
    assert len(await read_store.load_feeds()) == 1
    await read_store.aclose()
    await store.aclose()


async def test_after_a_crash_of_the_server_what_it_had_not_committed_is_not_stored(server: postgres.Server) -> None:
    store = await PostgresStore.open(server.make_database(), now=lambda: NOON, epoch="epoch")
    state = await store.feed(FEED).open()
    with pytest.raises(StoreUnavailable):
        await store.engine.write(crash_before_the_commit, server)
    with anyio.fail_after(30):
        await store.health.recovered()
    await commit(store, state, {"id": "a"})
    assert await told(store) == ["a created 1"]
    await store.aclose()


def crash_before_the_commit(writer: Connection, server: postgres.Server) -> None:
    with transaction(writer):
        writer.execute("UPDATE life SET reason = 'never'")
        server.stop()
        server.start()


async def test_a_store_tells_what_it_uses_and_not_of_what(postgres_url: str) -> None:
    store = await PostgresStore.open(postgres_url, now=lambda: NOON)
    footprint = await store.retention.measure()
    assert footprint.used > 1_000_000
    assert (footprint.disk, footprint.left) == (0, 0)
    await store.aclose()


async def test_a_password_stands_in_no_message() -> None:
    url = "postgresql://dockbell:geheim@127.0.0.1:1/db?sslpassword=geheim&connect_timeout=2"
    assert name_store(url) == "postgresql://127.0.0.1:1/db"
    with pytest.raises(StoreError) as error:
        await PostgresStore.open(url, now=lambda: NOON)
    assert "geheim" not in str(error.value)
    assert error.value.__cause__ is None
    assert "postgresql://127.0.0.1:1/db: " in str(error.value)


async def test_a_database_that_is_not_there_is_told_with_its_remedy(postgres_server: postgres.Server) -> None:
    with pytest.raises(
        StoreError, match=r'database "nowhere" does not exist; create the database, or name another one'
    ):
        await PostgresStore.open(postgres_server.url("nowhere"), now=lambda: NOON)
