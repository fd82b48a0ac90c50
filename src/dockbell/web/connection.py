"""The limits of one connection."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from dockbell.web.headers import HEADERS, with_headers
from dockbell.web.problem import Problem

CONNECTIONS_MOST: Final = 500
HEAD_BYTES_MOST: Final = 16_384
_HEAD_SECONDS: Final = 10


async def refuse_crowd(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer whoever comes when there are too many already."""
    detail = f"connections: there are {CONNECTIONS_MOST} already, that is the most; ask again later"
    headers = {"Retry-After": "5", "Connection": "close"}
    problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-connections", detail, headers=headers)
    await problem.response()(scope, receive, with_headers(send))


class Connection(H11Protocol):
    """Gives a client some seconds to say what it asks for; uvicorn gives it all the time in the world.

    What cannot be read, and whoever comes when there are too many, is answered with a problem too, not with plain text.
    """

    _hanging_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it too
        """Begin to wait for the first request."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MOST:
            self.app = refuse_crowd
        self._mind_the_head()

    def data_received(self, data: bytes) -> None:
        """Take some bytes."""
        super().data_received(data)
        self._mind_the_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        super().connection_lost(exc)
        self._stop_minding()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request."""
        detail = f"request: {msg[:1].lower()}{msg[1:].rstrip('.')}; send HTTP/1.1"
        answer = Problem(HTTPStatus.BAD_REQUEST, "bad-request", detail, headers={"Connection": "close"}).response()
        headers = [*answer.raw_headers, *HEADERS.items()]
        for event in (
            h11.Response(status_code=answer.status_code, headers=headers, reason=HTTPStatus.BAD_REQUEST.phrase),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _mind_the_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_minding()
        elif self._hanging_up is None and not self.transport.is_closing():
            self._hanging_up = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _stop_minding(self) -> None:
        if self._hanging_up is not None:
            self._hanging_up.cancel()
            self._hanging_up = None
