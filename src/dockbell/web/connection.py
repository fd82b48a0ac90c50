"""One connection, and its limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.net import listening
from dockbell.web.address import find_network
from dockbell.web.crowd import Crowd, Standing
from dockbell.web.headers import HEADERS, with_headers
from dockbell.web.problem import Problem

HEAD_BYTES_MOST: Final = 16_384
PROBES: Final = ("/healthz", "/readyz", "/metrics")
"""What is answered however many are connected: whoever looks after dockbell asks for it."""
CONNECTION: Final = "dockbell.connection"
"""The ASGI extension that is the connection itself."""

_HEAD_SECONDS: Final = 10
_TAKING_SECONDS: Final = 60
"""Whoever takes nothing for so long of what it is sent is hung up on,"""
_WAITED_FOR_SECONDS: Final = 5
"""and after so long, where it is in the way of others."""
_LOOK_SECONDS: Final = 1
_REFUSALS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class Connection(listening.Connection):
    """Gives a client some seconds to say what it asks for, and to take the answer; uvicorn gives it all the time.

    What cannot be read, and whoever comes when there are too many, is answered with a problem too, not with plain text.

    Args:
        crowd: All who are connected.
        given: For uvicorn.
    """

    def __init__(self, *, crowd: Crowd, **given: Any) -> None:
        super().__init__(**given)
        self.address = ""
        self.network = ""
        self._crowd = crowd
        self._hanging_up: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._given = 0  # bytes of bodies, until now
        self._taken = -1  # of these
        self._taken_at = 0.0
        self._status = 0

    # What the server tells -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        """Take a place, and begin to wait for the first request."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.network = find_network(self.address)
        app = self.app if self._crowd.enter(self) else _answer_probes(self.app, self._crowd.places)
        self.app = self._watch(app)
        self._mind_the_head()

    def data_received(self, data: bytes) -> None:
        """Take some bytes."""
        super().data_received(data)
        self._mind_the_head()
        self._turn()

    def on_response_complete(self) -> None:
        """Go on with the next request, if there is one already."""
        super().on_response_complete()
        self._turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        super().connection_lost(exc)
        self._crowd.leave(self)
        self._stop_minding()
        if self._looking is not None:
            self._looking.cancel()

    def describe_bad_request(self, msg: str) -> tuple[Mapping[bytes, bytes], bytes]:
        """Return the headers and the body of the answer to what is no request."""
        detail = f"request: {msg[:1].lower()}{msg[1:].rstrip('.')}; send HTTP/1.1"
        answer = Problem(HTTPStatus.BAD_REQUEST, "bad-request", detail, headers={"Connection": "close"}).response()
        return dict(answer.raw_headers) | HEADERS, bytes(answer.body)

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits any more for the answer that is under way."""
        return self.cycle is not None and self.cycle.disconnected

    # What the crowd asks ---------------------------------------------------------------------------------------------

    @property
    def has_all(self) -> bool:
        """Whether the client has taken all that it was sent."""
        return not self.transport.get_write_buffer_size()

    @property
    def takes_its_time(self) -> bool:
        """Whether there is something that the client could take, and it has not taken any for a while."""
        return not self.has_all and self.loop.time() - self._taken_at >= _WAITED_FOR_SECONDS

    def hang_up(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    # ------------------------------------------------------------------------------------------------------------------

    def _watch(self, app: ASGIApp) -> ASGIApp:
        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            async def watch(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._status = message["status"]
                else:
                    self._given += len(message.get("body", b""))
                await send(message)
                self._mind_the_reader()

            scope.setdefault("extensions", {})[CONNECTION] = self
            await app(scope, receive, watch)

        return watched

    def _turn(self) -> None:
        """Tell the crowd what the client does now."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._crowd.turn(self, Standing.SILENT if self.cycle.more_body else Standing.BUSY)
        elif self.cycle is not None:
            self._crowd.turn(self, Standing.REFUSED if self._status in _REFUSALS else Standing.IDLE)

    def _mind_the_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_minding()
        elif self._hanging_up is None and not self.transport.is_closing():
            self._hanging_up = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _stop_minding(self) -> None:
        if self._hanging_up is not None:
            self._hanging_up.cancel()
            self._hanging_up = None

    def _mind_the_reader(self) -> None:
        """See to it that the client takes what it is sent: also when that is all, and the connection is closed."""
        if self._looking is None and not self.has_all:
            self._taken_at = self.loop.time()
            self._look_at_the_reader()

    def _look_at_the_reader(self) -> None:
        self._looking = None
        left, now = self.transport.get_write_buffer_size(), self.loop.time()
        if not left:
            return
        taken = self._given - left
        if taken != self._taken:
            self._taken, self._taken_at = taken, now
        if now - self._taken_at >= _TAKING_SECONDS:
            self.hang_up()
        else:
            self._looking = self.loop.call_later(_LOOK_SECONDS, self._look_at_the_reader)


def _answer_probes(app: ASGIApp, places: int) -> ASGIApp:
    """Return what answers in a spare place: probes as ever, and to all others that there are too many."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, _with_close(send))
            return
        detail = f"connections: there are {places} already, or half of these of your address; ask again later"
        headers = {"Retry-After": "5", "Connection": "close"}
        problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-connections", detail, headers=headers)
        await problem.response()(scope, receive, with_headers(send))

    return answer


def _with_close(send: Send) -> Send:
    async def send_and_close(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"connection", b"close")]
        await send(message)

    return send_and_close
