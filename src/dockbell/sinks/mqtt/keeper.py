"""Keeps the retained state at a broker equal to the stored records, also when the broker has lost some of it.

A retained *sentinel* says how far the states at the broker go. Whatever a broker forgets when it is killed, it forgets
the sentinel written after it too: an old one, or none, on connect tells what to publish again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b
from typing import Final

import anyio

from dockbell.core.model import Fate
from dockbell.core.publishing.settlement import Place
from dockbell.ports import Kept, Shelf
from dockbell.sinks.mqtt.flow import Flow
from dockbell.sinks.mqtt.publication import Publication
from dockbell.sinks.mqtt.wire import Ending, Wire
from dockbell.telemetry import StateRepaired, Telemetry

_WRITE_EVERY: Final = timedelta(seconds=10)
_ECHO_LIMIT: Final = timedelta(seconds=10)
_LATE: Final = timedelta(seconds=0.5)
"""How much later than the echo of our own words a cluster of brokers may deliver what it retains."""
_DROPS_MOST: Final = 2


class Keeper:
    """Repairs the retained states at one broker, and keeps the sentinel.

    Args:
        shelf: The stored records.
        topic: The sentinel's.
        form: What the states' topics and contents depend on: with another one no state is as it should be.
        render: Makes the publication of a record's state; ValueError where there can be none.
        name: The sink's.
        telemetry: Told what an operator may want to know.
    """

    def __init__(
        self,
        shelf: Shelf,
        *,
        topic: str,
        form: str,
        render: Callable[[Kept], Publication],
        name: str,
        telemetry: Telemetry,
    ) -> None:
        self._name = name
        self._telemetry = telemetry
        self._shelf = shelf
        self._topic = topic
        self._label = blake2b(form.encode(), digest_size=4).hexdigest() + " "
        self._render = render
        self._drops = 0
        self._obstacle = ""
        """Why the sentinel cannot be read."""
        self._remembered = ""
        """The mark that this process has come to with a broker whose sentinel it cannot read."""
        self._written: str | None = None
        """The mark in the sentinel; None while it must stay as it is: states that it would vouch for are missing."""

    async def run(self, wire: Wire, flow: Flow) -> None:
        """Repair what the broker lacks, then keep the sentinel, for as long as the connection lasts."""
        self._written = None
        try:
            await flow.calm()
            await self._repair(flow, await self._read_sentinel(wire, flow))
        except Exception as error:  # noqa: BLE001  # deliveries go on; the old sentinel tells the next connection
            self._written = None
            self._telemetry.emit_failure(f"sink {self._name}: state", error)

    async def write(self) -> Publication | None:
        """Return the sentinel as it should be at the end; None where it is so, or must stay as it is."""
        if self._written is None:
            return None
        mark, must_read = await self._shelf.mark(self._written)
        return None if must_read or mark == self._written else self._publication(mark)

    async def _repair(self, flow: Flow, sentinel: str | None) -> None:
        """Publish what the broker lacks by its sentinel, at once and again whenever states come without events."""
        is_blind, must_read = sentinel is None, True
        known = self._remembered if sentinel is None else self._read_mark(sentinel)
        while True:
            # Taken before the states are read: whatever happens meanwhile is behind it, and is read the next time.
            mark, must_read_now = await self._shelf.mark(known)
            if must_read or must_read_now:
                count = await self._publish_since(known, flow)
                self._tell_repaired(count, flow.repairs.refused, is_blind=is_blind and not known)
                if flow.repairs.has_failed:
                    return  # the old sentinel tells the next connection
            if is_blind:
                self._remembered = mark
            elif mark != known and (outcome := await flow.say(self._publication(mark))).fate is not Fate.DELIVERED:
                self._tell(f"{self._topic}: {outcome.reason}; what the broker forgets is published again at each start")
                return
            else:
                self._written = mark
            known, must_read = mark, False
            await anyio.sleep(_WRITE_EVERY.total_seconds())

    def _publication(self, mark: str) -> Publication:
        return Publication(self._topic, (self._label + mark).encode(), retain=True)

    def _read_mark(self, sentinel: str) -> str:
        return sentinel.removeprefix(self._label) if sentinel.startswith(self._label) else ""

    def _tell_repaired(self, count: int, refused: int, *, is_blind: bool) -> None:
        words = f"all {count} states are published again at each start: cannot read {self._topic}, {self._obstacle}"
        if not is_blind:
            words = f"{count} states were not as stored and are published again"
        if is_blind or count:
            self._tell(words + (f"; {refused} of them refused" if refused else ""))

    def note_end(self, wire: Wire) -> None:
        """Note how a connection ended: there are brokers that close it on a subscription that they refuse."""
        self._drops += wire.is_asking and wire.ending is Ending.DROPPED

    def _tell(self, words: str) -> None:
        self._telemetry.emit(StateRepaired(self._name, words))

    async def _read_sentinel(self, wire: Wire, flow: Flow) -> str | None:
        """Return what the broker retains, empty where it is nothing; None where it lets us read nothing.

        What the broker retains comes before whatever is published after the subscription: our own words come back to
        tell that nothing more will come. Should that ever be wrong, all is published again in vain.
        """
        if self._drops >= _DROPS_MOST:
            self._obstacle = "the broker closes the connection on a subscription"
            return None
        nonce, found, echoed = secrets.token_hex(8).encode(), asyncio.Event(), asyncio.Event()
        retained: list[bytes] = []

        def hear(payload: bytes, is_retained: bool) -> None:
            if is_retained:
                retained.append(payload)
                found.set()
            elif payload == nonce:
                echoed.set()

        self._obstacle = "the broker does not answer the subscription"
        with anyio.move_on_after(_ECHO_LIMIT.total_seconds()):
            self._obstacle = await wire.subscribe(self._topic, hear)
            if not self._obstacle:
                self._drops = 0
                self._obstacle = (await flow.say(Publication(self._topic, nonce))).reason
            if not self._obstacle:
                await echoed.wait()
        with anyio.move_on_after(_LATE.total_seconds() if echoed.is_set() else 0):
            await found.wait()
        wire.unsubscribe(self._topic)
        if self._obstacle:
            return None
        if not retained and not echoed.is_set():
            self._obstacle = "the broker delivers nothing"
            return None
        return retained[-1].decode(errors="replace") if retained else ""

    async def _publish_since(self, mark: str, flow: Flow) -> int:
        """Publish what has changed since a mark; return how many states that were."""
        repairs, count = flow.repairs, 0
        repairs.reset()
        portions = self._shelf.read_since(mark)
        try:
            while True:
                await flow.lull()  # what is delivered has its own state with it, and most of it need not be read
                repairs.watch()
                portion = await anext(portions, None)
                if portion is None:
                    break
                count += await repairs.offer(self._publications(portion), flow.news.set)
        finally:
            if isinstance(portions, AsyncGenerator):
                await portions.aclose()
        repairs.must_be_alone = False
        return count

    def _publications(self, portion: Sequence[Kept]) -> dict[Place, Publication]:
        publications = {}
        for kept in portion:
            with suppress(ValueError):  # a topic that is too long: its deliveries are dead letters
                publications[kept.feed, kept.key] = self._render(kept)
        return publications
