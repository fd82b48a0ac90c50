"""Which feeds the API refuses to show, and of which of them one alert tells.

A key that is refused stops all feeds of its source, each by an answer to a request of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from dockbell.core.counting import list_of
from dockbell.core.model import Feed
from dockbell.errors import drop_subject


class _Cause(NamedTuple):
    source: str
    fault: str


class RefusedFeeds:
    """The feeds that are not read, each with the reason; some of a source are *joined*: one alert tells of them."""

    def __init__(self) -> None:
        self._reasons: dict[Feed, str] = {}
        self._joined: dict[str, set[Feed]] = {}

    def __iter__(self) -> Iterator[Feed]:
        return iter(self._reasons)

    def add(self, feed: Feed, reason: str) -> bool:
        """Note why a feed is not read; return whether it is joined now with others that were."""
        self._reasons[feed] = reason
        joined = self._joined.get(feed.source, set())
        if feed in joined or self._find_cause(feed) not in map(self._find_cause, joined):
            return False
        joined.add(feed)
        return True

    def remove(self, feed: Feed) -> None:
        self._reasons.pop(feed, None)
        joined = self._joined.get(feed.source, set())
        joined.discard(feed)
        if not joined:
            self._joined.pop(feed.source, None)

    def is_joined(self, feed: Feed) -> bool:
        return feed in self._joined.get(feed.source, ())

    def has_joined(self, source: str) -> bool:
        """Return whether one alert tells of feeds of this source."""
        return source in self._joined

    def join(self, feeds: Collection[Feed]) -> None:
        """Let one alert tell of some feeds of one source."""
        for feed in feeds:
            self._joined.setdefault(feed.source, set()).add(feed)

    def part(self, source: str) -> None:
        """Forget which feeds of a source are joined."""
        self._joined.pop(source, None)

    def find_alike(self, feeds: Collection[Feed]) -> list[list[Feed]]:
        """Return the feeds by what refuses them, those of one source and cause together."""
        alike: dict[_Cause, list[Feed]] = {}
        for feed in sorted(feeds):
            alike.setdefault(self._find_cause(feed), []).append(feed)
        return [*alike.values()]

    def describe_joined(self, source: str) -> str:
        """Return why the joined feeds of a source are not read."""
        reasons = []
        for feeds in self.find_alike(self._joined[source]):
            are = "is" if len(feeds) == 1 else "are"
            reasons.append(f"{list_of(feed.resource for feed in feeds)} {are} not read: {self._reasons[feeds[0]]}")
        return "; ".join(reasons)

    def _find_cause(self, feed: Feed) -> _Cause:
        return _Cause(feed.source, drop_subject(self._reasons[feed]))
