"""An ASGI application on a socket, inside the running event loop."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from typing import Any, Final

import anyio
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dockbell.host.system import find_limit

_AT_ONCE: Final = 8
"""How many connections are accepted before the event loop runs other tasks."""
_PAUSE_SECONDS: Final = 1.0
_FINISHING_SECONDS: Final = 1
_RESET: Final = struct.pack("ii", 1, 0)


@asynccontextmanager
async def listening(
    app: Any,
    listener: socket.socket,
    *,
    most: int | None = None,
    turned_away: Callable[[str, str], None] = lambda _peer, _reason: None,
    **settings: Any,
) -> AsyncIterator[None]:
    """Answer on a listening socket until the block is left, which closes it; answers under way have a second to finish.

    Signals are left alone, and so is what the environment says to servers of this kind. The application has no lifespan
    and no web sockets. Above ``most`` connections, by default half of the file descriptors, others are reset.
    ``turned_away`` is called with the address of each of them and no reason; or with no address and the reason why none
    can be accepted now. ``settings`` are uvicorn's.
    """
    settings = {"http": Connection} | settings
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # else uvicorn believes a header that any client may send
        workers=1,
        timeout_keep_alive=75,  # uvicorn's 5 s are httpx's too: a request could meet the end of its connection
        timeout_graceful_shutdown=2 * _FINISHING_SECONDS,
        **settings,
    )
    server = _Server(config, listener, find_limit() // 2 if most is None else most, turned_away)
    async with anyio.create_task_group() as group:
        group.start_soon(_run, server, listener)
        try:
            yield
        finally:
            server.should_exit = True
            group.cancel_scope.cancel()


async def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    with anyio.CancelScope(shield=True):
        await server.serve(sockets=[listener])


class Connection(H11Protocol):
    """Treats bytes that are no HTTP as an error of the client, without writing into an answer that has begun.

    When the server ends, a client that has just connected may still ask once.
    """

    _is_last = False

    def shutdown(self) -> None:
        """End after the answer under way, or after the first one."""
        self._is_last = True
        if self.cycle is not None:
            super().shutdown()

    def handle_events(self) -> None:
        super().handle_events()
        if self._is_last and self.cycle is not None:
            self.cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request; hang up where something is answered already."""
        if self.cycle is not None and not self.cycle.response_complete:  # the client will not read its answer
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state is h11.SEND_BODY:
            self.transport.abort()  # not closed: it could look as if the answer were whole
        elif self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers, body = self.describe_bad_request(msg)
            is_head = self.conn.our_state is h11.SEND_RESPONSE and self.scope["method"] == "HEAD"
            reason = HTTPStatus.BAD_REQUEST.phrase
            self._write(h11.Response(status_code=HTTPStatus.BAD_REQUEST, headers=list(headers.items()), reason=reason))
            self._write(h11.Data(data=b"" if is_head else body))
            self._write(h11.EndOfMessage())
        self.transport.close()

    def describe_bad_request(self, msg: str) -> tuple[Mapping[bytes, bytes], bytes]:
        body = msg.encode()
        headers = {b"content-type": b"text/plain; charset=utf-8", b"content-length": b"%d" % len(body)}
        return headers | {b"connection": b"close"}, body

    def _write(self, event: h11.Event) -> None:
        self.transport.write(self.conn.send(event) or b"")


class _Server(uvicorn.Server):
    """Leaves the signals to the process, accepts connections some at a time, and resets those above the limit.

    asyncio's own server tries on when no file descriptor is left, and logs a line for each try.
    """

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, most: int, turned_away: Callable[[str, str], None]
    ) -> None:
        super().__init__(config)
        self._listener = listener
        self._most = most
        self._turned_away = turned_away
        self._loop = asyncio.get_running_loop()
        self._entering: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        listener.settimeout(0)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002  # it is the listener
        self.servers = []
        self._open()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        # Else uvicorn cancels each answer to a client that does not read, with a traceback in the log.
        end = self._loop.call_later(_FINISHING_SECONDS, self._hang_up)
        await super().shutdown(sockets)
        end.cancel()

    def _hang_up(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _make_connection(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # uvicorn says so too
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def _open(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                caller, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptor or memory is left: connections stay in the backlog
                self._turned_away("", error.strerror or type(error).__name__)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self._open)
                return
            if len(self.server_state.connections) + len(self._entering) < self._most:
                task = self._loop.create_task(self._let_in(caller))
                self._entering.add(task)
                task.add_done_callback(self._entering.discard)
            else:
                self._turned_away(str(address[0]), "")
                with suppress(OSError):
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                caller.close()

    async def _let_in(self, caller: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_connection, caller)
        except OSError:  # the client has disconnected already
            caller.close()
