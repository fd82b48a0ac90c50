"""How a place in a configuration is named: as an operator looks for it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TypeAlias

KeyPath: TypeAlias = Sequence[str | int]
"""The keys, and indexes into lists, that lead to a value."""


def split_place(place: KeyPath) -> tuple[KeyPath, KeyPath]:
    """Return a place's part that is written as a table's header, and its part below that table."""
    match place:
        case ["sources", _, "resources", _, *_]:
            depth = 4
        case ["sources" | "resources" | "sinks", _, *_]:
            depth = 2
        case ["store" | "web" | "sources" | "resources" | "sinks", *_]:
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
