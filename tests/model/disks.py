"""Where the model's store is, in each kind of database, and what may become of it there."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from dockbell.stores.handles.store import SqlStore
from dockbell.stores.postgres import connection as connecting
from tests import postgres
from tests.stores.places import Place, open_store

_TERMINATE: Final = "SELECT pg_terminate_backend(%s, 5000)"
_TERMINATE_ALL: Final = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'dockbell'
"""


class Disk(ABC):
    """What outlives a process.

    Attributes:
        place: Where the store is at present.
        is_torn: The connection was lost since it was to be, see :meth:`tear`.
    """

    place: Place
    is_torn = False

    async def open(self, now: Callable[[], datetime]) -> SqlStore:
        return await open_store(self.place, now=now)

    @abstractmethod
    async def crash(self, store: SqlStore) -> None:
        """Let the process be gone at this moment; its store is closed only to let it go."""

    def tear(self, statements: int | None, *, is_done: bool = False) -> None:
        """Let the connection be lost after so many statements: before the next is done, or before its answer comes."""
        raise NotImplementedError

    @abstractmethod
    def clear(self) -> None:
        """Leave nothing behind."""


class FileDisk(Disk):
    """A file of SQLite; each life has a copy of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives = 0
        self.place: Path = folder / "0.db"

    async def crash(self, store: SqlStore) -> None:
        self._copy()
        await store.aclose()

    def _copy(self) -> None:
        self._lives += 1
        left, self.place = self.place, self._folder / f"{self._lives}.db"
        for end in ("", "-wal", ".life"):
            file = Path(f"{left}{end}")
            if file.exists():
                shutil.copy(file, f"{self.place}{end}")

    def clear(self) -> None:
        shutil.rmtree(self._folder)


class DatabaseDisk(Disk):
    """A database of PostgreSQL, the same one for each disk."""

    def __init__(self, server: postgres.Server) -> None:
        self.place: str = server.lend_store()
        self._left: int | None = None
        self._is_done = False
        self._patch = pytest.MonkeyPatch()
        self._connect = connecting.connect
        self._patch.setattr(connecting, "connect", self._connect_breakable)

    async def crash(self, store: SqlStore) -> None:
        self._query(_TERMINATE_ALL)
        self._query("DELETE FROM holders")  # as when its row has expired
        await store.aclose()

    def tear(self, statements: int | None, *, is_done: bool = False) -> None:
        self._left, self._is_done, self.is_torn = statements, is_done, False

    def clear(self) -> None:
        self._patch.undo()

    def _query(self, statement: str, *values: object) -> None:
        with closing(psycopg.connect(self.place, autocommit=True)) as connection:
            connection.execute(statement.encode(), values)

    def _connect_breakable(self, url: str) -> psycopg.Connection[Any]:
        connection = self._connect(url)
        execute = connection.execute

        def execute_or_break(*args: Any) -> psycopg.Cursor[Any]:
            if self._left is None:
                return execute(*args)
            self._left -= 1
            if self._left >= 0:
                return execute(*args)
            self._left, self.is_torn = None, True
            cursor = execute(*args) if self._is_done else None
            self._query(_TERMINATE, connection.info.backend_pid)
            if cursor is None:
                return execute(*args)
            connection.close()
            raise psycopg.OperationalError("the connection is lost")

        connection.execute = execute_or_break  # type: ignore[method-assign]  # of this one alone
        return connection
