"""Opens the file: to work on it, or to look."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from dockbell.errors import StoreError, StoreIncompatible, StoreMissing
from dockbell.stores.sqlite.migrations import MIGRATIONS
from dockbell.stores.sqlite.schema import check_version

_BUSY_TIMEOUT_SECONDS: Final = 30
_CACHED_STATEMENTS: Final = 512
_ROWS_AT_ONCE: Final = 25
_INSERT: Final = re.compile(r"(INSERT INTO \w+ \([\w, ]+\) VALUES )(\([?, ]+\))((?: ON CONFLICT [^?:]+)?)")
_LOOKED_INTO: Final[dict[tuple[int, int], int]] = {}
"""Stores that were looked into without SQLite, by device and number. They stay open: closing a file ends the locks that
SQLite has on it in this process, and who comes then deletes the log under it (https://www.sqlite.org/howtocorrupt.html,
2.2)."""


class JoiningConnection(sqlite3.Connection):
    """Inserts 25 rows by one statement where one statement is to be executed for each of many rows.

    That takes two thirds of the time. And the driver releases the interpreter's lock for each statement, and must then
    wait for its turn among the other threads.
    """

    def executemany(self, statement: str, values: Iterable[Any], /) -> sqlite3.Cursor:
        """Execute a statement for each row; of inserted rows the cursor does not tell how many there were."""
        rows = iter(values)
        first = next(rows, None)
        if first is None:  # as for most statements of most pages
            return self.cursor()
        rows = chain([first], rows)
        if (found := _join(statement)) is None:
            return super().executemany(statement, rows)
        joined, width = found
        while len(some := list(islice(rows, _ROWS_AT_ONCE))) == _ROWS_AT_ONCE and _are_rows(some, width):
            self.execute(joined, list(chain.from_iterable(some)))
        super().executemany(statement, chain(some, rows))
        return self.cursor()


@lru_cache(maxsize=256)
def _join(statement: str) -> tuple[str, int] | None:
    """Return the statement that inserts 25 rows, and how many values a row has; None where it inserts no rows."""
    insert = _INSERT.fullmatch(statement)
    if insert is None:
        return None
    head, row, tail = insert.groups()
    return head + ", ".join([row] * _ROWS_AT_ONCE) + tail, row.count("?")


def _are_rows(rows: list[Any], width: int) -> bool:
    """Return whether these can be joined; the driver tells what is wrong with others, one by one."""
    return {*map(len, rows)} == {width} and dict not in {*map(type, rows)}


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection whose transactions are begun by hand."""
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_CACHED_STATEMENTS,
        factory=JoiningConnection,
    )
    # What is deleted is overwritten, as personal data must be; it costs a twentieth of what writing does.
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def has_foreign_log(path: Path) -> bool:
    """Return whether a log stands beside a store that was written without one, as backups are, see ``copying``.

    It belongs to the file that was there before, and SQLite would write it into this one.
    """
    if not Path(f"{path}-wal").exists():
        return False
    at = path.stat()
    file = _LOOKED_INTO.get((at.st_dev, at.st_ino))
    if file is None:
        file = _LOOKED_INTO[at.st_dev, at.st_ino] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    # https://www.sqlite.org/fileformat2.html#file_format_version_numbers: 1 for a rollback journal, 2 for a log
    return os.pread(file, 2, 18) == b"\1\1"


def look(path: Path) -> sqlite3.Connection:
    """Open a store to read it.

    Raises:
        StoreIncompatible: It is not a store, or one of another dockbell.
        StoreMissing: There is none.
        StoreError: It cannot be opened.
    """
    if not path.is_file():
        raise StoreMissing(f'store {path}: not found; "dockbell run" creates it')
    if has_foreign_log(path):
        raise StoreError(
            f'store {path}: is a backup, beside the write-ahead log of an earlier store; "dockbell run" starts from it'
        )
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_SECONDS, check_same_thread=False
        )
        version = check_version(connection, path)
    except sqlite3.Error as error:
        raise StoreError(f"store {path}: {error}; check its permissions") from error
    if version < len(MIGRATIONS):
        raise StoreIncompatible(
            f"store {path}: has schema version {version}, this dockbell needs {len(MIGRATIONS)};"
            ' "dockbell run" upgrades it'
        )
    return connection
