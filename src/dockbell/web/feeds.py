"""``GET /feeds/{source}/{resource}``: the events of a feed after a position, byte for byte as every sink gets them.

As a JSON array, or as server-sent events without end: https://html.spec.whatwg.org/multipage/server-sent-events.html.
Both are read portion by portion as they are sent: a slow client holds one portion in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dockbell.config import format_duration
from dockbell.core.model import Event, Feed
from dockbell.errors import StoreError
from dockbell.ports import Extent, ReadStore
from dockbell.web import params
from dockbell.web.allowance import Allowance, announce_portions
from dockbell.web.connection import CONNECTION, Connection
from dockbell.web.long_poll import EVENT_STREAM, EventStream, LongPolls
from dockbell.web.params import Position

Sizes: TypeAlias = Sequence[tuple[int, int]]
"""Sequences of events, in order, each with the bytes of its body."""

COPIES: Final = 2
"""An event is in memory twice while it is sent: as it was read, and as it is written."""

_COMMENT: Final = b":\n\n"
_BYTES_MOST: Final = 4_000_000
_AT_ONCE: Final = 50
_PORTION: Final = 131_072
# https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md#4-json-batch-format
_MEDIA_TYPE: Final = "application/cloudevents-batch+json; charset=utf-8"


def cut(sizes: Sizes, most: int = _PORTION) -> Iterator[Sizes]:
    """Yield the events in portions of so many bytes at most; a larger event is a portion by itself."""
    begin = size = 0
    for end, (_, more) in enumerate(sizes):
        if end > begin and size + more > most:
            yield sizes[begin:end]
            begin, size = end, 0
        size += more
    if begin < len(sizes):
        yield sizes[begin:]


def add_up(sizes: Sizes) -> int:
    """Return how many bytes the bodies of events have."""
    return sum(size for _, size in sizes)


class Portion(msgspec.Struct, frozen=True):
    feed: Feed
    after: Position  # the position before them
    sizes: Sizes  # of all events, in order, without gaps
    extent: Extent  # of the feed, read after the sizes


class Feeds(msgspec.Struct, frozen=True):
    read_store: ReadStore
    long_polls: LongPolls
    allowance: Allowance  # the bytes that answers may hold
    keep_alive: timedelta  # after how much silence a stream sends a comment

    async def answer(self, request: Request) -> Response:
        """Answer one request.

        Raises:
            Problem: 400, 404, 410; 503, too many requests wait, or answers hold too many bytes.
        """
        given = request.query_params
        limit, wait = params.read_limit(given), params.read_wait(given)
        streams = params.accepts(",".join(request.headers.getlist("accept")), EVENT_STREAM)
        after = request.headers.get("last-event-id") if streams else None
        name, text = ("Last-Event-ID", after) if after else ("after", given.get("after"))
        start = None if text is None else params.read(name, text, Position.parse)
        feed = params.read_feed(request)
        portion = await self._read(feed, start, 1 if streams else limit)
        waits = request.method != "HEAD"
        if streams and waits:
            headers = {"Dockbell-Position": str(portion.after)}
            return EventStream(self.long_polls, partial(self._stream, feed, portion.after), headers)
        if not portion.sizes and wait and waits:
            async with self.long_polls.admit(request.receive):
                with anyio.move_on_after(wait.total_seconds()):
                    await self.long_polls.wait(feed, portion.after.sequence)
            portion = await self._read(feed, portion.after, limit)
        return Batch(self, portion, _describe(portion, limit, wait), again=lambda: self.answer(request))

    async def _read(self, feed: Feed, start: Position | None, limit: int) -> Portion:
        while True:
            oldest = 0 if start else (await params.find_extent(self.read_store, feed)).pruned
            after = start or Position(self.read_store.epoch, oldest)
            sizes = _take(await self.read_store.measure_events(feed, after.sequence, limit))
            extent = await params.find_extent(self.read_store, feed)  # after the sizes: events may be pruned meanwhile
            if start is not None:
                params.check_position(feed, self.read_store.epoch, extent, start)
            if after.sequence >= extent.pruned:
                return Portion(feed, after, sizes, extent)

    async def _stream(self, feed: Feed, after: Position, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send events until some were pruned before they were sent: then the next request is answered with 410."""
        await send(_COMMENT)  # at once, so that the client knows that it is connected
        sequence = after.sequence
        while True:
            with anyio.move_on_after(self.keep_alive.total_seconds()) as silence:
                await self.long_polls.wait(feed, sequence)
            sizes = next(cut(await self.read_store.measure_events(feed, sequence, _AT_ONCE)), ())
            async with self.allowance.wait_to_hold(COPIES * add_up(sizes)):
                events = await self.read_store.read_events(feed, sequence, len(sizes))
                extent = await self.read_store.find_extent(feed)
                if extent is None or extent.pruned > sequence:
                    return
                if events:
                    sequence = events[-1].sequence
                    await send(b"".join([_write(after.epoch, event) for event in events]))
                elif silence.cancelled_caught:
                    await send(_COMMENT)


