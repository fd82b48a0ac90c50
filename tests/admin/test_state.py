"""The stored records, read while others are written."""

from __future__ import annotations

from pathlib import Path

from dockbell.admin.state import read_all
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from tests.fakes import NOON
from tests.stores.pages import FEED, commit, delete_records


async def test_each_record_comes_once_as_it_is_when_its_turn_comes_and_nothing_is_locked_meanwhile(
    tmp_path: Path,
) -> None:
    store = await SqliteStore.open(tmp_path / "a.db", now=lambda: NOON)
    state = await store.feed(FEED).open()
    await commit(store, state, *({"id": f"k{number}", "n": 0} for number in range(450)))
    read_store = await SqliteReadStore.open(tmp_path / "a.db")
    read: dict[str, bytes | None] = {}
    async for record in read_all(read_store, state, with_gone=False):
        assert record.key not in read
        assert not read_store._session._connection.in_transaction
        read[record.key] = record.body
        if len(read) == 1:
            await commit(store, state, {"id": "k0", "n": 1}, {"id": "k449", "n": 1}, {"id": "new", "n": 1})
            await store.feed(FEED).suspect([401], NOON)
            await delete_records(store, state, 401)
    assert read.keys() == {f"k{number}" for number in range(450)} - {"k400"} | {"new"}
    assert (read["k0"], read["k449"]) == (b'{"id": "k0", "n": 0}', b'{"id": "k449", "n": 1}')
    gone = [record.key async for record in read_all(read_store, state, with_gone=True) if record.gone_at is not None]
    assert gone == ["k400"]
    await read_store.aclose()
    await store.aclose()
