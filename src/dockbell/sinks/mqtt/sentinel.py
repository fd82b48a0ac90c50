"""The sentinel: a retained message about the states that a client has retained at a broker.

``<label> {"client": …, "epoch": …, "topic": …, "feeds": […], "owed": […]} <mark>`` as text. Older versions wrote
``<label> <mark>``, and take this one for an unknown mark.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

from dockbell.core.model import Feed
from dockbell.core.publishing.topic import check_topic

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_TREES_MOST: Final = 1000
_STATE_FIELDS: Final = ("source", "resource", "key")


@dataclass(frozen=True)
class Tree:
    """Where the states of the records of one feed are retained.

    Attributes:
        template: Of their topics; empty where an older version wrote none.
        feed: The feed.
    """

    template: str
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
    """The content of the sentinel.

    Attributes:
        label: A hash of the settings that shape topics and contents: with others, all states are published again.
        mark: Up to which point of the store the states are published; empty where that is unknown.
        client_id: The client that publishes them.
        epoch: Of the store that they were published from.
        trees: The topics of the states.
        owed: The topics of older states that are not cleared yet.
    """

    label: str
    mark: str
    client_id: str = ""
    epoch: str = ""
    trees: tuple[Tree, ...] = ()
    owed: tuple[Tree, ...] = ()

    def dump(self) -> bytes:
        """Return the payload."""
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
            trees = (_read_tree("", feed) for feed in feeds) if isinstance(feeds, dict) else ()
            return cls(label, rest, epoch=_text(head.get("epoch")), trees=_known(*trees))
        template = _text(head.get("topic"))
        return cls(
            label,
            rest[end + 1 :],
            client_id=_text(head["client"]),
            epoch=_text(head.get("epoch")),
            trees=_known(*(_read_tree(template, feed, is_named=True) for feed in _list(head.get("feeds")))),
            owed=_known(*(_read_tree(*pair, is_named=True) for pair in _list(head.get("owed")) if _is_pair(pair))),
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value[:_TREES_MOST] if isinstance(value, list) else []


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == len(("template", "feed"))


def _read_tree(template: Any, feed: Any, *, is_named: bool = False) -> Tree | None:
    source, _, resource = _text(feed).partition("/")
    if not (_NAME.fullmatch(source) and _NAME.fullmatch(resource)):
        return None
    with suppress(ValueError):
        if is_named:
            template = check_topic(_text(template), fields=_STATE_FIELDS, required=("key",))
        return Tree(template, Feed(source, resource))
    return None


def _known(*trees: Tree | None) -> tuple[Tree, ...]:
    return tuple(tree for tree in trees if tree is not None)
