"""What an operator may do with the sources that several processes share: add, change, pause and remove some, list them.

Each edit is a function of the sources as they are written, by name, which it leaves alone; it returns them as they are
to be. What they must be is checked with the whole configuration afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import filter as filter_names
from typing import Any, Final, TypeAlias

import msgspec

from dockbell.config.including import is_wild
from dockbell.config.place import name_place
from dockbell.config.shared import SOURCES
from dockbell.config.sharing import fill_in
from dockbell.config.source_tables import GivenSources, split_key
from dockbell.config.values import Table
from dockbell.config.wording import refuse, suggest
from dockbell.errors import ConfigError

_PAUSED: Final = "paused"
_RESOURCES: Final = "resources"
_NAMED: Final = 3


class Edited(msgspec.Struct, frozen=True):
    """The sources after an edit.

    Attributes:
        sources: All of them, as they are to be written.
        given: By source, the keys that the edit gave.
        places: Where the sources that it gave are written.
    """

    sources: Table
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    given: Mapping[str, Collection[str]] = msgspec.field(default_factory=dict)
    places: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        return not (self.added or self.changed or self.removed)

    @property
    def touched(self) -> tuple[str, ...]:
        """The sources that are there now and were not so before."""
        return self.added + self.changed


Edit: TypeAlias = Callable[[Table], Edited]
"""Takes what processes share, ``sources`` and their defaults among it; raises ConfigError."""


def add(given: GivenSources) -> Edit:
    """Add sources that are not there yet."""

    def edit(shared: Table) -> Edited:
        there = shared.get(SOURCES, {})
        known = [name for name in given.tables if name in there]
        if known:
            remedy = 'change it with "dockbell sources set"'
            raise refuse([f"{name_place((SOURCES, name))}: already exists; {remedy}" for name in known])
        return _put(there, given)

    return edit


def put(given: GivenSources) -> Edit:
    """Have sources be as they are given, whether they are there or not; those that are paused stay so."""

    def edit(shared: Table) -> Edited:
        there = shared.get(SOURCES, {})
        kept = {
            name: {_PAUSED: there[name][_PAUSED]} | table if _PAUSED in there.get(name, {}) else table
            for name, table in given.tables.items()
        }
        return _put(there, GivenSources(kept, given.places))

    return edit


def change(patterns: Sequence[str], given: Table, unset: Iterable[str]) -> Edit:
    """Set some keys of sources, and take others out; of ``resources`` single keys, of others the whole."""

    def edit(shared: Table) -> Edited:
        there = shared.get(SOURCES, {})
        tables = {name: _merge(there[name], given) for name in _choose(patterns, there)}
        for key in unset:
            left = {name: _take_out(table, split_key(key)) for name, table in tables.items()}
            if left == tables:
                places = ", ".join(name_place((SOURCES, name, *split_key(key))) for name in list(tables)[:_NAMED])
                raise ConfigError(f"{places}: is not set, so it cannot be unset")
            tables = left
        return _put(there, GivenSources(tables), keys=dict.fromkeys(tables, given.keys()))

    return edit


def pause(patterns: Sequence[str], *, paused: bool) -> Edit:
    """Pause sources, or have them read again."""

    def edit(shared: Table) -> Edited:
        there = shared.get(SOURCES, {})
        own = {
            name: {key: each for key, each in there[name].items() if key != _PAUSED}
            for name in _choose(patterns, there)
        }
        is_default = shared.get("source_defaults", {}).get(_PAUSED, False) is True
        said = {} if paused == is_default else {_PAUSED: paused}
        return _put(there, GivenSources({name: table | said for name, table in own.items()}), keys={})

    return edit


def remove(patterns: Sequence[str]) -> Edit:
    """Take sources out."""

    def edit(shared: Table) -> Edited:
        there = shared.get(SOURCES, {})
        gone = _choose(patterns, there)
        left = {name: table for name, table in there.items() if name not in gone}
        return Edited(left, removed=tuple(gone))

    return edit


def _put(there: Table, given: GivenSources, *, keys: Mapping[str, Collection[str]] | None = None) -> Edited:
    wanted = given.tables
    return Edited(
        there | dict(wanted),
        added=tuple(name for name in wanted if name not in there),
        changed=tuple(name for name, table in wanted.items() if name in there and there[name] != table),
        unchanged=tuple(name for name, table in wanted.items() if name in there and there[name] == table),
        given={name: table.keys() for name, table in wanted.items()} if keys is None else keys,
        places=given.places,
    )


def _merge(table: Table, given: Table) -> Table:
    own, others = table.get(_RESOURCES), given.get(_RESOURCES)
    merged = table | given
    if isinstance(own, dict) and isinstance(others, dict):
        merged[_RESOURCES] = own | {
            name: own[name] | each if isinstance(own.get(name), dict) and isinstance(each, dict) else each
            for name, each in others.items()
        }
    return merged


def _take_out(table: Table, keys: Sequence[str]) -> Table:
    """Return a table without what keys lead to, nor tables that are empty then; all of it where that is nothing."""
    head, *rest = keys
    if head not in table or (rest and not isinstance(table[head], dict)):
        return table
    left = {key: value for key, value in table.items() if key != head}
    inner = _take_out(table[head], rest) if rest else {}
    return {key: inner if key == head else table[key] for key in table if key in left or inner}


def _choose(patterns: Sequence[str], there: Table) -> dict[str, None]:
    """Return the sources that are named, by their names or with ``*``, ``?`` and ``[…]``."""
    _refuse_unknown([name for name in patterns if not is_wild(name)], there)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        found = filter_names(there, pattern) if is_wild(pattern) else [pattern]
        if not found:
            raise ConfigError(f'no source matches "{pattern}"; {suggest(pattern, there)}')
        chosen |= dict.fromkeys(found)
    return chosen


def _refuse_unknown(names: Iterable[str], there: Table) -> None:
    unknown = [name for name in names if name not in there]
    if unknown:
        known = "there are no sources" if not there else ""
        raise refuse([f'no source "{name}"; {known or suggest(name, there)}' for name in unknown])


# Listing -------------------------------------------------------------------------------------------------------------


class ListedSource(msgspec.Struct, frozen=True):
    name: str
    base_url: str
    is_paused: bool
    process: str  # which one has it; empty where none does, or that is unknown
    own: Mapping[str, Any]  # what it says itself


def list_sources(
    shared: Table, holders: Mapping[str, str], patterns: Sequence[str], *, paused: bool | None = None, process: str = ""
) -> Iterator[ListedSource]:
    """Yield sources by name: those with such names, that are paused or not, and that such a process has.

    Raises:
        ConfigError: A name means none of them.
    """
    there = shared.get(SOURCES, {})
    names = _choose(patterns, there) if patterns else there
    filled = fill_in(shared | {SOURCES: {name: there[name] for name in names}}).table[SOURCES]
    for name in sorted(names):
        found = ListedSource(
            name,
            str(filled[name].get("base_url", "")),
            filled[name].get(_PAUSED, False) is True,
            holders.get(name, ""),
            there[name],
        )
        if paused in (None, found.is_paused) and process in found.process:
            yield found
