"""Compares two readings of the same records, seconds apart: arrays without order, members that always change."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import Final

import msgspec

from dockbell.core import pointer
from dockbell.core.key import find_keys
from dockbell.core.model import JSON
from dockbell.core.reading.shape import Shape

_ANY: Final = "*"
_NUMBERS: Final = Context(prec=50, traps=[])  # finer differences may go unnoticed here; nothing raises
_RESTLESS_SHARE: Final = 5
_RESTLESS_LEAST: Final = 3


class Rereading(msgspec.Struct, frozen=True):
    """How records differ when they are read twice."""

    compared: int
    moved: int  # how many of them had another timestamp: they changed, and prove nothing else
    still: int  # how many of the others were the same but for the order of object members
    same_order: bool
    shuffled: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The arrays that held the same in another order, by pointer, each with in how many records."""
    restless: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The members that differed though the timestamp did not, by pointer, each with in how many records."""

    def volatile(self) -> list[str]:
        """Return the members that move in a fifth of all records within seconds: these can hardly be changes."""
        compared = self.compared - self.moved
        return [
            place
            for place, count in self.restless.items()
            if count >= _RESTLESS_LEAST and count * _RESTLESS_SHARE >= compared
        ]


def compare_readings(earlier: Sequence[JSON], later: Sequence[JSON], shape: Shape) -> Rereading:
    """Return what differs between two readings of the same page; ``*`` in a pointer stands for any array element."""
    before, after = _by_key(earlier, shape), _by_key(later, shape)
    common = [key for key in before if key in after]
    stamp = pointer.parse(shape.updated_at) if shape.updated_at else None
    moved = still = 0
    shuffled: Counter[str] = Counter()
    restless: Counter[str] = Counter()
    for key in common:
        if stamp is not None and pointer.resolve(before[key], stamp) != pointer.resolve(after[key], stamp):
            moved += 1
            continue
        found = {*_differences(before[key], after[key], ())}
        still += not found
        shuffled.update(pointer.join(place) for place, is_order in found if is_order)
        restless.update(pointer.join(place) for place, is_order in found if not is_order)
    return Rereading(
        compared=len(common),
        moved=moved,
        still=still,
        same_order=common == [key for key in after if key in before],
        shuffled=dict(sorted(shuffled.items())),
        restless=dict(sorted(restless.items())),
    )


def _by_key(records: Sequence[JSON], shape: Shape) -> dict[str, JSON]:
    tokens = [pointer.parse(part) for part in shape.key]
    return {key.text: record for record, key in find_keys(records, tokens)}


def _differences(earlier: JSON, later: JSON, place: pointer.Tokens) -> Iterator[tuple[pointer.Tokens, bool]]:
    """Yield the places that differ, each with whether only the order of an array does."""
    if isinstance(earlier, dict) and isinstance(later, dict):
        for name in earlier.keys() | later.keys():
            if name in earlier and name in later:
                yield from _differences(earlier[name], later[name], (*place, name))
            else:
                yield (*place, name), False
    elif isinstance(earlier, list) and isinstance(later, list) and len(earlier) == len(later):
        looks, later_looks = [_loose(each) for each in earlier], [_loose(each) for each in later]
        if looks != later_looks and sorted(looks) == sorted(later_looks):
            yield place, True
            earlier, later = sorted(earlier, key=_loose), sorted(later, key=_loose)
        for one, other in zip(earlier, later, strict=True):
            yield from _differences(one, other, (*place, _ANY))
    elif _loose(earlier) != _loose(later):
        yield place, False


def _loose(value: JSON) -> str:
    """Return a text that is equal for values which differ in the order of arrays and members only."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_loose(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(sorted(map(_loose, value))) + "]"
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return str(_NUMBERS.normalize(Decimal(value)))
    return json.dumps(value)
