"""Takes the commands of an operator, beside the daemon that holds the file."""

from __future__ import annotations

from pathlib import Path

from anyio import to_thread

from dockbell.stores.handles.command_store import SqlCommandStore
from dockbell.stores.sqlite.connection import connect, look
from dockbell.stores.sqlite.session import FileSession
from dockbell.stores.sqlite.store_errors import blame_command


class SqliteCommandStore(SqlCommandStore):
    """Writes commands and decisions, and reads their outcomes; a daemon may hold the store."""

    _session: FileSession

    @classmethod
    async def open(cls, path: Path) -> SqliteCommandStore:
        """Open a store to leave something in it.

        Raises:
            StoreIncompatible: It is not a store, or one of another dockbell.
            StoreError: There is none, or it cannot be opened.
        """
        (await to_thread.run_sync(look, path)).close()
        return cls(FileSession(await to_thread.run_sync(connect, path), path, blame_command))
