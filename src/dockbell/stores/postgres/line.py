"""A connection to the database that is made again when it was lost, for the functions of one purpose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import psycopg
from anyio import to_thread

from dockbell.stores.postgres.connection import Fence, NoFence, PostgresConnection
from dockbell.stores.postgres.schema import find_version
from dockbell.stores.postgres.store_errors import blame, translating
from dockbell.stores.sql.connection import Connection

_T = TypeVar("_T")
_P = ParamSpec("_P")


class Line:
    """A connection that is made again when it was lost; one function after the other uses it, each in a thread."""

    def __init__(self, url: str, name: str, fence: Fence | None = None, *, application: str = "dockbell") -> None:
        self._url = url
        self._name = name
        self._fence = NoFence() if fence is None else fence
        self._application = application
        self._connection: PostgresConnection | None = None
        self._turn = anyio.CapacityLimiter(1)

    async def do(self, function: Callable[Concatenate[Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function with the connection.

        Raises:
            StoreIncompatible: A newer dockbell has removed what this one needs.
            StoreError: The database cannot be used.
        """
        call = partial(self._call, lambda connection: function(connection, *args, **kwargs))
        return await to_thread.run_sync(call, limiter=self._turn)

    def _call(self, function: Callable[[Connection], _T]) -> _T:
        with translating(self._name):
            if self._connection is None or self._connection.raw.closed:
                self._connection = PostgresConnection(self._url, self._fence, self._application)
            try:
                return function(self._connection)
            except psycopg.Error as error:
                if blame(error, self._name) is None and not self._connection.in_transaction:
                    find_version(self._connection.raw, self._name)  # an upgrade may have been finished since
                raise

    async def aclose(self) -> None:
        if self._connection is not None:
            await to_thread.run_sync(self._connection.raw.close, limiter=self._turn)
