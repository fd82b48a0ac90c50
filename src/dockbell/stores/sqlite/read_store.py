"""Reads the store's file beside the process that holds it."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread

from dockbell.stores.handles.read_store import SqlReadStore
from dockbell.stores.sqlite.connection import look
from dockbell.stores.sqlite.session import FileSession
from dockbell.stores.sqlite.store_errors import blame_reading


class SqliteReadStore(SqlReadStore):
    """Reads the file: locks nothing, writes nothing."""

    _session: FileSession

    @classmethod
    async def open(cls, path: Path) -> SqliteReadStore:
        """Open a store to look at it.

        Raises:
            StoreIncompatible: It is not a store, or one of a newer dockbell.
            StoreError: There is none, or it cannot be opened.
        """
        return cls(FileSession(await anyio.to_thread.run_sync(look, path), path, blame_reading))
