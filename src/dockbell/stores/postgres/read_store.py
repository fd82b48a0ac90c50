"""Reads the database beside the process that holds the store, and takes the commands of an operator to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Concatenate, ParamSpec, TypeVar

from anyio import to_thread

from dockbell.errors import StoreError, StoreFull, StoreUnavailable
from dockbell.ports import Footprint, Member
from dockbell.stores.handles.command_store import SqlCommandStore
from dockbell.stores.handles.read_store import SqlReadStore
from dockbell.stores.postgres.connection import connect
from dockbell.stores.postgres.engine import measure
from dockbell.stores.postgres.leases import load_holders, load_members
from dockbell.stores.postgres.line import Line
from dockbell.stores.postgres.schema import check_version
from dockbell.stores.postgres.store_errors import name_store, translating
from dockbell.stores.sql.connection import Connection

_T = TypeVar("_T")
_P = ParamSpec("_P")


class DatabaseSession:
    """A connection to the database beside the process that holds the store."""

    def __init__(self, line: Line, epoch: str) -> None:
        self.epoch = epoch
        self._line = line

    @classmethod
    async def open(cls, url: str) -> DatabaseSession:
        """Open a store beside the process that holds it.

        Raises:
            StoreIncompatible: It is not a store, or one of another dockbell.
            StoreError: There is none, or it cannot be opened.
        """
        name = name_store(url)

        def check() -> str:
            with translating(name), closing(connect(url)) as connection:
                check_version(connection, name)
                ((epoch,),) = connection.execute("SELECT epoch FROM life").fetchall()
                return str(epoch)

        return cls(Line(url, name), await to_thread.run_sync(check))

    async def do(self, function: Callable[Concatenate[Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await self._line.do(function, *args, **kwargs)
        except StoreFull:
            raise
        except StoreUnavailable as error:  # the caller reports it; the daemon notices an outage by itself
            raise StoreError(str(error)) from error

    async def measure(self) -> Footprint:
        return await self.do(measure)

    async def load_members(self) -> Sequence[Member]:
        return await self.do(load_members)

    async def load_holders(self) -> Mapping[str, str]:
        return await self.do(load_holders)

    async def aclose(self) -> None:
        await self._line.aclose()


class PostgresReadStore(SqlReadStore):
    @classmethod
    async def open(cls, url: str) -> PostgresReadStore:
        """Open a store to look at it, see :meth:`DatabaseSession.open`."""
        return cls(await DatabaseSession.open(url))


class PostgresCommandStore(SqlCommandStore):
    @classmethod
    async def open(cls, url: str) -> PostgresCommandStore:
        """Open a store to leave something in it, see :meth:`DatabaseSession.open`."""
        return cls(await DatabaseSession.open(url))
