"""``GET /live``: what the status page shows, as server-sent events; all pages share one broadcast."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dockbell.web import params
from dockbell.web.broadcast import Broadcast
from dockbell.web.long_poll import LongPolls
from dockbell.web.stream import MEDIA_TYPE

_LIFE: Final = timedelta(minutes=15)
"""Then the page reconnects and shows its token again, because the token may have changed."""
_GOODBYE_SECONDS: Final = 0.3


class Live:
    """The endpoint.

    Args:
        broadcast: Reads what the page shows.
        long_polls: Counts the open pages, apart from the pull feeds, so that neither keeps the other out.
    """

    def __init__(self, broadcast: Broadcast, long_polls: LongPolls) -> None:
        self._broadcast = broadcast
        self._long_polls = long_polls

    async def answer(self, request: Request) -> Response:
        """Answer with a stream."""
        params.read_query(request)
        response = Response(headers={"Content-Type": MEDIA_TYPE})
        return response if request.method == "HEAD" else _LiveStream(self._broadcast, self._long_polls)


class _LiveStream(Response):
    """A stream that goes on until the client or the daemon ends it, or its time is over."""

    def __init__(self, broadcast: Broadcast, long_polls: LongPolls) -> None:
        super().__init__(headers={"Content-Type": MEDIA_TYPE})
        del self.headers["content-length"]
        self._broadcast = broadcast
        self._long_polls = long_polls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's signature
        """Stream to one client.

        Raises:
            Problem: 503, too many pages are open; nothing was sent.
        """
        async with self._long_polls.admit(receive):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with self._broadcast.subscribe() as subscriber, anyio.move_on_after(_LIFE.total_seconds()):
                while (text := await subscriber.take()) is not None:
                    await send({"type": "http.response.body", "body": text, "more_body": True})
        with anyio.move_on_after(_GOODBYE_SECONDS):  # does not wait for a client that does not read
            await send({"type": "http.response.body", "body": b""})
