"""``GET /feeds/{source}/{resource}``: the events of a feed after a position, byte for byte as every sink gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response

from dockbell.config import format_duration
from dockbell.core.model import Event, Feed
from dockbell.ports import Extent, View
from dockbell.web import question
from dockbell.web.position import Position
from dockbell.web.stream import EventStream, wants_stream
from dockbell.web.waiting import WaitingRoom

# https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md#4-json-batch-format
_MEDIA_TYPE: Final = "application/cloudevents-batch+json; charset=utf-8"
_BYTES_MOST: Final = 4_000_000
_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class Portion:
    """Some events of a feed.

    Attributes:
        after: Where they begin.
        events: In order, none left out.
        extent: Which events of the feed there were, right after they were read.
    """

    after: Position
    events: Sequence[Event]
    extent: Extent

    @property
    def end(self) -> Position:
        """Where to go on."""
        return Position(self.after.epoch, self.events[-1].sequence) if self.events else self.after


class Feeds:
    """The endpoint.

    Args:
        view: Of the store.
        room: For those who wait.
        keep_alive: After how much silence a stream says that it is still there.
    """

    def __init__(self, view: View, room: WaitingRoom, *, keep_alive: timedelta) -> None:
        self._view = view
        self._room = room
        self._keep_alive = keep_alive

    async def answer(self, request: Request) -> Response:
        """Answer one request.

        Raises:
            Problem: 400, 404, 410; 503 where too many wait already.
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
            return EventStream(self._view, self._room, feed, portion.after, keep_alive=self._keep_alive)
        if not portion.events and wait and waits:
            async with self._room.attend(request.receive):
                with anyio.move_on_after(wait.total_seconds()):
                    await self._room.wait(feed, portion.after.sequence)
            portion = await self._read(feed, portion.after, limit)
        return _batch(portion, limit, wait)

    async def _read(self, feed: Feed, start: Position | None, limit: int) -> Portion:
        while True:
            oldest = 0 if start else (await question.find_extent(self._view, feed)).pruned
            after = start or Position(self._view.epoch, oldest)
            events = await read_portion(self._view, feed, after.sequence, limit)
            extent = await question.find_extent(self._view, feed)  # not before: they may be pruned while they are read
            if start is not None:
                question.check_position(feed, self._view.epoch, extent, start)
            if after.sequence >= extent.pruned:
                return Portion(after, events, extent)


async def read_portion(view: View, feed: Feed, after: int, limit: int) -> Sequence[Event]:
    """Return events of a feed after a sequence, at most so many, and no more once they are 4 MB together.

    Whether some before them were pruned, the extent of the feed tells, if it is read after them.
    """
    events: list[Event] = []
    size = 0
    while len(events) < limit and size < _BYTES_MOST:
        most = min(limit - len(events), _AT_ONCE)
        found = await view.read_events(feed, events[-1].sequence if events else after, most)
        events += found
        size += sum(len(event.body) for event in found)
        if len(found) < most:
            break
    return events


def _batch(portion: Portion, limit: int, wait: timedelta) -> Response:
    query = f"after={portion.end}&limit={limit}"
    if wait:
        query += f"&wait={format_duration(wait)}"
    headers = {
        "Dockbell-Position": str(portion.end),
        "Dockbell-Last": str(Position(portion.end.epoch, portion.extent.last)),
        "Link": f'<?{query}>; rel="next"',
    }
    body = b"[%s]" % b",".join([event.body for event in portion.events])
    return Response(body, headers=headers, media_type=_MEDIA_TYPE)
