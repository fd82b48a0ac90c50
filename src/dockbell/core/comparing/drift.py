"""Schema drift: the service was deployed with another schema, and no record has really changed (docs/guarantees.md).

When many records of a page differ by the same members that came or went, or by values that mean what they meant in
another form, and none of their own timestamps moved, the service changed and not the records. Such differences wait
until an operator decides whether to absorb them silently or to publish them. A record whose timestamp moved, or that
differs in anything else as well, is a change as always.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from dockbell.core import pointer
from dockbell.core.model import JSON
from dockbell.core.moment import parse_moment

_SHARE: Final = 0.3
_LEAST: Final = 10

# With leading zeros or an exponent it is rather an article's number: 007 is not 7, and 1E3 not 1000.
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,100})?")

Difference: TypeAlias = tuple[Sequence[Mapping[str, Any]], JSON]
"""How a record differs: the patch, and the record before it, decoded."""


class Decision(StrEnum):
    """What becomes of records that differ by drift alone; ``hold`` until the operator decides."""

    HOLD = "hold"
    ABSORB = "absorb"
    PUBLISH = "publish"


class Drift(msgspec.Struct, frozen=True):
    """Members that came or went in many records at once, by pointer, elements of arrays as ``*``."""

    paths: frozenset[str]
    decision: Decision = Decision.HOLD

    def covers(self, patch: Sequence[Mapping[str, Any]], before: JSON) -> bool:
        return bool(patch) and outline(patch) <= self.paths and is_structural(patch, before)


class _Outline(NamedTuple):
    """The places of a difference that may be drift, and those of them at which a value is written in another form."""

    paths: frozenset[str]
    reformatted: frozenset[str]


def outline(patch: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return where a patch changes a record, elements of arrays as ``*``."""
    return frozenset(_generalise(operation["path"]) for operation in patch)


def is_structural(patch: Iterable[Mapping[str, Any]], before: JSON) -> bool:
    """Return whether a patch only adds and removes members, and writes values of ``before`` in another form."""
    return all(_is_structural(operation, before) for operation in patch)


def _is_structural(operation: Mapping[str, Any], before: JSON) -> bool:
    tokens = pointer.parse(operation["path"])
    if operation["op"] == "replace":
        return is_reformatted(pointer.resolve(before, tokens), operation["value"])
    return bool(tokens) and pointer.index(tokens[-1]) is None


def is_reformatted(before: JSON, after: JSON) -> bool:
    """Return whether two values mean the same: one moment, one number, one text but for its case and outer space."""
    if type(before) is str and type(after) is str and before.strip().casefold() == after.strip().casefold():
        return True
    number = _read_number(before)
    if number is not None and number == _read_number(after):
        return True
    moment = parse_moment(before)
    return moment is not None and moment == parse_moment(after)


def _read_number(value: JSON) -> Decimal | None:
    if type(value) is str:
        return Decimal(text) if _NUMBER.fullmatch(text := value.strip()) else None
    return Decimal(value) if type(value) in (int, Decimal) else None


def extend_drift(drift: Drift | None, differences: Iterable[Difference], page_size: int) -> Drift | None:
    """Return the drift of a feed after a page: the known one, extended by what the page shows; more is undecided again.

    Records may have got different ones of the new members, and the service may be deployed again before the operator
    has decided: so there may be several, and they are decided on together. Of the values that are written in another
    form, each record has those that it has: it is enough that many have one of them, and the others some of these.

    ``differences`` are those of records whose own timestamp did not move. Drift is what more than 30 % of the
    ``page_size`` records of the page (ten at least, or all) differ by.
    """
    outlines = [
        _Outline(outline(patch), outline(operation for operation in patch if operation["op"] == "replace"))
        for patch, before in differences
        if patch and is_structural(patch, before)
    ]
    while True:
        known = frozenset() if drift is None else drift.paths
        others = [each for each in outlines if not each.paths <= known]
        more = (
            _find_common((each.paths - known for each in others), page_size)
            or _find_common((frozenset({path}) for each in others for path in each.reformatted - known), page_size)
            or frozenset(path for each in others if each.paths & known for path in each.reformatted - known)
        )
        if not more:
            return drift
        drift = Drift(known | more)


def _find_common(places: Iterable[frozenset[str]], page_size: int) -> frozenset[str] | None:
    counts = Counter(places)
    if not counts:
        return None
    ((paths, count),) = counts.most_common(1)
    return paths if count > page_size * _SHARE and (count >= _LEAST or (count == page_size and count > 1)) else None


def _generalise(path: str) -> str:
    tokens = pointer.parse(path)
    return pointer.join(tuple("*" if pointer.index(token) is not None else token for token in tokens))
