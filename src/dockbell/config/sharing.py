"""``[source_defaults]``: what sources have that do not say otherwise, ``{source}`` replaced by the source's name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from dockbell.config.values import Table

PLACEHOLDER: Final = "{source}"
Place: TypeAlias = tuple[str | int, ...]
_PLACEHOLDERS: Final = re.compile(r"\{\w*\}")


class Filled(msgspec.Struct, frozen=True):
    """A configuration whose sources have what ``[source_defaults]`` gives them.

    Attributes:
        table: All of it; ``resources`` are merged where feeds are.
        inherited: By source, the keys that it has from there.
        problems: Places, as ``("sources", "a_b", "api_key")``, each with what is wrong.
    """

    table: Table
    inherited: Mapping[str, frozenset[str]]
    problems: tuple[tuple[Place, str], ...] = ()


def fill_in(table: Table) -> Filled:
    """Give each source the keys of ``[source_defaults]`` that it does not have; what is no table is left as it is."""
    shared, sources = table.get("source_defaults"), table.get("sources")
    if not isinstance(shared, dict) or not isinstance(sources, dict):
        return Filled(table, {})
    shared = {key: value for key, value in shared.items() if key != "resources"}
    filled: Table = {}
    inherited: dict[str, frozenset[str]] = {}
    known: dict[frozenset[str], frozenset[str]] = {}
    firsts: dict[tuple[str, str], str] = {}
    problems: list[tuple[Place, str]] = []
    for name, own in sources.items():
        if not isinstance(own, dict):
            filled[name] = own
            continue
        given = {key: value for key, value in shared.items() if key not in own}
        filled[name] = own | {key: _replace(value, name) for key, value in given.items()}
        keys = frozenset(given)
        inherited[name] = known.setdefault(keys, keys)
        for key, value in given.items():
            if (variable := _name_variable(value, name)) and (
                first := firsts.setdefault((key, variable), name)
            ) != name:
                words = (
                    f"uses the environment variable {variable}, like source {first}; rename one, or set its own {key}"
                )
                problems.append((("sources", name, key), words))
    return Filled(table | {"sources": filled}, inherited, tuple(problems))


def find_bad_placeholders(shared: Table) -> Iterator[tuple[Place, str]]:
    """Yield the places of ``[source_defaults]`` with what looks like a placeholder and is none, or is not replaced."""
    for key, value in shared.items():
        if key == "resources":
            yield from _find_unreplaced(value, (key,))
            continue
        for *place, text in _find_texts(value, key):
            for word in _PLACEHOLDERS.findall(text):
                if word != PLACEHOLDER:
                    yield tuple(place), f'unknown placeholder "{word}"; available: {PLACEHOLDER}'


def _replace(value: Any, name: str) -> Any:
    """Return a value for one source: in what is an environment variable's, its name is written as these are."""
    match value:
        case str():
            return value.replace(PLACEHOLDER, name)
        case dict():
            return {
                key: text.replace(PLACEHOLDER, _as_variable(name) if key == "env" else name)
                if isinstance(text, str)
                else text
                for key, text in value.items()
            }
    return value


def _as_variable(name: str) -> str:
    return name.upper().replace("-", "_")


def _name_variable(value: Any, name: str) -> str:
    """Return the environment variable that is one source's by its name; empty where there is none such."""
    match value:
        case {"env": str(text)} if PLACEHOLDER in text:
            return text.replace(PLACEHOLDER, _as_variable(name))
    return ""


def _find_texts(value: Any, key: str) -> Iterator[tuple[str, ...]]:
    """Yield the texts of a key with their places; a text that may itself be the secret is left out."""
    match value:
        case str() if key not in ("api_key", "proxy"):
            yield key, value
        case dict():
            for inner, text in value.items():
                if isinstance(text, str) and inner in ("env", "file"):
                    yield key, inner, text


def _find_unreplaced(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    match value:
        case dict():
            for key, item in value.items():
                yield from _find_unreplaced(item, (*place, key))
        case list():
            for index, item in enumerate(value):
                yield from _find_unreplaced(item, (*place, index))
        case str() if PLACEHOLDER in value:
            yield (
                place,
                f"dockbell does not replace {PLACEHOLDER} in resources; set the value in each [sources.NAME.resources]",
            )
