"""Processes behind pgbouncer, which gives each transaction another connection of the server."""

from __future__ import annotations

from contextlib import closing, suppress
from datetime import timedelta

import anyio
import psycopg
import pytest

from dockbell.core.model import NOTICES, Feed
from dockbell.errors import LeaseLost
from dockbell.ports import Fleet
from dockbell.stores.postgres import PostgresStore
from dockbell.stores.postgres.connection import connect
from tests.fakes import NOON
from tests.pooler import Pooler
from tests.postgres import begin_writing
from tests.stores.pages import commit

SOURCES = {f"s{number}": f"s{number}" for number in range(1, 7)}


@pytest.fixture
def url(postgres_url: str, postgres_pooler: Pooler) -> str:
    """Return the URL of an empty database, by way of the pooler."""
    return postgres_pooler.lead_to(postgres_url)


async def open_store(url: str) -> tuple[PostgresStore, Fleet]:
    store = await PostgresStore.open(url, now=lambda: NOON, epoch="epoch", shared=True)
    assert store.fleet is not None
    return store, store.fleet


async def test_processes_share_sources_and_what_one_has_lost_the_store_refuses(url: str) -> None:
    (first, fleet), (second, other) = await open_store(url), await open_store(url)
    await fleet.take_share(SOURCES)
    surplus = (await fleet.take_share(SOURCES)).surplus
    await fleet.hand_over(surplus, {})
    mine = sorted((await other.take_share(SOURCES)).held - {NOTICES.source})
    assert len(mine) == 3
    feed = Feed(mine[0], "shipments")
    await second.add_feeds([feed])
    state = await second.feed(feed).open()
    await commit(second, state, {"id": "a"})
    with closing(psycopg.connect(url, autocommit=True)) as another:
        another.execute("DELETE FROM holders WHERE id = %s", [second.engine.holder.id])
    with pytest.raises(LeaseLost, match="another process took over"):
        await commit(second, state, {"id": "b"})
    assert (await fleet.take_share(SOURCES)).held == {*SOURCES, NOTICES.source}
    assert (await first.feed(feed).open()).sequence == 1
    await first.aclose()
    await second.aclose()


async def test_a_process_that_was_stopped_in_a_transaction_is_taken_over_from(url: str) -> None:
    (first, fleet), (second, other) = await open_store(url), await open_store(url)
    await fleet.take_share(SOURCES)
    await fleet.hand_over((await fleet.take_share(SOURCES)).surplus, {})
    await other.take_share(SOURCES)
    holder = second.engine.holder
    first.engine.holder.lives_since -= timedelta(seconds=10)
    with closing(connect(url, holder.application)) as stopped:
        stopped.execute("BEGIN")
        begin_writing(stopped, holder)
        holder._ending.set()  # it renews its row no more
        holder._thread.join()
        with closing(psycopg.connect(url, autocommit=True)) as another:
            another.execute("UPDATE holders SET expires_at = 'epoch' WHERE id = %s", [holder.id])
        with anyio.fail_after(3):  # sooner than the server ends a transaction that rests
            assert (await fleet.take_share(SOURCES)).held == {*SOURCES, NOTICES.source}
        with pytest.raises(psycopg.OperationalError):
            stopped.execute("COMMIT")
    await first.aclose()
    with suppress(LeaseLost):
        await second.aclose()
