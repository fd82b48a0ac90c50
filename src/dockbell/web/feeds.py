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
from dockbell.web import params
from dockbell.web.allowance import Allowance
from dockbell.web.long_poll import LongPolls
from dockbell.web.portions import Batch, Sizes, add_up
from dockbell.web.position import Position
from dockbell.web.stream import EventStream, wants_stream

_BYTES_MOST: Final = 4_000_000
_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class Portion:
    """Some events of a feed.

    Attributes:
        after: The position before them.
        sizes: Of all events, in order, without gaps.
        extent: Of the feed, read after the sizes.
    """

    after: Position
    sizes: Sizes
    extent: Extent

    @property
    def end(self) -> Position:
        """The position of the last of them."""
        return Position(self.after.epoch, self.sizes[-1][0]) if self.sizes else self.after


class Feeds:
    """The endpoint.

    Args:
        read_store: Of the store.
        long_polls: Counts the requests that wait.
        allowance: The bytes that answers may hold.
        keep_alive: After how much silence a stream sends a comment.
    """

    def __init__(
        self, read_store: ReadStore, long_polls: LongPolls, allowance: Allowance, *, keep_alive: timedelta
    ) -> None:
        self._read_store = read_store
        self._long_polls = long_polls
        self._allowance = allowance
        self._keep_alive = keep_alive

    async def answer(self, request: Request) -> Response:
        """Answer one request.

        Raises:
            Problem: 400, 404, 410; 503, too many requests wait, or answers hold too many bytes.
        """
        given = params.read_query(request, "after", "limit", "wait")
        limit, wait = params.read_limit(given), params.read_wait(given)
        streams = wants_stream(request)
        after = request.headers.get("last-event-id") if streams else None
        name, text = ("Last-Event-ID", after) if after else ("after", given.get("after"))
        start = None if text is None else params.read(name, text, Position.parse)
        feed = params.read_feed(request)
        portion = await self._read(feed, start, 1 if streams else limit)
        waits = request.method != "HEAD"
        if streams and waits:
            return EventStream(
                self._read_store, self._long_polls, self._allowance, feed, portion.after, keep_alive=self._keep_alive
            )
        if not portion.sizes and wait and waits:
            async with self._long_polls.admit(request.receive):
                with anyio.move_on_after(wait.total_seconds()):
                    await self._long_polls.wait(feed, portion.after.sequence)
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
            oldest = 0 if start else (await params.find_extent(self._read_store, feed)).pruned
            after = start or Position(self._read_store.epoch, oldest)
            sizes = _take(await self._read_store.measure_events(feed, after.sequence, limit))
            extent = await params.find_extent(self._read_store, feed)  # after the sizes: events may be pruned meanwhile
            if start is not None:
                params.check_position(feed, self._read_store.epoch, extent, start)
            if after.sequence >= extent.pruned:
                return Portion(after, sizes, extent)


def _take(sizes: Sizes) -> Sizes:
    """Return the first of some events, about 4 MB of them at most."""
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
