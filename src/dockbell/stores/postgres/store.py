"""The store in PostgreSQL, held by one process, or shared by several."""

from __future__ import annotations

import secrets
from contextlib import closing

from anyio import to_thread

from dockbell.core.moment import to_micros
from dockbell.stores.handles.engine import Clock
from dockbell.stores.handles.store import SqlStore
from dockbell.stores.postgres.connection import connect
from dockbell.stores.postgres.engine import PostgresEngine, load_outbox
from dockbell.stores.postgres.epoch import begin_life
from dockbell.stores.postgres.holder import Holder
from dockbell.stores.postgres.line import Line
from dockbell.stores.postgres.schema import migrate
from dockbell.stores.postgres.store_errors import name_store, translating
from dockbell.telemetry import Telemetry


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
            StoreIncompatible: It is not a store, or one of a newer dockbell.
            StoreError: It cannot be opened.
        """
        name = name_store(url)
        holder, fresh = Holder(url, name, alone=not shared), epoch or secrets.token_hex(8)

        def begin() -> None:
            with translating(name), closing(connect(url)) as connection:
                migrate(connection, name, epoch=fresh, now=to_micros(now()))
                holder.register(connection)

        await to_thread.run_sync(begin)
        writer = Line(url, name, holder.fence(), application=holder.application)
        reader = Line(url, name)
        try:
            await writer.do(begin_life, fresh, to_micros(now()))
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
            telemetry=telemetry or Telemetry(),
        )
        return cls(engine)
