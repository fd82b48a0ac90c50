"""Clears retained states of records that are not stored any more, and for which no deletion event will come.

There may be such states after the store was lost or restored from a backup, after a change of ``state_topic``, and of a
resource that was removed from the configuration. The sweeper reads all that is retained under the old topics, and
clears each state without a stored record. It leaves topics alone that another client claims.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Final

import anyio

from dockbell.core.publishing.settlement import Place
from dockbell.ports import RetainedState
from dockbell.sinks.mqtt.connection import Connection
from dockbell.sinks.mqtt.flow import Flow
from dockbell.sinks.mqtt.publication import Publication
from dockbell.sinks.mqtt.sentinel import Sentinel, Tree
from dockbell.telemetry import StateRepaired, Telemetry

_QUIET: Final = timedelta(seconds=2)
"""A broker that has delivered nothing for so long has delivered all retained messages."""
_LOOK_EVERY: Final = timedelta(seconds=0.05)
_READ_LIMIT: Final = timedelta(minutes=5)
_ROUNDS_MOST: Final = 1000
_AT_ONCE: Final = 500
_STRAYS_MOST: Final = 5000
"""So many states are cleared before more are read."""
_UNREAD_MOST: Final = 100_000
_CLAIMS_MOST: Final = 1000
_TRY_AGAIN: Final = timedelta(hours=1)
"""How long a tree is left alone that cannot be read completely."""
_NEARLY: Final = 0.99
"""The share of the stored states that must be found; some are not retained, for example because of their size."""

_STAYS: Final = "what else is retained of records that are gone stays there"


@dataclass(slots=True)
class _Round:
    """The result of reading a tree: the states to clear, and the number of those with a stored record."""

    strays: dict[Place, Publication]
    held: int = 0


class Sweeper:
    """Clears trees at one broker.

    Args:
        retained_state: The stored records.
        template: Of the topics of states.
        claims: A filter for the sentinels of every client.
        client_id: Our own.
        name: The sink's.
        telemetry: Where the results are reported.
    """

    def __init__(
        self,
        retained_state: RetainedState,
        *,
        template: str,
        claims: str,
        client_id: str,
        name: str,
        telemetry: Telemetry,
    ) -> None:
        self._retained_state = retained_state
        self._template = template
        self._claims = claims
        self._client_id = client_id
        self._name = name
        self._telemetry = telemetry
        self._later: dict[Tree, float] = {}
        self._reported: set[str] = set()

    async def sweep(self, trees: Collection[Tree], connection: Connection, flow: Flow) -> Collection[Tree]:
        """Clear the states under these trees that have no stored record; return the trees that are done."""
        now = anyio.current_time()
        ready = [
            tree for tree in trees if now >= self._later.get(tree, now) and await self._count_held(tree) is not None
        ]
        if not ready:
            return ()
        others: list[Sentinel] = []
        done: list[Tree] = []
        if obstacle := await self._read_claims(connection, others):
            self._report_once(self._claims, f"cannot read {self._claims}, {obstacle}; {_STAYS}")
        else:
            for tree in ready:
                if owner := _find_owner(tree, others):
                    self._report_once(owner, f'what is retained under {tree.filter} is left to client_id "{owner}"')
                    done.append(tree)
                elif await self._clear(tree, connection, flow):
                    done.append(tree)
        self._later = {tree: now + _TRY_AGAIN.total_seconds() for tree in ready if tree not in done} | {
            tree: at for tree, at in self._later.items() if tree not in ready
        }
        return done

    async def _count_held(self, tree: Tree) -> int | None:
        """Return how many of our states must be there; None while that is unknown."""
        count = 0
        for current in await self._current():
            if current.filter == tree.filter:
                held = await self._retained_state.count_held(current.feed)
                if held is None:
                    return None
                count += held
        return count

    async def _current(self) -> Sequence[Tree]:
        return [Tree(self._template, feed) for feed in await self._retained_state.feeds()]

    async def _read_claims(self, connection: Connection, others: list[Sentinel]) -> str:
        def on_message(_: str, payload: bytes) -> None:
            if len(others) < _CLAIMS_MOST:
                sentinel = Sentinel.load(payload)
                if sentinel.client_id != self._client_id:
                    others.append(sentinel)

        return await _listen(connection, self._claims, on_message)

    async def _clear(self, tree: Tree, connection: Connection, flow: Flow) -> bool:
        repairs, count, before = flow.repairs, 0, dict[Place, Publication]()
        for _ in range(_ROUNDS_MOST):
            await flow.wait_until_idle()
            repairs.watch()
            repairs.reset()
            found, obstacle = await self._read(tree, connection)
            if obstacle:
                self._report_once(tree.filter, f"cannot read {tree.filter}, {obstacle}; {_STAYS}")
                return False
            if not found.strays:
                return await self._conclude(tree, found.held, count)
            if found.strays.keys() <= before.keys():
                self._report(f"the broker keeps {len(found.strays)} states under {tree.filter} that were cleared")
                return True
            before = found.strays
            count += await repairs.offer(found.strays, flow.news.set)
            if repairs.has_failed or repairs.refused:
                refused = f"{repairs.refused} of them refused" if repairs.refused else "some of them later"
                self._report(f"{count} states of records that are gone are cleared under {tree.filter}; {refused}")
                return not repairs.has_failed
        return False

    async def _conclude(self, tree: Tree, seen: int, count: int) -> bool:
        if count:
            self._report(f"{count} states of records that are gone are cleared under {tree.filter}")
        elif not seen:
            self._report(f"nothing is retained under {tree.filter}, or the broker does not let us read it")
        held = await self._count_held(tree)
        if held is not None and seen >= held * _NEARLY:
            return True
        text = f"the broker delivers {seen} of {held} states under {tree.filter}; {_STAYS}: let it queue more messages"
        self._report_once(tree.filter, text)
        return False

    async def _read(self, tree: Tree, connection: Connection) -> tuple[_Round, str]:
        """Read a tree, or as much of it as may be cleared at once; return that, and why it cannot be read."""
        topics: deque[str] = deque()
        found = _Round({})
        current = await self._current()

        def on_message(topic: str, _: bytes) -> None:
            if len(topics) < _UNREAD_MOST and tree.find_key(topic):
                topics.append(topic)

        async def judge() -> bool:
            while topics and len(found.strays) < _STRAYS_MOST:
                portion = [topics.popleft() for _ in range(min(len(topics), _AT_ONCE))]
                await self._judge(tree, current, portion, found)
            return len(found.strays) < _STRAYS_MOST

        return found, await _listen(connection, tree.filter, on_message, judge)

    async def _judge(self, tree: Tree, current: Sequence[Tree], topics: Sequence[str], found: _Round) -> None:
        """Sort topics: those of stored records, by the topics of today, and those to clear."""
        places: dict[str, list[Place]] = {}
        for topic in topics:
            places[topic] = [(each.feed, key) for each in current if (key := each.find_key(topic))]
        held = await self._retained_state.find_held([place for each in places.values() for place in each])
        for topic, each in places.items():
            if any(place in held for place in each):
                found.held += 1
            else:
                place = each[0] if each else (tree.feed, tree.find_key(topic))
                found.strays[place] = Publication(topic, b"", retain=True)

    def _report_once(self, subject: str, text: str) -> None:
        if subject not in self._reported:
            self._reported.add(subject)
            self._report(text)

    def _report(self, text: str) -> None:
        self._telemetry.emit(StateRepaired(self._name, text))


def _find_owner(tree: Tree, others: Collection[Sentinel]) -> str:
    """Return the other client that claims a tree, or empty; older versions claim feeds, not topics."""
    for other in others:
        for each in other.trees:
            if each.filter == tree.filter if each.template else each.feed == tree.feed:
                return other.client_id or "of an older version"
    return ""


async def _listen(
    connection: Connection,
    topic_filter: str,
    on_message: Callable[[str, bytes], None],
    take: Callable[[], Awaitable[bool]] | None = None,
) -> str:
    """Read the retained messages under a filter until no more come; return why that fails, empty where it does not.

    Args:
        connection: The connection.
        topic_filter: The filter.
        on_message: Called with the topic and payload of each.
        take: Called again and again meanwhile; returns False when it has enough.
    """
    heard_at = inf

    def note(topic: str, payload: bytes, is_retained: bool) -> None:
        nonlocal heard_at
        if is_retained and payload:
            heard_at = anyio.current_time()
            on_message(topic, payload)

    obstacle = "the broker does not answer the subscription"
    with anyio.move_on_after(_READ_LIMIT.total_seconds()):
        obstacle = await connection.subscribe(topic_filter, note, is_queued=False)
        heard_at = anyio.current_time()
        is_enough = bool(obstacle)
        while not is_enough and anyio.current_time() - heard_at < _QUIET.total_seconds():
            await anyio.sleep(_LOOK_EVERY.total_seconds())
            is_enough = take is not None and not await take()
    connection.unsubscribe(topic_filter)
    return obstacle
