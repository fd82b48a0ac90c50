"""The difference of two documents as a JSON Patch (RFC 6902), and its application.

Objects are compared member by member. Arrays lose their common beginning and end; of what is left, elements are
compared pair by pair, then the surplus of the longer side is removed from the back or added in order. So a patch never
moves or copies, applies in its own order, and is made in one walk; it need not be the shortest there is.

Values are equal if their canonical encodings are: 1 is 1.0, but never true, whatever Python says.

People read a difference leaf by leaf instead: a leaf is a value that holds no other, text, a number, true, false, null,
an empty object or array. What came or went as a whole is told by its leaves, each with its own path. An element that
went from the middle of an array tells its path before, one that came its path after, as in a patch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Final, Literal, TypeAlias

import msgspec

from dockbell.core import pointer
from dockbell.core.document import encode
from dockbell.core.model import JSON

Operation: TypeAlias = dict[str, JSON]

_WRITTEN_ONE_WAY: Final = frozenset({str, int, bool, type(None)})


def diff(before: JSON, after: JSON) -> list[Operation]:
    """Return the ``add``, ``remove`` and ``replace`` operations that make ``before`` equal to ``after``."""
    return [] if _is_same(before, after) else list(_compare(before, after, ""))


def touched(patch: Iterable[Mapping[str, JSON]]) -> list[str]:
    return sorted({operation["path"] for operation in patch})


def _is_same(one: JSON, other: JSON) -> bool:
    # Values that differ for Python differ. Two texts, integers, booleans or nulls that do not are written alike; of all
    # others, the encodings tell.
    return bool(one == other) and (type(one) is type(other) in _WRITTEN_ONE_WAY or encode(one) == encode(other))


def _compare(before: JSON, after: JSON, path: str) -> Iterator[Operation]:
    if isinstance(before, dict) and isinstance(after, dict):
        return _compare_objects(before, after, path)
    if isinstance(before, list) and isinstance(after, list):
        return _compare_arrays(before, after, path)
    return iter([{"op": "replace", "path": path, "value": after}])


def _compare_objects(before: dict[str, JSON], after: dict[str, JSON], path: str) -> Iterator[Operation]:
    for name in before:
        if name not in after:
            yield {"op": "remove", "path": path + pointer.join((name,))}
    for name, value in after.items():
        if name not in before:
            yield {"op": "add", "path": path + pointer.join((name,)), "value": value}
        elif not _is_same(before[name], value):
            yield from _compare(before[name], value, path + pointer.join((name,)))


def _compare_arrays(before: list[JSON], after: list[JSON], path: str) -> Iterator[Operation]:
    pairs = _count_pairs(before, after)
    surplus = len(after) - len(before)
    for i in range(pairs):
        if not _is_same(before[i], after[i]):
            yield from _compare(before[i], after[i], f"{path}/{i}")
    for i in reversed(range(pairs, pairs - surplus)):
        yield {"op": "remove", "path": f"{path}/{i}"}
    for i in range(pairs, pairs + surplus):
        yield {"op": "add", "path": f"{path}/{i}", "value": after[i]}


def _count_pairs(before: list[JSON], after: list[JSON]) -> int:
    """Return how many elements stand before the longer side's surplus: all but the common end."""
    shorter = min(len(before), len(after))
    if len(before) == len(after):
        return shorter
    start = next((i for i in range(shorter) if not _is_same(before[i], after[i])), shorter)
    end = next((i for i in range(shorter - start) if not _is_same(before[~i], after[~i])), shorter - start)
    return shorter - end


def apply(document: JSON, patch: Iterable[Mapping[str, JSON]]) -> JSON:
    """Return the document after a patch as :func:`diff` makes it; ValueError: a path leads nowhere."""
    document = deepcopy(document)
    for operation in patch:
        tokens = pointer.parse(operation["path"])
        value = deepcopy(operation.get("value"))
        if not tokens and operation["op"] in ("add", "replace"):
            document = value
        elif not tokens or not _perform(operation["op"], pointer.resolve(document, tokens[:-1]), tokens[-1], value):
            raise ValueError(f"patch: cannot {operation['op']} at {operation['path']!r}")
    return document


def _perform(op: str, parent: JSON, token: str, value: JSON) -> bool:
    """Change an object or array in place; return whether the operation fits it."""
    place: JSON = token
    if isinstance(parent, list):
        place = len(parent) if token == "-" else pointer.index(token)
        fits = place in range(len(parent) + (op == "add"))
    else:
        fits = isinstance(parent, dict) and (op == "add" or token in parent)
    if not fits or op not in ("add", "remove", "replace"):
        return False
    if op == "remove":
        del parent[place]
    elif op == "add" and isinstance(parent, list):
        parent.insert(place, value)
    else:
        parent[place] = value
    return True


class Difference(msgspec.Struct, frozen=True):
    """A leaf that came, went or changed; ``path`` leads into the document after, for ``remove`` into the one before."""

    path: str
    op: Literal["add", "remove", "replace"]
    before: JSON = None
    after: JSON = None


def compare_leaves(before: JSON, after: JSON) -> Iterator[Difference]:
    """Yield each leaf that differs; :data:`~dockbell.core.pointer.MISSING` stands for a document that is not there."""
    if before is pointer.MISSING or after is pointer.MISSING:
        operations = [] if before is after else [{"op": "add" if before is pointer.MISSING else "remove", "path": ""}]
        operations = [operation | {"value": after} for operation in operations]
    else:
        operations = diff(before, after)
    for operation in operations:
        op, path = operation["op"], operation["path"]
        if op == "add":
            yield from (Difference(place, "add", after=leaf) for place, leaf in _leaves(operation["value"], path))
        elif op == "remove":
            gone = pointer.resolve(before, pointer.parse(path))
            yield from (Difference(place, "remove", before=leaf) for place, leaf in _leaves(gone, path))
        else:
            old = pointer.resolve(before, pointer.parse(path))
            yield Difference(path, "replace", before=old, after=operation["value"])


def _leaves(value: JSON, path: str) -> Iterator[tuple[str, JSON]]:
    if value and isinstance(value, dict):
        for name, member in value.items():
            yield from _leaves(member, path + pointer.join((name,)))
    elif value and isinstance(value, list):
        for number, element in enumerate(value):
            yield from _leaves(element, f"{path}/{number}")
    else:
        yield path, value
