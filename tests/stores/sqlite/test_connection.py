from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dockbell.stores.sqlite.connection import connect, has_foreign_log


def test_looking_into_a_store_leaves_the_locks_to_who_works_on_it(tmp_path: Path) -> None:
    path = tmp_path / "dockbell.db"
    with closing(connect(path)) as working:
        working.execute("PRAGMA journal_mode = WAL")
        working.execute("CREATE TABLE numbers (number)")
        assert not has_foreign_log(path)
        # Another process that comes and goes deletes the log, unless it meets the lock of who works on the store.
        come_and_go = (
            "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM numbers').connection.close()"
        )
        subprocess.run([sys.executable, "-c", come_and_go, str(path)], check=True)
        assert Path(f"{path}-wal").exists()


INSERT = "INSERT INTO words (number, word) VALUES (?, ?)"
PUT = f"{INSERT} ON CONFLICT (number) DO UPDATE SET word = excluded.word"


@pytest.mark.parametrize("count", [0, 1, 24, 25, 26, 50, 137])
@pytest.mark.parametrize("statement", [INSERT, PUT])
def test_many_rows_are_inserted_as_one_by_one(tmp_path: Path, count: int, statement: str) -> None:
    rows = [(number, f"word {number}") for number in range(count)]
    with closing(connect(tmp_path / "dockbell.db")) as connection:
        connection.execute("CREATE TABLE words (number PRIMARY KEY, word)")
        connection.executemany(statement, iter(rows))
        assert connection.execute("SELECT number, word FROM words ORDER BY rowid").fetchall() == rows


def test_a_row_that_comes_twice_among_many_is_written_over(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "dockbell.db")) as connection:
        connection.execute("CREATE TABLE words (number PRIMARY KEY, word)")
        connection.executemany(PUT, ((number % 10, str(number)) for number in range(60)))
        found = connection.execute("SELECT number, word FROM words ORDER BY number").fetchall()
    assert found == [(number, str(50 + number)) for number in range(10)]


@pytest.mark.parametrize(
    "rows",
    [
        [(1,), (2, "b", 3), *((number, "") for number in range(3, 26))],
        [{"number": each, "word": ""} for each in range(30)],
    ],
)
def test_rows_of_another_shape_are_refused_as_the_driver_does(tmp_path: Path, rows: list[Any]) -> None:
    with closing(connect(tmp_path / "dockbell.db")) as connection:
        connection.execute("CREATE TABLE words (number PRIMARY KEY, word)")
        with pytest.raises(sqlite3.ProgrammingError):
            connection.executemany(INSERT, rows)
        assert connection.execute("SELECT count(*) FROM words").fetchone() == (0,)


def test_many_rows_are_inserted_by_few_statements(tmp_path: Path) -> None:
    statements: list[str] = []
    with closing(connect(tmp_path / "dockbell.db")) as connection:
        connection.execute("CREATE TABLE numbers (number)")
        connection.set_trace_callback(statements.append)
        connection.executemany("INSERT INTO numbers (number) VALUES (?)", ((number,) for number in range(201)))
    assert sum(each.startswith("INSERT") for each in statements) == 9


def test_an_insert_that_fails_among_many_is_an_error_and_can_be_undone(tmp_path: Path) -> None:
    with closing(connect(tmp_path / "dockbell.db")) as connection:
        connection.execute("CREATE TABLE numbers (number PRIMARY KEY)")
        connection.execute("BEGIN")
        with pytest.raises(sqlite3.IntegrityError):
            connection.executemany("INSERT INTO numbers (number) VALUES (?)", ((number % 20,) for number in range(40)))
        connection.execute("ROLLBACK")
        assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
