"""Brings the store of an older dockbell up to date: copies it first, then migrates it, wholly or not at all."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from dockbell.errors import StoreError, StoreFull
from dockbell.stores.sqlite.copying import write_copy
from dockbell.stores.sqlite.disk_reserve import RESERVED, find_size
from dockbell.stores.sqlite.migrations import MIGRATIONS
from dockbell.stores.sqlite.schema import check_version, migrate
from dockbell.stores.sqlite.store_errors import blame, find_room

_ROOM: Final = 4
"""How many times the size of a store must be free: for the copy, and for a migration that writes all tables anew.

What it writes and what it overwrites stand in the log, and then the file grows by what was written.
"""


class Upgrade(msgspec.Struct, frozen=True):
    """What was done to a store when it was opened."""

    version: int  # the version that it had; 0 where it was made
    copy: Path | None = None  # where it is as it was before; None where nothing was migrated, or there was nothing


def upgrade(connection: sqlite3.Connection, path: Path, *, epoch: str, now: int) -> Upgrade:
    """Bring a store up to date; a new file becomes one, under ``epoch``.

    Raises:
        StoreIncompatible: The file is something else, or belongs to a newer dockbell.
        StoreFull: There is no room for the copy, or to migrate it; it is as it was.
        StoreError: It cannot be copied or migrated; it is as it was.
    """
    version = check_version(connection, path)
    if version == len(MIGRATIONS):
        return Upgrade(version)
    copy = _keep(connection, path) if version else None
    try:
        migrate(connection, path, epoch=epoch, now=now)
    except sqlite3.Error as error:
        if copy is None:
            raise
        if (blamed := blame(error, path)) is not None:
            raise blamed from error
        raise StoreError(
            f"store {path}: cannot be upgraded from schema version {version} to {len(MIGRATIONS)}: {error}; it is"
            " unchanged: keep using the dockbell that made it, and report this"
        ) from error
    return Upgrade(version, copy)


def _keep(connection: sqlite3.Connection, path: Path) -> Path:
    """Copy a store beside it, unless a copy of just this is there; return where the copy is."""
    for number in count(1):
        target = Path(f"{path}.before-v{len(MIGRATIONS)}{'' if number == 1 else f'.{number}'}")
        if not os.path.lexists(target):
            break
        if _find_mark(target) == _read_mark(connection):  # of a try that ended before it had changed anything
            return target
    size, room = _ROOM * find_size(connection) + RESERVED, find_room(path)
    if size > room:
        mine, there = (f"{each / 1_000_000:,.1f} MB" for each in (size, room))
        raise StoreFull(
            f"store {path}: is copied before the upgrade to schema version {len(MIGRATIONS)}, which needs {mine},"
            f" {there} are free; free some space"
        )
    return write_copy(connection, target).path


def _find_mark(path: Path) -> object:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return _read_mark(connection)
    except sqlite3.Error:
        return None


def _read_mark(connection: sqlite3.Connection) -> object:
    """Return what tells two states of a store apart, of whatever version: it moves with every run and every event."""
    return connection.execute(
        "SELECT (SELECT user_version FROM pragma_user_version), (SELECT epoch FROM life),"
        " (SELECT seq FROM sqlite_sequence WHERE name = 'events'), (SELECT max(ended_at) FROM runs)"
    ).fetchone()
