"""The same events as server-sent events, without end: https://html.spec.whatwg.org/multipage/server-sent-events.html."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dockbell.core.model import Event, Feed
from dockbell.errors import StoreError
from dockbell.ports import ReadStore
from dockbell.web.allowance import Allowance
from dockbell.web.long_poll import LongPolls
from dockbell.web.portions import COPIES, add_up, cut
from dockbell.web.position import Position

MEDIA_TYPE: Final = "text/event-stream"
_AT_ONCE: Final = 50
_COMMENT: Final = b":\n\n"
_GOODBYE_SECONDS: Final = 0.3


def wants_stream(request: Request) -> bool:
    """Return whether a request accepts a stream by name."""
    accepted = ",".join(request.headers.getlist("accept")).split(",")
    return any(each.partition(";")[0].strip().lower() == MEDIA_TYPE for each in accepted)


class EventStream(Response):
    """A stream that goes on until the client or the daemon ends it.

    It also ends when events were pruned that the client has not read, whose next request is answered with 410; and when
    the store cannot be read.
    """

    def __init__(
        self,
        read_store: ReadStore,
        long_polls: LongPolls,
        allowance: Allowance,
        feed: Feed,
        after: Position,
        *,
        keep_alive: timedelta,
    ) -> None:
        super().__init__(headers={"Content-Type": MEDIA_TYPE, "Dockbell-Position": str(after)})
        del self.headers["content-length"]
        self._read_store = read_store
        self._long_polls = long_polls
        self._allowance = allowance
        self._feed = feed
        self._epoch = after.epoch
        self._sequence = after.sequence
        self._keep_alive = keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's signature
        """Stream to one client.

        Raises:
            Problem: 503, too many requests wait already; nothing was sent.
        """
        async with self._long_polls.admit(receive):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with suppress(StoreError):
                await self._stream(send)
        with anyio.move_on_after(_GOODBYE_SECONDS):  # does not wait for a client that does not read
            await send({"type": "http.response.body", "body": b""})

    async def _stream(self, send: Send) -> None:
        await _send(send, _COMMENT)  # at once, so that the client knows that it is connected
        while True:
            with anyio.move_on_after(self._keep_alive.total_seconds()) as silence:
                await self._long_polls.wait(self._feed, self._sequence)
            if not await self._send_some(send, _COMMENT if silence.cancelled_caught else b""):
                return

    async def _send_some(self, send: Send, otherwise: bytes) -> bool:
        """Send the next events, a portion of them at a time, or something else; return whether none was pruned."""
        sizes = next(cut(await self._read_store.measure_events(self._feed, self._sequence, _AT_ONCE)), ())
        async with self._allowance.wait_to_hold(COPIES * add_up(sizes)):
            events = await self._read_store.read_events(self._feed, self._sequence, len(sizes))
            extent = await self._read_store.find_extent(self._feed)
            if extent is None or extent.pruned > self._sequence:
                return False
            if text := self._write(events) or otherwise:
                await _send(send, text)
        return True

    def _write(self, events: Sequence[Event]) -> bytes:
        if events:
            self._sequence = events[-1].sequence
        return b"".join(
            [
                # Events are one line each; should one be not, its line breaks are between the tokens of JSON.
                b"id: %s\n%s\n" % (str(Position(self._epoch, event.sequence)).encode(), _data(event.body))
                for event in events
            ]
        )


async def _send(send: Send, text: bytes) -> None:
    await send({"type": "http.response.body", "body": text, "more_body": True})


def _data(body: bytes) -> bytes:
    return b"".join([b"data: %s\n" % line for line in body.splitlines()])
