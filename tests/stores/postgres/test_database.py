from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dockbell.app import back_up, find_holder, open_read_store, probe_store
from dockbell.app.opening import open_store
from dockbell.config import Config, StoreSettings
from dockbell.errors import StoreError, StoreMissing, StoreUnavailable


def configure(url: str) -> Config:
    return Config.model_construct(store=StoreSettings(url=url))


async def test_a_database_without_tables_is_no_store_yet(postgres_url: str) -> None:
    config = configure(postgres_url)
    assert (await probe_store(config)).endswith('does not exist yet; "dockbell run" creates it')
    assert find_holder(config) == ""
    with pytest.raises(StoreMissing, match='not found; "dockbell run" creates it'):
        await open_read_store(config)


async def test_a_store_is_free_or_held(postgres_url: str) -> None:
    config = configure(postgres_url)
    store = await open_store(config)
    assert f"held by process {os.getpid()} on " in await probe_store(config)
    await store.aclose()
    assert (await probe_store(config)).endswith(", free")


async def test_a_server_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    config = configure(f"postgresql://user:hush@/dockbell?host={tmp_path}")
    with pytest.raises(StoreUnavailable, match="check its server") as raised:
        await probe_store(config)
    assert "hush" not in str(raised.value)


async def test_its_backups_are_made_otherwise(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the store is not a file; back up PostgreSQL with pg_dump"):
        await back_up(configure("postgresql:///dockbell"), tmp_path / "backup.db", force=False)


def test_a_missing_driver_is_told_with_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from dockbell.app.opening import find_database\n"
        "from dockbell.config import Config, StoreSettings\n"
        "find_database(Config.model_construct(store=StoreSettings(url='postgresql:///d')))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1] == (
        "dockbell.errors.StoreError: [store] url: the driver for PostgreSQL is not installed;"
        " pip install 'dockbell[postgres]'"
    )
