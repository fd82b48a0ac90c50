"""A store in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dockbell.errors import StoreError
from dockbell.stores.handles.database import Database, HeldConfigurations
from dockbell.stores.sqlite import probe
from dockbell.stores.sqlite.read_store import SqliteReadStore

if TYPE_CHECKING:
    from dockbell.stores.handles.engine import Clock
    from dockbell.stores.sqlite.command_store import SqliteCommandStore
    from dockbell.stores.sqlite.store import SqliteStore
    from dockbell.telemetry import Telemetry


class SqliteDatabase(Database):
    def __init__(self, path: Path) -> None:
        self._path = path

    async def open_store(
        self, *, now: Clock, epoch: str | None = None, telemetry: Telemetry | None = None, shared: bool = False
    ) -> SqliteStore:
        from dockbell.stores.sqlite.store import SqliteStore  # noqa: PLC0415  # commands that only read need it not

        del shared  # a file has one writer
        return await SqliteStore.open(self._path, now=now, epoch=epoch, telemetry=telemetry)

    async def open_read_store(self) -> SqliteReadStore:
        return await SqliteReadStore.open(self._path)

    async def open_command_store(self) -> SqliteCommandStore:
        from dockbell.stores.sqlite.command_store import SqliteCommandStore  # noqa: PLC0415  # the same

        return await SqliteCommandStore.open(self._path)

    async def open_configurations(self) -> HeldConfigurations:
        raise StoreError(
            f"store {self._path}: only one process works on it, and it follows only its configuration file;"
            ' edit that, or the files that it includes, then run "dockbell reload"'
        )

    def find_holder(self) -> str:
        return probe.find_holder(self._path)

    async def probe(self) -> str:
        return await probe.probe(self._path)
