"""The daemon's own web server: one socket, and what is served on it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from dockbell.admin.looking import Outlook
from dockbell.admin.status import Status
from dockbell.config import Config, WebSettings
from dockbell.errors import ConfigError, StoreError
from dockbell.host.descriptors import find_limit
from dockbell.net.listening import listening
from dockbell.net.network import explain
from dockbell.ports import Bell, CommandStore, ReadStore
from dockbell.telemetry import Crowded, Fact, Telemetry
from dockbell.telemetry.metrics import Metrics
from dockbell.telemetry.recent import Recent
from dockbell.web.actions import Actions
from dockbell.web.address import Proxies
from dockbell.web.allowance import Allowance, InPieces
from dockbell.web.assets import Assets
from dockbell.web.board import Board
from dockbell.web.connection import HEAD_BYTES_MOST, Connection
from dockbell.web.crowd import Crowd, count_places
from dockbell.web.events import Events
from dockbell.web.feeds import Feeds
from dockbell.web.gate import Gate
from dockbell.web.health import Health
from dockbell.web.index import Index
from dockbell.web.letters import DeadLetters
from dockbell.web.live import Live
from dockbell.web.metrics import Scrape
from dockbell.web.openapi import Document
from dockbell.web.parts import Lookout
from dockbell.web.place import Places
from dockbell.web.places import (
    list_acts,
    list_page_places,
    list_pull_places,
    list_status_places,
    list_watch_places,
)
from dockbell.web.problem import Problem, answer_fault, answer_problem, answer_store_error, answer_unrouted
from dockbell.web.session import Session, Sessions
from dockbell.web.standing import Standing
from dockbell.web.state import State
from dockbell.web.tokens import Tokens
from dockbell.web.waiting import WaitingRoom

_PAGES_MOST: Final = 50
_LEAVING_MOST: Final = 64
"""So many connections may be there that have ended, until what was theirs is given back."""
_TOLD_EVERY: Final = timedelta(minutes=1)
_GATHERING: Final = timedelta(seconds=1)
_BUFFER: Final = 65_536
"""Bytes that the system keeps of a connection, each way: else it keeps megabytes for whoever does not read."""
_WAITING_MOST: Final = 1024
"""So many connections wait in the system until they are let in."""
_SPEECHLESS: Final = timedelta(seconds=10)
"""For so long who connects and says nothing waits there too, and takes no place, where the system can do that."""
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
        config: Returns the configuration that is followed.
        read_store: Of the store; for the site alone, so that a long look delays nobody else.
        page_view: Another one, for the status page: it may take its time.
        command_store: Where an operator's acts are left.
        recent: What it was like lately.
        outbox: The store's bell.
        telemetry: Is told where the site is.
        now: Our clock.
        next_time: When something is due that happens at an interval or by a cron line, and happened at a given time.
        keep_alive: After how much silence a stream says that it is still there.
        listener: A socket that listens already, from :meth:`share`; else one is opened.
        metrics: What was counted; nothing where there is none.
        check_store: Returns once what writes to the store has answered; raises why nothing can be written.

    Raises:
        ConfigError: The address cannot be listened on.
    """

    def __init__(
        self,
        settings: WebSettings,
        *,
        config: Callable[[], Config],
        read_store: ReadStore,
        page_view: ReadStore,
        command_store: CommandStore,
        recent: Recent,
        outbox: Bell,
        telemetry: Telemetry,
        now: Callable[[], datetime],
        next_time: Callable[[timedelta | str, datetime], datetime],
        keep_alive: timedelta = timedelta(seconds=15),
        listener: socket.socket | None = None,
        metrics: Metrics | None = None,
        check_store: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
    ) -> None:
        self._telemetry = telemetry
        self.room = WaitingRoom(read_store, outbox)
        self.audience = WaitingRoom(read_store, outbox, most=_PAGES_MOST)
        lookout = Lookout(page_view, config, recent, now=now, next_time=next_time, holder=f"process {os.getpid()}")
        self.board = Board(lookout, outbox, telemetry)

        async def look() -> Status:
            await check_store()
            return await lookout.load()

        self.outlook = Outlook(look)
        proxies = Proxies(settings.proxy_networks)
        self.crowd = Crowd(*count_places(find_limit()), stands_for_many=proxies.__contains__, note=self._note_crowd)
        self._crowding = anyio.Event()
        self._shortage = ""
        allowance = Allowance(relieve=self.crowd.relieve)
        tokens = Tokens(settings.token, telemetry)
        sessions = Sessions(tokens, read_store.epoch)
        assets, index = Assets(), Index(config, read_store)
        feeds = Feeds(read_store, self.room, allowance, keep_alive=keep_alive)
        actions = Actions(command_store, page_view, config, telemetry=telemetry, now=now)
        document = Document()
        places = Places(
            [
                *list_page_places(assets, Live(self.board, self.audience), Session(tokens, sessions)),
                *list_pull_places(index, assets, feeds, State(read_store, allowance)),
                *list_status_places(
                    Standing(page_view, config, lookout.load, now),
                    Events(page_view, config),
                    DeadLetters(command_store, config),
                    actions,
                ),
                *list_acts(actions),
                *list_watch_places(
                    Health(self.outlook.ask, is_open=settings.token is None),
                    Scrape(metrics or Metrics(), recent, lookout.load, check_store, config),
                ),
                document.place,
            ]
        )
        document.describe(places.all, sessions.cookie)
        app = Starlette(
            routes=places.routes(),
            exception_handlers={
                Problem: answer_problem,
                HTTPException: answer_unrouted,
                StoreError: answer_store_error,
                Exception: answer_fault,
            },
        )
        app.router.redirect_slashes = False
        self._app = Gate(InPieces(app, allowance), settings, places, tokens, sessions)
        self._listener = listener or listen(settings)
        self.port: int = self._listener.getsockname()[1]

    async def run(self) -> None:
        """Answer until cancelled; readers that wait are then told the end at once, others have a second to finish."""
        async with listening(
            self._app,
            self._listener,
            http=partial(Connection, crowd=self.crowd),
            most=self.crowd.places + self.crowd.spare + _LEAVING_MOST,
            turned_away=self._turn_away,
            server_header=False,
            log_level=logging.WARNING,
            h11_max_incomplete_event_size=HEAD_BYTES_MOST,
        ):
            self._telemetry.emit(SiteOpened(f"http://{self._shown_host()}:{self.port}"))
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self.outlook.run)
                    group.start_soon(self.board.run)
                    group.start_soon(self._tell_of_crowds)
            finally:
                self.room.close()
                self.audience.close()

    def share(self) -> socket.socket:
        """Return the socket once more, for a site that is to follow this one: nobody meets a closed door meanwhile."""
        return self._listener.dup()

    def close(self) -> None:
        """Let the address go."""
        self._listener.close()

    def _turn_away(self, peer: str, shortage: str) -> None:
        if shortage:
            self._shortage = shortage
            self._note_crowd()
        else:
            self.crowd.send_away(peer)

    def _note_crowd(self) -> None:
        self._crowding.set()

    async def _tell_of_crowds(self) -> None:
        told = 0
        while True:
            await self._crowding.wait()
            await anyio.sleep(_GATHERING.total_seconds())
            count, shortage = self.crowd.count - told, self._shortage
            self._crowding, self._shortage, told = anyio.Event(), "", self.crowd.count
            self._telemetry.emit(Crowded(count, self.crowd.places, self.crowd.last, shortage))
            await anyio.sleep((_TOLD_EVERY - _GATHERING).total_seconds())

    def _shown_host(self) -> str:
        host = self._listener.getsockname()[0]
        return f"[{host}]" if ":" in host else str(host)


def listen(settings: WebSettings) -> socket.socket:
    """Return a socket that listens where the settings say; the caller closes it.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_WAITING_MOST)
    except OSError as error:
        remedy = "end what listens there, or choose another"
        raise ConfigError(f"[web] listen: {explain(error)}, got {settings.listen}; {remedy}") from error
    # What is set here holds for every connection that is accepted.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio leaves it off for sockets made by others
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    if hasattr(socket, "TCP_DEFER_ACCEPT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _SPEECHLESS // timedelta(seconds=1))
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE // timedelta(milliseconds=1))
    return listener
