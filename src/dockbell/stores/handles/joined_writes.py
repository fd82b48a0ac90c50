"""Lets writes that come at the same time share one transaction: the ends of runs that found nothing, say.

No caller waits longer for that: writes gather while a transaction is under way, and the next one takes them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import anyio

from dockbell.errors import StoreUnavailable
from dockbell.stores.sql.connection import Connection, transaction

Write: TypeAlias = Callable[[Connection], None]

_MOST: Final = 100
"""In one transaction."""


class _Entry:
    def __init__(self, write: Write) -> None:
        self.write = write
        self.error: Exception | None = None


class JoinedWrites:
    """The writes of one store that may be joined.

    Args:
        call: Calls a function with the connection that writes.
    """

    def __init__(self, call: Callable[[Write], Awaitable[None]]) -> None:
        self._call = call
        self._waiting: list[_Entry] = []
        self._turn = anyio.Lock()

    async def add(self, write: Write) -> None:
        """Return when something is written, in a transaction that others may share.

        Raises:
            StoreUnavailable: The store cannot be written now.
            LeaseLost: What this one writes is another process's; the others are written all the same.
        """
        entry = _Entry(write)
        self._waiting.append(entry)
        try:
            async with self._turn:
                if entry in self._waiting:  # otherwise the caller before has written it
                    batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
                    with anyio.CancelScope(shield=True):  # the other entries of the batch need an answer
                        await self._commit(batch)
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
        if entry.error is not None:
            raise entry.error

    async def _commit(self, batch: Sequence[_Entry]) -> None:
        try:
            await self._call(partial(_write_all, batch))
        except StoreUnavailable as error:
            for each in batch:
                each.error = error
        except Exception as error:  # noqa: BLE001  # the caller of the entry that has it raises it
            if len(batch) == 1:
                batch[0].error = error
                return
            for each in batch:
                await self._commit([each])


def _write_all(batch: Sequence[_Entry], connection: Connection) -> None:
    with transaction(connection):
        for each in batch:
            each.write(connection)
