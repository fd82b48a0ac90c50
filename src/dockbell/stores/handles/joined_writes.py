"""Lets writes that come at the same time share one transaction: pages of several feeds, the ends of runs.

No caller waits for others that may come: writes gather while a transaction is under way, and the next one takes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import anyio

from dockbell.errors import StoreUnavailable
from dockbell.stores.sql.connection import Connection, sharing, transaction

_T = TypeVar("_T")
_R = TypeVar("_R")
Write: TypeAlias = Callable[[Connection], None]
Ask: TypeAlias = Callable[[Connection, Sequence[int]], Callable[[], Mapping[int, _T]]]
Call: TypeAlias = Callable[[Callable[[Connection], Mapping[int, _T]]], Awaitable[Mapping[int, _T]]]

_MOST: Final = 100
"""In one transaction."""
_LONG: Final = 10
"""A long write, as that of a page, counts as so many others."""


class _Entry(Generic[_T]):
    """One write.

    Attributes:
        function: Writes, and returns what it comes to.
        number: Of what is asked for in the same transaction; None where nothing is.
        take: Takes in what the function has returned, as soon as that is committed.
        is_long: Whether it takes as long as many others.
        result: What the function has returned.
        left: What was asked for.
        error: Why it is not written.
    """

    def __init__(
        self,
        function: Callable[[Connection], Any],
        *,
        number: int | None = None,
        take: Callable[[Any], None] | None = None,
        is_long: bool = False,
    ) -> None:
        self.function = function
        self.number = number
        self.take = take
        self.is_long = is_long
        self.result: Any = None
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
        self._turn = anyio.Lock(fast_acquire=True)  # what follows yields

    async def add(self, write: Write, number: int) -> _T | None:
        """Write something in a transaction that others may share; return what it has left, None where that is unknown.

        Raises:
            StoreUnavailable: The store cannot be written now.
            LeaseLost: What this one writes is another process's; the others are written all the same.
        """
        entry = _Entry[_T](partial(_write, write), number=number)
        await self._add(entry)
        return entry.left

    async def commit(self, function: Callable[[Connection], _R], take: Callable[[_R], None]) -> _R:
        """Call a function that begins and commits a transaction if it has something to write; others may share that.

        It is called again where the transaction fails that it shared. ``take`` is called with what it has returned once
        that is committed, even if the caller is cancelled meanwhile.

        Raises:
            StoreUnavailable: The store cannot be written now.
            Exception: Whatever the function raises.
        """
        entry = _Entry[_T](function, take=take, is_long=True)
        await self._add(entry)
        return cast("_R", entry.result)

    async def _add(self, entry: _Entry[_T]) -> None:
        self._waiting.append(entry)
        try:
            async with self._turn:
                if entry in self._waiting:  # otherwise the caller before has written it
                    with anyio.CancelScope(shield=True):  # the other entries of the batch need an answer
                        await self._commit(self._take_batch())
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
        if entry.error is not None:
            raise entry.error

    def _take_batch(self) -> Sequence[_Entry[_T]]:
        count = size = 0
        for entry in self._waiting:
            size += _LONG if entry.is_long else 1
            if size > _MOST:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _commit(self, batch: Sequence[_Entry[_T]]) -> None:
        try:
            left = await self._call(partial(_write_all, batch, self._ask))
        except StoreUnavailable as error:
            for each in batch:
                each.error = error
        except Exception as error:  # noqa: BLE001  # the caller of the entry that has it raises it
            if len(batch) == 1:
                batch[0].error = error
                return
            for each in batch:
                await self._commit([each])
        else:
            for each in batch:
                each.left = None if each.number is None else left.get(each.number)
                if each.take is not None:
                    each.take(each.result)


def _write(write: Write, connection: Connection) -> None:
    with transaction(connection):
        write(connection)


def _write_all(batch: Sequence[_Entry[_T]], ask: Ask[_T], connection: Connection) -> Mapping[int, _T]:
    numbers = [each.number for each in batch if each.number is not None]
    read: Callable[[], Mapping[int, _T]] = dict
    with sharing(connection) as shared:
        for each in batch:
            each.result = each.function(shared)
        if numbers:
            read = ask(shared, numbers)
    with suppress(Exception):  # what is written is written, and must not be written again
        return read()
    return {}
