"""``GET /live``: what the status page shows, as server-sent events; all readers share one board."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dockbell.web import question
from dockbell.web.board import Board
from dockbell.web.stream import MEDIA_TYPE
from dockbell.web.waiting import WaitingRoom

_LIFE: Final = timedelta(minutes=15)
"""Then the page comes back and shows its token again, which may have been changed meanwhile."""
_GOODBYE_SECONDS: Final = 0.3


class Live:
    """The endpoint.

    Args:
        board: What is shown.
        room: For those who look; it is of their own, so that pages and pull feeds do not take each other's places.
    """

    def __init__(self, board: Board, room: WaitingRoom) -> None:
        self._board = board
        self._room = room

    async def answer(self, request: Request) -> Response:
        """Answer with a stream."""
        question.read_parameters(request)
        response = Response(headers={"Content-Type": MEDIA_TYPE})
        return response if request.method == "HEAD" else _LiveStream(self._board, self._room)


class _LiveStream(Response):
    """An answer that goes on until the client or the daemon ends it, or its time is over."""

    def __init__(self, board: Board, room: WaitingRoom) -> None:
        super().__init__(headers={"Content-Type": MEDIA_TYPE})
        del self.headers["content-length"]
        self._board = board
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's signature
        """Stream to one client.

        Raises:
            Problem: 503, too many look already; nothing was sent.
        """
        async with self._room.attend(receive):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with self._board.attend() as seat, anyio.move_on_after(_LIFE.total_seconds()):
                while (text := await seat.take()) is not None:
                    await send({"type": "http.response.body", "body": text, "more_body": True})
        with anyio.move_on_after(_GOODBYE_SECONDS):  # a client that takes nothing is not waited for
            await send({"type": "http.response.body", "body": b""})
