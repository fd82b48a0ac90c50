"""How a place in a configuration is named: as an operator looks for it, in which file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

KeyPath: TypeAlias = Sequence[str | int]
"""The keys, and indexes into lists, that lead to a value."""


class Origins(msgspec.Struct, frozen=True):
    """Where the parts of a configuration are written.

    Attributes:
        main: The configuration file; empty where there is none.
        included: The files that it includes, in the order in which they were read.
        sources: Those of the sources that are in an included file, each with the file.
        inherited: By source, the keys that it has from ``[source_defaults]``.
    """

    main: str = ""
    included: tuple[str, ...] = ()
    sources: Mapping[str, str] = msgspec.field(default_factory=dict)
    inherited: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)

    def find_default(self, place: KeyPath) -> tuple[str | int, ...] | None:
        """Return the place in ``[source_defaults]`` from which a place of a source has its value; None for others."""
        match place:
            case ["sources", str(source), str(key), *rest] if key in self.inherited.get(source, ()):
                return ("source_defaults", key, *rest)
        return None

    def locate(self, place: KeyPath) -> tuple[str, str]:
        """Return the file in which a place is written, and the place's name there."""
        if (default := self.find_default(place)) is not None:
            return self.main, f"{name_place(default)}, for {place[1]}"
        match place:
            case ["sources", str(source), *_]:
                return self.sources.get(source, self.main), name_place(place)
        return self.main, name_place(place)


@dataclass(frozen=True, slots=True)
class Written:
    """A configuration as it is written.

    Attributes:
        table: With what it includes; nothing of ``[source_defaults]`` is filled in.
        folder: From which its relative paths count; None for the working folder.
    """

    table: dict[str, Any] = field(default_factory=dict, repr=False)
    folder: Path | None = None


def split_place(place: KeyPath) -> tuple[KeyPath, KeyPath]:
    """Return a place's part that is written as a table's header, and its part below that table."""
    match place:
        case ["sources", _, "resources", _, *_]:
            depth = 4
        case ["source_defaults", "resources", _, *_]:
            depth = 3
        case ["sources" | "resources" | "sinks", _, *_]:
            depth = 2
        case ["store" | "web" | "source_defaults" | "sources" | "resources" | "sinks", *_]:
            depth = 1
        case _:
            depth = 0
    return place[:depth], place[depth:]


def name_place(place: KeyPath) -> str:
    """Return a place as an operator looks for it: ``[sources.main] api_key.env``."""
    header, key = split_place(place)
    return " ".join(filter(None, [f"[{write_keys(header)}]" if header else "", write_keys(key)]))


def write_keys(keys: KeyPath) -> str:
    """Return dotted keys, each bare where TOML permits it."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += "." * bool(text) + (key if re.fullmatch("[A-Za-z0-9_-]+", key) else write_text(key))
    return text


def write_text(text: str) -> str:
    """Return a text as TOML writes it: as JSON does, but for one control character more."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
