"""A store that an operator moves from its file into PostgreSQL."""

from __future__ import annotations

import os
import sys

import pytest

from dockbell.stores.postgres.store_errors import name_store
from dockbell.stores.sqlite.files import take_lock
from tests.cli.filled import Filled
from tests.stores.standings import read

NOWHERE = "postgresql://dockbell@127.0.0.1:9/dockbell"


def refuse(filled: Filled, *args: str) -> str:
    """Run a command that cannot do it, and return why."""
    told = filled.ask(*args, code=1)
    assert told["exit_code"] == 1
    return str(told["error"])


def test_a_store_is_moved_and_its_file_refused_until_it_is_taken_back(filled: Filled, postgres_url: str) -> None:
    name = name_store(postgres_url)
    lines = filled.run("move-store", postgres_url).splitlines()
    assert lines[0].startswith(f"{name}: moved and compared in ")
    assert lines[0].endswith(" s: 4 records, 6 events, 2 feeds, 1 sink, 24 rows in total")
    assert lines[1:] == [
        f'{filled.store}: kept, but dockbell refuses to use it from now on; "dockbell move-store --undo" returns to it',
        "next: set [store] url to the URL, put its password in $PGPASSWORD or ~/.pgpass, and start the daemon",
    ]
    assert read(postgres_url, "SELECT count(*) FROM events") == [(6,)]
    for args in (
        ["status"],
        ["pause", "erp"],
        ["purge", "shipments", "a", "--yes"],
        ["once"],
        ["move-store", postgres_url],
    ):
        assert f"was moved to {name} on " in refuse(filled, *args)
    assert filled.run("move-store", "--undo").startswith(f"{filled.store}: in use again, with new event ids; it had")
    assert '"key":"a"' in filled.run("state", "shipments", "a")


def test_commands_find_the_store_where_it_is_now(filled: Filled, postgres_url: str) -> None:
    before = filled.run("events", "--json")
    told = filled.ask("move-store", postgres_url)
    assert told.pop("seconds") > 0
    assert told == {
        "moved_to": name_store(postgres_url),
        "feeds": 2,
        "records": 4,
        "events": 6,
        "sinks": 1,
        "rows": 24,
        "was_there": False,
    }
    config = filled.folder / "dockbell.toml"
    config.write_text(f'{config.read_text()}[store]\nurl = "{postgres_url}"\n')
    assert filled.run("events", "--json") == before
    assert refuse(filled, "move-store", postgres_url).startswith(
        "[store] url: names a database, and must name the file"
    )
    assert refuse(filled, "move-store", "--undo").startswith("[store] url: names a database, and must name the file")


def test_a_store_that_a_daemon_holds_is_not_moved(filled: Filled) -> None:
    lock = take_lock(filled.store)
    told = f"store {filled.store}: held by process {os.getpid()}; stop it, then move the store"
    assert refuse(filled, "move-store", NOWHERE) == told
    lock.release()


def test_what_was_not_moved_cannot_be_taken_back(filled: Filled) -> None:
    assert refuse(filled, "move-store", "--undo") == f"store {filled.store}: was not moved, and can be used as it is"


@pytest.mark.parametrize("args", [[], [NOWHERE, "--undo"]])
def test_either_a_database_is_named_or_the_move_undone(filled: Filled, args: list[str]) -> None:
    told = "Error: pass the URL of the database, postgresql://user@host/database, or only --undo"
    assert filled.misuse("move-store", *args) == told


def test_without_the_driver_it_is_said_what_to_install(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dockbell.stores.postgres.moving", None)
    told = "URL: the driver for PostgreSQL is not installed; pip install 'dockbell[postgres]'"
    assert refuse(filled, "move-store", NOWHERE) == told
