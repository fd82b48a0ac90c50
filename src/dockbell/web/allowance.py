"""Limits the memory of answers that clients have not read yet, and sends each answer in pieces.

A client that reads slowly, or never, keeps its answer in our memory. So an answer is sent in pieces, the next when the
client has read the one before; and all answers together may hold 64 MB, beyond which large ones are refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Final

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.web.connection import PROBES
from dockbell.web.responses import Problem

BYTES_MOST: Final = 64_000_000
PIECE: Final = 65_536
"""Bytes of a piece; smaller answers are not counted."""

_PORTIONED: Final = "dockbell_portioned"


class Allowance:
    """The bytes that all answers together may hold.

    Args:
        most: The limit, 64 MB by default; a single answer may hold more where no other holds any.
        drop_stalled: Is called at the limit, to disconnect the clients that do not read.
    """

    def __init__(self, most: int | None = None, drop_stalled: Callable[[], None] = lambda: None) -> None:
        self.held = 0
        self._most = BYTES_MOST if most is None else most
        self._drop_stalled = drop_stalled
        self._freed = anyio.Event()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Hold some bytes until the block is left.

        Raises:
            Problem: 503, the limit is reached.
        """
        if not self._has_room(size):
            self._drop_stalled()
            detail = f"responses: clients have not read {self.held:,} bytes yet; retry later, or request less"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", detail, headers={"Retry-After": "5"})
        with self._holding(size):
            yield

    @asynccontextmanager
    async def wait_to_hold(self, size: int) -> AsyncIterator[None]:
        """Hold some bytes until the block is left, as soon as there is room: for an answer that has begun."""
        while not self._has_room(size):
            self._drop_stalled()
            with anyio.move_on_after(1):  # other clients may be stalled by then
                await self._freed.wait()
        with self._holding(size):
            yield

    def _has_room(self, size: int) -> bool:
        return not (size and self.held) or self.held + size <= self._most

    @contextmanager
    def _holding(self, size: int) -> Iterator[None]:
        self.held += size
        try:
            yield
        finally:
            self.held -= size
            self._freed.set()
            self._freed = anyio.Event()


class InPieces:
    """Sends the answers of an application in pieces, and refuses those for which there is no memory."""

    def __init__(self, app: ASGIApp, allowance: Allowance) -> None:
        self._app = app
        self._allowance = allowance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as stack:
            is_refused = False

            async def send_in_pieces(message: Message) -> None:
                nonlocal is_refused
                if is_refused:
                    return
                if message["type"] == "http.response.start":
                    try:
                        stack.enter_context(self._allowance.hold(_measure(scope, message)))
                    except Problem as problem:
                        is_refused = True
                        await problem.response()(scope, receive, send)
                        return
                body = message.get("body", b"")
                for start in range(0, len(body) - PIECE, PIECE):
                    await send({**message, "body": body[start : start + PIECE], "more_body": True})
                rest = (len(body) - 1) // PIECE * PIECE if body else 0
                await send({**message, "body": body[rest:]} if rest else message)

            await self._app(scope, receive, send_in_pieces)


def announce_portions(scope: Scope) -> None:
    """Note that an answer is read portion by portion, and counts the bytes of each itself."""
    scope["state"][_PORTIONED] = True


def _measure(scope: Scope, message: Message) -> int:
    """Return how many bytes an answer holds until the client has read it; 0 for one that is not counted."""
    if scope["method"] == "HEAD" or scope["state"].get(_PORTIONED) or scope["path"] in PROBES:
        return 0
    size = next((int(value) for name, value in message["headers"] if name.lower() == b"content-length"), 0)
    return size if size > PIECE else 0
