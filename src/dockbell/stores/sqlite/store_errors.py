"""Whose fault it is that SQLite could not do something: the disk's, or our own."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dockbell.errors import StoreError, StoreFull, StoreUnavailable

_FULL_BELOW: Final = 1024 * 1024
"""A write that breaks on a disk with less room than that, in bytes, breaks for want of it, whatever SQLite says."""
_REMEDIES: Final = {
    sqlite3.SQLITE_IOERR: "check its disk",
    sqlite3.SQLITE_CANTOPEN: "check its disk and the permissions of its folder",
    sqlite3.SQLITE_PERM: "make it writable by the user that runs the daemon",
    sqlite3.SQLITE_READONLY: "make it writable by the user that runs the daemon",
    sqlite3.SQLITE_BUSY: "stop the other program that locks it",
    sqlite3.SQLITE_LOCKED: "stop the other program that locks it",
    sqlite3.SQLITE_PROTOCOL: "stop the other program that locks it",
    sqlite3.SQLITE_NOMEM: "give dockbell more memory",
    sqlite3.SQLITE_CORRUPT: "stop dockbell and restore a backup",
    sqlite3.SQLITE_NOTADB: "stop dockbell and restore a backup",
}
"""What is not our fault, by primary result code (https://www.sqlite.org/rescode.html), and what to do about it."""


@contextmanager
def translating(path: Path, blame_it: Callable[[sqlite3.Error | OSError, Path], StoreError | None]) -> Iterator[None]:
    """Raise what goes wrong inside with the store's file as ``blame_it`` says; errors of our own stay as they are."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if (blamed := blame_it(error, path)) is None:
            raise
        raise blamed from error


def blame(error: sqlite3.Error | OSError, path: Path) -> StoreError | None:
    """Return what an error says of the store at ``path``; None where the fault is our own.

    :class:`StoreFull` where its disk is full, :class:`StoreUnavailable` where it cannot be used for now.
    """
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreFull(f"store {path}: disk full; free some space")
        return StoreUnavailable(f"store {path}: {(error.strerror or str(error)).lower()}; check its disk")
    code = _find_code(error)
    if code == sqlite3.SQLITE_FULL or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(path)):
        return StoreFull(f"store {path}: disk full; free some space")
    if code not in _REMEDIES:
        return None
    return StoreUnavailable(f"store {path}: {error}; {_REMEDIES[code]}")


def blame_reading(error: sqlite3.Error | OSError, path: Path) -> StoreError | None:
    """Return what an error says that came of reading alone.

    What the disk does to reading it does to writing too. All else is the trouble of who reads: a place in the file that
    is damaged, a sorting that finds no memory, or no room in the folder for temporary files, which is on another disk.
    """
    blamed = blame(error, path)
    if blamed is None or isinstance(error, OSError) or _find_code(error) == sqlite3.SQLITE_IOERR:
        return blamed
    if _find_code(error) == sqlite3.SQLITE_FULL:
        return StoreError(f"store {path}: {error} while reading; free some space for temporary files")
    return StoreError(str(blamed))


def blame_command(error: sqlite3.Error | OSError, path: Path) -> StoreError | None:
    """Return what an error says to an operator who has left something in the store."""
    if not isinstance(error, sqlite3.OperationalError) or error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
        return None  # the statement's own fault
    if isinstance(blamed := blame(error, path), StoreFull):
        return blamed
    return StoreError(f"store {path}: {error}; try again as the user that runs the daemon")


def _find_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _is_full(path: Path) -> bool:
    try:
        return find_room(path) < _FULL_BELOW
    except OSError:
        return False


def find_room(path: Path) -> int:
    """Return how many bytes are left for us on the disk that a file, or its folder, is on.

    Raises:
        OSError: There is neither.
    """
    disk = os.statvfs(path if path.exists() else path.parent)
    return disk.f_bavail * disk.f_frsize
