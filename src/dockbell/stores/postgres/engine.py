"""The database as a process works on it: one connection that writes, one that reads beside it.

Each function of ``stores.sql`` runs whole in a worker thread, as in SQLite. A connection that was lost is made again at
the next use. After an outage the ends of the feeds are read, so that events are announced that were committed though
nothing told so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import psycopg
from anyio import to_thread

from dockbell.core.model import NOTICES
from dockbell.core.moment import to_micros
from dockbell.errors import StoreUnavailable
from dockbell.ports import Footprint, OutboxBell
from dockbell.stores.handles.engine import Clock, Engine
from dockbell.stores.postgres import partitions
from dockbell.stores.postgres.fleet import PostgresFleet
from dockbell.stores.postgres.holder import Holder
from dockbell.stores.postgres.line import Line
from dockbell.stores.postgres.snapshots import PostgresSnapshots
from dockbell.stores.sql import outbox
from dockbell.stores.sql.connection import Connection, transaction
from dockbell.telemetry import Telemetry

_T = TypeVar("_T")
_P = ParamSpec("_P")


class PostgresEngine(Engine):
    is_lazy = True

    def __init__(
        self,
        name: str,
        lines: tuple[Line, Line],
        holder: Holder,
        outbox_bell: OutboxBell,
        *,
        shared: Line | None = None,
        epoch: str,
        now: Clock,
        telemetry: Telemetry,
    ) -> None:
        super().__init__(epoch, outbox_bell, now=now, telemetry=telemetry)
        self.name = name
        self.holder = holder
        self.fleet: PostgresFleet | None = None
        self._writer, self._reader = lines
        if shared is not None:
            self.fleet = PostgresFleet(holder, shared, outbox_bell, self.leases)
            held = f"SELECT source FROM leases WHERE holder = '{holder.id}'"
            self.held = f"AND feeds.source IN ({held})"
            leads = f"EXISTS (SELECT 1 FROM leases WHERE holder = '{holder.id}' AND source = '{NOTICES.source}')"
            unlisted = "(feeds.source IS NULL OR feeds.source NOT IN (SELECT source FROM leases))"
            self.commanded = f"AND (feeds.source IN ({held}) OR ({leads} AND {unlisted}))"
            self.scope = f"AND feeds.source IN ({held} AND NOT leaving)"

    async def write(
        self, function: Callable[Concatenate[Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        return await self._do(self._writer, lambda connection: function(connection, *args, **kwargs))

    async def read(
        self, function: Callable[Concatenate[Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        return await self._do(self._reader, lambda connection: function(connection, *args, **kwargs))

    async def _do(self, line: Line, function: Callable[[Connection], _T]) -> _T:
        try:
            return await line.do(function)
        except StoreUnavailable as error:
            self.outage.begin(error)
            raise

    def look(self, connection: Connection, feed_id: int) -> PostgresSnapshots:
        return PostgresSnapshots(connection, feed_id)

    async def measure(self) -> Footprint:
        return await self.read(measure)

    async def drop_events(self, before: datetime, sinks: Sequence[str]) -> tuple[int, datetime | None]:
        now, pruned = self.now(), 0
        await self.write(partitions.extend, now, now - before)
        for partition in await self.read(partitions.list_partitions):
            if partition.end <= to_micros(before):
                pruned += await self.write(partitions.drop, partition, sinks)
        return pruned, await self.read(partitions.find_rest, before, now)

    async def wipe(self, rewrite_most: int | None) -> str:  # noqa: ARG002  # the server rewrites no file at once
        """Leave what was deleted to the server, which frees it by itself (docs/operations/store.md)."""
        return ""

    def find_version(self, reader: Connection) -> int | None:  # noqa: ARG002  # nothing tells but the rows themselves
        return None

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, psycopg.OperationalError | psycopg.errors.ReadOnlySqlTransaction)

    def save_end(self, writer: Connection) -> None:
        """Do nothing: there is no place beside a database."""

    async def note_end(self) -> None:
        """Do nothing: there is no place beside a database."""

    async def check_writing(self) -> None:
        await self.write(_write_nothing)

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):  # a cancelled caller, too: the row must not outlive its user
            await to_thread.run_sync(self.holder.leave)
            with suppress(StoreUnavailable):
                await self._writer.aclose()
                await self._reader.aclose()
                if self.fleet is not None:
                    await self.fleet.aclose()


def measure(connection: Connection) -> Footprint:
    """Return what the database takes; how large its disk is the server does not tell."""
    (used,) = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return Footprint(used, 0)


def load_outbox(connection: Connection) -> tuple[str, OutboxBell]:
    """Return the epoch, and the ends of the feeds."""
    (epoch,) = connection.execute("SELECT epoch FROM life").fetchone()
    return epoch, OutboxBell(outbox.last_sequences(connection))


def _write_nothing(writer: Connection) -> None:
    with transaction(writer):
        writer.execute("UPDATE life SET began_at = began_at")
