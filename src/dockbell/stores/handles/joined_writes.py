"""Lets writes that come at the same time share one transaction: the ends of runs that found nothing, say.

No caller waits longer for that: writes gather while a transaction is under way, and the next one takes them all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

import anyio

from dockbell.errors import StoreUnavailable
from dockbell.stores.sql.connection import Connection, transaction

_T = TypeVar("_T")
Write: TypeAlias = Callable[[Connection], None]
Ask: TypeAlias = Callable[[Connection, Sequence[int]], Callable[[], Mapping[int, _T]]]
Call: TypeAlias = Callable[[Callable[[Connection], Mapping[int, _T]]], Awaitable[Mapping[int, _T]]]

_MOST: Final = 100
"""In one transaction."""


class _Entry(Generic[_T]):
    def __init__(self, write: Write, number: int) -> None:
        self.write = write
        self.number = number
        self.left: _T | None = None
        self.error: Exception | None = None


class JoinedWrites(Generic[_T]):
    """The writes of one store that may be joined.

    Args:
        call: Calls a function with the connection that writes.
        ask: Asks for what the writes have left, by their numbers, within their transaction; returns what reads the
            answer afterwards.
    """

    def __init__(self, call: Call[_T], ask: Ask[_T]) -> None:
        self._call = call
        self._ask = ask
        self._waiting: list[_Entry[_T]] = []
        self._turn = anyio.Lock()

    async def add(self, write: Write, number: int) -> _T | None:
        """Write something in a transaction that others may share; return what it has left, None where that is unknown.

        Raises:
            StoreUnavailable: The store cannot be written now.
            LeaseLost: What this one writes is another process's; the others are written all the same.
        """
        entry = _Entry[_T](write, number)
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
        return entry.left

    async def _commit(self, batch: Sequence[_Entry[_T]]) -> None:
        try:
            left = await self._call(partial(_write_all, batch, self._ask))
            for each in batch:
                each.left = left.get(each.number)
        except StoreUnavailable as error:
            for each in batch:
                each.error = error
        except Exception as error:  # noqa: BLE001  # the caller of the entry that has it raises it
            if len(batch) == 1:
                batch[0].error = error
                return
            for each in batch:
                await self._commit([each])


def _write_all(batch: Sequence[_Entry[_T]], ask: Ask[_T], connection: Connection) -> Mapping[int, _T]:
    with transaction(connection):
        for each in batch:
            each.write(connection)
        read = ask(connection, [each.number for each in batch])
    with suppress(Exception):  # what is written is written, and must not be written again
        return read()
    return {}
