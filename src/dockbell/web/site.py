"""The daemon's web server: one socket, and all routes on it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from dockbell.admin.shared_read import SharedRead
from dockbell.admin.status import Status
from dockbell.config import Config, WebSettings
from dockbell.errors import ConfigError, StoreError
from dockbell.host.system import find_limit
from dockbell.net.listening import listening
from dockbell.net.network import explain
from dockbell.ports import CommandStore, OutboxBell, ReadStore
from dockbell.telemetry import Crowded, Fact, Telemetry
from dockbell.telemetry.metrics import Metrics
from dockbell.telemetry.recent import Recent
from dockbell.web.actions import Actions
from dockbell.web.allowance import Allowance, InPieces
from dockbell.web.assets import Assets
from dockbell.web.client import Proxies
from dockbell.web.connection import HEAD_BYTES_MOST, Connection, ConnectionLimiter, count_connections
from dockbell.web.dead_letters import DeadLetters
from dockbell.web.delays import DelayWeeks
from dockbell.web.events import Events
from dockbell.web.feeds import Feeds
from dockbell.web.gate import Gate
from dockbell.web.live import Broadcast, Live
from dockbell.web.long_poll import LongPolls
from dockbell.web.metrics import Scrape
from dockbell.web.page_state import PageState
from dockbell.web.records import Records
from dockbell.web.responses import Problem, answer_error
from dockbell.web.route import Routes
from dockbell.web.routes import list_routes
from dockbell.web.session import Session, Sessions
from dockbell.web.state import Index, State
from dockbell.web.status import Health, StatusEndpoints
from dockbell.web.tokens import Tokens

_PAGES_MOST: Final = 50
_LEAVING_MOST: Final = 64
"""Connections above limit and reserve: those that have ended, but still hold a file descriptor."""
_REPORT_EVERY: Final = timedelta(minutes=1)
_GATHERING: Final = timedelta(seconds=1)
_BUFFER: Final = 65_536
"""Bytes of a connection's kernel buffers, each way: by default they grow to megabytes if the client does not read."""
_WAITING_MOST: Final = 1024
"""The backlog: connections that the kernel holds until they are accepted."""
_SPEECHLESS: Final = timedelta(seconds=10)
"""For so long the kernel also holds a connection on which nothing is sent, where it supports that."""
_SILENCE: Final = timedelta(seconds=60)
"""The time after which the kernel drops a client that vanished."""


class SiteOpened(Fact, frozen=True):
    url: str

    line = "web: answers at {url}"


