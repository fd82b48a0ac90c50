"""``dockbell backup``."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from dockbell.stores.sqlite import SqliteStore
from tests.cli.programs import run
from tests.cli.terminal import on_terminal
from tests.fakes import NOON
from tests.stores.pages import FEED, commit
from tests.strangers import STRANGER, act, needs_root, share

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


@needs_root
def test_what_another_user_has_planted_is_told_and_left_as_it_is(folder: Path) -> None:
    shared, precious = share(folder / "shared"), folder / "precious"
    precious.write_text("kept")
    act(shared, f"ln -s {precious} copy.db.part")
    done = run("backup", str(shared / "copy.db"), cwd=folder)
    assert (done.returncode, done.stdout, precious.read_text()) == (1, "", "kept")
    assert done.stderr == (
        f"error: backup {shared}/copy.db: copy.db.part is no folder: find out who has put it there, and remove it;"
        " look at its disk, or name another file\n"
    )
    assert run("backup", str(shared / "other.db"), cwd=folder).returncode == 0
    shared.chmod(0o777)
    done = run("backup", str(shared / "third.db"), cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"everybody can put other files in the place of those in it; chmod o-w {shared}\n" in done.stderr


AS_ANOTHER = """
import os, sys
from click.testing import CliRunner
from dockbell.cli import main
user, *words, first, target = sys.argv[1:]
# First as root, which reads whatever is imported on the way: others may have no right to read the environment.
assert CliRunner().invoke(main, [*words, first, "--force"]).exit_code == 0
os.setgroups([])
os.setresgid(*[int(user)] * 3)
os.setresuid(*[int(user)] * 3)
main([*words, target])
"""


@needs_root
def test_a_user_without_rights_is_kept_from_the_trap_of_another_one(folder: Path) -> None:
    home, shared = share(folder / "home", 0o755), share(folder / "shared")
    victim, precious = STRANGER + 1, home / "precious"
    for each in (*(folder / name for name in ("dockbell.toml", "dockbell.db")), home):
        os.chown(each, victim, victim)
    os.chown(folder, victim, victim)
    act(home, "echo kept >precious; chmod 600 precious", user=victim)
    act(shared, f"ln -s {precious} copy.db.part; mkdir -m 0777 third.db.part")

    def back_up(target: Path) -> int:
        words = ["backup", "--config", str(folder / "dockbell.toml")]
        return subprocess.run(
            [sys.executable, "-c", AS_ANOTHER, str(victim), *words, str(folder / "first.db"), str(target)], check=False
        ).returncode

    assert back_up(shared / "copy.db") == 1
    assert back_up(shared / "third.db") == 1
    assert precious.read_text() == "kept\n"
    assert back_up(shared / "other.db") == 0
    assert (shared / "other.db").stat().st_uid == victim
    assert count(shared / "other.db") == 200


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
