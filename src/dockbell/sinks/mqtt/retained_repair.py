"""Keeps the retained state at a broker equal to the stored records, also when the broker has lost some of it.

A retained *sentinel* holds the mark up to which the broker has the states. A broker that is killed and forgets states
forgets the sentinel that was written after them too. So the sentinel that is read on connect, an old one or none, tells
which states to publish again. It also holds the topics of the states and the epoch of the store. States that may be
left over under other topics, or from another epoch, are cleared a while later; until then the sentinel lists them.
Without a sentinel nothing is cleared, since retained messages there may be another client's.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b
from math import inf
from typing import Final

import anyio

from dockbell.core.counting import count_of
from dockbell.core.model import Feed, OutcomeKind
from dockbell.ports import RetainedState
from dockbell.sinks.mqtt.connection import Connection, Ending
from dockbell.sinks.mqtt.flow import Flow
from dockbell.sinks.mqtt.packets import Publication
from dockbell.sinks.mqtt.settings import MqttSettings
from dockbell.sinks.mqtt.sweeper import Sentinel, Sweeper, Tree
from dockbell.telemetry import StateRepaired, Telemetry

_WRITE_EVERY: Final = timedelta(seconds=10)
_ECHO_LIMIT: Final = timedelta(seconds=10)
_LATE: Final = timedelta(seconds=0.5)
"""How much later than the echo of our own message a cluster of brokers may deliver retained messages."""
_SWEEP_AFTER: Final = timedelta(minutes=5)
"""How long a connection lasts before states are cleared: another client that has taken them over can claim them."""
_SWEEP_AGAIN: Final = timedelta(minutes=10)
_OWED_MOST: Final = 1000
_DROPS_MOST: Final = 2


class RetainedRepair:
    """Repairs the retained states at one broker, and keeps the sentinel, whose topic is ``topic``.

    ``render`` makes the publication of a record's state; it raises ValueError where there can be none.
    """

    def __init__(
        self,
        retained_state: RetainedState,
        settings: MqttSettings,
        *,
        topic: str,
        client_id: str,
        render: Callable[[Feed, str, bytes | None], Publication],
        name: str,
        telemetry: Telemetry,
    ) -> None:
        self._name = name
        self._telemetry = telemetry
        self._retained_state = retained_state
        self._topic = topic
        self._client_id = client_id
        self._template = settings.state_topic
        form = (settings.state_topic, settings.fields, settings.redact)
        self._label = blake2b(repr(form).encode(), digest_size=4).hexdigest()
        self._render = render
        levels = settings.positions_topic.split("/")
        claims = "/".join("+" if "{client_id}" in level else level for level in levels)
        self._sweeper = Sweeper(retained_state, self._template, claims, client_id, self._report)
        self._drops: Counter[str] = Counter()
        self._asks_for = ""
        self._is_blind = False
        self._obstacle = ""  # why the sentinel cannot be read
        self._known = ""  # the mark up to which the broker has the states; empty where that is unknown
        self._remembered = ""  # the mark up to which we have published to a broker whose sentinel we cannot read
        self._there = Sentinel("", "")  # the sentinel that the broker has
        self._may_write = False  # the sentinel must stay as it is while states before its new mark are missing
        self._owed: dict[Tree, None] = {}  # the trees that are to be cleared
        self._sweeps_at = inf
        self._repaired: str | None = None
        """The mark up to which this connection, and those that it renews, have repaired; None while they have not."""
        self._has_ended = False
        """Nothing more can be done on this connection, nor on those that renew it."""

    async def run(self, connection: Connection, flow: Flow, *, is_renewed: bool = False) -> None:
        """Publish the states that the broker lacks, then keep the sentinel, for as long as the connection lasts.

        ``is_renewed``: it replaces one that we have ended ourselves, so the broker has forgotten nothing meanwhile.
        """
        if is_renewed and self._has_ended:
            return
        is_resumed = is_renewed and self._repaired is not None
        if not is_resumed:
            self._repaired = None
            self._may_write = self._has_ended = False
        try:
            await flow.wait_until_clear()
            if not is_resumed:
                await self._begin(connection, flow)
            await self._keep(connection, flow)
        except Exception as error:  # noqa: BLE001  # deliveries go on; the next connection reads the old sentinel
            self._may_write = False
            self._telemetry.emit_failure(f"sink {self._name}: state", error)
        self._has_ended = True

    async def write(self) -> Publication | None:
        """Return the final sentinel; None where the broker has it, or must keep the old one."""
        if not self._may_write:
            return None
        mark, must_read = await self._retained_state.mark(self._there.mark)
        sentinel = await self._make_sentinel(mark)
        return None if must_read or sentinel == self._there else self._publication(sentinel)

    async def _begin(self, connection: Connection, flow: Flow) -> None:
        """Read from the sentinel up to which mark the broker has the states, and which of them may be left over."""
        sentinel = await self._read_sentinel(connection, flow)
        self._is_blind = sentinel is None
        self._known, self._owed = "", {}
        if sentinel is None:
            self._known = self._remembered
        elif sentinel.client_id in (self._client_id, ""):  # an older version wrote no client id
            if sentinel.label == self._label:
                self._known = sentinel.mark
            self._owed = dict.fromkeys(sentinel.owed)
            await self._note_strays(sentinel)
        self._there = sentinel or Sentinel("", "")
        self._sweep_in(_SWEEP_AFTER)

    async def _note_strays(self, sentinel: Sentinel) -> None:
        """Note the trees of a sentinel to which no record is published any more."""
        feeds = await self._retained_state.feeds()
        trees = sentinel.trees
        if not sentinel.client_id:  # of an older version: the topics are those of today if the label is
            trees = tuple(Tree(self._template, tree.feed) for tree in trees if sentinel.label == self._label)
        for tree in trees:
            is_current = tree.template == self._template and tree.feed in feeds
            is_ours = is_current and sentinel.epoch == self._retained_state.epoch
            if not is_ours and tree not in self._owed and len(self._owed) < _OWED_MOST:
                self._owed[tree] = None
                self._sweep_in(_SWEEP_AFTER)

    async def _keep(self, connection: Connection, flow: Flow) -> None:
        """Publish states that the broker lacks or that change without events; clear the trees that are owed."""
        while True:
            # Taken before the states are read: later changes come after the mark, and are read the next time.
            mark, must_read = await self._retained_state.mark(self._known)
            if must_read or self._repaired is None:
                count = await self._publish_since(self._known, flow)
                refused = f"; {flow.repairs.refused} of them refused" if flow.repairs.refused else ""
                if self._is_blind and self._repaired is None and not self._known:
                    effect = f"dockbell publishes all states again at each start, {count} now"
                    self._report(f"{effect}: cannot read {self._topic}, {self._obstacle}{refused}")
                elif count:
                    self._report(f"published {count_of(count, 'state')}{self._tell_why()}{refused}")
                if flow.repairs.has_failed:
                    # The next connection reads the old sentinel.
                    self._may_write, self._has_ended = False, True
                    while self._owed:
                        await anyio.sleep_until(self._sweeps_at)
                        await self._sweep(connection, flow)
                    return
            if self._is_blind:
                self._remembered = mark
            elif not await self._write(mark, flow):
                return
            self._known = self._repaired = mark
            if self._owed and anyio.current_time() >= self._sweeps_at:
                await self._sweep(connection, flow)
            await anyio.sleep(_WRITE_EVERY.total_seconds())

    def _tell_why(self) -> str:
        if self._repaired is not None:
            return " of records that were stored without events, as in a first pass"
        return " again that differed from the store" if self._there.mark else ": the broker had none"

    async def _write(self, mark: str, flow: Flow) -> bool:
        """Bring the sentinel up to date; return whether the broker takes it."""
        if self._repaired is not None:
            await self._note_strays(self._there)  # feeds may have left the configuration
        sentinel = await self._make_sentinel(mark)
        if sentinel != self._there:
            outcome = await flow.publish_and_wait(self._publication(sentinel))
            if outcome.kind is not OutcomeKind.DELIVERED:
                effect = "at each start, dockbell publishes again what the broker lost"
                self._report(f"{self._topic}: {outcome.reason}; {effect}")
                self._may_write = False
                return False
        self._there, self._may_write = sentinel, True
        return True

    async def _sweep(self, connection: Connection, flow: Flow) -> None:
        self._asks_for = "sweep"
        if self._drops[self._asks_for] < _DROPS_MOST:
            for tree in await self._sweeper.sweep(tuple(self._owed), connection, flow):
                del self._owed[tree]
        self._sweep_in(_SWEEP_AGAIN)

    def _sweep_in(self, pause: timedelta) -> None:
        self._sweeps_at = anyio.current_time() + pause.total_seconds()

    async def _make_sentinel(self, mark: str) -> Sentinel:
        trees = tuple(Tree(self._template, feed) for feed in await self._retained_state.feeds())
        return Sentinel(self._label, mark, self._client_id, self._retained_state.epoch, trees, tuple(self._owed))

    def _publication(self, sentinel: Sentinel) -> Publication:
        return Publication(self._topic, sentinel.dump(), retain=True)

    def note_end(self, connection: Connection) -> None:
        """Note how a connection ended: some brokers close it instead of refusing a subscription."""
        self._drops[self._asks_for] += connection.is_subscribing and connection.ending is Ending.DROPPED

    def _report(self, text: str) -> None:
        self._telemetry.emit(StateRepaired(self._name, text))

    async def _read_sentinel(self, connection: Connection, flow: Flow) -> Sentinel | None:
        """Return the sentinel that the broker has, one without a mark where there is none; None where it is unreadable.

        The broker delivers a retained message before those published after the subscription, so the echo of our own
        message shows that none will come. If a broker ever does otherwise, all states are published again in vain.
        """
        self._asks_for = "sentinel"
        if self._drops[self._asks_for] >= _DROPS_MOST:
            self._obstacle = "the broker closes the connection when dockbell subscribes"
            return None
        nonce, found, echoed = secrets.token_hex(8).encode(), asyncio.Event(), asyncio.Event()
        retained: list[bytes] = []

        def on_message(_: str, payload: bytes, is_retained: bool) -> None:
            if is_retained:
                retained.append(payload)
                found.set()
            elif payload == nonce:
                echoed.set()

        self._obstacle = "the broker does not answer the subscription"
        with anyio.move_on_after(_ECHO_LIMIT.total_seconds()):
            self._obstacle = await connection.subscribe(self._topic, on_message)
            if not self._obstacle:
                del self._drops[self._asks_for]
                self._obstacle = (await flow.publish_and_wait(Publication(self._topic, nonce))).reason
            if not self._obstacle:
                await echoed.wait()
        with anyio.move_on_after(_LATE.total_seconds() if echoed.is_set() else 0):
            await found.wait()
        connection.unsubscribe(self._topic)
        if self._obstacle:
            return None
        if not retained and not echoed.is_set():
            self._obstacle = "the broker delivers no message"
            return None
        return Sentinel.load(retained[-1] if retained else b"")

    async def _publish_since(self, mark: str, flow: Flow) -> int:
        repairs, count = flow.repairs, 0
        repairs.reset()
        portions = self._retained_state.read_since(mark)
        try:
            while True:
                await flow.wait_until_idle()  # a delivery brings its own state, which need not be read
                repairs.watch()
                if (portion := await anext(portions, None)) is None:
                    break
                states = {}
                for kept in portion:
                    with suppress(ValueError):  # a topic that is too long: its deliveries are dead letters
                        states[kept.feed, kept.key] = self._render(kept.feed, kept.key, kept.body)
                count += await repairs.offer(states, flow.news.set)
        finally:
            if isinstance(portions, AsyncGenerator):
                await portions.aclose()
        repairs.must_be_alone = False
        return count
