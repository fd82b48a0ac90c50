"""``GET /live``: what the status page shows, as server-sent events.

It is read about once a second for all open pages together, and only while a page is open. Each page has a subscriber,
which keeps only the newest value of each part until the page reads it. So a slow page skips outdated values and delays
no other page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, Protocol

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dockbell.core.model import JSON
from dockbell.ports import Bell
from dockbell.telemetry import AgentFails, Telemetry
from dockbell.web.long_poll import EVENT_STREAM, EventStream, LongPolls

EVENTS_MOST: Final = 100
"""How many new events are shown at once; the others are only counted."""
FIRST_EVENTS: Final = 50
"""How many past events a new page shows."""

_LIFE: Final = timedelta(minutes=15)
"""Then the page reconnects and shows its token again, because the token may have changed."""

# In seconds: the shortest and the longest time between two reads.
_PACE: Final = 0.7
_TICK: Final = 2.0
_FAILED_PAUSE: Final = 5.0
_OVERDUE: Final = 10.0
"""A read that takes longer may never come back."""
_PAUSE_MOST: Final = 5.0
_SHARE: Final = 10
"""Reads may use a tenth of the time, or more where the page would otherwise be older than a few seconds."""


class News(msgspec.Struct, frozen=True):
    """The events that were recorded since the last read."""

    events: Sequence[object] = ()  # oldest first; past events at the first read
    skipped: int = 0  # how many are left out


class PageSource(Protocol):
    """Reads what the page shows: its parts by name, and the events since the last call, which is cheap.

    After ``reset``, ``read_news`` begins again with past events.
    """

    async def read_parts(self) -> Mapping[str, JSON]: ...

    async def read_news(self) -> News: ...

    def reset(self) -> None: ...


class Subscriber:
    """Keeps for one page what has changed until the page reads it."""

    def __init__(self) -> None:
        self._parts: dict[str, bytes] = {}
        self._events: deque[bytes] = deque(maxlen=EVENTS_MOST)
        self._skipped = 0
        self.is_served = False  # it was given all parts once
        self._is_new = True
        self._is_over = False
        self._bell = anyio.Event()

    def put(self, parts: Mapping[str, bytes], events: Sequence[bytes] = (), skipped: int = 0) -> None:
        """Add what has changed, and wake the page up if there is any."""
        self._parts |= parts
        self._skipped += skipped + max(0, len(self._events) + len(events) - EVENTS_MOST)
        self._events.extend(events)
        self.is_served = True
        if self._parts or self._events or self._skipped:
            self._bell.set()

    def end(self) -> None:
        """End the stream of the page, because what it shows is outdated."""
        self._is_over = True
        self._bell.set()

    async def take(self) -> bytes | None:
        """Wait until something has changed; return it as server-sent events, and None at the end."""
        await self._bell.wait()
        if self._is_over:
            return None
        self._bell = anyio.Event()
        texts = list(self._parts.values())
        if self._events or self._skipped:
            skipped = b',"skipped":%d' % self._skipped if self._skipped else b""
            texts.append(_write("events", b'{"events":[%s]%s}' % (b",".join(self._events), skipped)))
        if self._is_new:
            texts.append(_write("ready", b"{}"))
        self._parts, self._skipped, self._is_new = {}, 0, False
        self._events.clear()
        return b"".join(texts)


class Broadcast:
    """Reads what the page shows, and gives the changes to all subscribers."""

    def __init__(self, source: PageSource, outbox: Bell, telemetry: Telemetry) -> None:
        self._source = source
        self._outbox = outbox
        self._telemetry = telemetry
        self._subscribers: set[Subscriber] = set()
        self._arrival = anyio.Event()
        self._parts: dict[str, bytes] = {}
        self._recent: deque[bytes] = deque(maxlen=EVENTS_MOST)
        self._is_current = False
        self._due = 0.0
        self.reads = 0

    @contextmanager
    def subscribe(self) -> Iterator[Subscriber]:
        """Add a subscriber; it gets the known parts at once if they are current."""
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        if self._is_current:
            self._serve(subscriber)
        self._arrival.set()
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)

    async def run(self) -> None:
        """Read while there are subscribers, until cancelled."""
        while True:
            if not self._subscribers:
                self._reset()
                self._arrival = anyio.Event()
                await self._arrival.wait()
            rings = self._outbox.rings
            async with anyio.create_task_group() as group:
                group.start_soon(self._guard)
                pause = await self._read()
                group.cancel_scope.cancel()
            await anyio.sleep(pause)
            with anyio.move_on_after(max(_TICK - pause, 0)):
                await self._outbox.wait(rings)

    async def _read(self) -> float:
        """Read once, for all; return after how many seconds to read again."""
        began = anyio.current_time()
        try:
            if began >= self._due:
                self._send_parts(await self._source.read_parts())
                self._due = began + min(max(_PACE, _SHARE * (anyio.current_time() - began)), _PAUSE_MOST)
            self._send_news(await self._source.read_news())
        except Exception as error:  # noqa: BLE001  # whatever it is, the next read may succeed
            self._telemetry.emit(AgentFails("status page", error))
            self._disconnect()
            self._reset()
            return _FAILED_PAUSE
        return _PACE

    async def _guard(self) -> None:
        """Report a read that takes too long; it cannot be cancelled while the disk does not answer."""
        await anyio.sleep(_OVERDUE)
        error = TimeoutError(f"the store does not answer within {_OVERDUE:.0f} s")
        self._telemetry.emit(AgentFails("status page", error))
        self._disconnect()

    def _disconnect(self) -> None:
        """End the subscribers that show outdated parts; new ones wait for the next read."""
        self._is_current = False
        for subscriber in self._subscribers:
            if subscriber.is_served:
                subscriber.end()

    def _reset(self) -> None:
        """Forget the parts and the events, which are outdated by the next read."""
        self._is_current = False
        self._parts = {}
        self._recent.clear()
        self._source.reset()
        self._due = 0.0

    def _send_parts(self, found: Mapping[str, JSON]) -> None:
        """Give the changed parts to the subscribers."""
        self.reads += 1
        parts = {name: _write_part(name, value) for name, value in found.items()}
        gone = {name: _write_part(name, None) for name in self._parts if name not in parts}
        changed = {name: text for name, text in parts.items() if self._parts.get(name) != text} | gone
        self._parts = parts
        for subscriber in self._subscribers:
            if subscriber.is_served:
                subscriber.put(changed)

    def _send_news(self, news: News) -> None:
        """Give the new events to the subscribers, and all parts to new ones."""
        events = [msgspec.json.encode(event) for event in news.events]
        self._recent.extend(events)
        self._is_current = True
        for subscriber in self._subscribers:
            if subscriber.is_served:
                subscriber.put({}, events, news.skipped)
            else:
                self._serve(subscriber)

    def _serve(self, subscriber: Subscriber) -> None:
        subscriber.put(self._parts, tuple(self._recent)[-FIRST_EVENTS:])


def _write_part(name: str, value: JSON) -> bytes:
    return _write("part", msgspec.json.encode({"part": name, "value": value}))


def _write(event: str, text: bytes) -> bytes:
    # msgspec writes JSON on one line.
    return b"event: %s\ndata: %s\n\n" % (event.encode(), text)


class Live(msgspec.Struct, frozen=True):
    """The endpoint; ``long_polls`` counts the open pages, apart from the pull feeds: neither keeps the other out."""

    broadcast: Broadcast
    long_polls: LongPolls

    async def answer(self, request: Request) -> Response:
        """Answer with a stream.

        Raises:
            Problem: 503, too many pages are open.
        """
        if request.method == "HEAD":
            return Response(headers={"Content-Type": EVENT_STREAM})
        return EventStream(self.long_polls, self._stream, {})

    async def _stream(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        with self.broadcast.subscribe() as subscriber, anyio.move_on_after(_LIFE.total_seconds()):
            while (text := await subscriber.take()) is not None:
                await send(text)
