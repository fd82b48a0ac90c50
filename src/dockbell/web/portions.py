"""A response of many events, read portion by portion as it is sent: a slow client holds one portion in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dockbell.core.model import Feed
from dockbell.errors import StoreError
from dockbell.ports import ReadStore
from dockbell.web.allowance import Allowance, announce_portions
from dockbell.web.connection import CONNECTION, Connection

Sizes: TypeAlias = Sequence[tuple[int, int]]
"""Sequences of events, in order, each with the bytes of its body."""

COPIES: Final = 2
"""An event is in memory twice while it is sent: as it was read, and as it is written."""

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


class Batch(Response):
    """Some events of a feed, as a JSON array, byte for byte as they are stored.

    Args:
        read_store: Of the store.
        feed: The feed.
        after: The sequence after which they begin.
        sizes: Of all events to send, without gaps.
        allowance: The bytes that answers may hold.
        headers: Of the response.
        again: Answers anew, if the first events have changed before anything was sent.
    """

    def __init__(
        self,
        read_store: ReadStore,
        feed: Feed,
        after: int,
        sizes: Sizes,
        *,
        allowance: Allowance,
        headers: Mapping[str, str],
        again: Callable[[], Awaitable[Response]],
    ) -> None:
        length = len(b"[]") + add_up(sizes) + max(0, len(sizes) - 1)
        super().__init__(headers={**headers, "Content-Length": str(length)}, media_type=_MEDIA_TYPE)
        self._read_store = read_store
        self._feed = feed
        self._after = after
        self._sizes = sizes
        self._allowance = allowance
        self._again = again

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them to one client.

        Closes the connection early if events were pruned or purged meanwhile.

        Raises:
            Problem: 503, answers hold too many bytes already; nothing was sent.
            StoreError: They cannot be read; nothing was sent.
        """
        announce_portions(scope)
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if scope["method"] == "HEAD" or not self._sizes:
            await send(start)
            await send({"type": "http.response.body", "body": b"[]"})
            return
        connection: Connection = scope["extensions"][CONNECTION]
        after, lead = self._after, b"["
        for sizes in cut(self._sizes):
            is_first = after == self._after
            async with AsyncExitStack() as stack:
                size = COPIES * add_up(sizes)
                if is_first:
                    stack.enter_context(self._allowance.hold(size))
                else:
                    await stack.enter_async_context(self._allowance.wait_to_hold(size))
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
        if after == self._after:
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
            events = await self._read_store.read_events(self._feed, after, len(sizes))
        except StoreError:
            if may_fail:
                raise
            return None
        is_same = [(event.sequence, len(event.body)) for event in events] == list(sizes)
        return b",".join([event.body for event in events]) if is_same else None
