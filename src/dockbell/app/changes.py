"""What a configuration asks for, in recipes, and how it differs from what there is.

Every feed, sink and client of a source is made from a *recipe*: the part of the configuration that matters to it. What
runs by an unchanged recipe goes on; what has another one ends and begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from dockbell.config import Config, ResourceSettings, SinkSettings
from dockbell.config.resources import Resources
from dockbell.config.tables import SourceSettings
from dockbell.core.model import Feed

FeedRecipe: TypeAlias = tuple[SourceSettings, ResourceSettings]
SinkRecipe: TypeAlias = tuple[SinkSettings, str, frozenset[Feed], timedelta, int]
_TOLD_MOST: Final = 20
_K = TypeVar("_K")
_V = TypeVar("_V")


class Difference(msgspec.Struct, Generic[_K], frozen=True):
    """How what is wanted differs from what there is; each in the order of its side."""

    added: tuple[_K, ...] = ()  # only wanted
    changed: tuple[_K, ...] = ()  # there, but wanted otherwise
    removed: tuple[_K, ...] = ()  # there, and no longer wanted
    kept: tuple[_K, ...] = ()  # there as it is wanted

    @property
    def ending(self) -> tuple[_K, ...]:
        """What must end."""
        return self.removed + self.changed

    @property
    def beginning(self) -> tuple[_K, ...]:
        """What must begin, or begin anew."""
        return self.changed + self.added

    def describe(self, noun: str) -> list[str]:
        """Return it in words: ``sink erp added``; what is kept gives none."""
        words = (("added", self.added), ("changed", self.changed), ("removed", self.removed))
        return [told for verb, names in words for told in _tell(noun, names, verb)]


class Changes(msgspec.Struct, frozen=True):
    """What a configuration changed."""

    sources: Difference[str]  # clients of sources, by name
    feeds: Difference[Feed]  # feeds; all of a source that changed are among the changed ones
    sinks: Difference[str]  # sinks, by name
    paused: tuple[str, ...] = ()  # sources that are not read any more
    resumed: tuple[str, ...] = ()  # sources that are read again
    others: tuple[str, ...] = ()  # what else, in words

    def __str__(self) -> str:
        told = {*self.paused, *self.resumed}
        changed = tuple(feed for feed in self.feeds.changed if feed.source not in told)
        words = [
            *_tell("source", self.paused, "paused"),
            *_tell("source", self.resumed, "resumed"),
            *replace(self.feeds, changed=changed).describe("feed"),
            *self.sinks.describe("sink"),
            *self.others,
        ]
        return ", ".join(words) or "nothing changed"


def _tell(noun: str, names: Sequence[object], verb: str) -> list[str]:
    """Return what became of some things, of very many the first."""
    more = len(names) - _TOLD_MOST
    told = [f"{noun} {name} {verb}" for name in names[:_TOLD_MOST]]
    return told if more <= 0 else [*told, f"{more:,} more {noun}s {verb}"]


def compare(there: Mapping[_K, _V], wanted: Mapping[_K, _V]) -> Difference[_K]:
    """Return how what is wanted differs from what there is."""
    equal = {name for name, each in wanted.items() if name in there and there[name] == each}
    return Difference(
        tuple(name for name in wanted if name not in there),
        tuple(name for name in wanted if name in there and name not in equal),
        tuple(name for name in there if name not in wanted),
        tuple(name for name in wanted if name in equal),
    )


def list_sources(config: Config) -> Mapping[str, SourceSettings]:
    """Return the recipes of clients: what is said of single resources matters to their feeds alone."""
    nothing = Resources()
    return {
        name: each if each.resources == nothing else each.model_copy(update={"resources": nothing})
        for name, each in config.sources.items()
    }


def list_feeds(config: Config) -> Mapping[Feed, FeedRecipe]:
    """Return the recipes of feeds."""
    sources = list_sources(config)
    return {Feed(each.source, each.resource): (sources[each.source], each.settings) for each in config.feeds()}


def list_sinks(config: Config) -> Mapping[str, SinkRecipe]:
    """Return the recipes of sinks: what is said of the store and the web server matters to their relays."""
    state_url = "" if config.web is None else config.web.public_url
    unordered = frozenset(Feed(each.source, each.resource) for each in config.feeds() if each.settings.unordered)
    max_owed, keep_attempts = config.store.max_owed, config.store.keep_attempts
    return {name: (each, state_url, unordered, max_owed, keep_attempts) for name, each in config.sinks.items()}
