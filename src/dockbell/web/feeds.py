"""``GET /feeds/{source}/{resource}``: the events of a feed after a position, byte for byte as every sink gets them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response

from dockbell.config import format_duration
from dockbell.core.model import Feed
from dockbell.ports import Extent, ReadStore
from dockbell.web import question
from dockbell.web.allowance import Allowance
from dockbell.web.portions import Batch, Sizes, add_up
from dockbell.web.position import Position
from dockbell.web.stream import EventStream, wants_stream
from dockbell.web.waiting import WaitingRoom

_BYTES_MOST: Final = 4_000_000
_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class Portion:
    """Some events of a feed.

    Attributes:
        after: Where they begin.
        sizes: Which events they are, in order, none left out, and how many bytes each has.
        extent: Which events of the feed there were, right after they were looked for.
    """

    after: Position
    sizes: Sizes
    extent: Extent

    @property
    def end(self) -> Position:
        """Where to go on."""
        return Position(self.after.epoch, self.sizes[-1][0]) if self.sizes else self.after


class Feeds:
    """The endpoint.

    Args:
        read_store: Of the store.
        room: For those who wait.
        allowance: What answers may hold.
        keep_alive: After how much silence a stream says that it is still there.
    """

    def __init__(
        self, read_store: ReadStore, room: WaitingRoom, allowance: Allowance, *, keep_alive: timedelta
    ) -> None:
        self._read_store = read_store
        self._room = room
        self._allowance = allowance
        self._keep_alive = keep_alive

    async def answer(self, request: Request) -> Response:
        """Answer one request.

        Raises:
            Problem: 400, 404, 410; 503 where too many wait already, or too much.
        """
        given = question.read_parameters(request, "after", "limit", "wait")
        limit, wait = question.read_limit(given), question.read_wait(given)
        streams = wants_stream(request)
        after = request.headers.get("last-event-id") if streams else None
        name, text = ("Last-Event-ID", after) if after else ("after", given.get("after"))
        start = None if text is None else question.read(name, text, Position.parse)
        feed = question.read_feed(request)
        portion = await self._read(feed, start, 1 if streams else limit)
        waits = request.method != "HEAD"
        if streams and waits:
            return EventStream(
                self._read_store, self._room, self._allowance, feed, portion.after, keep_alive=self._keep_alive
            )
        if not portion.sizes and wait and waits:
            async with self._room.attend(request.receive):
                with anyio.move_on_after(wait.total_seconds()):
                    await self._room.wait(feed, portion.after.sequence)
            portion = await self._read(feed, portion.after, limit)
        headers = _describe(portion, limit, wait)
        begin = portion.after.sequence
        return Batch(
            self._read_store,
            feed,
            begin,
            portion.sizes,
            allowance=self._allowance,
            headers=headers,
            again=lambda: self.answer(request),
        )

    async def _read(self, feed: Feed, start: Position | None, limit: int) -> Portion:
        while True:
            oldest = 0 if start else (await question.find_extent(self._read_store, feed)).pruned
            after = start or Position(self._read_store.epoch, oldest)
            sizes = _take(await self._read_store.measure_events(feed, after.sequence, limit))
            extent = await question.find_extent(self._read_store, feed)  # not before: they may be pruned meanwhile
            if start is not None:
                question.check_position(feed, self._read_store.epoch, extent, start)
            if after.sequence >= extent.pruned:
                return Portion(after, sizes, extent)


def _take(sizes: Sizes) -> Sizes:
    """Return the first of some events, no more of them once they are 4 MB together."""
    total = 0
    for end in range(_AT_ONCE, len(sizes), _AT_ONCE):
        total += add_up(sizes[end - _AT_ONCE : end])
        if total >= _BYTES_MOST:
            return sizes[:end]
    return sizes


def _describe(portion: Portion, limit: int, wait: timedelta) -> dict[str, str]:
    query = f"after={portion.end}&limit={limit}"
    if wait:
        query += f"&wait={format_duration(wait)}"
    return {
        "Dockbell-Position": str(portion.end),
        "Dockbell-Last": str(Position(portion.end.epoch, portion.extent.last)),
        "Link": f'<?{query}>; rel="next"',
    }
