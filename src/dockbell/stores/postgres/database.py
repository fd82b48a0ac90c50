"""A store in a database of PostgreSQL."""

from __future__ import annotations

from contextlib import closing

from anyio import to_thread

from dockbell.stores.handles.database import Database
from dockbell.stores.handles.engine import Clock
from dockbell.stores.postgres.configurations import PostgresConfigurations
from dockbell.stores.postgres.connection import connect
from dockbell.stores.postgres.holder import find_holder
from dockbell.stores.postgres.line import Line
from dockbell.stores.postgres.read_store import PostgresCommandStore, PostgresReadStore
from dockbell.stores.postgres.schema import check_version, find_version
from dockbell.stores.postgres.store import PostgresStore
from dockbell.stores.postgres.store_errors import name_store, translating
from dockbell.telemetry import Telemetry


class PostgresDatabase(Database):
    def __init__(self, url: str) -> None:
        self._url = url
        self._name = name_store(url)

    async def open_store(
        self, *, now: Clock, epoch: str | None = None, telemetry: Telemetry | None = None, shared: bool = False
    ) -> PostgresStore:
        return await PostgresStore.open(self._url, now=now, epoch=epoch, telemetry=telemetry, shared=shared)

    async def open_read_store(self) -> PostgresReadStore:
        return await PostgresReadStore.open(self._url)

    async def open_command_store(self) -> PostgresCommandStore:
        return await PostgresCommandStore.open(self._url)

    async def open_configurations(self) -> PostgresConfigurations:
        await to_thread.run_sync(self._check)
        return PostgresConfigurations(Line(self._url, self._name))

    def _check(self) -> None:
        with translating(self._name), closing(connect(self._url)) as connection:
            check_version(connection, self._name)

    def find_holder(self) -> str:
        with translating(self._name), closing(connect(self._url)) as connection:
            return find_holder(connection) if find_version(connection, self._name) else ""

    async def probe(self) -> str:
        return await to_thread.run_sync(self._probe)

    def _probe(self) -> str:
        with translating(self._name), closing(connect(self._url)) as connection:
            if find_version(connection, self._name) == 0:
                return f'{self._name}, does not exist yet; "dockbell run" creates it'
            check_version(connection, self._name)
            holder = find_holder(connection)
        return f"{self._name}, held by {holder}" if holder else f"{self._name}, free"
