"""Makes the tables of a new store, and brings those of an older one up to date."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from dockbell.core.moment import from_micros
from dockbell.errors import StoreIncompatible
from dockbell.stores.sqlite.migrations import MIGRATIONS

APPLICATION_ID: Final = 0x646F636B
"""Marks the file as ours (the letters ``dock``); see https://www.sqlite.org/pragma.html#pragma_application_id."""


def read_schema() -> str:
    return Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")


def migrate(connection: sqlite3.Connection, path: Path, *, epoch: str, now: int) -> bool:
    """Bring a store up to date; a new file becomes one, under ``epoch``. Return whether it is new.

    Raises:
        StoreIncompatible: The file is something else, or belongs to a newer dockbell.
    """
    version = check_version(connection, path)
    # All or nothing: a store that cannot be brought up to date is left to the dockbell that made it.
    script = "".join(MIGRATIONS[version:]) if version else read_schema()
    try:
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {len(MIGRATIONS)};")
        if version == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("INSERT INTO life (epoch, began_at) VALUES (?, ?)", (epoch, now))
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return version == 0


def list_tables() -> list[str]:
    """Return the names of a store's tables, each after those that it refers to."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(read_schema())
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid").fetchall()
    return [name for (name,) in found if not name.startswith("sqlite_")]


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return a store's version; refuse a file that this dockbell cannot use.

    Raises:
        StoreIncompatible: The file is something else, belongs to a newer dockbell, or was moved to another database.
    """
    version = find_version(connection, path)
    if version and (place := find_place(connection)):
        raise StoreIncompatible(
            f"store {path}: was moved to {place}; put its URL in [store] url, or return to this file with"
            ' "dockbell move-store --undo", under new event ids'
        )
    return version


def find_place(connection: sqlite3.Connection) -> str:
    """Return where a store was moved to, and when; empty where it was not."""
    cursor = connection.execute("SELECT * FROM life")  # of an older version, too, which has no column for it
    life = dict(zip((name for name, *_ in cursor.description), cursor.fetchone(), strict=True))
    return f"{life['moved_to']} on {from_micros(life['copied_at']):%Y-%m-%d}" if life.get("moved_to") else ""


def find_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return a store's version; 0 where it has no tables yet.

    Raises:
        StoreIncompatible: The file is something else, or belongs to a newer dockbell.
    """
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.DatabaseError as error:
        raise StoreIncompatible(f"store {path}: {error}; name another file in [store] url") from error
    if tables and application != APPLICATION_ID:
        raise StoreIncompatible(f"store {path}: belongs to another program; name another file in [store] url")
    if version > len(MIGRATIONS):
        raise StoreIncompatible(
            f"store {path}: has schema version {version}, this dockbell knows {len(MIGRATIONS)}; upgrade dockbell"
        )
    return int(version)
