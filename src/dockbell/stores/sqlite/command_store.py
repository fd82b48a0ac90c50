"""Takes the commands of an operator, beside the daemon that holds the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

import anyio
from anyio import to_thread

from dockbell.core.model import Feed
from dockbell.errors import StoreError, StoreFull
from dockbell.ports import (
    Candidate,
    Command,
    CommandKind,
    CommandStore,
    DeadGroup,
    Hurried,
    Offered,
    Reach,
    Selection,
    Undelivered,
)
from dockbell.stores.sql import commands, feeds, replays
from dockbell.stores.sqlite.connection import connect, look
from dockbell.stores.sqlite.store_errors import blame

_T = TypeVar("_T")
_P = ParamSpec("_P")


class SqliteCommandStore(CommandStore):
    """Writes commands and decisions, and reads their outcomes; a daemon may hold the store."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._turn = anyio.CapacityLimiter(1)

    @classmethod
    async def open(cls, path: Path) -> SqliteCommandStore:
        """Open a store to leave something in it.

        Raises:
            StoreIncompatible: It is not a store, or one of another dockbell.
            StoreError: There is none, or it cannot be opened.
        """
        (await to_thread.run_sync(look, path)).close()
        return cls(await to_thread.run_sync(connect, path), path)

    async def _do(
        self, function: Callable[Concatenate[sqlite3.Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        try:
            return await to_thread.run_sync(partial(function, self._connection, *args, **kwargs), limiter=self._turn)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # the statement's own fault
                raise
            if isinstance(blamed := blame(error, self._path), StoreFull):
                raise blamed from error
            reason = f"{error}; try again, as the user that runs the daemon"
            raise StoreError(f"store {self._path}: {reason}") from error

    async def make_command(self, feed: Feed | None, kind: CommandKind, now: datetime, key: str = "") -> int:
        """Leave a command, about a record where a key is given; return its number.

        Raises:
            StoreError: The feed was never read.
        """
        return await self._do(_make_command, feed, kind, now, key)

    async def load_command(self, number: int) -> Command:
        (command,) = await self._do(commands.load_commands, only=number)
        return command

    async def find_command(self, number: int) -> Command | None:
        return next(iter(await self._do(commands.load_commands, only=number)), None)

    async def load_reaches(self, sink: str, start: Literal["now", "beginning", "state"]) -> Mapping[Feed, Reach]:
        return await self._do(replays.load_reaches, sink, start)

    async def read_candidates(
        self, sink: str, feed: Feed, reach: Reach, selection: Selection, *, within: tuple[int, int], limit: int
    ) -> Sequence[Candidate]:
        return await self._do(replays.read_candidates, sink, feed, reach, selection, within=within, limit=limit)

    async def offer(self, sink: str, feed: Feed, events: Sequence[tuple[int, str]], now: datetime) -> Offered:
        return await self._do(replays.offer, sink, feed, events, now)

    async def forget_replays(self, sink: str, limit: int) -> int:
        return await self._do(replays.forget_replays, sink, limit)

    async def count_dead(self, sink: str | None, selection: Selection) -> Sequence[DeadGroup]:
        return await self._do(replays.count_dead, sink, selection)

    async def read_dead(
        self, sink: str | None, selection: Selection, limit: int, after: Undelivered | None = None
    ) -> Sequence[Undelivered]:
        return await self._do(replays.read_dead, sink, selection, limit, after)

    async def discard(self, sink: str, feed: Feed, events: Sequence[tuple[int, str]], now: datetime) -> int:
        return await self._do(replays.discard, sink, feed, events, now)

    async def pause(self, sink: str, reason: str, now: datetime) -> bool:
        return await self._do(replays.pause, sink, reason, now)

    async def resume(self, sink: str, now: datetime) -> bool:
        return await self._do(replays.resume, sink, now)

    async def hurry(self, sink: str, now: datetime) -> Hurried:
        return await self._do(replays.hurry, sink, now)

    async def aclose(self) -> None:
        await to_thread.run_sync(self._connection.close, limiter=self._turn)


def _make_command(connection: sqlite3.Connection, feed: Feed | None, kind: CommandKind, now: datetime, key: str) -> int:
    if feed is None:
        return commands.make_command(connection, None, kind, now)
    states = feeds.load_feeds(connection, feed)
    if not states:
        raise StoreError(f'feed {feed}: was never read; "dockbell run" reads it first')
    return commands.make_command(connection, states[0].id, kind, now, key)
