"""Lets writes that come at the same time share one transaction: pages of several feeds, the ends of runs.

No caller waits for others that may come: writes gather while a transaction is under way, and the next one takes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

import anyio

from dockbell.errors import StoreUnavailable
from dockbell.ports import Committed
from dockbell.stores.sql.connection import Connection, transaction
from dockbell.stores.sql.snapshots import PageCommit

_T = TypeVar("_T")
Write: TypeAlias = Callable[[Connection], None]
Ask: TypeAlias = Callable[[Connection, Sequence[int]], Callable[[], Mapping[int, _T]]]
Call: TypeAlias = Callable[[Callable[[Connection], Mapping[int, _T]]], Awaitable[Mapping[int, _T]]]

_MOST: Final = 100
"""In one transaction."""
_PAGES_MOST: Final = 10
"""The most pages among them: each takes milliseconds, which all of them wait for."""


class _Entry(ABC, Generic[_T]):
    """One write; it is *settled* when it is written, or the reason is known why it is not."""

    def __init__(self) -> None:
        self.left: _T | None = None
        self.error: Exception | None = None
        self.is_written = False
        self.settled = anyio.Event()

    @property
    def page_of(self) -> int | None:
        """The feed of the page that it is; None for others."""
        return None

    @property
    def asks_for(self) -> int | None:
        """The number of what is asked for in the same transaction; None where nothing is."""
        return None

    @abstractmethod
    def prepare(self, connection: Connection) -> Write | None:
        """Return what writes it in the transaction, which has not begun; None where nothing is to be written."""

    @property
    def end(self) -> int:
        """The number of the last event that it has added; 0 where it has added none."""
        return 0

    def take(self) -> None:
        """Take in that it is committed."""

    def settle(self) -> None:
        if not self.is_written and self.error is None:
            self.error = StoreUnavailable("the store did not tell whether this was written")
        self.settled.set()


class _Other(_Entry[_T]):
    def __init__(self, write: Write, number: int) -> None:
        super().__init__()
        self._write = write
        self._number = number

    @property
    def asks_for(self) -> int:
        return self._number

    def prepare(self, connection: Connection) -> Write:  # noqa: ARG002  # it needs no look
        return self._write


class _Page(_Entry[_T]):
    def __init__(self, commit: PageCommit, take: Callable[[Committed], None]) -> None:
        super().__init__()
        self._commit = commit
        self._take = take
        self.committed: Committed | None = None

    @property
    def page_of(self) -> int:
        return self._commit.lease.id

    @property
    def end(self) -> int:
        return 0 if self.committed is None else self.committed.end

    def prepare(self, connection: Connection) -> Write | None:
        self.committed = None  # of a transaction that failed
        found = self._commit.prepare(connection)
        if isinstance(found, Committed):
            self.committed = found
            return None

        def write(connection: Connection) -> None:
            self.committed = found(connection)

        return write

    def take(self) -> None:
        assert self.committed is not None
        self._take(self.committed)


class JoinedWrites(Generic[_T]):
    """The writes of one store that may be joined.

    Args:
        call: Calls a function with the connection that writes.
        ask: Asks for what the writes have left, by their numbers, within their transaction; returns what reads the
            answer afterwards.
        save_end: Notes beside the store how far its events are.
        joins_pages: Whether a page may share a transaction.
    """

    def __init__(self, call: Call[_T], ask: Ask[_T], save_end: Write, *, joins_pages: bool = True) -> None:
        self._call = call
        self._ask = ask
        self._save_end = save_end
        self._page_size = _MOST // (_PAGES_MOST if joins_pages else 1)
        self._waiting: list[_Entry[_T]] = []
        self._turn = anyio.Lock(fast_acquire=True)  # what follows yields

    async def add(self, write: Write, number: int) -> _T | None:
        """Write something in a transaction that others may share; return what it has left, None where that is unknown.

        Raises:
            StoreUnavailable: The store cannot be written now.
            LeaseLost: What this one writes is another process's; the others are written all the same.
        """
        entry = _Other[_T](write, number)
        await self._settle(entry)
        return entry.left

    async def commit(self, page: PageCommit, take: Callable[[Committed], None]) -> Committed:
        """Commit a page in a transaction that others may share; return what it comes to.

        It is compared again where the transaction fails that it shared. ``take`` is called as soon as it is committed,
        even if the caller is cancelled meanwhile.

        Raises:
            StoreUnavailable: The store cannot be written now.
            Exception: Whatever the comparison raises.
        """
        entry = _Page[_T](page, take)
        await self._settle(entry)
        assert entry.committed is not None
        return entry.committed

    async def _settle(self, entry: _Entry[_T]) -> None:
        self._waiting.append(entry)
        try:
            async with self._turn:
                while entry in self._waiting:  # otherwise the caller before has written it
                    with anyio.CancelScope(shield=True):  # the other entries of the batch need an answer
                        await self._commit(self._take_batch())
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif not entry.settled.is_set():  # who is cancelled leaves nothing behind that is still to be written
                with anyio.CancelScope(shield=True):
                    await entry.settled.wait()
        if entry.error is not None:
            error, entry.error = entry.error, None
            try:
                raise error
            finally:
                del error  # an error that holds its own frame would keep the page in memory

    def _take_batch(self) -> Sequence[_Entry[_T]]:
        """Take the writes that come next; of one feed not more than one page, which must be written before the next."""
        feeds, size, count = set[int](), 0, 0
        for entry in self._waiting:
            feed = entry.page_of
            size += 1 if feed is None else self._page_size
            if size > _MOST or feed in feeds:
                break
            if feed is not None:
                feeds.add(feed)
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _commit(self, batch: Sequence[_Entry[_T]]) -> None:
        try:
            left = await self._call(partial(_write_all, batch, self._ask, self._save_end))
        except StoreUnavailable as error:
            for each in batch:
                each.error = error
        except Exception as error:  # noqa: BLE001  # the caller of the entry that has it raises it
            if len(batch) > 1:
                await self._commit_each(batch)
            else:
                batch[0].error = error
        else:
            for each in batch:
                each.left = None if each.asks_for is None else left.get(each.asks_for)
                each.is_written = True
                each.take()
        finally:
            for each in batch:
                each.settle()

    async def _commit_each(self, batch: Sequence[_Entry[_T]]) -> None:
        """Write one after the other what could not be written together; nothing more once the store cannot be used."""
        unavailable: Exception | None = None
        for each in batch:
            if unavailable is None:
                await self._commit([each])
                unavailable = each.error if isinstance(each.error, StoreUnavailable) else None
            else:
                each.error = unavailable


def _write_all(batch: Sequence[_Entry[_T]], ask: Ask[_T], save_end: Write, connection: Connection) -> Mapping[int, _T]:
    writes = [write for each in batch if (write := each.prepare(connection)) is not None]
    if not writes:
        return {}
    numbers = [each.asks_for for each in batch if each.asks_for is not None]
    read: Callable[[], Mapping[int, _T]] = dict
    with transaction(connection):
        for write in writes:
            write(connection)
        if numbers:
            read = ask(connection, numbers)
    # What is written is written, and must not be written again, whatever fails from here on.
    with suppress(Exception):
        if any(each.end for each in batch):
            save_end(connection)
    with suppress(Exception):
        return read()
    return {}
