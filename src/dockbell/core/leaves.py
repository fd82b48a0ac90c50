"""What differs between two documents, leaf by leaf: for people to read, unlike a patch.

A leaf is a value that holds no other: text, a number, true, false, null, an empty object or array. What came or went as
a whole is told by its leaves, each with its own path. An element that went from the middle of an array tells its path
before, one that came its path after, as in a patch; see :mod:`dockbell.core.diff`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dockbell.core import pointer
from dockbell.core.diff import diff
from dockbell.core.model import JSON


@dataclass(frozen=True, slots=True)
class Difference:
    """One leaf that came, went or became another value.

    Attributes:
        path: A JSON pointer: into the document after, but for ``remove`` into the one before.
        op: What became of it.
        before: The value before; None for ``add``.
        after: The value after; None for ``remove``.
    """

    path: str
    op: Literal["add", "remove", "replace"]
    before: JSON = None
    after: JSON = None


def compare(before: JSON, after: JSON) -> Iterator[Difference]:
    """Yield each leaf that differs; :data:`~dockbell.core.pointer.MISSING` stands for a document that is not there."""
    if before is pointer.MISSING or after is pointer.MISSING:
        operations = [] if before is after else [{"op": "add" if before is pointer.MISSING else "remove", "path": ""}]
        operations = [operation | {"value": after} for operation in operations]
    else:
        operations = diff(before, after)
    for operation in operations:
        op, path = operation["op"], operation["path"]
        if op == "add":
            yield from (Difference(place, "add", after=leaf) for place, leaf in _walk(operation["value"], path))
        elif op == "remove":
            gone = pointer.resolve(before, pointer.parse(path))
            yield from (Difference(place, "remove", before=leaf) for place, leaf in _walk(gone, path))
        else:
            old = pointer.resolve(before, pointer.parse(path))
            yield Difference(path, "replace", before=old, after=operation["value"])


def _walk(value: JSON, path: str) -> Iterator[tuple[str, JSON]]:
    """Yield the leaves of a value with their paths."""
    if value and isinstance(value, dict):
        for name, member in value.items():
            yield from _walk(member, path + pointer.join((name,)))
    elif value and isinstance(value, list):
        for number, element in enumerate(value):
            yield from _walk(element, f"{path}/{number}")
    else:
        yield path, value
