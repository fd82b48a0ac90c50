from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

from dockbell.errors import StoreError, StoreFull, StoreUnavailable
from dockbell.stores.sqlite import store_errors
from dockbell.stores.sqlite.store_errors import blame, blame_reading


def make_error(code: int, words: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "words", "told"),
    [
        (sqlite3.SQLITE_IOERR, "disk I/O error", "disk I/O error; check its disk"),
        (sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error", "disk I/O error; check its disk"),
        (sqlite3.SQLITE_READONLY, "attempt to write a readonly database", "make it writable"),
        (sqlite3.SQLITE_BUSY, "database is locked", "stop the other program that locks it"),
        (sqlite3.SQLITE_CORRUPT, "database disk image is malformed", "restore a backup"),
    ],
)
def test_what_the_disk_does_is_told_with_what_to_do(tmp_path: Path, code: int, words: str, told: str) -> None:
    found = blame(make_error(code, words), tmp_path / "a.db")
    assert type(found) is StoreUnavailable
    assert str(found).startswith(f"store {tmp_path}/a.db: {words}")
    assert told in str(found)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_MISUSE])
def test_an_error_of_our_own_is_not_blamed_on_the_disk(tmp_path: Path, code: int) -> None:
    assert blame(make_error(code, "near FROM: syntax error"), tmp_path / "a.db") is None
    assert blame(sqlite3.ProgrammingError("Cannot operate on a closed database."), tmp_path / "a.db") is None


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_CANTOPEN])
def test_what_breaks_on_a_full_disk_breaks_because_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(store_errors, "find_room", lambda _: 4096)
    assert isinstance(blame(make_error(code, "disk I/O error"), tmp_path / "a.db"), StoreFull)


def test_sqlite_says_that_a_disk_is_full(tmp_path: Path) -> None:
    found = blame(make_error(sqlite3.SQLITE_FULL, "database or disk is full"), tmp_path / "a.db")
    assert isinstance(found, StoreFull)
    assert str(found) == f"store {tmp_path}/a.db: disk full; free some space"


def test_a_folder_that_is_gone_is_no_full_disk(tmp_path: Path) -> None:
    found = blame(make_error(sqlite3.SQLITE_IOERR, "disk I/O error"), tmp_path / "nowhere" / "a.db")
    assert type(found) is StoreUnavailable


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (sqlite3.SQLITE_CORRUPT, "words; stop dockbell and restore a backup"),
        (sqlite3.SQLITE_NOMEM, "words; give dockbell more memory"),
        (sqlite3.SQLITE_FULL, "words while reading; free some space for temporary files"),
    ],
)
def test_what_only_reading_meets_is_the_trouble_of_who_reads(tmp_path: Path, code: int, told: str) -> None:
    found = blame_reading(make_error(code, "words"), tmp_path / "a.db")
    assert type(found) is StoreError
    assert str(found) == f"store {tmp_path}/a.db: {told}"


@pytest.mark.parametrize("error", [make_error(sqlite3.SQLITE_IOERR_READ, "disk I/O error"), OSError(5, "EIO")])
def test_a_disk_that_cannot_be_read_cannot_be_written_either(tmp_path: Path, error: sqlite3.Error | OSError) -> None:
    assert type(blame_reading(error, tmp_path / "a.db")) is StoreUnavailable


def test_an_error_of_our_own_is_so_in_reading_too(tmp_path: Path) -> None:
    assert blame_reading(make_error(sqlite3.SQLITE_ERROR, "no such table"), tmp_path / "a.db") is None


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (5, StoreUnavailable)]
)
def test_so_does_the_system(tmp_path: Path, number: int, kind: type[StoreUnavailable]) -> None:
    assert type(blame(OSError(number, "Words of the system"), tmp_path / "a.db")) is kind