class Batch(Response):
    """The events of a portion, as a JSON array, byte for byte as they are stored.

    ``again`` answers anew, if the first events have changed before anything was sent.
    """

    def __init__(
        self, feeds: Feeds, portion: Portion, headers: Mapping[str, str], *, again: Callable[[], Awaitable[Response]]
    ) -> None:
        length = len(b"[]") + add_up(portion.sizes) + max(0, len(portion.sizes) - 1)
        super().__init__(headers={**headers, "Content-Length": str(length)}, media_type=_MEDIA_TYPE)
        self._feeds = feeds
        self._portion = portion
        self._again = again

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them to one client; close the connection early if events were pruned or purged meanwhile.

        Raises:
            Problem: 503, answers hold too many bytes already; nothing was sent.
            StoreError: They cannot be read; nothing was sent.
        """
        announce_portions(scope)
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if scope["method"] == "HEAD" or not self._portion.sizes:
            await send(start)
            await send({"type": "http.response.body", "body": b"[]"})
            return
        connection: Connection = scope["extensions"][CONNECTION]
        begin = self._portion.after.sequence
        after, lead, allowance = begin, b"[", self._feeds.allowance
        for sizes in cut(self._portion.sizes):
            is_first = after == begin
            async with AsyncExitStack() as stack:
                size = COPIES * add_up(sizes)
                if is_first:
                    stack.enter_context(allowance.hold(size))
                else:
                    await stack.enter_async_context(allowance.wait_to_hold(size))
                if connection.is_gone:
                    return
                text = await self._read(after, sizes, may_fail=is_first)
                if text is None:
                    break
                if is_first:
                    await send(start)
                await send({"type": "http.response.body", "body": lead, "more_body": True})
                await send({"type": "http.response.body", "body": text, "more_body": True})
            after, lead = sizes[-1][0], b","
        else:
            await send({"type": "http.response.body", "body": b"]"})
            return
        if after == begin:
            await (await self._again())(scope, receive, send)
        else:
            connection.abort()
            while (await receive())["type"] != "http.disconnect":
                pass

    async def _read(self, after: int, sizes: Sizes, *, may_fail: bool) -> bytes | None:
        """Return events, joined by commas; None where they have changed, or cannot be read.

        Raises:
            StoreError: They cannot be read, and ``may_fail``.
        """
        try:
            events = await self._feeds.read_store.read_events(self._portion.feed, after, len(sizes))
        except StoreError:
            if may_fail:
                raise
            return None
        is_same = [(event.sequence, len(event.body)) for event in events] == list(sizes)
        return b",".join([event.body for event in events]) if is_same else None


def _take(sizes: Sizes) -> Sizes:
    """Return the first of some events, about 4 MB of them at most."""
    total = 0
    for end in range(_AT_ONCE, len(sizes), _AT_ONCE):
        total += add_up(sizes[end - _AT_ONCE : end])
        if total >= _BYTES_MOST:
            return sizes[:end]
    return sizes


def _describe(portion: Portion, limit: int, wait: timedelta) -> dict[str, str]:
    after, sizes = portion.after, portion.sizes
    end = Position(after.epoch, sizes[-1][0]) if sizes else after
    waiting = f"&wait={format_duration(wait)}" if wait else ""
    return {
        "Dockbell-Position": str(end),
        "Dockbell-Last": str(Position(end.epoch, portion.extent.last)),
        "Link": f'<?after={end}&limit={limit}{waiting}>; rel="next"',
    }


def _write(epoch: str, event: Event) -> bytes:
    # Events are one line each; should one be not, its line breaks are between the tokens of JSON.
    data = b"".join([b"data: %s\n" % line for line in event.body.splitlines()])
    return b"id: %s\n%s\n" % (str(Position(epoch, event.sequence)).encode(), data)
