from __future__ import annotations

import fcntl
import os
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from dockbell.app import now
from dockbell.errors import StoreError, StoreIncompatible
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.probe import find_holder, probe


async def test_the_holder_is_known_while_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    assert find_holder(path) == ""
    store = await SqliteStore.open(path, now=now)
    assert find_holder(path) == f"process {os.getpid()}"
    await store.aclose()
    assert find_holder(path) == ""


async def test_asking_does_not_stop_who_opens_the_store(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await (await SqliteStore.open(path, now=now)).aclose()
    lock = os.open(f"{path}.lock", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)  # as find_holder does, for longer
    async with anyio.create_task_group() as group:
        group.start_soon(open_and_close, path)
        await anyio.sleep(0.03)
        os.close(lock)


async def open_and_close(path: Path) -> None:
    await (await SqliteStore.open(path, now=now)).aclose()


async def test_a_store_that_is_there_is_free_or_held(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = await SqliteStore.open(path, now=now)
    assert await probe(path) == f"{path}, held by process {os.getpid()}"
    await store.aclose()
    assert await probe(path) == f"{path}, free"


async def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    assert await probe(path) == f'{path}, does not exist yet; "dockbell run" creates it'
    assert await to_thread.run_sync(os.listdir, tmp_path) == []


async def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="its folder is missing or not writable"):
        await probe(tmp_path / "missing" / "a.db")


async def test_another_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await anyio.Path(path).write_bytes(b"no database, but long enough to look like one" * 100)
    with pytest.raises(StoreIncompatible):
        await probe(path)


async def test_a_lock_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await anyio.Path(f"{path}.lock").symlink_to(f"{path}.lock")
    with pytest.raises(StoreError, match="run this as the user that runs the daemon"):
        find_holder(path)
