"""One HTTP connection, with time limits, and the limit of all connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dockbell.net import listening
from dockbell.web.client import find_network
from dockbell.web.responses import HEADERS, Problem, with_headers

CONNECTIONS_MOST: Final = 500
"""The limit is never higher."""
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


class Activity(IntEnum):
    """What a client does, in the order in which clients are replaced."""

    REFUSED = 0  # got 401, 429 or 503
    SILENT = 1  # has not sent its whole request
    IDLE = 2  # was answered
    BUSY = 3  # is being answered


class Client(Protocol):
    """A client that is connected; ``network`` is what its address counts for."""

    @property
    def address(self) -> str: ...

    @property
    def network(self) -> str: ...

    @property
    def is_stalled(self) -> bool: ...

    @property
    def has_taken_all(self) -> bool: ...

    def abort(self) -> None: ...


def count_connections(descriptors: int) -> tuple[int, int]:
    """Return the limit and the reserve; more than half of the file descriptors are left to the rest of the process."""
    limit = max(1, min(CONNECTIONS_MOST, descriptors * 3 // 8))
    return limit, max(4, limit // 8)


class ConnectionLimiter:
    """Limits how many clients are connected, and picks the connection that is closed for a new one.

    The number of connections is limited, and one network may have half of them. At the limit a new client replaces one
    that is not being answered: first one that was refused, then one that has not sent its whole request, unless these
    are an eighth or less, then one that was answered, and at last one that does not read what it is sent. Where none
    can be replaced, the client takes a connection of the reserve: it is answered there if it is a probe, else it is
    told to come again.

    In the reserve a new client replaces one that was answered or does not read; else the oldest of those that are
    silent, or of those that are being answered, whichever are more: a crowd of one kind does not drive out the other.

    Attributes:
        refusals: How many clients were refused or replaced until now, the last of them from ``last_refused``.

    Args:
        limit: How many clients are answered at a time.
        reserve: How many more may be connected.
        is_proxy: Whether an address is a proxy's, which may use the whole limit.
        on_refusal: Is called when a client was refused or replaced.
    """

    def __init__(
        self,
        limit: int,
        reserve: int,
        *,
        is_proxy: Callable[[str], bool] = lambda _: False,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        self.limit = limit
        self.reserve = reserve
        self.refusals = 0
        self.last_refused = ""
        self._is_proxy = is_proxy
        self._on_refusal = on_refusal
        self._by_activity: dict[Activity, dict[Client, None]] = {activity: {} for activity in Activity}
        self._activities: dict[Client, Activity] = {}
        self._reserve: dict[Client, Activity] = {}
        self._per_network: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._activities) + len(self._reserve)

    def admit(self, client: Client) -> bool:
        """Add a client; return False where it got a connection of the reserve only."""
        if not self._has_room(client):
            self.note_refusal(client.address)
            self._add_to_reserve(client)
            return False
        self._per_network[client.network] += 1
        self._activities[client] = Activity.SILENT
        self._by_activity[Activity.SILENT][client] = None
        return True

    def note_activity(self, client: Client, activity: Activity) -> None:
        if client in self._reserve:
            self._reserve[client] = activity
        before = self._activities.get(client)
        if before is not None and before is not activity:
            del self._by_activity[before][client]
            self._by_activity[activity][client] = None
            self._activities[client] = activity

    def remove(self, client: Client) -> None:
        self._reserve.pop(client, None)
        activity = self._activities.pop(client, None)
        if activity is not None:
            del self._by_activity[activity][client]
            self._per_network[client.network] -= 1
            if not self._per_network[client.network]:
                del self._per_network[client.network]

    def note_refusal(self, address: str) -> None:
        """Note that a client of this address was refused or replaced."""
        self.refusals += 1
        self.last_refused = address
        self._on_refusal()

    def drop_stalled(self) -> None:
        """Disconnect all stalled clients, which frees the memory that their answers hold."""
        for client in [client for client in self._activities if client.is_stalled]:
            self._drop(client)

    def _has_room(self, client: Client) -> bool:
        """Return whether a client may be answered; may replace another for it."""
        has_many = self._per_network[client.network] >= max(1, self.limit // 2) and not self._is_proxy(client.address)
        if has_many and not self._replace(client.network):
            return False
        return len(self._activities) < self.limit or self._replace(None)

    def _add_to_reserve(self, client: Client) -> None:
        """Add a client to the reserve, in place of another one where it is full."""
        if len(self._reserve) >= self.reserve:
            replaced = self._find_replaceable_in_reserve()
            self.remove(replaced)
            replaced.abort()
        self._reserve[client] = Activity.SILENT

    def _replace(self, network: str | None) -> bool:
        """Disconnect one replaceable client, of a network where it is given; return whether there was one."""
        client = next(self._find_replaceable(network), None)
        if client is not None:
            self._drop(client)
        return client is not None

    def _find_replaceable(self, network: str | None) -> Iterator[Client]:
        yield from self._find_free(Activity.REFUSED, network)
        # Every client is silent when it connects: where all others are busy, the next one would replace it unread.
        few = self.limit // 8
        silent = list(islice(self._find_free(Activity.SILENT, network), few + 1))
        if len(silent) > few:
            yield silent[0]
        yield from self._find_free(Activity.IDLE, network)
        yield from (client for client in self._activities if client.is_stalled and network in (None, client.network))

    def _find_free(self, activity: Activity, network: str | None) -> Iterator[Client]:
        """Return those that do something, have read all that they were sent, and are of a network if it is given."""
        clients = self._by_activity[activity]
        return (each for each in clients if each.has_taken_all and network in (None, each.network))

    def _find_replaceable_in_reserve(self) -> Client:
        by_activity: dict[Activity, list[Client]] = {activity: [] for activity in Activity}
        for client, activity in self._reserve.items():
            by_activity[activity if client.has_taken_all else Activity.REFUSED].append(client)
        silent, busy = by_activity[Activity.SILENT], by_activity[Activity.BUSY]
        done = by_activity[Activity.REFUSED] + by_activity[Activity.IDLE]
        return (done or (silent if len(silent) >= len(busy) else busy))[0]

    def _drop(self, client: Client) -> None:
        self.remove(client)
        self.note_refusal(client.address)
        client.abort()


class Connection(listening.Connection):
    """Limits the seconds for sending a request and for reading the answer; uvicorn has no such limits.

    Also answers malformed requests and clients above the connection limit with a problem, not with plain text.
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
        super().data_received(data)
        self._limit_head_time()
        self._note_activity()

    def on_response_complete(self) -> None:
        """Begin the next pipelined request, if there is one."""
        super().on_response_complete()
        self._note_activity()

    def connection_lost(self, exc: Exception | None) -> None:
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
        self.transport.abort()

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
        detail = f"connections: all {limit}, or the half that your network may have, are in use; retry later"
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
