"""Takes the commands of an operator, beside the daemon that holds the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from dockbell.core.model import Feed
from dockbell.errors import StoreError
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
from dockbell.stores.handles.session import Session
from dockbell.stores.sql import commands, feeds, replays
from dockbell.stores.sql.connection import Connection


class SqlCommandStore(CommandStore):
    """Writes commands and decisions, and reads their outcomes; a daemon may hold the store."""

    def __init__(self, session: Session) -> None:
        self._do = session.do
        self._session = session

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
        await self._session.aclose()


def _make_command(connection: Connection, feed: Feed | None, kind: CommandKind, now: datetime, key: str) -> int:
    if feed is None:
        return commands.make_command(connection, None, kind, now)
    states = feeds.load_feeds(connection, feed)
    if not states:
        raise StoreError(f'feed {feed}: was never read; "dockbell run" reads it first')
    return commands.make_command(connection, states[0].id, kind, now, key)
