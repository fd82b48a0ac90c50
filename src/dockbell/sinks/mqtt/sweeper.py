"""Clears retained states of records that are not stored any more, and for which no deletion event will come.

There may be such states after the store was lost or restored from a backup, after a change of ``state_topic``, and of a
resource that was removed from the configuration. The sweeper reads all that is retained under the old topics, and
clears each state without a stored record. It leaves topics alone that another client claims.

A client claims topics by its *sentinel*, a retained message about the states that it has retained at a broker:
``<label> {"client": …, "epoch": …, "topic": …, "feeds": […], "owed": […]} <mark>`` as text. Older versions wrote
``<label> <mark>``, and take this one for an unknown mark.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from math import inf
from typing import Any, Final, Self

import anyio

from dockbell.core.counting import count_of
from dockbell.core.model import Feed
from dockbell.core.publishing.settlement import RecordId
from dockbell.core.publishing.topic import check_topic
from dockbell.ports import RetainedState
from dockbell.sinks.mqtt.connection import Connection
from dockbell.sinks.mqtt.flow import Flow
from dockbell.sinks.mqtt.packets import Publication

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

_STAYS: Final = "other states of records that no longer exist stay retained"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_TREES_MOST: Final = 1000
_STATE_FIELDS: Final = ("source", "resource", "key")


@dataclass(frozen=True)
class Tree:
    """Where the states of the records of one feed are retained."""

    template: str  # of their topics; empty where an older version wrote none
    feed: Feed

    @cached_property
    def filter(self) -> str:
        """A topic filter that every topic of the tree matches."""
        return "/".join("+" if "{key}" in level else level for level in self._path.split("/"))

    def find_key(self, topic: str) -> str:
        """Return the key string in a topic; empty where the topic is not of this tree."""
        found = self._pattern.fullmatch(topic)
        return found["key"] if found else ""

    @property
    def _path(self) -> str:
        return self.template.replace("{source}", self.feed.source).replace("{resource}", self.feed.resource)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        first, *others = map(re.escape, self._path.split("{key}"))
        return re.compile(first + "(?P<key>[^/]+)" + "(?P=key)".join(others))


@dataclass(frozen=True)
class Sentinel:
    label: str  # a hash of the settings that shape topics and contents: with others, all states are published again
    mark: str  # up to which point of the store the states are published; empty where that is unknown
    client_id: str = ""  # the client that publishes them
    epoch: str = ""  # of the store that they were published from
    trees: tuple[Tree, ...] = ()  # the topics of the states
    owed: tuple[Tree, ...] = ()  # the topics of older states that are not cleared yet

    def dump(self) -> bytes:
        head = {
            "client": self.client_id,
            "epoch": self.epoch,
            "topic": self.trees[0].template if self.trees else "",
            "feeds": [str(tree.feed) for tree in self.trees],
            "owed": [[tree.template, str(tree.feed)] for tree in self.owed],
        }
        return f"{self.label} {json.dumps(head)} {self.mark}".encode()

    @classmethod
    def load(cls, payload: bytes) -> Self:
        """Parse a retained message; unreadable parts are empty, since any client may have written it."""
        label, _, rest = payload.decode(errors="replace").partition(" ")
        try:
            head, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            return cls(label, rest)
        if not isinstance(head, dict):
            return cls(label, rest)
        if "client" not in head:
            feeds = head.get("settled")
            trees = _read_trees((("", feed) for feed in feeds), is_named=False) if isinstance(feeds, dict) else ()
            return cls(label, rest, epoch=_text(head.get("epoch")), trees=trees)
        template = _text(head.get("topic"))
        return cls(
            label,
            rest[end + 1 :],
            client_id=_text(head["client"]),
            epoch=_text(head.get("epoch")),
            trees=_read_trees((template, feed) for feed in _list(head.get("feeds"))),
            owed=_read_trees(pair for pair in _list(head.get("owed")) if isinstance(pair, list)),
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value[:_TREES_MOST] if isinstance(value, list) else []


def _read_trees(pairs: Iterable[Sequence[Any]], *, is_named: bool = True) -> tuple[Tree, ...]:
    """Return the trees that pairs of a template and a feed name; those that are none are left out."""
    trees = []
    for pair in pairs:
        with suppress(ValueError):
            template, feed = pair
            source, _, resource = _text(feed).partition("/")
            if _NAME.fullmatch(source) and _NAME.fullmatch(resource):
                checked = check_topic(_text(template), fields=_STATE_FIELDS, required=("key",)) if is_named else ""
                trees.append(Tree(checked, Feed(source, resource)))
    return tuple(trees)


@dataclass(slots=True)
class _Round:
    """The result of reading a tree: the states to clear, and the number of those with a stored record."""

    strays: dict[RecordId, Publication]
    held: int = 0


@dataclass(eq=False)
class Sweeper:
    """Clears trees at one broker; ``claims`` is a filter for the sentinels of every client."""

    retained_state: RetainedState
    template: str
    claims: str
    client_id: str
    report: Callable[[str], None]
    _later: dict[Tree, float] = field(default_factory=dict, init=False)
    _reported: set[str] = field(default_factory=set, init=False)

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

        def note_claim(_: str, payload: bytes) -> None:
            if len(others) < _CLAIMS_MOST and (sentinel := Sentinel.load(payload)).client_id != self.client_id:
                others.append(sentinel)

        if obstacle := await _listen(connection, self.claims, note_claim):
            self._report_once(self.claims, f"cannot read {self.claims}, {obstacle}; {_STAYS}")
        else:
            for tree in ready:
                if owner := _find_owner(tree, others):
                    self._report_once(owner, f'leaves what is retained under {tree.filter} to client_id "{owner}"')
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
                held = await self.retained_state.count_stored(current.feed)
                if held is None:
                    return None
                count += held
        return count

    async def _current(self) -> Sequence[Tree]:
        return [Tree(self.template, feed) for feed in await self.retained_state.feeds()]

    async def _clear(self, tree: Tree, connection: Connection, flow: Flow) -> bool:
        repairs, count, before = flow.repairs, 0, dict[RecordId, Publication]()
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
                left = count_of(len(found.strays), "state")
                self.report(f"the broker still retains {left} under {tree.filter} that dockbell cleared")
                return True
            before = found.strays
            count += await repairs.offer(found.strays, flow.news.set)
            if repairs.has_failed or repairs.refused:
                refused = f"{repairs.refused} of them refused" if repairs.refused else "some of them later"
                self.report(
                    f"cleared {count_of(count, 'state')} of records that no longer exist under {tree.filter}; {refused}"
                )
                return not repairs.has_failed
        return False

    async def _conclude(self, tree: Tree, seen: int, count: int) -> bool:
        if count:
            self.report(f"cleared {count_of(count, 'state')} of records that no longer exist under {tree.filter}")
        elif not seen:
            self.report(f"nothing is retained under {tree.filter}, or the broker does not let dockbell read it")
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
                # Sorts topics: those of stored records, by the topics of today, and those to clear.
                places = {
                    topic: [(each.feed, key) for each in current if (key := each.find_key(topic))] for topic in portion
                }
                held = await self.retained_state.find_stored([place for each in places.values() for place in each])
                for topic, candidates in places.items():
                    if any(place in held for place in candidates):
                        found.held += 1
                    else:
                        place = candidates[0] if candidates else (tree.feed, tree.find_key(topic))
                        found.strays[place] = Publication(topic, b"", retain=True)
            return len(found.strays) < _STRAYS_MOST

        return found, await _listen(connection, tree.filter, on_message, judge)

    def _report_once(self, subject: str, text: str) -> None:
        if subject not in self._reported:
            self._reported.add(subject)
            self.report(text)


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

    ``on_message`` is called with the topic and payload of each, and ``take`` again and again meanwhile; it returns
    False when it has enough.
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
