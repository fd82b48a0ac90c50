"""The store in one SQLite file, held by one process."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path

import anyio.to_thread

from dockbell.core.moment import to_micros
from dockbell.stores.handles.engine import Clock
from dockbell.stores.handles.store import SqlStore
from dockbell.stores.sqlite.engine import SqliteEngine
from dockbell.stores.sqlite.files import open_files
from dockbell.stores.sqlite.migrations import MIGRATIONS
from dockbell.telemetry import StoreUpgraded, Telemetry


class SqliteStore(SqlStore):
    """One SQLite file, held by one process."""

    engine: SqliteEngine

    def __init__(self, engine: SqliteEngine) -> None:
        super().__init__(engine)
        self.path = engine.path

    @classmethod
    async def open(
        cls, path: Path, *, now: Clock, epoch: str | None = None, telemetry: Telemetry | None = None
    ) -> SqliteStore:
        """Open the store to work on it, making the file if there is none, under a new epoch.

        A store of an older dockbell is copied, and brought up to date. ``telemetry`` reports that, and outages.

        Raises:
            StoreInUse: Another process works on it.
            StoreIncompatible: It is not a store, or one of a newer dockbell.
            StoreError: It cannot be opened.
        """
        telemetry = telemetry or Telemetry()
        opening = partial(open_files, path, epoch=epoch or secrets.token_hex(8), now=to_micros(now()))
        files = await anyio.to_thread.run_sync(opening)
        upgrade = files.upgrade
        if upgrade.copy is not None:
            telemetry.emit(StoreUpgraded(upgrade.version, len(MIGRATIONS), str(upgrade.copy)))
        engine = SqliteEngine(path, files, now=now, telemetry=telemetry)
        await engine.begin()
        return cls(engine)