class Site:
    """A socket that listens from the start, and answers while :meth:`run` does.

    The reads of the status page may take long, so it has its own ``page_read_store``. ``next_time`` returns the next
    time of an interval or a cron line after a given time. After the silence of ``keep_alive`` a stream sends a comment.
    ``listener`` is a socket that listens already, from :meth:`share`; else one is opened. ``check_store`` returns after
    the writer of the store has answered; it raises why the store cannot be written. ``works_on`` returns whether this
    process has a source, by its name; others may have it.

    Raises:
        ConfigError: The address cannot be listened on.
    """

    def __init__(
        self,
        settings: WebSettings,
        *,
        config: Callable[[], Config],
        read_store: ReadStore,
        page_read_store: ReadStore,
        command_store: CommandStore,
        recent: Recent,
        outbox: OutboxBell,
        telemetry: Telemetry,
        now: Callable[[], datetime],
        next_time: Callable[[timedelta | str, datetime], datetime],
        keep_alive: timedelta = timedelta(seconds=15),
        listener: socket.socket | None = None,
        metrics: Metrics | None = None,
        check_store: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
        works_on: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._telemetry = telemetry
        self.long_polls = LongPolls(outbox)
        self.page_polls = LongPolls(outbox, most=_PAGES_MOST)
        page_state = PageState(
            page_read_store, config, recent, now=now, next_time=next_time, holder=f"process {os.getpid()}"
        )
        self.broadcast = Broadcast(page_state, outbox, telemetry)

        async def look() -> Status:
            await check_store()
            return await page_state.load()

        self.shared_status = SharedRead(look)
        proxies = Proxies(settings.proxy_networks)
        self.limiter = ConnectionLimiter(
            *count_connections(find_limit()), is_proxy=proxies.__contains__, on_refusal=self._note_refusal
        )
        self._refused = anyio.Event()
        self._shortage = ""
        allowance = Allowance(drop_stalled=self.limiter.drop_stalled)
        tokens = Tokens(settings.token, telemetry)
        sessions = Sessions(tokens, read_store.epoch)
        assets = Assets()
        feeds = Feeds(read_store, self.long_polls, allowance, keep_alive)
        actions = Actions(command_store, page_read_store, config, telemetry=telemetry, now=now)
        routes = list_routes(
            actions=actions,
            assets=assets,
            dead_letters=DeadLetters(command_store, config),
            delays=DelayWeeks(page_read_store, config, now),
            events=Events(page_read_store, config),
            feeds=feeds,
            health=Health(
                self.shared_status.ask,
                concerns=lambda reason: (
                    reason.kind not in {"feed", "source"} or works_on(reason.name.partition("/")[0])
                ),
                is_open=settings.token is None,
            ),
            index=Index(config, read_store, assets),
            live=Live(self.broadcast, self.page_polls),
            records=Records(page_read_store, config),
            scrape=Scrape(metrics or Metrics(), recent, page_state.load, check_store, config),
            session=Session(tokens, sessions),
            state=State(read_store, allowance),
            status=StatusEndpoints(page_read_store, config, page_state.load, now),
        )
        table = Routes(routes, sessions.cookie)
        app = Starlette(
            routes=table.for_starlette(),
            exception_handlers=dict.fromkeys((Problem, HTTPException, StoreError, Exception), answer_error),
        )
        app.router.redirect_slashes = False
        self._app = Gate(InPieces(app, allowance), settings, table, tokens, sessions)
        self._listener = listener or listen(settings)
        self.port: int = self._listener.getsockname()[1]

    async def run(self) -> None:
        """Answer until cancelled; then end the requests that wait, and give others a second to finish."""
        async with listening(
            self._app,
            self._listener,
            http=partial(Connection, limiter=self.limiter),
            most=self.limiter.limit + self.limiter.reserve + _LEAVING_MOST,
            turned_away=self._refuse,
            server_header=False,
            log_level=logging.WARNING,
            h11_max_incomplete_event_size=HEAD_BYTES_MOST,
        ):
            host = str(self._listener.getsockname()[0])
            self._telemetry.emit(SiteOpened(f"http://{f'[{host}]' if ':' in host else host}:{self.port}"))
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self.shared_status.run)
                    group.start_soon(self.broadcast.run)
                    group.start_soon(self._report_refusals)
            finally:
                self.long_polls.close()
                self.page_polls.close()

    def share(self) -> socket.socket:
        """Return a duplicate of the socket for the next site, so that no client is refused meanwhile."""
        return self._listener.dup()

    def close(self) -> None:
        self._listener.close()

    def _refuse(self, peer: str, shortage: str) -> None:
        if shortage:
            self._shortage = shortage
            self._note_refusal()
        else:
            self.limiter.note_refusal(peer)

    def _note_refusal(self) -> None:
        self._refused.set()

    async def _report_refusals(self) -> None:
        told = 0
        while True:
            await self._refused.wait()
            await anyio.sleep(_GATHERING.total_seconds())
            count, shortage = self.limiter.refusals - told, self._shortage
            self._refused, self._shortage, told = anyio.Event(), "", self.limiter.refusals
            self._telemetry.emit(Crowded(count, self.limiter.limit, self.limiter.last_refused, shortage))
            await anyio.sleep((_REPORT_EVERY - _GATHERING).total_seconds())


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
