"""Sources as commands give them: as ``KEY=VALUE``, in a TOML file that could be included, or as rows of CSV."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from typing import Any, Final

import msgspec

from dockbell.config.place import name_place, write_keys
from dockbell.config.shared import SOURCES
from dockbell.config.toml_file import read_text
from dockbell.config.values import Table, name_kind, show
from dockbell.config.wording import refuse, suggest
from dockbell.errors import ConfigError

_NAME: Final = "name"
_KEY: Final = re.compile(r"[a-z_]+(?:\.[A-Za-z0-9_-]+)*")
_LITERAL: Final = re.compile(r"""\s*(?:["'\[{+-]|[0-9]|true\b|false\b|inf\b|nan\b)""")
_HEADER: Final = re.compile(r"""\s*\[\s*sources\s*\.\s*["']?([^\]"'.\s]+)""")
_INLINE: Final = re.compile(r"""\s*(?:sources\s*\.\s*)?["']?([^"'.=\s]+)["']?\s*(?:\.[^=]*)?=""")


class GivenSources(msgspec.Struct, frozen=True):
    """Sources as they were given, not checked yet.

    Attributes:
        tables: What is said of each, by name.
        places: Where that is written: ``customers.csv: line 7``.
    """

    tables: Mapping[str, Table] = msgspec.field(default_factory=dict)
    places: Mapping[str, str] = msgspec.field(default_factory=dict)


def read_pairs(pairs: Iterable[str]) -> Table:
    """Return what ``KEY=VALUE`` says: ``resources.stock.at_most=10m``. A value is TOML, or text where it is none.

    Raises:
        ConfigError: A pair cannot be read, or two say the same.
    """
    table: Table = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not _KEY.fullmatch(key):
            got = show(key) if _KEY.fullmatch(key) else "something else"  # it might be a secret
            raise ConfigError(f"must be KEY=VALUE, such as requests_per_minute=600, got {got}")
        _put(table, key, read_value(value))
    return table


def read_value(text: str) -> Any:
    """Return the TOML value that a text is, otherwise the text."""
    if _LITERAL.match(text) and "\n" not in text:
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            pass
    return text


def split_key(key: str) -> list[str]:
    """Return the keys that a dotted one leads through.

    Raises:
        ConfigError: It is none.
    """
    if not _KEY.fullmatch(key):
        raise ConfigError(f"must be a key such as requests_per_minute or resources.stock.at_most, got {show(key)}")
    return key.split(".")


def read_tables(text: str, label: str) -> GivenSources:
    """Return the sources of a TOML text, ``[sources.NAME]`` tables and nothing else.

    Raises:
        ConfigError: It is no TOML, or holds something else; each problem begins with ``label``.
    """
    table = read_text(text, label)
    if others := [key for key in table if key != SOURCES]:
        remedy = 'the rest belongs in the configuration file, see "dockbell apply"'
        raise refuse([f"{label}: {name_place((key,))}: must be [sources.NAME]; {remedy}" for key in others])
    found = table.get(SOURCES, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{label}: {name_place((SOURCES,))}: must be a table, got {name_kind(found)}")
    lines: dict[str, int] = {}
    for number, name in _list_names(text):
        lines.setdefault(name, number)
    places = {name: f"{label}: line {lines[name]}" if name in lines else label for name in found}
    problems = [
        f"{places[name]}: {name_place((SOURCES, name))}: must be a table, got {name_kind(each)}"
        for name, each in found.items()
        if not isinstance(each, dict)
    ]
    if problems:
        raise refuse(problems)
    return GivenSources(found, places)


def read_rows(text: str, label: str) -> GivenSources:
    """Return the sources of CSV: a header with ``name`` and keys such as ``api_key.file``, then a row for each source.

    A cell is read as a value of :func:`read_pairs`; an empty one says nothing.

    Raises:
        ConfigError: All rows that cannot be read, each with its line.
    """
    rows = csv.reader(StringIO(text), strict=True)
    tables: dict[str, Table] = {}
    places: dict[str, str] = {}
    problems: list[str] = []
    try:
        header = [key.strip() for key in next(rows, [])]
        _check_header(header, label)
        for cells in rows:
            place = f"{label}: line {rows.line_num}"
            if not any(map(str.strip, cells)):
                continue
            try:
                name, table = _read_row(header, cells)
            except ConfigError as error:
                problems.append(f"{place}: {error}")
                continue
            if name in places:
                line = places[name].rpartition(": ")[2]
                problems.append(f"{place}: source {show(name)} is also in {line}; remove one")
            else:
                tables[name], places[name] = table, place
    except csv.Error as error:
        problems.append(f"{label}: line {rows.line_num}: invalid CSV, {error}; correct it")
    if problems:
        raise refuse(problems)
    return GivenSources(tables, places)


def _check_header(header: list[str], label: str) -> None:
    problems = [
        f"column {show(key)} must be a key of a source, such as base_url or api_key.file"
        for key in header
        if not _KEY.fullmatch(key)
    ]
    problems += [f"column {key} appears twice; remove one" for key in dict.fromkeys(header) if header.count(key) > 1]
    if _NAME not in header:
        hint = suggest(_NAME, header) if header else ""
        problems.append(f"column {_NAME} is missing; add it{f', {hint}' if hint.endswith('?') else ''}")
    if problems:
        raise refuse([f"{label}: line 1: {problem}" for problem in problems])


def _read_row(header: list[str], cells: list[str]) -> tuple[str, Table]:
    if len(cells) != len(header):
        raise ConfigError(f"must have {len(header)} cells, like the header, got {len(cells)}")
    table: Table = {}
    name = ""
    for key, cell in zip(header, map(str.strip, cells), strict=True):
        if key == _NAME:
            name = cell
        elif cell:
            _put(table, key, read_value(cell))
    if not name:
        raise ConfigError(f"{_NAME} is empty; enter the name of the source")
    return name, table


def _put(table: Table, key: str, value: Any) -> None:
    """Set what a dotted key leads to; ConfigError where that was said before."""
    *way, last = key.split(".")
    inner = table
    for part in way:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            break
    if not isinstance(inner, dict) or last in inner:
        raise ConfigError(f"{write_keys(key.split('.'))} is set twice; remove one")
    inner[last] = value


def _list_names(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that seem to speak of a source, each with its name: a parser does not tell them."""
    is_inline = True  # before any header, and below [sources]
    for number, line in enumerate(text.splitlines(), 1):
        if match := _HEADER.match(line):
            is_inline = False
            yield number, match[1]
        elif line.lstrip().startswith("["):
            is_inline = bool(re.match(r"\s*\[\s*sources\s*\]", line))
        elif is_inline and (match := _INLINE.match(line)):
            yield number, match[1]
