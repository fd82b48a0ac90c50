"""Where the model's store is, in each kind of database, and what may become of it there."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final

import psycopg

from dockbell.stores.handles.store import SqlStore
from tests import postgres
from tests.stores.places import Place, open_store

_TERMINATE_ALL: Final = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'dockbell'
"""


class Disk(ABC):
    """What outlives a process.

    Attributes:
        place: Where the store is at present.
    """

    place: Place

    async def open(self, now: Callable[[], datetime]) -> SqlStore:
        return await open_store(self.place, now=now)

    @abstractmethod
    async def crash(self, store: SqlStore) -> None:
        """Let the process be gone at this moment; its store is closed only to let it go."""

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

    async def crash(self, store: SqlStore) -> None:
        with closing(psycopg.connect(self.place, autocommit=True)) as connection:
            connection.execute(_TERMINATE_ALL)
            connection.execute("DELETE FROM holders")  # as when its row has expired
        await store.aclose()

    def clear(self) -> None:
        """Do nothing: the next disk empties it."""
