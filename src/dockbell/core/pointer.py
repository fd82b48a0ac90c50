"""JSON Pointer (RFC 6901): where something stands in a document."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from dockbell.core.model import JSON

Tokens: TypeAlias = tuple[str, ...]
"""A pointer's unescaped reference tokens; the empty tuple is the whole document."""

MISSING: Final = object()
"""Stands for a value that is not there, where null is."""

_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,17}")


@lru_cache(maxsize=256)
def parse(pointer: str) -> Tokens:
    """Return the tokens of a pointer; raises ValueError where it is not like ``/a`` or a ``~`` is no escape."""
    if not _POINTER.fullmatch(pointer):
        raise ValueError(f'pointer: must be like "/id" or "/address/city", got {pointer!r}; write ~ as ~0 and / as ~1')
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:])


def join(tokens: Iterable[str]) -> str:
    return "".join(["/" + token.replace("~", "~0").replace("/", "~1") for token in tokens])


def below(places: Iterable[Tokens], *tokens: str) -> list[Tokens]:
    """Return the rest of the pointers that begin with one of the tokens."""
    return [place[1:] for place in places if place and place[0] in tokens]


def index(token: str) -> int | None:
    """Return the array index that a token states; None for ``-``, leading zeros and everything else."""
    return int(token) if _INDEX.fullmatch(token) else None


def resolve(document: JSON, tokens: Tokens) -> JSON:
    """Return what stands at a place in a document, or :data:`MISSING`."""
    for token in tokens:
        if isinstance(document, dict):
            document = document.get(token, MISSING)
        elif isinstance(document, list) and (position := index(token)) is not None and position < len(document):
            document = document[position]
        else:
            return MISSING
    return document
