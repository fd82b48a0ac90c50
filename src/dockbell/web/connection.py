"""One HTTP connection, with time limits for its request and for the client that reads the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.net import listening
from dockbell.web.address import find_network
from dockbell.web.connection_limiter import Activity, ConnectionLimiter
from dockbell.web.headers import HEADERS, with_headers
from dockbell.web.problem import Problem

HEAD_BYTES_MOST: Final = 16_384
PROBES: Final = ("/healthz", "/readyz", "/metrics")
"""The paths that are answered above the connection limit: monitoring asks for them."""
CONNECTION: Final = "dockbell.connection"
"""The ASGI extension that is the connection itself."""

_HEAD_SECONDS: Final = 10
_TAKING_SECONDS: Final = 60
"""A client that reads nothing for so long is disconnected."""
_WAITED_FOR_SECONDS: Final = 5
"""A client that reads nothing for so long is disconnected when its place or memory is needed."""
_LOOK_SECONDS: Final = 1
_REFUSALS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class Connection(listening.Connection):
    """Limits the seconds for sending a request and for reading the answer; uvicorn has no such limits.

    Also answers malformed requests and clients above the connection limit with a problem, not with plain text.

    Args:
        limiter: Of the site's connections.
        settings: For uvicorn.
    """

    def __init__(self, *, limiter: ConnectionLimiter, **settings: Any) -> None:
        super().__init__(**settings)
        self.address = ""
        self.network = ""
        self._limiter = limiter
        self._head_timeout: asyncio.TimerHandle | None = None
        self._progress_check: asyncio.TimerHandle | None = None
        self._sent = 0  # bytes of bodies
        self._taken = -1  # bytes of these that the client has read
        self._progress_at = 0.0
        self._status = 0

    # What uvicorn and asyncio call -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        """Register with the limiter, and wait for the first request."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.network = find_network(self.address)
        app = self.app if self._limiter.admit(self) else _answer_probes(self.app, self._limiter.limit)
        self.app = self._count_sent(app)
        self._limit_head_time()

    def data_received(self, data: bytes) -> None:
        """Parse some bytes of a request."""
        super().data_received(data)
        self._limit_head_time()
        self._note_activity()

    def on_response_complete(self) -> None:
        """Begin the next pipelined request, if there is one."""
        super().on_response_complete()
        self._note_activity()

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister from the limiter."""
        super().connection_lost(exc)
        self._limiter.remove(self)
        self._cancel_head_timeout()
        if self._progress_check is not None:
            self._progress_check.cancel()

    def describe_bad_request(self, msg: str) -> tuple[Mapping[bytes, bytes], bytes]:
        """Return the headers and the body of the answer to a malformed request."""
        detail = f"request: {msg[:1].lower()}{msg[1:].rstrip('.')}; send HTTP/1.1"
        answer = Problem(HTTPStatus.BAD_REQUEST, "bad-request", detail, headers={"Connection": "close"}).response()
        return dict(answer.raw_headers) | HEADERS, bytes(answer.body)

    @property
    def is_gone(self) -> bool:
        """Whether the client disconnected before its answer was complete."""
        return self.cycle is not None and self.cycle.disconnected

    # What the limiter asks -------------------------------------------------------------------------------------------

    @property
    def has_taken_all(self) -> bool:
        """Whether the client has read all bytes that it was sent."""
        return not self.transport.get_write_buffer_size()

    @property
    def is_stalled(self) -> bool:
        """Whether the client has left bytes unread for a while."""
        return not self.has_taken_all and self.loop.time() - self._progress_at >= _WAITED_FOR_SECONDS

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    # ------------------------------------------------------------------------------------------------------------------

    def _count_sent(self, app: ASGIApp) -> ASGIApp:
        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_counted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._status = message["status"]
                else:
                    self._sent += len(message.get("body", b""))
                await send(message)
                self._watch_progress()

            scope.setdefault("extensions", {})[CONNECTION] = self
            await app(scope, receive, send_counted)

        return counted

    def _note_activity(self) -> None:
        """Tell the limiter what the client does now."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._limiter.note_activity(self, Activity.SILENT if self.cycle.more_body else Activity.BUSY)
        elif self.cycle is not None:
            self._limiter.note_activity(self, Activity.REFUSED if self._status in _REFUSALS else Activity.IDLE)

    def _limit_head_time(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_head_timeout()
        elif self._head_timeout is None and not self.transport.is_closing():
            self._head_timeout = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _cancel_head_timeout(self) -> None:
        if self._head_timeout is not None:
            self._head_timeout.cancel()
            self._head_timeout = None

    def _watch_progress(self) -> None:
        """Start to watch whether the client reads, which uvicorn does not: not even while it closes the connection."""
        if self._progress_check is None and not self.has_taken_all:
            self._progress_at = self.loop.time()
            self._check_progress()

    def _check_progress(self) -> None:
        self._progress_check = None
        left, now = self.transport.get_write_buffer_size(), self.loop.time()
        if not left:
            return
        taken = self._sent - left
        if taken != self._taken:
            self._taken, self._progress_at = taken, now
        if now - self._progress_at >= _TAKING_SECONDS:
            self.abort()
        else:
            self._progress_check = self.loop.call_later(_LOOK_SECONDS, self._check_progress)


def _answer_probes(app: ASGIApp, limit: int) -> ASGIApp:
    """Return the application for connections of the reserve: it answers probes, and 503 to all other requests."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, _with_close(send))
            return
        detail = f"connections: there are {limit} already, or half of these of your address; ask again later"
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
