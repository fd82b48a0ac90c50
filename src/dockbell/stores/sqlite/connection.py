"""Opens the file: to work on it, or to look."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from dockbell.errors import StoreError, StoreIncompatible
from dockbell.stores.sqlite.schema import MIGRATIONS, check_version

_BUSY_TIMEOUT_SECONDS: Final = 30
_CACHED_STATEMENTS: Final = 512


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection whose transactions are begun by hand."""
    return sqlite3.connect(
        path,
        timeout=_BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_CACHED_STATEMENTS,
    )


def look(path: Path) -> sqlite3.Connection:
    """Open a store to read it.

    Raises:
        StoreIncompatible: It is not a store, or one of another dockbell.
        StoreError: There is none, or it cannot be opened.
    """
    if not path.is_file():
        raise StoreError(f'store {path}: not found; "dockbell run" makes it')
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_SECONDS, check_same_thread=False
        )
        version = check_version(connection, path)
    except sqlite3.Error as error:
        raise StoreError(f"store {path}: {error}; check its permissions") from error
    if version < len(MIGRATIONS):
        raise StoreIncompatible(
            f"store {path}: has schema version {version}, this dockbell works with {len(MIGRATIONS)};"
            ' "dockbell run" brings it up to date'
        )
    return connection
