"""What every open page is shown: found out once for all of them, about once a second, and never while nobody looks.

A reader has a seat. What has changed is put there, the newer over the older: a reader that is slow skips what is out of
date by the time it can be sent, and nobody waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import anyio
import msgspec

from dockbell.core.model import JSON
from dockbell.ports import Bell
from dockbell.telemetry import AgentFails, Telemetry

EVENTS_MOST: Final = 100
"""So many events are shown at once; the others are counted."""
FIRST_EVENTS: Final = 50
"""So many of the last ones are shown to who is new."""

# In seconds: how often it is looked at most, and at least.
_PACE: Final = 0.7
_TICK: Final = 2.0
_FAILED_PAUSE: Final = 5.0
_OVERDUE: Final = 10.0
"""A look that takes longer may never come back."""
_PAUSE_MOST: Final = 5.0
_SHARE: Final = 10
"""A look may take a tenth of the time, or more where what is shown would be older than a few seconds."""


@dataclass(frozen=True, slots=True)
class News:
    """What was recorded since the last time it was asked for.

    Attributes:
        events: Oldest first; the last ones at the first time.
        skipped: How many are left out.
    """

    events: Sequence[JSON] = ()
    skipped: int = 0


class Lookout(Protocol):
    """Looks for what is shown."""

    async def look(self) -> Mapping[str, JSON]:
        """Look at everything; return the parts of the page, by name."""
        ...

    async def hear(self) -> News:
        """Return what was recorded since, which costs little."""
        ...

    def forget(self) -> None:
        """Begin again with the last events: nobody has looked for a while."""
        ...


class Seat:
    """Where one reader sits, and what waits to be sent to it."""

    def __init__(self) -> None:
        self._parts: dict[str, bytes] = {}
        self._events: deque[bytes] = deque(maxlen=EVENTS_MOST)
        self._skipped = 0
        self._is_served = False
        self._is_new = True
        self._is_over = False
        self._bell = anyio.Event()

    @property
    def is_served(self) -> bool:
        """Whether it was given all parts."""
        return self._is_served

    def put(self, parts: Mapping[str, bytes], events: Sequence[bytes] = (), skipped: int = 0) -> None:
        """Leave what has changed; the reader is woken where there is any."""
        self._parts |= parts
        self._skipped += skipped + max(0, len(self._events) + len(events) - EVENTS_MOST)
        self._events.extend(events)
        self._is_served = True
        if self._parts or self._events or self._skipped:
            self._bell.set()

    def end(self) -> None:
        """Let the reader go: what it was shown is out of date, and nobody knows when there will be anything newer."""
        self._is_over = True
        self._bell.set()

    async def take(self) -> bytes | None:
        """Return what is to be sent, as soon as there is any, and what came together as one text; None at the end."""
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


class Board:
    """What is shown, and who looks at it.

    Args:
        lookout: Looks for what is shown.
        outbox: Rings when events were added.
        telemetry: Is told what goes wrong; the next look may do better.
    """

    def __init__(self, lookout: Lookout, outbox: Bell, telemetry: Telemetry) -> None:
        self._lookout = lookout
        self._outbox = outbox
        self._telemetry = telemetry
        self._seats: set[Seat] = set()
        self._arrival = anyio.Event()
        self._known: dict[str, bytes] = {}
        self._recent: deque[bytes] = deque(maxlen=EVENTS_MOST)
        self._is_awake = False
        self._due = 0.0
        self.looks = 0

    @contextmanager
    def attend(self) -> Iterator[Seat]:
        """Seat one reader; what is known by now waits there already where others look too."""
        seat = Seat()
        self._seats.add(seat)
        if self._is_awake:
            self._serve(seat)
        self._arrival.set()
        try:
            yield seat
        finally:
            self._seats.discard(seat)

    async def run(self) -> None:
        """Look for as long as somebody is there, until cancelled."""
        while True:
            if not self._seats:
                self._forget()
                self._arrival = anyio.Event()
                await self._arrival.wait()
            rings = self._outbox.rings
            async with anyio.create_task_group() as group:
                group.start_soon(self._expect)
                pause = await self._look()
                group.cancel_scope.cancel()
            await anyio.sleep(pause)
            with anyio.move_on_after(max(_TICK - pause, 0)):
                await self._outbox.wait(rings)

    async def _look(self) -> float:
        """Look once, for all; return after how many seconds to look again."""
        began = anyio.current_time()
        try:
            if began >= self._due:
                self._turn(await self._lookout.look())
                self._due = began + min(max(_PACE, _SHARE * (anyio.current_time() - began)), _PAUSE_MOST)
            self._add(await self._lookout.hear())
        except Exception as error:  # noqa: BLE001  # whatever it is, the next look may do better
            self._telemetry.emit(AgentFails("status page", error))
            self._dismiss()
            self._forget()
            return _FAILED_PAUSE
        return _PACE

    async def _expect(self) -> None:
        """Wait beside a look, which cannot be cut short while the disk does not answer, for as long as one may take."""
        await anyio.sleep(_OVERDUE)
        error = TimeoutError(f"the store does not answer within {_OVERDUE:.0f} s")
        self._telemetry.emit(AgentFails("status page", error))
        self._dismiss()

    def _dismiss(self) -> None:
        """Show nobody what was known as if it were so now: who is served is let go, who comes waits for a look."""
        self._is_awake = False
        for seat in self._seats:
            if seat.is_served:
                seat.end()

    def _forget(self) -> None:
        """Begin anew: what was known is out of date by the next look."""
        self._is_awake = False
        self._known = {}
        self._recent.clear()
        self._lookout.forget()
        self._due = 0.0

    def _turn(self, sight: Mapping[str, JSON]) -> None:
        """Put the parts that have changed before everybody."""
        self.looks += 1
        parts = {name: _write_part(name, value) for name, value in sight.items()}
        gone = {name: _write_part(name, None) for name in self._known if name not in parts}
        changed = {name: text for name, text in parts.items() if self._known.get(name) != text} | gone
        self._known = parts
        for seat in self._seats:
            if seat.is_served:
                seat.put(changed)

    def _add(self, news: News) -> None:
        """Put the new events before everybody, and everything before those who are new."""
        events = [msgspec.json.encode(event) for event in news.events]
        self._recent.extend(events)
        self._is_awake = True
        for seat in self._seats:
            if seat.is_served:
                seat.put({}, events, news.skipped)
            else:
                self._serve(seat)

    def _serve(self, seat: Seat) -> None:
        seat.put(self._known, tuple(self._recent)[-FIRST_EVENTS:])


def _write_part(name: str, value: JSON) -> bytes:
    return _write("part", msgspec.json.encode({"part": name, "value": value}))


def _write(event: str, text: bytes) -> bytes:
    # JSON that msgspec writes is one line.
    return b"event: %s\ndata: %s\n\n" % (event.encode(), text)
