"""``dockbell backup``."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from dockbell.stores.sqlite import SqliteStore
from tests.cli.programs import run
from tests.cli.terminal import on_terminal
from tests.fakes import NOON
from tests.stores.pages import FEED, commit

CONFIG = '[sources.main]\nbase_url = "http://127.0.0.1:9"\napi_key = { env = "KEY" }\n'


async def fill(path: Path) -> None:
    store = await SqliteStore.open(path, now=lambda: NOON)
    state = await store.open_feed(FEED)
    await commit(store, state, *({"id": f"{number}", "x": "x" * 2000} for number in range(200)))
    await store.aclose()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dockbell.toml").write_text(CONFIG)
    anyio.run(fill, tmp_path / "dockbell.db")
    return tmp_path


def count(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (number,) = connection.execute("SELECT count(*) FROM events").fetchone()
    return int(number)


def test_it_prints_what_it_has_made(folder: Path) -> None:
    done = run("backup", "copy.db", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"copy\.db: \d\.\d MB, complete and checked\n", done.stdout)
    assert count(folder / "copy.db") == 200
    again = run("backup", "copy.db", cwd=folder)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "error: backup copy.db: is there already; name another file, or replace it by --force\n"
    forced = run("backup", "copy.db", "--force", "--json", cwd=folder)
    assert (forced.returncode, forced.stderr) == (0, "")
    assert json.loads(forced.stdout) == {"path": "copy.db", "bytes": (folder / "copy.db").stat().st_size}


def test_without_a_store_there_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "dockbell.toml").write_text(CONFIG)
    done = run("backup", "copy.db", cwd=tmp_path)
    assert done.returncode == 1
    assert 'not found; "dockbell run" makes it' in done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dockbell.toml"]


def test_a_terminal_shows_how_far_it_is(folder: Path) -> None:
    with on_terminal(folder, "backup", "copy.db") as terminal:
        terminal.until(r"copy\.db .* \d+ of \d+ MB")
        terminal.until(r"copy\.db: \d\.\d MB, complete and checked")
