"""A connection to the file beside the process that holds it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import anyio
from anyio import to_thread

from dockbell.errors import StoreError
from dockbell.ports import Footprint, Member
from dockbell.stores.sqlite.disk_reserve import measure
from dockbell.stores.sqlite.store_errors import translating

_T = TypeVar("_T")
_P = ParamSpec("_P")


class FileSession:
    """Calls one function after the other with the connection, each in a worker thread.

    ``blame_it`` says what an error means.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        blame_it: Callable[[sqlite3.Error | OSError, Path], StoreError | None],
    ) -> None:
        self._connection = connection
        self._path = path
        self._blame_it = blame_it
        (self.epoch,) = connection.execute("SELECT epoch FROM life").fetchone()
        self._turn = anyio.CapacityLimiter(1)

    async def do(
        self, function: Callable[Concatenate[sqlite3.Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call a function with the connection.

        Raises:
            StoreError: The store cannot be used.
        """
        with translating(self._path, self._blame_it):
            return await to_thread.run_sync(partial(function, self._connection, *args, **kwargs), limiter=self._turn)

    async def measure(self) -> Footprint:
        return await self.do(measure)

    async def load_members(self) -> Sequence[Member]:
        return ()

    async def load_holders(self) -> Mapping[str, str]:
        return {}

    async def aclose(self) -> None:
        await self.do(sqlite3.Connection.close)
