"""The daemon's own web server: one socket, and what is served on it."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from dockbell.config import WebSettings
from dockbell.errors import ConfigError
from dockbell.listening import listening
from dockbell.network import explain
from dockbell.ports import Bell, View
from dockbell.telemetry import Fact, Telemetry
from dockbell.web.connection import HEAD_BYTES_MOST, Connection
from dockbell.web.feeds import Feeds
from dockbell.web.gate import Gate
from dockbell.web.index import Index
from dockbell.web.problem import Problem, answer_fault, answer_problem, answer_unrouted
from dockbell.web.state import State
from dockbell.web.waiting import WaitingRoom

_CONNECTIONS_MOST: Final = 500
_SILENCE: Final = timedelta(seconds=60)
"""How long a client that is gone without a word is believed to be there."""


@dataclass(frozen=True, slots=True)
class SiteOpened(Fact):
    """The web server answers."""

    url: str

    def __str__(self) -> str:
        """Return the log line."""
        return f"web: answers at {self.url}"


class Site:
    """A socket that listens from the first moment, and answers while :meth:`run` does.

    Args:
        settings: ``[web]``.
        name: The name of this dockbell.
        view: Of the store; for the site alone, so that a long look delays nobody else.
        outbox: The store's bell.
        telemetry: Is told where the site is.
        keep_alive: After how much silence a stream says that it is still there.

    Raises:
        ConfigError: The address cannot be listened on.
    """

    def __init__(
        self,
        settings: WebSettings,
        *,
        name: str,
        view: View,
        outbox: Bell,
        telemetry: Telemetry,
        keep_alive: timedelta = timedelta(seconds=15),
    ) -> None:
        self._telemetry = telemetry
        self.room = WaitingRoom(view, outbox)
        feeds, state, index = Feeds(view, self.room, keep_alive=keep_alive), State(view), Index(name, view)
        app = Starlette(
            routes=[
                Route("/", index.answer),
                Route("/healthz", index.answer_health),
                Route("/feeds", index.answer),
                Route("/feeds/{source}/{resource}", feeds.answer),
                Route("/state/{source}/{resource}", state.answer_page),
                Route("/state/{source}/{resource}/{key}", state.answer_one),
            ],
            exception_handlers={Problem: answer_problem, HTTPException: answer_unrouted, Exception: answer_fault},
        )
        app.router.redirect_slashes = False
        self._app = Gate(app, settings, telemetry)
        self._listener = _listen(settings)
        self.port: int = self._listener.getsockname()[1]

    async def run(self) -> None:
        """Answer until cancelled; readers that wait are then told the end at once, others have a second to finish."""
        async with listening(
            self._app,
            self._listener,
            http=Connection,
            server_header=False,
            log_level=logging.WARNING,
            limit_concurrency=_CONNECTIONS_MOST,
            h11_max_incomplete_event_size=HEAD_BYTES_MOST,
        ):
            self._telemetry.emit(SiteOpened(f"http://{self._shown_host()}:{self.port}"))
            try:
                await anyio.sleep_forever()
            finally:
                self.room.close()

    def close(self) -> None:
        """Let the address go."""
        self._listener.close()

    def _shown_host(self) -> str:
        host = self._listener.getsockname()[0]
        return f"[{host}]" if ":" in host else str(host)


def _listen(settings: WebSettings) -> socket.socket:
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        remedy = "end what listens there, or choose another"
        raise ConfigError(f"[web] listen: {explain(error)}, got {settings.listen}; {remedy}") from error
    # What is set here holds for every connection that is accepted.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio leaves it off for sockets made by others
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE // timedelta(milliseconds=1))
    return listener
