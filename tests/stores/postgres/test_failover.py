"""A standby takes over: it begins a timeline of its own, and may lack what the server before had committed last."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from dockbell.errors import LeaseLost, StoreUnavailable
from dockbell.stores.postgres import PostgresStore
from tests.fakes import NOON
from tests.postgres import serving
from tests.stores.pages import FEED, commit, told


async def test_after_a_failover_nothing_is_written_under_the_old_epoch() -> None:
    with serving() as server:
        url = server.make_database()
        store = await PostgresStore.open(url, now=lambda: NOON, epoch="before")
        state = await store.feed(FEED).open()
        await commit(store, state, {"id": "a"})
        with server.standing_by() as standby:
            with pytest.raises(StoreUnavailable):  # its connections are those of before
                await commit(store, state, {"id": "b"})
            await store.engine.outage.over()
            await commit(store, state, {"id": "b"})
            standby.promote()
            url = url.replace(str(server.folder), str(standby.folder))
            holder, line = store.engine.holder, store.engine._writer
            line._url = holder._url = url  # as a name that leads to the new server
            await line.aclose()
            with pytest.raises(LeaseLost, match="another server took over"):
                await commit(store, state, {"id": "c"})
            assert holder.is_lost
            with closing(psycopg.connect(url, autocommit=True)) as connection:
                connection.execute("DELETE FROM holders")
            again = await PostgresStore.open(url, now=lambda: NOON, epoch="after")
            assert (again.epoch, await told(again)) == ("after", ["a created 1"])
            state = await again.feed(FEED).open()
            assert state.blind == "store_restored"
            await again.aclose()
            await store.aclose()
