"""The mark of a store that was moved to another database: the file is kept, and refused.

Events are written there since, under the same epoch. So a file that is taken back is what a backup of that time would
be: it begins a new life, and uses no event id twice.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from dockbell.errors import StoreError
from dockbell.stores.sql.connection import transaction
from dockbell.stores.sqlite.connection import connect
from dockbell.stores.sqlite.files import take_lock
from dockbell.stores.sqlite.schema import find_place, find_version
from dockbell.stores.sqlite.store_errors import blame_command, translating


def mark_moved(connection: sqlite3.Connection, place: str, at: int) -> None:
    """Note in a store where it was moved to; it is refused from now on."""
    connection.execute("UPDATE life SET moved_to = ?, copied_at = ?", (place, at))


def take_back(path: Path) -> str:
    """Remove that mark, so that the store can be used again, and begins a new life.

    Returns:
        Where it was moved to, and when.

    Raises:
        StoreInUse: Another process works on it.
        StoreIncompatible: It is not a store, or one of a newer dockbell.
        StoreError: There is none, it was not moved, or it cannot be written.
    """
    if not path.is_file():
        raise StoreError(f"store {path}: not found; check [store] url")
    lock = take_lock(path)
    try:
        with translating(path, blame_command), closing(connect(path)) as connection:
            place = find_place(connection) if find_version(connection, path) else ""
            if not place:
                raise StoreError(f"store {path}: was not moved, and can be used as it is")
            with transaction(connection):
                connection.execute("UPDATE life SET moved_to = ''")
            return place
    finally:
        lock.release()
