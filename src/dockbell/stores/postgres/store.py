"""The store in PostgreSQL, held by one process, or shared by several."""

from __future__ import annotations

import secrets
from contextlib import closing, suppress

from anyio import to_thread

from dockbell.core.moment import to_micros
from dockbell.errors import StoreError
from dockbell.stores.handles.engine import Clock
from dockbell.stores.handles.store import SqlStore
from dockbell.stores.postgres.connection import connect
from dockbell.stores.postgres.engine import PostgresEngine, load_outbox
from dockbell.stores.postgres.epoch import begin_life
from dockbell.stores.postgres.holder import Holder
from dockbell.stores.postgres.line import Line
from dockbell.stores.postgres.migrations import MIGRATIONS
from dockbell.stores.postgres.partitions import extend
from dockbell.stores.postgres.schema import migrate
from dockbell.stores.postgres.store_errors import name_store, translating
from dockbell.telemetry import StoreExtended, Telemetry


class PostgresStore(SqlStore):
    """One database, held by one process, or shared by several, of which each has some of the sources."""

    engine: PostgresEngine

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        now: Clock,
        epoch: str | None = None,
        telemetry: Telemetry | None = None,
        shared: bool = False,
    ) -> PostgresStore:
        """Open the store to work on it, making its tables if there are none, under a new epoch.

        ``telemetry`` reports outages. Where it is ``shared``, others may work on it too; otherwise only this process.

        Raises:
            StoreInUse: Another process works on it, and one of the two must be alone.
            StoreIncompatible: It is not a store, or this dockbell is too old for it.
            StoreError: It cannot be opened.
        """
        name = name_store(url)
        holder, fresh = Holder(url, name, alone=not shared), epoch or secrets.token_hex(8)

        def begin() -> int:
            with translating(name), closing(connect(url)) as connection:
                version = migrate(connection, name, epoch=fresh, now=to_micros(now()))
                holder.register(connection)
                return version

        telemetry = telemetry or Telemetry()
        version = await to_thread.run_sync(begin)
        if 0 < version < len(MIGRATIONS):
            telemetry.emit(StoreExtended(version, len(MIGRATIONS)))
        writer = Line(url, name, holder.fence(), application=holder.application)
        reader = Line(url, name)
        try:
            await writer.do(begin_life, fresh, to_micros(now()))
            await writer.do(extend, now())
            if not shared:
                with suppress(StoreError):  # its tables are read just now; the next start does it
                    await to_thread.run_sync(holder.finish_upgrade)
            known, bell = await reader.do(load_outbox)
        except BaseException:
            await to_thread.run_sync(holder.leave)
            raise
        engine = PostgresEngine(
            name,
            (writer, reader),
            holder,
            bell,
            shared=Line(url, name, holder.fence(), application=holder.application) if shared else None,
            epoch=known,
            now=now,
            telemetry=telemetry,
        )
        return cls(engine)
