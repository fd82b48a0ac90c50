"""What is asked of a plan otherwise than it is: other numbers of records and changes, other settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace
from pydantic import ValidationError

from dockbell.admin.commands import find_feeds
from dockbell.config import Config, FeedSettings, ResourceSettings, SourceSettings, suggest
from dockbell.config.resources import bound, merge
from dockbell.config.values import show
from dockbell.config.wording import describe
from dockbell.core.model import Feed

_FEED_KEYS: Final = ("every", "at_most", "weight")
_SOURCE_KEYS: Final = ("requests_per_minute", "share")
_UNITS: Final = {"s": 1, "min": 60, "h": 3600}
_CHANGES: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)/(s|min|h)")

_T = TypeVar("_T")


def read_records(given: Iterable[str], feeds: Sequence[Feed]) -> dict[Feed, int]:
    """Return the numbers of records that are given, such as ``stock=50000``.

    Raises:
        ValueError: One cannot be read, or names no feed.
    """

    def read(text: str) -> int | None:
        return int(text) if text.isascii() and text.isdigit() else None

    return _read_pairs(given, feeds, read, "a feed and how many records it has, such as stock=50000")


def read_changes(given: Iterable[str], feeds: Sequence[Feed]) -> dict[Feed, float]:
    """Return the changes a second that are given, such as ``stock=2/s``, ``stock=90/min`` or ``stock=500/h``.

    Raises:
        ValueError: One cannot be read, or names no feed.
    """

    def read(text: str) -> float | None:
        found = _CHANGES.fullmatch(text)
        return None if found is None else float(found[1]) / _UNITS[found[2]]

    return _read_pairs(
        given, feeds, read, "a feed and its changes a second, minute or hour, such as stock=2/s, 90/min or 500/h"
    )


def _read_pairs(
    given: Iterable[str], feeds: Sequence[Feed], read: Callable[[str], _T | None], wanted: str
) -> dict[Feed, _T]:
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        told = read(value) if sign else None
        if told is None:
            raise ValueError(f"must be {wanted}, got {show(text)}")
        (feed,) = find_feeds([name], feeds)
        found[feed] = told
    return found


class Setup(msgspec.Struct, frozen=True):
    """What a plan is made for."""

    sources: Mapping[str, SourceSettings]
    feeds: tuple[FeedSettings, ...]

    @classmethod
    def of(cls, config: Config) -> Setup:
        """Return what is read by a configuration: of paused sources, nothing is."""
        read = {name: source for name, source in config.sources.items() if not source.paused}
        return cls(read, tuple(feed for feed in config.feeds() if not feed.paused))

    def group_by_key(self) -> Sequence[tuple[str, ...]]:
        """Return the names of the sources, those together that have one API key, and so one budget."""
        groups: dict[Hashable, list[str]] = {}
        for name, source in self.sources.items():
            groups.setdefault(source.account, []).append(name)
        return [tuple(names) for names in groups.values()]

    def change(self, given: Iterable[str]) -> Setup:
        """Return the setup with other settings, such as ``stock.every=30s`` or ``requests_per_minute=600``.

        A fixed ``every`` ends ``at_most``, and ``at_most`` alone means ``every = "auto"``.

        Raises:
            ValueError: One cannot be read, names no feed or source, or does not fit the others.
        """
        of_feeds: dict[Feed, dict[str, Any]] = {}
        of_sources: dict[str, dict[str, Any]] = {}
        for text in given:
            place, sign, value = text.partition("=")
            name, _, key = place.rpartition(".")
            if not sign or not value:
                wanted = "a setting and its value, such as stock.every=30s or requests_per_minute=600"
                raise ValueError(f"must be {wanted}, got {show(text)}")
            if key in _SOURCE_KEYS:
                found = self._find_source(name, key)
                for each in next(group for group in self.group_by_key() if found in group):
                    of_sources.setdefault(each, {})[key] = _read_number(value)
            elif key in _FEED_KEYS and name:
                (feed,) = find_feeds([name], [Feed(each.source, each.resource) for each in self.feeds])
                of_feeds.setdefault(feed, {})[key] = _read_number(value) if key == "weight" else value
            elif key in _FEED_KEYS:
                raise ValueError(f"{key} is a setting of a feed, such as stock.{place}={value}; got {show(text)}")
            else:
                raise ValueError(f'"{key}" cannot be changed here; {suggest(key, (*_FEED_KEYS, *_SOURCE_KEYS))}')
        feeds = [_change_feed(each, of_feeds.get(Feed(each.source, each.resource), {})) for each in self.feeds]
        sources = {name: _change_source(name, each, of_sources.get(name, {})) for name, each in self.sources.items()}
        return Setup(sources, tuple(feeds))

    def _find_source(self, name: str, key: str) -> str:
        if name in self.sources:
            return name
        if not self.sources:
            raise ValueError("no source to plan: all are paused")
        if name:
            raise ValueError(f'source "{name}" is not configured; {suggest(name, self.sources)}')
        if len(self.group_by_key()) > 1:
            raise ValueError(
                f"{key} is a setting of a source; use one of {', '.join(f'{each}.{key}' for each in self.sources)}"
            )
        return next(iter(self.sources))


def _read_number(text: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _change_feed(feed: FeedSettings, changes: Mapping[str, Any]) -> FeedSettings:
    if not changes:
        return feed
    old, wanted = feed.settings, dict(changes)
    if wanted.get("every") == "auto" and old.is_auto:
        wanted.setdefault("at_most", old.at_most)
    with _plainly(f"{feed.source}/{feed.resource}"):
        settings = merge(old, ResourceSettings(**wanted))
    return replace(feed, settings=bound(feed.resource, settings))


def _change_source(name: str, source: SourceSettings, changes: Mapping[str, Any]) -> SourceSettings:
    if not changes:
        return source
    written = {key: getattr(source, key) for key in source.model_fields_set}
    with _plainly(name):
        return SourceSettings(**{**written, **changes})


@contextmanager
def _plainly(name: str) -> Iterator[None]:
    """Raise ValueError with plain words, the name before them, where settings do not fit their table."""
    try:
        yield
    except ValidationError as error:
        told = [f"{name}.{line['loc'][0]}: {describe(line)}" for line in error.errors(include_url=False)]
    else:
        return
    raise ValueError("; ".join(told))
